"""Runs beside each other: what differs, what they reached, and their curves."""

import dataclasses
import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, get_args, Literal

import tyro
from rich.console import Console

from .._command._errors import UsageError, warn
from .._command._lazy import zero_train
from ._app import AbstractCommand, App
from ._curves import Chart, evaluation_charts, Found, save_charts, training_charts
from ._disk import write_whole
from ._film import check_path
from ._groups import differences, evaluated, grouped, Groups, run_folders
from ._measures import count_of, measured, plus_minus
from ._page import charts, page
from ._provenance import check_logs, check_run
from ._report import Axis, StoredRun
from ._tables import as_document, check_data, Table, write_data


_TEST = (
    "p is that of Welch's t test (two-sided) of the difference from the first run, not corrected "
    "for the number of comparisons. A small p says that two players differ, and not that their "
    "configurations do: to compare those, train several seeds of each."
)
_SEEDS = (
    "Each run is a mean over its episodes at the last step at which all runs of its configuration "
    "were evaluated. Intervals of 95 % are of a stratified bootstrap over seeds, and too narrow "
    "where these are few. The difference from the first configuration is that of the means over "
    "seeds, and p that of Welch's t test (two-sided) of it, not corrected for the number of "
    "comparisons. The probability of improvement is how likely a run is better than one of the "
    "first configuration."
)


@dataclasses.dataclass(frozen=True)
class Compare(AbstractCommand):
    """Compare runs, in the terminal and as a page: the flags in which they differ, their last
    evaluations and their curves. Runs that differ only in the seed are taken together."""

    runs: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="RUN RUN ...")]
    """The folders of two or more runs, or folders that hold runs."""
    out: pathlib.Path = pathlib.Path("compare.html")
    """The page, a file that ends with .html. One that is there is written anew, as are those of
    the other flags."""
    tables: pathlib.Path | None = None
    """Also write the tables to a file that ends with .md (Markdown) or .tex (LaTeX with
    booktabs)."""
    figures: pathlib.Path | None = None
    """Also write the charts into this folder, which is made if it is missing."""
    formats: tuple[Literal["svg", "pdf", "png"], ...] = ("svg", "pdf", "png")
    """The kinds of files that --figures writes."""
    data: pathlib.Path | None = None
    """Also write every episode of every evaluation to a file that ends with .csv or .parquet (needs
    the extra pyarrow)."""

    def __call__(self, app: App[Any]) -> None:
        del app
        self._check()
        folders = [(given, folder) for given in self.runs for folder in run_folders(given)]
        for _, folder in folders:
            check_run(folder, tell=warn)
            check_logs(folder, tell=warn)
        groups = grouped([(given, StoredRun.read(folder)) for given, folder in folders])
        found = over_seeds(groups)
        configuration = Table("Configuration", ["", *groups], differences(groups))
        figures = last_evaluation(groups, found)
        console = Console(highlight=False, markup=False, emoji=False)
        if not console.is_terminal:
            console.width = 120 if found is None else 160
        shown = [one for one in (configuration, figures) if one.rows]
        for one in shown:
            one.print(console)
        said = figures.note if figures.rows else "No run has been evaluated yet."
        console.print(said, soft_wrap=not console.is_terminal)
        console.print()
        drawn = {
            "Evaluations": list(evaluation_charts(groups, found)),
            "Training": list(training_charts(groups)),
        }
        if self.data is not None:
            write_data(self.data, groups)
        if self.tables is not None:
            write_whole(self.tables, as_document(shown, self.tables.suffix))
        if self.figures is not None:
            self.figures.mkdir(exist_ok=True)
            save_charts(self.figures, [*drawn["Evaluations"], *drawn["Training"]], self.formats)
        write_whole(self.out, _page(" and ".join(groups), figures, configuration, drawn))
        for what, path in (("data are", self.data), ("tables are", self.tables)):
            if path is not None:
                console.print(f"The {what} {path}", soft_wrap=True)
        if self.figures is not None:
            console.print(f"The figures are in {self.figures}", soft_wrap=True)
        console.print(f"The page is {self.out}", soft_wrap=True)

    def _check(self) -> None:
        """Refuses what cannot be written, before anything is read."""
        check_path(self.out, "--out", [".html"])
        check_path(self.tables, "--tables", [".md", ".tex"])
        check_data(self.data, "--data")
        if self.figures is not None and not self.figures.is_dir():
            if self.figures.exists() or not self.figures.parent.is_dir():
                raise UsageError(
                    f"--figures {self.figures} was given; give a folder, or a new one in one that "
                    "is there."
                )


