"""The command line: `minesweeper train|eval|compare|watch|play`."""

import dataclasses
from typing import Any

import tyro

from zero_train.app import (
    Command,
    main as run_command,
    parse,
    parse_run,
    start_jax,
)

from ._config import MOST_LAYOUTS, SIDES, SIMULATIONS


# The allowed range of each flag, inclusive; a standard error needs two boards.
# `zero_envs.Minesweeper` checks the flags of a board too.
_TABLE: dict[str, tuple[float, float]] = {
    "rows": SIDES,
    "columns": SIDES,
    "layouts": (1, MOST_LAYOUTS),
    "simulations": SIMULATIONS,
}
_MEASURING = {**_TABLE, "boards": (2, 10**8)}
_WATCHING = {**_TABLE, "boards": (1, 10**8), "delay": (0, 3600)}


@dataclasses.dataclass(frozen=True)
class TableArguments:
    """The board and the budget of agents."""

    rows: int | None = None
    """Rows of the board; by default the run's, or 10."""
    columns: int | None = None
    """Columns of the board; by default the run's, or 10."""
    mines: int | None = None
    """Mines on the board; by default the run's, or 10. The first cell may be a mine."""
    max_states: int | None = None
    """Maximum number of states of the exact posterior, a power of two; by default the run's, or
    512."""
    layouts: int | None = None
    """hindsight, belief: layouts per move; by default 128 for hindsight, the run's or 256 for
    belief."""
    simulations: int | None = None
    """belief: simulations per searched move; by default the run's, or 512."""


@dataclasses.dataclass(frozen=True)
class EvalArguments:
    """Measure an agent. It observes the visible board and the number of mines only."""

    run: tyro.conf.Positional[str | None] = None
    """The folder of a run, for the agents that need its network."""
    agent: str | None = None
    """network, belief, belief-constant, hindsight, minprob, tiebreak, rules or random; by default
    belief with a run and tiebreak without one."""
    boards: int = 2000
    """The number of boards, which are the same for every agent."""
    seed: int = 0
    """The seed of the boards and of the agents. The randomness of belief trees depends on the board
    only."""
    table: tyro.conf.OmitArgPrefixes[TableArguments] = TableArguments()
    json: bool = False
    """Print one JSON line."""


@dataclasses.dataclass(frozen=True)
class CompareArguments:
    """Compare agents on the same boards, and with known results."""

    run: tyro.conf.Positional[str | None] = None
    """The folder of a run, for the agents that need its network."""
    agents: tuple[str, ...] = ()
    """As for eval; hindsight-32 has 32 layouts. By default all agents, network and belief only with
    a run."""
    boards: int = 2000
    """The number of boards."""
    seed: int = 0
    """The seed of the boards and of the agents. The randomness of belief trees depends on the board
    only."""
    table: tyro.conf.OmitArgPrefixes[TableArguments] = TableArguments()
    json: bool = False
    """Print one JSON line for each row."""


@dataclasses.dataclass(frozen=True)
class WatchArguments:
    """Watch an agent play, with the probability of a mine in each cell."""

    run: tyro.conf.Positional[str | None] = None
    """The folder of a run, for the agents that need its network."""
    agent: str | None = None
    """As for eval."""
    boards: int = 5
    """The number of boards: the first ones that eval plays with this seed."""
    delay: float = 1.0
    """Seconds for which a guess is shown; safe moves are shown for a fifth of it."""
    seed: int = 0
    """The seed of the boards and of the agents. The randomness of belief trees depends on the board
    only."""
    table: tyro.conf.OmitArgPrefixes[TableArguments] = TableArguments()


@dataclasses.dataclass(frozen=True)
class PlayArguments:
    """Play in the terminal. Hints and a map of the risks are available."""

    run: tyro.conf.Positional[str | None] = None
    """The folder of a run, for the agents that need its network."""
    agent: str | None = None
    """The agent that gives hints; as for eval."""
    seed: int | None = None
    """The seed of the boards, which are those of eval; by default a random one, which is shown."""
    table: tyro.conf.OmitArgPrefixes[TableArguments] = TableArguments()


def main() -> None:
    """Runs one command. Bad input prints one line and exits with code 2."""
    run_command("minesweeper", "Minesweeper, played without observing the mines.", COMMANDS)


def _train(words: list[str]) -> None:
    from ._config import PRESETS

    config, options = parse_run(
        "minesweeper train",
        "Train a player on its own plans. Stop it with Ctrl-C or SIGTERM; --resume goes on.",
        words,
        PRESETS,
        preset="default",
    )
    start_jax(options.devices)
    from ._train import train

    train(config, options)


def _eval(words: list[str]) -> None:
    flags = _flat(parse(EvalArguments, "minesweeper eval", words, _MEASURING))
    start_jax()
    from ._eval import evaluate

    evaluate(**flags)


def _compare(words: list[str]) -> None:
    flags = _flat(parse(CompareArguments, "minesweeper compare", words, _MEASURING))
    start_jax()
    from ._compare import compare

    compare(**flags)


def _watch(words: list[str]) -> None:
    flags = _flat(parse(WatchArguments, "minesweeper watch", words, _WATCHING))
    start_jax()
    from ._watch import watch

    watch(**flags)


def _play(words: list[str]) -> None:
    flags = _flat(parse(PlayArguments, "minesweeper play", words, _TABLE))
    start_jax()
    from ._play import play

    play(**flags)


def _flat(arguments: Any) -> dict[str, Any]:
    """All flags by name."""
    flags = dataclasses.asdict(arguments)
    flags |= flags.pop("table")
    return flags


COMMANDS = {
    "train": Command(_train, "train a player; its run folder is runs/PRESET by default, see --out"),
    "eval": Command(_eval, "measure an agent", operands="[RUN]"),
    "compare": Command(_compare, "measure agents on the same boards", operands="[RUN]"),
    "watch": Command(_watch, "watch an agent play", operands="[RUN]"),
    "play": Command(_play, "play in the terminal, with hints on request", operands="[RUN]"),
}


if __name__ == "__main__":
    main()
