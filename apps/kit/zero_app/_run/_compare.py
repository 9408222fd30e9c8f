"""Runs beside each other: what differs, what they reached, and their curves."""

import dataclasses
import math
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, get_args

import rich.box
import tyro
from rich.console import Console
from rich.table import Table

from .._command._errors import as_line, UsageError, warn
from ._app import AbstractCommand, App
from ._disk import write_whole
from ._film import check_path
from ._measures import count_of, Measure, MEASURES, NAMING, plus_minus
from ._page import charts, page, picture, table
from ._provenance import check_logs, check_run
from ._report import Axis, curve, MAX_SERIES, Series, StoredRun
from ._stored import no_run


#: The curves of training, and what they are called.
_CURVES = {
    "loss": "Loss",
    "policy_loss": "Policy loss",
    "value_loss": "Value loss",
    "policy_entropy": "Policy entropy",
    "episode_return_mean": "Return in training",
    "episode_length_mean": "Length in training",
    "gradient_norm": "Gradient norm",
    "learning_rate": "Learning rate",
}
_TEST = (
    "p is that of Welch's t test (two-sided) of the difference from the first run, not corrected "
    "for the number of comparisons. A small p says that two players differ, and not that their "
    "configurations do: to compare those, train several seeds of each."
)


@dataclasses.dataclass(frozen=True)
class Compare(AbstractCommand):
    """Compare runs, in the terminal and as a page: the flags in which they differ, their last
    evaluations and their curves."""

    runs: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="RUN RUN ...")]
    """The folders of two or more runs."""
    out: pathlib.Path = pathlib.Path("compare.html")
    """The page, a file that ends with .html. One that is there is written anew."""

    def __call__(self, app: App[Any]) -> None:
        del app
        if not 2 <= len(self.runs) <= MAX_SERIES:
            given = "1 run was" if len(self.runs) == 1 else f"{len(self.runs)} runs were"
            raise UsageError(f"{given} given; give the folders of 2 to {MAX_SERIES}.")
        check_path(self.out, "--out", [".html"])
        for folder in self.runs:
            if not os.path.lexists(pathlib.Path(folder) / "config.json"):
                raise UsageError(f"{no_run(folder)}; give folders of runs.")
            check_run(pathlib.Path(folder), tell=warn)
            check_logs(pathlib.Path(folder), tell=warn)
        runs = dict(zip(_names(self.runs), map(StoredRun.read, self.runs), strict=True))
        differing, figures = differences(runs), last_figures(runs)
        console = Console(highlight=False, markup=False, emoji=False)
        if not console.is_terminal:
            console.width = 120
        _print(console, "Configuration", ["", *runs], differing)
        _print(console, "Last evaluation", _HEADER, figures)
        said = _TEST if figures else "No run has been evaluated yet."
        console.print(said, soft_wrap=not console.is_terminal)
        console.print()
        write_whole(self.out, _page(runs, differing, figures))
        console.print(f"The page is {self.out}", soft_wrap=True)


_HEADER = ["", "run", "step", "mean (± is 95 %)", "difference (± is 95 %)", "p"]


def differences(runs: Mapping[str, StoredRun]) -> list[list[str]]:
    """The entries of the configurations that are not the same in all runs, with their values."""
    keys = dict.fromkeys(key for run in runs.values() for key in run.config)
    rows = [[key, *(str(run.config.get(key, "absent")) for run in runs.values())] for key in keys]
    return [row for row in rows if len(set(row[1:])) > 1]


@dataclasses.dataclass(frozen=True)
class _Figure:
    """A mean of an evaluation, its standard error, and the number that it is over."""

    step: int
    mean: float
    error: float
    count: float


def last_figures(runs: Mapping[str, StoredRun]) -> list[list[str]]:
    """Rows of what the last evaluations found, and of the differences from the first run."""
    found = {name: _last(run.evaluations) for name, run in runs.items()}
    labels = dict.fromkeys(label for figures in found.values() for label in figures)
    rows = []
    for label in labels:
        first = None
        for name, figures in found.items():
            if (one := figures.get(label)) is None:
                continue
            shown = plus_minus(one.mean, one.error, one.count)
            compared = ["", ""] if first is None else _compared(first, one)
            rows.append([label, name, f"{one.step:,}", shown, *compared])
            first = first or one
    return rows


