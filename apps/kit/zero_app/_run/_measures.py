"""What evaluations measure, by the names of the entries in their rows, and the ratings of a run."""

import dataclasses
import math
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

from ._lines import Row, RunError
from ._provenance import read_of_run


def half_width(error: float, count: float = math.inf) -> float:
    """Half of the 95 % interval of a mean with this standard error, by Student's t for the mean of
    `count` numbers; by default the error is known."""
    from scipy.special import stdtrit  # a tenth of what a command imports

    return float(stdtrit(count - 1, 0.975)) * error


def plus_minus(mean: float, error: float, count: float = math.inf) -> str:
    """A mean with half of its 95 % interval, such as `3134 ± 934`, to two digits of that, or alone
    where the error is not known. The arguments are those of [`zero_app.half_width`][]."""
    half = half_width(error, count)
    if math.isnan(half):
        return f"{mean:.4g}"
    if not half > 0:
        return f"{mean:.4g} ± {half:.4g}"
    digits = min(6, max(0, 1 - math.floor(math.log10(half))))
    return f"{mean:.{digits}f} ± {half:.{digits}f}"


@dataclasses.dataclass(frozen=True)
class Measure:
    """A mean over the games of an evaluation.

    **Attributes:**

    - `name`: its entry. Entries with `_low` and `_high` behind it are a 95 % interval.
    - `called`: what it is called.
    - `error`: the entry of its standard error, where rows have one.
    - `share`: whether it is a share of the games, whose error follows from their number.
    - `better`: 1 where more is better, and -1 where less is.
    """

    name: str
    called: str
    error: str | None = None
    share: bool = True
    better: int = 1

    def error_of(self, row: Mapping[str, Any]) -> float:
        """The standard error in a row; NaN where it is not known."""
        low, high = self._interval(row)
        if low is not None and high is not None:
            # It knows that two games share an opening.
            return (high - low) / (2 * half_width(1.0))
        if self.error is not None and row.get(self.error) is not None:
            return row[self.error]
        if not self.share:
            return math.nan
        # By Laplace's rule of succession, so that it is not 0 if a few games all end alike.
        count = count_of(row)
        share = (row[self.name] * count + 1) / (count + 2)
        return math.sqrt(max(0.0, share * (1 - share)) / count)  # a damaged log may have any number

    def bars(self, row: Mapping[str, Any]) -> tuple[float, float]:
        """The lengths of error bars below and above: to the ends of the 95 % interval."""
        low, high = self._interval(row)
        if low is not None and high is not None:
            return row[self.name] - low, high - row[self.name]
        length = half_width(self.error_of(row), count_of(row))
        return length, length

    def shown(self, row: Mapping[str, Any]) -> str:
        """The mean in a row, with half of its 95 % interval."""
        return plus_minus(row[self.name], self.error_of(row), count_of(row))

    def _interval(self, row: Mapping[str, Any]) -> tuple[float | None, float | None]:
        return row.get(f"{self.name}_low"), row.get(f"{self.name}_high")


#: The score of a match, from 0 to 1
SCORE = Measure("score", "score")
#: The share of games that were won
WON = Measure("win_rate", "won", error="win_se")
#: The share of games that were lost
LOST = Measure("loss_rate", "lost", better=-1)
#: The mean return of an episode
RETURN = Measure("return_mean", "return", error="return_se", share=False)
MEASURES = (SCORE, WON, LOST, RETURN)

#: What says whom a row is about, and how that is named.
NAMING = {
    "agent": "{}",
    "planner": "{}",
    "simulations": "{} simulations",
    "leaf": "leaf: {}",
    "opponent": "against {}",
}
_COUNTS = ("games", "boards", "rollouts", "episodes")
_NUMBERS = {name for one in MEASURES for name in (one.name, f"{one.name}_low", f"{one.name}_high")}
_NUMBERS |= {one.error for one in MEASURES if one.error is not None} | {*_COUNTS, "simulations"}
_NUMBERS |= {"length_mean", "needless_risks", "regret_mean"}
_RATINGS = {"step": int, "elo": float, "se": float, "name": str}


def identifying(row: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of a row that say whom it is about."""
    return {key: row[key] for key in NAMING if row.get(key) is not None}


def named(called: str, row: Mapping[str, Any]) -> str:
    """What is measured, with whom the row is about."""
    who = ", ".join(NAMING[key].format(value) for key, value in identifying(row).items())
    return f"{called}: {who}" if who else called


def measured(row: Mapping[str, Any]) -> Iterator[tuple[str, Measure]]:
    """What a row measures, and how that is called."""
    # Two runs have no earlier player of their own in common.
    if not str(row.get("opponent", "")).startswith("step "):
        for one in MEASURES:
            if row.get(one.name) is not None:
                yield named(one.called, row), one


def kind_of(name: str) -> type:
    """The kind of an entry of evaluations.jsonl."""
    return float if name in _NUMBERS else str if name in NAMING else object


def count_of(row: Mapping[str, Any]) -> float:
    """The number of games that an evaluation's means are over."""
    return max(1, next((row[name] for name in _COUNTS if row.get(name)), 1))


def ratings(folder: pathlib.Path) -> list[Row]:
    """The players in the elo.json of a run, each with its `name`, its `elo` and its standard error
    `se`, and a `step` where it is one of the run's; none without the file."""
    path, then = folder / "elo.json", "--resume writes it again."
    if not path.exists():
        return []
    found = read_of_run(path)
    players = found.get("players") if isinstance(found, dict) else None
    if not isinstance(players, list) or not all(isinstance(row, dict) for row in players):
        raise RunError(f"{path} is damaged: it has no list of players; {then}")
    kind = lambda name: _RATINGS.get(name, object)
    return [Row(x, f"Player {i + 1} of {path}", then).checked(kind) for i, x in enumerate(players)]
