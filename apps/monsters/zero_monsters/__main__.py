"""The command line: `monsters plan|train|eval|watch`."""

import dataclasses
import math
from typing import Literal

import tyro

from zero_train.app import (
    Command,
    main as run_command,
    parse,
    parse_run,
    start_jax,
)

from ._config import ROLLOUTS, SIMULATIONS
from ._planners import PLANNERS


# What flags may be, ends included.
_MEASURING = {"rollouts": ROLLOUTS, "simulations": SIMULATIONS}
_WATCHING = {"episodes": (1, math.inf), "delay": (0, math.inf), "simulations": SIMULATIONS}


@dataclasses.dataclass(frozen=True)
class PlanArguments:
    """Planners that know the rules and nothing else: a uniform policy, leaves worth zero or judged
    by a random playout. Rollouts of 32 steps, beside the exact optimum."""

    world: Literal["moving", "stationary"] = "moving"
    """Whether the monsters hunt or wait."""
    planners: tuple[str, ...] = tuple(PLANNERS)
    """frozen, hindsight-K, chance, each perhaps with +playout."""
    simulations: tuple[int, ...] = (50, 200, 800)
    """Per move, of all trees together."""
    rollouts: int = 2000
    """Of 32 steps each, for each row."""
    seed: int = 0
    """Everything random follows from it."""
    json: bool = False
    """Print one JSON line a row."""


@dataclasses.dataclass(frozen=True)
class EvalArguments:
    """Measure the player of a run."""

    run: tyro.conf.Positional[str]
    """The folder of a run."""
    planner: str = "chance"
    """frozen, hindsight (or hindsight-K), chance, or network for the bare network."""
    simulations: int | None = None
    """Per move, of all trees together. By default what the run was configured for."""
    rollouts: int = 2000
    """Of 32 steps each."""
    seed: int = 0
    """Everything random follows from it."""
    json: bool = False
    """Print one JSON line instead."""


@dataclasses.dataclass(frozen=True)
class WatchArguments:
    """Look on while the player of a run plays, beside what its plan thinks of every move and what
    each is exactly worth."""

    run: tyro.conf.Positional[str]
    """The folder of a run."""
    planner: str = "chance"
    """frozen, hindsight (or hindsight-K), chance, or network for the bare network."""
    simulations: int | None = None
    """Per move, of all trees together. By default what the run was configured for."""
    episodes: int = 5
    """Each is cut off after 32 steps."""
    delay: float = 1.0
    """Seconds between two moves."""
    seed: int = 0
    """Everything random follows from it."""


def main() -> None:
    """Runs one command; bad input ends it with one line and exit code 2."""
    run_command(
        "monsters",
        "Planning where the world is random.",
        {
            "plan": Command(_plan, "compare planners at several budgets, without learning"),
            "train": Command(
                _train, "train a player; its run folder is runs/PRESET unless --out says otherwise"
            ),
            "eval": Command(_eval, "measure a player, with any planner", operands="RUN"),
            "watch": Command(_watch, "look on while a player plans and plays", operands="RUN"),
        },
    )


def _plan(words: list[str]) -> None:
    arguments = parse(PlanArguments, "monsters plan", words, _MEASURING)
    start_jax()
    from ._plan import compare

    compare(
        arguments.world,
        planners=arguments.planners,
        simulations=arguments.simulations,
        rollouts=arguments.rollouts,
        seed=arguments.seed,
        as_json=arguments.json,
    )


def _train(words: list[str]) -> None:
    from ._config import PRESETS

    config, options = parse_run(
        "monsters train",
        "Train a player on its own plans. Stop it with Ctrl-C or SIGTERM; --resume goes on.",
        words,
        PRESETS,
        preset="default",
    )
    start_jax(options.devices)
    from ._train import train

    train(config, options)


def _eval(words: list[str]) -> None:
    arguments = parse(EvalArguments, "monsters eval", words, _MEASURING)
    start_jax()
    from ._eval import evaluate

    evaluate(
        arguments.run,
        planner=arguments.planner,
        simulations=arguments.simulations,
        rollouts=arguments.rollouts,
        seed=arguments.seed,
        as_json=arguments.json,
    )


def _watch(words: list[str]) -> None:
    arguments = parse(WatchArguments, "monsters watch", words, _WATCHING)
    start_jax()
    from ._watch import watch

    watch(
        arguments.run,
        planner=arguments.planner,
        simulations=arguments.simulations,
        episodes=arguments.episodes,
        delay=arguments.delay,
        seed=arguments.seed,
    )


if __name__ == "__main__":
    main()