def _compared(first: _Figure, other: _Figure) -> list[str]:
    """The difference from the first, and the probability of one as large by chance."""
    from scipy.special import stdtr

    error, more = math.hypot(first.error, other.error), other.mean - first.mean
    sign = "+" if more >= 0 else ""
    if not error > 0 or min(first.count, other.count) < 2:
        return [sign + plus_minus(more, error), ""]
    # Welch's degrees of freedom.
    freedom = 1 / sum((x.error / error) ** 4 / (x.count - 1) for x in (first, other))
    p = 2 * float(stdtr(freedom, -abs(more) / error))
    return [sign + plus_minus(more, error, freedom + 1), f"{p:.2g}"]


def _last(rows: Sequence[Mapping[str, Any]]) -> dict[str, _Figure]:
    """The figures of the last evaluation, by what was measured of whom."""
    newest = [row for row in rows if row["step"] == rows[-1]["step"]]
    return {
        label: _Figure(row["step"], row[one.name], one.error_of(row), count_of(row))
        for row in newest
        for label, one in _measured(row)
    }


def _measured(row: Mapping[str, Any]) -> Iterator[tuple[str, Measure]]:
    """What a row measures, and how that is called."""
    # Two runs have no earlier player of their own in common.
    if str(row.get("opponent", "")).startswith("step "):
        return
    parts = (said.format(row[key]) for key, said in NAMING.items() if row.get(key) is not None)
    who = ", ".join(parts)
    for one in MEASURES:
        if row.get(one.name) is not None:
            yield f"{one.called}: {who}" if who else one.called, one


def _names(folders: Sequence[str]) -> list[str]:
    """The shortest names that are all different: of folders, or their paths."""
    paths = [pathlib.Path(folder).resolve() for folder in folders]
    if len(set(paths)) < len(paths):
        raise UsageError("the same run was given twice; give different runs.")
    short = [path.name for path in paths]
    return short if len(set(short)) == len(short) else list(folders)


def _print(
    console: Console, title: str, header: Sequence[str], rows: Sequence[Sequence[str]]
) -> None:
    if not rows:
        return
    box = rich.box.SIMPLE if console.is_terminal else rich.box.ASCII
    drawn = Table(title=title, title_justify="left", box=box)
    for name in header:
        drawn.add_column(name, overflow="fold")
    for row in rows:
        drawn.add_row(*map(as_line, row))
    console.print(drawn)


def _page(
    runs: Mapping[str, StoredRun],
    differing: Sequence[Sequence[str]],
    figures: Sequence[Sequence[str]],
) -> str:
    chosen = "".join(
        f'<label><input type="radio" name="axis" id="over-{axis}"{first}> over {axis}</label>'
        for axis, first in zip(get_args(Axis), (" checked", "", ""), strict=True)
    )
    parts = [
        table("Last evaluation", _HEADER, figures) + f"<p>{_TEST}</p>" if figures else "",
        table("What differs", ["", *runs], differing) if differing else "",
        f'<fieldset class="axes">{chosen}</fieldset>',
        charts("Evaluations", *_evaluations(runs)),
        charts("Training", *_training(runs)),
    ]
    return page(" and ".join(runs), parts)


def _evaluations(runs: Mapping[str, StoredRun]) -> Iterator[str]:
    found: dict[tuple[str, Measure], dict[str, list[Mapping[str, Any]]]] = {}
    for name, run in runs.items():
        for row in run.evaluations:
            for key in _measured(row):
                found.setdefault(key, {}).setdefault(name, []).append(row)
    said = "Bars are 95 % intervals."
    for (label, one), rows in found.items():
        series = {name: curve(rows[name], one.name, name, error=one.bars) for name in rows}
        yield from _charts(runs, label.capitalize(), said, series)


def _training(runs: Mapping[str, StoredRun]) -> Iterator[str]:
    for metric, heading in _CURVES.items():
        series = {name: curve(run.metrics, metric, name) for name, run in runs.items()}
        yield from _charts(runs, heading, "", series)
    rates = {n: curve(run.timings, "positions_per_second", n) for n, run in runs.items()}
    yield from _charts(runs, "Positions a second", "Collected while also learning.", rates)


def _charts(
    runs: Mapping[str, StoredRun], heading: str, caption: str, series: Mapping[str, Series]
) -> Iterator[str]:
    """A chart over each axis, of which the page shows one; none without points."""
    from ._chart import draw  # matplotlib: seconds to import

    if not any(one.x for one in series.values()):
        return
    # A run without points takes its colour too, so that every run has the same one in all charts.
    for axis in get_args(Axis):
        shown = [
            dataclasses.replace(one, x=dataclasses.replace(runs[name], axis=axis).along(one.x))
            for name, one in ((name, series.get(name, Series(name, [], []))) for name in runs)
        ]
        svg = draw(shown, axis=axis)
        yield picture(heading, caption, svg or "", kind=f"over-{axis}")
