"""`minesweeper compare`: compares agents on the same boards, and with known results."""

import dataclasses
from json import dumps
from typing import Any, ClassVar

import tyro

from zero_app import AbstractPlayerCommand, App, Bounds, plus_minus, RETURN, WON

from ._config import Config
from ._eval import BOARDS, measure_agent
from ._known import BOUND, is_usual, KNOWN
from ._measure import mean_and_error
from ._table import TABLE_BOUNDS, TableArguments


_EVERYBODY = (
    "tiebreak",
    "minprob",
    "rules",
    "random",
    "hindsight-8",
    "hindsight-32",
    "hindsight-128",
    "belief-constant",
    "network",
    "belief",
)
_HEADER = (
    f"{'agent':>16} {'wins':>17} {'counted':>7} {'return':>14} {'needless':>9} {'moves/s':>8} "
    f"{'known':>13} {'wins more than tiebreak':>24}"
)


@dataclasses.dataclass(frozen=True)
class Compare(AbstractPlayerCommand):
    """Compare agents on the same boards, and with known results."""

    agents: tuple[str, ...] = ()
    """As for eval; hindsight-32 has 32 layouts. By default all agents."""
    boards: int = 2000
    """The number of boards."""
    seed: int = 0
    """The seed of the boards and of the agents. The randomness of belief trees depends on the board
    only."""
    table: tyro.conf.OmitArgPrefixes[TableArguments] = TableArguments()
    json: bool = False
    """Print one JSON line for each row."""

    bounds: ClassVar[Bounds] = {**TABLE_BOUNDS, "boards": BOARDS}

    def __call__(self, app: App[Config]) -> None:
        agents = self.agents or _EVERYBODY
        seat = self.table.at(app, self, agents)
        env = seat.env
        # Unknown names raise an error before the first agent plays.
        players = seat.agents(agents)
        known = KNOWN if is_usual(env) else {}
        if not self.json:
            print(f"{self.boards} boards of {env.rows} x {env.columns} with {env.num_mines} mines")
            if known:
                print(f"upper bounds of any player: {BOUND[0]} of them won, return {BOUND[1]}")
            print("±: a 95 % interval")
            print(_HEADER)
        first = None
        # The other agents are compared with `tiebreak`, so it is measured first.
        for name in sorted(players, key=lambda name: name != "tiebreak"):
            games, row = measure_agent(name, env, players[name], boards=self.boards, seed=self.seed)
            if name == "tiebreak":
                first = games.wins
            elif first is not None:
                more, error = mean_and_error(games.wins - first)
                row |= {"wins_more": more, "wins_more_se": error}
            if name in known:
                row |= {"known_win_rate": known[name][0], "known_return": known[name][1]}
            print(dumps(row) if self.json else _line(row), flush=True)


def _line(row: dict[str, Any]) -> str:
    """A row of the table with the header `_HEADER`."""
    wins, returned = WON.shown(row), RETURN.shown(row)
    known = more = ""
    if "known_win_rate" in row:
        known = f"{row['known_win_rate']:g}, {row['known_return']:g}"
    if "wins_more" in row:
        more = plus_minus(row["wins_more"], row["wins_more_se"], row["boards"])
    return (
        f"{row['agent']:>16} {wins:>17} {row['win_rate_raw']:>7.4f} {returned:>14} "
        f"{row['needless_risks']:>9} {row['moves_per_second']:>8.0f} {known:>13} {more:>24}"
    ).rstrip()
