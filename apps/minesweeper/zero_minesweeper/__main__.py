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


# What flags may be, ends included; a standard error needs two boards. Those of a board are looked
# at by `zero_envs.Minesweeper` too.
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
    """What agents sit down to; what is left out is the run's, or else the usual."""

    rows: int | None = None
    """Of the board; by default the run's, or 10."""
    columns: int | None = None
    """Of the board; by default the run's, or 10."""
    mines: int | None = None
    """On the board; by default the run's, or 10. The first cell may be one."""
    max_states: int | None = None
    """Room for the exact posterior, a power of two; by default the run's, or 512."""
    layouts: int | None = None
    """hindsight, belief: layouts for a move; by default 128 for hindsight, the run's or 256 for
    belief."""
    simulations: int | None = None
    """belief: per move that must be searched; by default what the run was configured for, or
    512."""


@dataclasses.dataclass(frozen=True)
class EvalArguments:
    """Measure an agent on boards that it sees as a player does."""

    run: tyro.conf.Positional[str | None] = None
    """The folder of a run, for the agents that need its network."""
    agent: str | None = None
    """network, belief, belief-constant, hindsight, minprob, tiebreak, rules or random; by default
    belief of a run, tiebreak without one."""
    boards: int = 2000
    """How many. Board for board the same for every agent."""
    seed: int = 0
    """Of the boards, and of what agents draw; belief trees draw by the board alone."""
    table: tyro.conf.OmitArgPrefixes[TableArguments] = TableArguments()
    json: bool = False
    """Print one JSON line instead."""


@dataclasses.dataclass(frozen=True)
class CompareArguments:
    """Agents beside each other on the same boards, and beside what is known of them."""

    run: tyro.conf.Positional[str | None] = None
    """The folder of a run, for the agents that need its network."""
    agents: tuple[str, ...] = ()
    """As for eval; hindsight-32 has 32 layouts. By default everybody, network and belief if there
    is a run."""
    boards: int = 2000
    """How many, the same for every agent."""
    seed: int = 0
    """Of the boards, and of what agents draw; belief trees draw by the board alone."""
    table: tyro.conf.OmitArgPrefixes[TableArguments] = TableArguments()
    json: bool = False
    """Print one JSON line a row."""


@dataclasses.dataclass(frozen=True)
class WatchArguments:
    """Look on while an agent plays, beside how likely every cell is a mine."""

    run: tyro.conf.Positional[str | None] = None
    """The folder of a run, for the agents that need its network."""
    agent: str | None = None
    """As for eval."""
    boards: int = 5
    """The first ones that eval plays with this seed."""
    delay: float = 1.0
    """Seconds that a guess is looked at; safe moves go by in a fifth."""
    seed: int = 0
    """Of the boards, and of what agents draw; belief trees draw by the board alone."""
    table: tyro.conf.OmitArgPrefixes[TableArguments] = TableArguments()


@dataclasses.dataclass(frozen=True)
class PlayArguments:
    """Play in the terminal, with advice and a map of the risks if you ask for them."""

    run: tyro.conf.Positional[str | None] = None
    """The folder of a run, for the agents that need its network."""
    agent: str | None = None
    """Who gives hints; as for eval."""
    seed: int | None = None
    """Of the boards, those that eval plays with it; by default any, which is said."""
    table: tyro.conf.OmitArgPrefixes[TableArguments] = TableArguments()


def main() -> None:
    """Runs one command; bad input ends it with one line and exit code 2."""
    run_command(
        "minesweeper",
        "Minesweeper, played without ever seeing the mines.",
        {
            "train": Command(
                _train, "train a player; its run folder is runs/PRESET unless --out says otherwise"
            ),
            "eval": Command(_eval, "measure an agent", operands="[RUN]"),
            "compare": Command(_compare, "measure agents on the same boards", operands="[RUN]"),
            "watch": Command(_watch, "look on while an agent plays", operands="[RUN]"),
            "play": Command(
                _play, "play in the terminal, with hints if asked for", operands="[RUN]"
            ),
        },
    )


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


if __name__ == "__main__":
    main()
