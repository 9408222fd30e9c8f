"""`othello eval`: plays a match and prints the score with its confidence interval."""

import json
import pathlib

import jax.random as jr

from zero_train import AbstractActor
from zero_train.app import as_usage_error, UsageError

from ._engines import opponent, OPPONENTS
from ._ladder import OPENING_PLIES, play_match, result_row
from ._load import load, Trained


def evaluate(
    run: str,
    *,
    against: str,
    games: int,
    simulations: int | None,
    seed: int,
    as_json: bool,
) -> None:
    """Plays a match of the newest player of a run and prints the result.

    **Arguments:**

    - `against`: a name in `OPPONENTS`, or the folder of another run, whose player has the same
        number of simulations.
    - `games`: an even number, because every opening is played with both colours.
    - `simulations`: the number of simulations per move, 0 for the network without a search; by
        default that of the configuration.
    """
    if games % 2:
        raise UsageError(f"--games {games} was given; give an even number.")
    trained = load(run)
    if simulations is None:
        simulations = trained.config.player_simulations
    other = _opponent(against, trained, simulations)
    summary = play_match(
        trained.env, trained.actor(simulations), other, games=games, key=jr.key(seed)
    )
    row = result_row(against, summary, simulations)
    if as_json:
        print(json.dumps(row))
        return
    search = f"{simulations} simulations a move" if simulations else "the network alone"
    print(f"{run} (step {trained.step}, {search}) against {against}:")
    print(
        f"{summary.wins} won, {summary.draws} drawn, {summary.losses} lost of {games} games, "
        f"each opening of {OPENING_PLIES} random plies with both colours"
    )
    print(
        f"score {100 * summary.score:.1f} % "
        f"(95 % interval {100 * summary.score_low:.1f} to {100 * summary.score_high:.1f} %)"
    )


def _opponent(against: str, trained: Trained, simulations: int) -> AbstractActor:
    if against in OPPONENTS:
        return opponent(against, trained.env)
    if pathlib.Path(against).is_dir():
        return load(against, trained.env).actor(simulations)
    with as_usage_error():
        # It is not a folder either; the error lists the names.
        return opponent(against, trained.env)
