"""What charts are made of."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np


#: How many series a chart can tell apart.
MAX_SERIES = 6


@dataclasses.dataclass(frozen=True)
class Series:
    """**Attributes:**

    - `label`: for the legend, which a single unnamed series does without.
    - `x`, `y`: the points, in order.
    - `error`: lengths `(below, above)` of error bars; such points are drawn as marks.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float]
    error: tuple[Sequence[float], Sequence[float]] | None = None


def curve(rows: Iterable[Mapping[str, Any]], name: str, label: str = "") -> Series:
    """One column of a run's lines by step; lines that lack it are left out."""
    rows = [row for row in rows if row.get(name) is not None]
    return Series(label, [row["step"] for row in rows], [row[name] for row in rows])


def smoothed(y: Sequence[float], window: int) -> np.ndarray:
    """Means over `window` neighbours, over fewer of them near the ends."""
    sums = np.concatenate([[0.0], np.cumsum(y)])
    index = np.arange(len(y))
    first = np.maximum(index - window // 2, 0)
    last = np.minimum(index + window // 2 + 1, len(y))
    return (sums[last] - sums[first]) / (last - first)
