"""The command line: `othello train|eval|play|gtp`."""

import dataclasses
import sys
from typing import Any, Literal

import tyro

from zero_train.app import (
    Command,
    expects_accelerator,
    main as run_command,
    parse,
    parse_run,
    start_jax,
)

from ._config import PRESETS, SIMULATIONS


# The allowed range of each flag, inclusive.
_PLAYING = {"games": (2, 10**8), "simulations": SIMULATIONS}


@dataclasses.dataclass(frozen=True)
class EvalArguments:
    """Play a match against a fixed opponent or another run."""

    run: tyro.conf.Positional[str]
    """The folder of a run."""
    opponent: str = "random"
    """random, greedy, positional, uct, or the folder of another run."""
    games: int = 100
    """An even number, because each opening of 6 random plies is played with both colours."""
    simulations: int | None = None
    """Simulations per move, 0 for the network without a search; by default those of the run's
    configuration."""
    seed: int = 0
    """The seed of openings and ties."""
    json: bool = False
    """Print one JSON line."""


@dataclasses.dataclass(frozen=True)
class PlayArguments:
    """Play against a trained player in the terminal."""

    run: tyro.conf.Positional[str]
    """The folder of a run."""
    simulations: int | None = None
    """Simulations per move, 0 for the network without a search; by default those of the run's
    configuration."""
    colour: Literal["black", "white"] = "black"
    """Your colour; black moves first."""
    seed: int = 0
    """The seed of the player's search."""


@dataclasses.dataclass(frozen=True)
class GtpArguments:
    """Serve a trained player over the Go Text Protocol, version 2, on stdin and stdout."""

    run: tyro.conf.Positional[str]
    """The folder of a run."""
    simulations: int | None = None
    """Simulations per move, 0 for the network without a search; by default those of the run's
    configuration."""


def main() -> None:
    """Runs one command. Bad input prints one line and exits with code 2."""
    run_command("othello", "Train an AlphaZero player of Othello and play against it.", COMMANDS)


def _train(words: list[str]) -> None:
    config, options = parse_run(
        "othello train",
        "Train a player from self-play alone. Stop it with Ctrl-C or SIGTERM; --resume goes on.",
        words,
        PRESETS,
        preset="standard" if expects_accelerator() else "quick",
    )
    start_jax(options.devices)
    from ._train import train

    train(config, options)


def _eval(words: list[str]) -> None:
    arguments = parse(EvalArguments, "othello eval", words, _PLAYING)
    start_jax()
    from ._eval import evaluate

    evaluate(
        arguments.run,
        against=arguments.opponent,
        games=arguments.games,
        simulations=arguments.simulations,
        seed=arguments.seed,
        as_json=arguments.json,
    )


def _play(words: list[str]) -> None:
    arguments = parse(PlayArguments, "othello play", words, _PLAYING)
    start_jax()
    from rich.console import Console

    from ._play import Session

    player = _player(arguments.run, arguments.simulations, arguments.seed)
    Session(player, Console(), colour=arguments.colour).run()


def _gtp(words: list[str]) -> None:
    arguments = parse(GtpArguments, "othello gtp", words, _PLAYING)
    start_jax()
    from ._gtp import GtpEngine, serve

    player = _player(arguments.run, arguments.simulations, 0)
    # Controllers wait longer for the first answer than for a move.
    player.warm_up()
    engine = GtpEngine(player)
    serve(engine, sys.stdin, sys.stdout)


def _player(run: str, simulations: int | None, seed: int) -> Any:
    import jax.random as jr

    from zero_train import EnvironmentModel

    from ._build import player_planner
    from ._load import load
    from ._player import NetworkAlone, Player

    trained = load(run)
    number = trained.config.player_simulations if simulations is None else simulations
    model = EnvironmentModel(trained.env, trained.agent.evaluator(trained.params))
    planner = player_planner(trained.config, number) if number else NetworkAlone()
    return Player(trained.env, planner, model, key=jr.key(seed))


COMMANDS = {
    "train": Command(_train, "train a player; its run folder is runs/PRESET by default, see --out"),
    "eval": Command(
        _eval,
        "play a match against random, greedy, positional, uct or another run",
        operands="RUN",
    ),
    "play": Command(_play, "play against a player in the terminal", operands="RUN"),
    "gtp": Command(
        _gtp, "serve a player to a board program over the Go Text Protocol", operands="RUN"
    ),
}


if __name__ == "__main__":
    main()
