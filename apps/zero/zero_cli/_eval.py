"""`zero eval` and `zero compare`: play games and print the score or the return."""

import json
import pathlib

import jax.random as jr

from zero_train import AbstractActor, RandomActor
from zero_train.app import UsageError

from ._load import load, Trained
from ._measure import measure, sentence


def evaluate(
    run: str, *, opponent: str, games: int, simulations: int | None, seed: int, as_json: bool
) -> None:
    """Measures the newest player of a run and prints the result.

    **Arguments:**

    - `opponent`: `random`, or the folder of another run of the same game.
    - `games`: an even number; in games of one player, the episodes.
    - `simulations`: simulations a move, 0 for the network without a search.
    """
    if games % 2:
        raise UsageError(f"--games {games} was given; give an even number.")
    trained = load(run)
    world, number = trained.world, trained.simulations(simulations)
    if world.players == 1 and opponent != "random":
        raise UsageError(f"--opponent {opponent} was given, and {world.name} has one player.")
    row = measure(
        world,
        trained.actor(number),
        _opponent(opponent, trained, number),
        games=games,
        max_moves=trained.config.max_moves,
        key=jr.key(seed),
    )
    known = {"env": world.name, "step": trained.step, "simulations": number}
    if world.players == 2:
        known |= {"opponent": opponent}
    if as_json:
        print(json.dumps(known | row))
        return
    search = f"{number} simulations a move" if number else "the network alone"
    print(f"{run} ({world.name}, step {trained.step}, {search}): {sentence(row, opponent)}")


def _opponent(name: str, trained: Trained, simulations: int) -> AbstractActor:
    if name == "random":
        return RandomActor()
    if not pathlib.Path(name).is_dir():
        raise UsageError(
            f"--opponent {name} is unknown; give random, or the folder of another run."
        )
    other = load(name)
    if other.world.name != trained.world.name:
        raise UsageError(
            f"--opponent {name} plays {other.world.name}, and not {trained.world.name}."
        )
    return other.actor(simulations)
