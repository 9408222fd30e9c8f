"""A ladder of the players of a run of a game of two, with Elo ratings, and its report."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax.random as jr

from zero_train import AbstractActor, EloLadder, Loop, OPENING_PLIES

from .._command._config import AbstractConfig
from ._evaluation import (
    Evaluate,
    EvaluationResult,
    measure,
    MOST_MOVES,
    RunFiles,
    sentence,
    who,
    with_simulations,
)
from ._measures import half_width, plus_minus, ratings, SCORE
from ._page import charts, table, tables
from ._report import chart, curve, imitation, last_evaluation, StoredRun


#: How the names of a run's own players begin; the number of the step follows.
_OWN = "step "


def elo_ladder(
    config: AbstractConfig,
    loop: Loop,
    files: RunFiles,
    *,
    baselines: Mapping[str, AbstractActor],
    games: int,
    simulations: int,
    max_moves: int = MOST_MOVES,
    opening_plies: int = OPENING_PLIES,
) -> Evaluate:
    """The `evaluation` of an app for a game of two: matches of every player, and their ratings.

    Every new player plays against the fixed baselines, the previous one and the best so far. It
    becomes the best if it wins more games against the best than it loses. All of this follows from
    the rows of evaluations.jsonl, so a resumed run needs no other file; elo.json holds the ratings.

    **Arguments:**

    - `baselines`: fixed players by name. The first one has the rating 0.
    - `games`: of each match; an even number, as each opening is played from both seats.
    - `simulations`: of the run's players, per move; 0 for the network without a search.
    - `max_moves`, `opening_plies`: as for [`zero_app.measure`][].
    """
    rows = list(files.evaluations)
    # These keys differ from those of training.
    run_key = jr.fold_in(jr.key(config.seed), 1)

    def rated() -> dict[str, Mapping[str, Any]]:
        """The ratings of all players by name, which elo.json holds then."""
        players = _rated(rows, next(iter(baselines)))
        files.folder.write_json("elo.json", {"players": players})
        return {player["name"]: player for player in players}

    def evaluate(step: int, player: AbstractActor) -> EvaluationResult:
        actor, name = with_simulations(player, simulations), f"{_OWN}{step}"
        opponents = dict(baselines)
        for past in _rivals(rows):
            opponents[f"{_OWN}{past}"] = with_simulations(files.player(past), simulations)
        new, episodes = [], []
        for index, (opponent, other) in enumerate(opponents.items()):
            match, games_of_it = measure(
                loop.env,
                actor,
                other,
                players=2,
                games=games,
                max_moves=max_moves,
                key=jr.fold_in(jr.fold_in(run_key, step), index),
                opening_plies=opening_plies,
                mesh=loop.mesh,
            )
            names = {"step": step, "player": name, "opponent": opponent}
            new.append({**names, **match, "simulations": simulations})
            episodes.append(games_of_it)
        rows.extend(new)
        rating = rated()[name]
        elo, se = rating["elo"], rating["se"]
        headline = f"{who(actor)}: {sentence(new[-1], new[-1]['opponent'])}"
        figures = {"Elo (95 %)": plus_minus(elo, se)}
        return EvaluationResult(new, {"elo": elo, "elo_se": se}, figures, headline, episodes)

    if rows:
        rated()
    return evaluate


def _rivals(rows: Sequence[Mapping[str, Any]]) -> list[int]:
    """The steps of the previous player and of the best so far, which may be the same."""
    if not rows:
        return []
    best: int = rows[0]["step"]
    for row in rows:
        if row["opponent"] == f"{_OWN}{best}" and row["wins"] > row["losses"]:
            best = row["step"]
    return list(dict.fromkeys((rows[-1]["step"], best)))


def _rated(rows: Sequence[Mapping[str, Any]], anchor: str) -> list[dict[str, Any]]:
    """The Elo ratings of all players in ascending order. The anchor is rated 0 without an error."""
    ladder = EloLadder(anchor)
    for row in rows:
        points = row["wins"] + row["draws"] / 2
        ladder = ladder.add_result(row["player"], row["opponent"], points, row["games"])
    steps = {row["player"]: row["step"] for row in rows}
    rated = [
        {"name": name, "step": steps.get(name), "elo": elo, "se": se}
        for name, (elo, se) in ladder.ratings().items()
    ]
    return sorted(rated, key=lambda row: row["elo"])


def ladder_page(run: StoredRun) -> tuple[dict[str, str], list[str]]:
    """The figures and sections of the report of an app whose evaluation is an
    [`zero_app.elo_ladder`][], and whose agent is AlphaZero."""
    players = ratings(run.folder)
    past = sorted((p for p in players if "step" in p), key=lambda p: p["step"])
    levels = [(p["name"], p["elo"]) for p in players if "step" not in p] if past else []
    shown = {"Elo (95 %)": plus_minus(past[-1]["elo"], past[-1]["se"])} if past else {}
    fixed = [row for row in run.evaluations if not row["opponent"].startswith(_OWN)]
    if against := [row for row in fixed if row["opponent"] == "random"]:
        shown["against random"] = f"{100 * against[-1]['score']:.1f} %"
    # Runs of older versions may have several numbers of simulations.
    several = len({row["simulations"] for row in fixed}) > 1
    scores: dict[str, list[Mapping[str, Any]]] = {}
    for row in fixed:
        detail = f", {row['simulations']} simulations" if several else ""
        scores.setdefault(row["opponent"] + detail, []).append(row)
    learning = imitation(
        run,
        value_loss="Half the squared error of the predicted outcome.",
        value_error="Mean distance between the predicted value and its target, from -1 to 1.",
    )
    strength = charts(
        "Strength",
        chart(
            run,
            "Elo",
            "Past players on one ladder; bars are 95 % intervals.",
            curve(past, "elo", error="se"),
            levels=levels,
        ),
        chart(
            run,
            "Score against fixed opponents",
            "A draw is half a win; bars are 95 % confidence intervals.",
            *(curve(rows, SCORE.name, name, error=SCORE.bars) for name, rows in scores.items()),
            percent=True,
        ),
    )
    names = ("opponent", "simulations", "games", "wins", "draws", "losses")
    last = last_evaluation(
        run,
        [*names, "score", "95 % interval"],
        lambda row: [
            *(row[name] for name in names),
            f"{100 * row['score']:.1f} %",
            f"{100 * row['score_low']:.1f} to {100 * row['score_high']:.1f} %",
        ],
    )
    rows = [
        [p["name"], f"{p['elo']:.0f}", f"± {half_width(p['se']):.0f}" if p["se"] else "anchor"]
        for p in sorted(players, key=lambda p: -p["elo"])
    ]
    ladder = table("Elo ladder", ["player", "Elo", "95 % interval"], rows) if rows else ""
    return shown, [learning, strength, tables(last, ladder)]
