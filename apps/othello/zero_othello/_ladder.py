"""The matches of players during training, and their Elo ratings."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax.random as jr

from zero_app import (
    Evaluate,
    EvaluationResult,
    measure,
    plus_minus,
    RunFiles,
    sentence,
    who,
    with_simulations,
)
from zero_train import AbstractActor, EloLadder, Loop

from ._config import Config, LONGEST_GAME
from ._engines import OPPONENTS


#: The number of uniformly random plies at the start of a game. Each opening is played with both
#: colours.
OPENING_PLIES = 6
#: The fixed players of the ladder. The first one has the rating 0.
BASELINES = ("random", "positional")


def evaluation(config: Config, loop: Loop, files: RunFiles) -> Evaluate:
    """Plays the matches of every player, and keeps the ratings in elo.json.

    Every new player plays against the fixed baselines, the previous one and the best so far. It
    becomes the best if it wins more games against the best than it loses. All of this follows from
    the rows of evaluations.jsonl, so a resumed run needs no other file.
    """
    env: Any = loop.env  # whose actions are discrete
    rows = list(files.evaluations)
    # These keys differ from those of training.
    run_key = jr.fold_in(jr.key(config.seed), 1)

    def limited(player: AbstractActor) -> AbstractActor:
        return with_simulations(player, config.ladder_simulations)

    def rated() -> dict[str, Mapping[str, Any]]:
        """The ratings of all players by name, which elo.json holds then."""
        players = ratings(rows)
        files.folder.write_json("elo.json", {"players": players})
        return {player["name"]: player for player in players}

    def evaluate(step: int, player: AbstractActor) -> EvaluationResult:
        actor = limited(player)
        opponents = {name: OPPONENTS[name](env) for name in BASELINES}
        opponents |= {player_name(past): limited(files.player(past)) for past in rivals(rows)}
        new = []
        for index, (name, opponent) in enumerate(opponents.items()):
            match = measure(
                env,
                actor,
                opponent,
                players=2,
                games=config.ladder_games,
                max_moves=LONGEST_GAME,
                key=jr.fold_in(jr.fold_in(run_key, step), index),
                opening_plies=OPENING_PLIES,
                mesh=loop.mesh,
            )
            names = {"step": step, "player": player_name(step), "opponent": name}
            new.append({**names, **match, "simulations": config.ladder_simulations})
        rows.extend(new)
        rating = rated()[player_name(step)]
        elo, se = rating["elo"], rating["se"]
        headline = f"{who(actor)}: {sentence(new[-1], new[-1]['opponent'])}"
        figures = {"Elo (95 %)": plus_minus(elo, se)}
        return EvaluationResult(new, {"elo": elo, "elo_se": se}, figures, headline)

    if rows:
        rated()
    return evaluate


def player_name(step: int) -> str:
    """The name of the player of a step in the ladder."""
    return f"step {step}"


def rivals(rows: Sequence[Mapping[str, Any]]) -> list[int]:
    """The steps of the previous player and of the best so far, which may be the same."""
    if not rows:
        return []
    best: int = rows[0]["step"]
    for row in rows:
        if row["opponent"] == player_name(best) and row["wins"] > row["losses"]:
            best = row["step"]
    return list(dict.fromkeys((rows[-1]["step"], best)))


def ladder(rows: Iterable[Mapping[str, Any]]) -> EloLadder:
    """The results of all matches so far."""
    elo = EloLadder(BASELINES[0])
    for row in rows:
        points = row["wins"] + row["draws"] / 2
        elo = elo.add_result(row["player"], row["opponent"], points, row["games"])
    return elo


def ratings(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The Elo ratings of all players in ascending order. The first baseline is rated 0 without an
    error."""
    steps = {row["player"]: row["step"] for row in rows}
    rated = [
        {"name": name, "step": steps.get(name), "elo": elo, "se": se}
        for name, (elo, se) in ladder(rows).ratings().items()
    ]
    return sorted(rated, key=lambda row: row["elo"])
