"""The command line: `spo train|eval|watch`."""

import dataclasses
import math
from typing import Literal

import tyro

from zero_train.app import (
    Command,
    main as run_command,
    parse,
    parse_run,
    peek,
    start_jax,
)

from ._config import Config, presets


# The allowed range of each flag, inclusive; a standard error needs two episodes.
_MEASURING = {"episodes": (2, math.inf)}
_WATCHING = {"episodes": (1, math.inf), "delay": (0, math.inf)}


@dataclasses.dataclass(frozen=True)
class EvalArguments:
    """Measure the player of a run."""

    run: tyro.conf.Positional[str]
    """The folder of a run."""
    episodes: int = 128
    """The number of whole episodes, which are played in parallel."""
    seed: int = 0
    """The seed of all randomness."""
    json: bool = False
    """Print one JSON line."""


@dataclasses.dataclass(frozen=True)
class WatchArguments:
    """Watch the player of a run."""

    run: tyro.conf.Positional[str]
    """The folder of a run."""
    episodes: int = 1
    """The number of episodes."""
    delay: float = 0.05
    """Seconds between two steps in the terminal."""
    seed: int = 0
    """The seed of all randomness."""


@dataclasses.dataclass(frozen=True)
class _Chosen:
    """The flags on which presets depend."""

    env: str = Config.env
    agent: Literal["spo", "mpo"] = Config.agent


def main() -> None:
    """Runs one command. Bad input prints one line and exits with code 2."""
    run_command(
        "spo", "Sequential Monte Carlo policy optimisation, continuous and discrete.", COMMANDS
    )


def _train(words: list[str]) -> None:
    chosen = peek(_Chosen, "spo train", words)
    config, options = parse_run(
        "spo train",
        "Train a player on its own plans. Stop it with Ctrl-C or SIGTERM; --resume goes on.",
        words,
        presets(chosen.env, chosen.agent),
        preset="tuned",
    )
    start_jax(options.devices)
    from ._train import train

    train(config, options)


def _eval(words: list[str]) -> None:
    arguments = parse(EvalArguments, "spo eval", words, _MEASURING)
    start_jax()
    from ._eval import evaluate

    evaluate(
        arguments.run,
        episodes=arguments.episodes,
        seed=arguments.seed,
        as_json=arguments.json,
    )


def _watch(words: list[str]) -> None:
    arguments = parse(WatchArguments, "spo watch", words, _WATCHING)
    start_jax()
    from ._watch import watch

    watch(
        arguments.run,
        episodes=arguments.episodes,
        delay=arguments.delay,
        seed=arguments.seed,
    )


COMMANDS = {
    "train": Command(_train, "train a player; its run folder is runs/PRESET by default, see --out"),
    "eval": Command(_eval, "measure a player", operands="RUN"),
    "watch": Command(_watch, "watch a player plan and play", operands="RUN"),
}


if __name__ == "__main__":
    main()
