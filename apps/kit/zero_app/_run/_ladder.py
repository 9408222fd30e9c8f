"""A ladder of the players of a run of a game of two, with Elo ratings."""

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
from ._fixed import FixedLadder
from ._ladder_page import OWN
from ._measures import plus_minus


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
    fixed: FixedLadder | None = None,
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
    - `fixed`: a ladder whose first opponent is the first baseline; of all baselines that are in it
        the ratings there are held as they are.
    """
    rows = list(files.evaluations)
    known = {} if fixed is None else fixed.known
    # These keys differ from those of training.
    run_key = jr.fold_in(jr.key(config.seed), 1)

    def rated() -> dict[str, Mapping[str, Any]]:
        """The ratings of all players by name, which elo.json holds then."""
        players = _rated(rows, next(iter(baselines)), known)
        files.folder.write_json("elo.json", {"players": players})
        return {player["name"]: player for player in players}

    def evaluate(step: int, player: AbstractActor) -> EvaluationResult:
        actor, name = with_simulations(player, simulations), f"{OWN}{step}"
        opponents = dict(baselines)
        for past in _rivals(rows):
            opponents[f"{OWN}{past}"] = with_simulations(files.player(past), simulations)
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
        if row["opponent"] == f"{OWN}{best}" and row["wins"] > row["losses"]:
            best = row["step"]
    return list(dict.fromkeys((rows[-1]["step"], best)))


def _rated(
    rows: Sequence[Mapping[str, Any]], anchor: str, known: Mapping[str, float]
) -> list[dict[str, Any]]:
    """The Elo ratings of all players in ascending order. The anchor is rated 0 without an error, as
    are those that are known."""
    ladder = EloLadder(anchor, known=known)
    for row in rows:
        points = row["wins"] + row["draws"] / 2
        ladder = ladder.add_result(row["player"], row["opponent"], points, row["games"])
    steps = {row["player"]: row["step"] for row in rows}
    rated = [
        {"name": name, "step": steps.get(name), "elo": elo, "se": se}
        for name, (elo, se) in ladder.ratings().items()
    ]
    return sorted(rated, key=lambda row: row["elo"])
