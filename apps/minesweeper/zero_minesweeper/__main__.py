"""The command line: `minesweeper eval`."""

import dataclasses
import math

from zero_train.app import check_bounds, Command, main as run_command, parse, start_jax


# What flags may be, ends included; a standard error needs two boards.
_MEASURING = {
    "boards": (2, math.inf),
    "seed": (0, 2**32 - 1),
    "rows": (2, math.inf),
    "columns": (2, math.inf),
    "mines": (0, math.inf),
    "layouts": (1, math.inf),
}


@dataclasses.dataclass(frozen=True)
class EvalArguments:
    """Measure an agent on boards that it sees as a player does."""

    agent: str = "tiebreak"
    """tiebreak, minprob, rules, random or hindsight."""
    boards: int = 2000
    """How many. Board for board the same for every agent."""
    seed: int = 0
    """Everything random follows from it."""
    rows: int = 10
    """Of the board."""
    columns: int = 10
    """Of the board."""
    mines: int = 10
    """On the board; the first cell may be one."""
    layouts: int = 128
    """hindsight: drawn for a move."""
    json: bool = False
    """Print one JSON line instead."""


def main() -> None:
    """Runs one command; bad input ends it with one line and exit code 2."""
    run_command(
        "minesweeper",
        "Minesweeper, played without ever seeing the mines.",
        {"eval": Command(_eval, "measure an agent")},
    )


def _eval(words: list[str]) -> None:
    arguments = parse(EvalArguments, "minesweeper eval", words)
    check_bounds(arguments, _MEASURING)
    start_jax()
    from zero_envs import Minesweeper
    from zero_train.app import as_usage_error

    from ._eval import evaluate

    with as_usage_error():
        env = Minesweeper(arguments.rows, arguments.columns, arguments.mines)
    evaluate(
        env,
        arguments.agent,
        layouts=arguments.layouts,
        boards=arguments.boards,
        seed=arguments.seed,
        as_json=arguments.json,
    )


if __name__ == "__main__":
    main()