def over_seeds(groups: Groups) -> Found | None:
    """What was measured of all seeds of each group; `None` where every group is one run."""
    if all(len(runs) == 1 for runs in groups.values()):
        return None
    return _by_what({name: evaluated(name, runs) for name, runs in groups.items()})


def _by_what(figures: Mapping[str, Mapping[Any, Any]]) -> dict[Any, dict[str, Any]]:
    """The figures of groups by what they are of, each then by the name of its group."""
    found: dict[Any, dict[str, Any]] = {}
    for name, known in figures.items():
        for what, one in known.items():
            found.setdefault(what, {})[name] = one
    return found


def last_evaluation(groups: Groups, found: Found | None) -> Table:
    """What the last evaluations found, and the differences from the first run or configuration."""
    if found is None:
        header = ["", "run", "step", "mean (± is 95 %)", "difference (± is 95 %)", "p"]
        return _filled(header, last_figures(groups), _TEST)
    header = ["", "configuration", "runs", "step", "interquartile mean (95 %)"]
    header += ["difference (± is 95 %)", "p", "probability of improvement (95 %)"]
    return _filled(header, seed_figures(found), _SEEDS)


def _filled(header: Sequence[str], rows: Sequence[Sequence[str]], note: str) -> Table:
    """A table without the columns that are empty, as the differences of one configuration are."""
    columns = [i for i in range(len(header)) if not rows or any(row[i] for row in rows)]
    pick = lambda row: [row[i] for i in columns]
    return Table("Last evaluation", pick(header), [pick(row) for row in rows], note)


@dataclasses.dataclass(frozen=True)
class _Figure:
    """A mean of an evaluation, its standard error, and the number that it is over."""

    step: int
    mean: float
    error: float
    count: float


def last_figures(groups: Groups) -> list[list[str]]:
    """Rows of what the last evaluations found, and of the differences from the first run."""
    found = _by_what({name: _last(run.evaluations) for name, [run] in groups.items()})
    rows = []
    for label, figures in found.items():
        first, *_ = figures.values()
        for name, one in figures.items():
            shown = plus_minus(one.mean, one.error, one.count)
            compared = ["", ""] if one is first else _compared(first, one)
            rows.append([label, name, f"{one.step:,}", shown, *compared])
    return rows


def seed_figures(found: Found) -> list[list[str]]:
    """Rows of what the last evaluations that all seeds share found, and of the differences of the
    means over seeds from the first group. Nothing is compared within a group."""
    rows = []
    for (label, measure), figures in found.items():
        first = None
        for name, one in figures.items():
            last, count = one.means[-1], one.means.shape[1]
            middle = _interval(one.middle.value[-1], one.middle.low[-1], one.middle.high[-1])
            error = last.std(ddof=1) / math.sqrt(count) if count > 1 else math.nan
            figure, compared = _Figure(one.steps[-1], last.mean(), error, count), ["", "", ""]
            if first is not None:
                x, y = (measure.better * scores[:, None] for scores in (last, first[1]))
                chance = zero_train.probability_of_improvement(x, y)
                compared = _compared(first[0], figure)
                compared.append(_interval(*map(float, (chance.value, chance.low, chance.high))))
            rows.append([label, name, f"{count}", f"{one.steps[-1]:,}", middle, *compared])
            first = first or (figure, last)
    return rows


def _interval(value: float, low: float, high: float) -> str:
    """A number with the ends of its interval, if these are known."""
    return f"{value:.4g}" if math.isnan(low) else f"{value:.4g} ({low:.4g} to {high:.4g})"


def _compared(first: _Figure, other: _Figure) -> list[str]:
    """The difference from the first, and the probability of one as large by chance."""
    from scipy.special import stdtr

    error, more = math.hypot(first.error, other.error), other.mean - first.mean
    sign = "+" if more >= 0 else ""
    if math.isnan(error):
        return [f"{sign}{more:.4g}", ""]
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
        for label, one in measured(row)
    }


def _page(
    title: str, figures: Table, configuration: Table, drawn: Mapping[str, Sequence[Chart]]
) -> str:
    chosen = "".join(
        f'<label><input type="radio" name="axis" id="over-{axis}"{first}> over {axis}</label>'
        for axis, first in zip(get_args(Axis), (" checked", "", ""), strict=True)
    )
    parts = [
        figures.html() if figures.rows else "",
        configuration.html() if configuration.rows else "",
        f'<fieldset class="axes">{chosen}</fieldset>',
        *(
            charts(heading, *(one for chart in several for one in chart.pictures()))
            for heading, several in drawn.items()
        ),
    ]
    return page(title, parts)
