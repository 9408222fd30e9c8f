"""`minesweeper compare`: compares agents on the same boards, and with known results."""

from collections.abc import Sequence
from json import dumps
from typing import Any

from ._eval import measure_agent, result_row
from ._known import BOUND, is_usual, KNOWN
from ._load import Table
from ._measure import mean_and_error


_EVERYBODY = (
    "tiebreak",
    "minprob",
    "rules",
    "random",
    "hindsight-8",
    "hindsight-32",
    "hindsight-128",
    "belief-constant",
)
_HEADER = (
    f"{'agent':>16} {'wins':>17} {'raw':>7} {'return':>14} {'needless':>9} {'moves/s':>8} "
    f"{'known':>13} {'wins more than tiebreak':>24}"
)


def compare(
    run: str | None,
    agents: Sequence[str],
    *,
    boards: int,
    seed: int,
    json: bool,
    **table: int | None,
) -> None:
    """Prints a row for each agent; all play the same boards.

    **Arguments:**

    - `agents`: their names; by default all agents.
    - `table`: the arguments of [`Table.of`][zero_minesweeper._load.Table.of].
    """
    seat = Table.of(run, **table)
    env = seat.env
    names = agents or (_EVERYBODY if run is None else (*_EVERYBODY, "network", "belief"))
    # Unknown names raise an error before the first agent plays.
    players = seat.agents(names)
    known = KNOWN if is_usual(env) else {}
    if not json:
        print(f"{boards} boards of {env.rows} x {env.columns} with {env.num_mines} mines")
        if known:
            print(f"upper bounds of any player: {BOUND[0]} of them won, return {BOUND[1]}")
        print("±: one standard error")
        print(_HEADER)
    first = None
    # The other agents are compared with `tiebreak`, so it is measured first.
    for name in sorted(players, key=lambda name: name != "tiebreak"):
        measured = measure_agent(name, env, players[name], boards=boards, seed=seed)
        row = result_row(name, measured)
        if name == "tiebreak":
            first = measured.wins
        elif first is not None:
            more, error = mean_and_error(measured.wins - first)
            row |= {"wins_more": more, "wins_more_se": error}
        if name in known:
            row |= {"known_win_rate": known[name][0], "known_return": known[name][1]}
        print(dumps(row) if json else _line(row), flush=True)


def _line(row: dict[str, Any]) -> str:
    """A row of the table with the header `_HEADER`."""
    spread = lambda name, digits: f"{row[name]:.{digits}f}"
    wins = f"{spread('win_rate', 4)} ± {spread('win_se', 4)}"
    returned = f"{spread('return_mean', 2)} ± {spread('return_se', 2)}"
    known = more = ""
    if "known_win_rate" in row:
        known = f"{row['known_win_rate']:g}, {row['known_return']:g}"
    if "wins_more" in row:
        more = f"{row['wins_more']:+.4f} ± {row['wins_more_se']:.4f}"
    return (
        f"{row['agent']:>16} {wins:>17} {spread('win_rate_raw', 4):>7} {returned:>14} "
        f"{row['needless_risks']:>9} {row['moves_per_second']:>8.0f} {known:>13} {more:>24}"
    ).rstrip()
