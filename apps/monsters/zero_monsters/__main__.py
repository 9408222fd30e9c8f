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


# The allowed range of each flag, inclusive.
_MEASURING = {"rollouts": ROLLOUTS, "simulations": SIMULATIONS}
_WATCHING = {"episodes": (1, math.inf), "delay": (0, math.inf), "simulations": SIMULATIONS}


@dataclasses.dataclass(frozen=True)
class PlanArguments:
    """Compare planners that know the rules but have no network, in rollouts of 32 steps, with the
    exact optimum. The policy is uniform, and leaves are worth zero or the return of a random
    playout."""

    world: Literal["moving", "stationary"] = "moving"
    """Whether the monsters move."""
    planners: tuple[str, ...] = tuple(PLANNERS)
    """frozen, hindsight-K or chance; append +playout for leaves judged by playouts."""
    simulations: tuple[int, ...] = (50, 200, 800)
    """Simulations per move, in all trees together."""
    rollouts: int = 2000
    """Rollouts of 32 steps for each row."""
    seed: int = 0
    """The seed of all randomness."""
    json: bool = False
    """Print one JSON line for each row."""


@dataclasses.dataclass(frozen=True)
class EvalArguments:
    """Measure the player of a run."""

    run: tyro.conf.Positional[str]
    """The folder of a run."""
    planner: str = "chance"
    """frozen, hindsight (or hindsight-K), chance, or network for the network without a search."""
    simulations: int | None = None
    """Simulations per move, in all trees together; by default those of the run's configuration."""
    rollouts: int = 2000
    """Rollouts of 32 steps."""
    seed: int = 0
    """The seed of all randomness."""
    json: bool = False
    """Print one JSON line instead."""


@dataclasses.dataclass(frozen=True)
class WatchArguments:
    """Watch the player of a run, with the plan's Q-values and the exact ones for every move."""

    run: tyro.conf.Positional[str]
    """The folder of a run."""
    planner: str = "chance"
    """frozen, hindsight (or hindsight-K), chance, or network for the network without a search."""
    simulations: int | None = None
    """Simulations per move, in all trees together; by default those of the run's configuration."""
    episodes: int = 5
    """Episodes, each cut off after 32 steps."""
    delay: float = 1.0
    """Seconds between two moves."""
    seed: int = 0
    """The seed of all randomness."""


def main() -> None:
    """Runs one command. Bad input prints one line and exits with code 2."""
    run_command("monsters", "Planning where the world is random.", COMMANDS)


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


COMMANDS = {
    "plan": Command(_plan, "compare planners at several budgets, without learning"),
    "train": Command(_train, "train a player; its run folder is runs/PRESET by default, see --out"),
    "eval": Command(_eval, "measure a player, with any planner", operands="RUN"),
    "watch": Command(_watch, "watch a player plan and play", operands="RUN"),
}


if __name__ == "__main__":
    main()
