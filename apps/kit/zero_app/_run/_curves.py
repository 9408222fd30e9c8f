"""The curves of groups of runs beside each other: of evaluations, their episodes and training."""

import dataclasses
import pathlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

import numpy as np

from .._command._lazy import zero_train
from ._groups import Evaluated, Groups
from ._measures import Measure, measured, named
from ._page import picture
from ._report import Axis, curve, Series, StoredRun


#: The curves of training, and what they are called.
_TRAINING = {
    "loss": "Loss",
    "policy_loss": "Policy loss",
    "value_loss": "Value loss",
    "policy_entropy": "Policy entropy",
    "episode_return_mean": "Return in training",
    "episode_length_mean": "Length in training",
    "gradient_norm": "Gradient norm",
    "learning_rate": "Learning rate",
    "positions_per_second": "Positions a second",
}
_BARS = "Bars are 95 % intervals."
_BANDS = "Interquartile means over seeds, with 95 % stratified bootstrap bands."
_MIDDLE = "Interquartile means over seeds."
# A profile has at most so many thresholds.
_THRESHOLDS = 200

#: What was measured of groups, by what that is called, and then by the name of the group.
Found = Mapping[tuple[str, Measure], Mapping[str, Evaluated]]


@dataclasses.dataclass(frozen=True)
class Chart:
    """Curves of groups.

    **Attributes:**

    - `heading`, `caption`: plain text.
    - `series`: the curves by what they are drawn over, for each group one, so that it has the same
        colour in all charts; one without points where there is nothing of it.
    """

    heading: str
    caption: str
    series: Mapping[str, Sequence[Series]]

    def pictures(self) -> Iterator[str]:
        """Parts of a page, which shows those over one of the axes of runs."""
        from ._chart import draw  # matplotlib: seconds to import

        for axis, series in self.series.items():
            kind = f"over-{axis}" if axis in get_args(Axis) else ""
            yield picture(self.heading, self.caption, draw(series, axis=axis) or "", kind=kind)


def save_charts(folder: pathlib.Path, all_charts: Sequence[Chart], endings: Sequence[str]) -> None:
    """Writes a file for each chart, axis and ending."""
    from ._chart import save

    taken: set[str] = set()
    for chart in all_charts:
        for axis, series in chart.series.items():
            over = f" over {axis}" if axis in get_args(Axis) else ""
            name = re.sub(r"[^a-z0-9]+", "-", f"{chart.heading}{over}".lower()).strip("-")
            while name in taken:
                name += "-"
            taken.add(name)
            for ending in endings:
                save(folder / f"{name}.{ending}", series, axis=axis)


def training_charts(groups: Groups) -> Iterator[Chart]:
    """What the logs of training have."""
    several = any(len(runs) > 1 for runs in groups.values())
    for metric, heading in _TRAINING.items():
        timed = metric == "positions_per_second"
        caption = "Collected while also learning." if timed else ""
        logged = lambda run, timed=timed: run.timings if timed else run.metrics
        series = {
            name: _middle([curve(logged(run), metric, name) for run in runs])
            for name, runs in groups.items()
        }
        caption = " ".join(filter(None, [caption, _MIDDLE if several else ""]))
        yield from _over_axes(groups, heading, caption, series)


def _middle(curves: Sequence[Series]) -> Series:
    """The interquartile mean of curves, at the points of the first that lie within all
    others."""
    first, *others = curves
    if not others:
        return first
    x = [at for at in first.x if all(len(one.x) and one.x[0] <= at <= one.x[-1] for one in others)]
    if not x:
        return Series(first.label, [], [])
    y = np.stack([np.interp(x, one.x, one.y) for one in curves], axis=-1)
    return Series(first.label, x, zero_train.interquartile_mean(y[..., None]).tolist())


def evaluation_charts(groups: Groups, found: Found | None) -> Iterator[Chart]:
    """What the evaluations found. `found` is what was measured of several seeds; with `None` each
    group is one run, whose curves have intervals over its episodes instead."""
    if found is None:
        rows: dict[tuple[str, Measure], dict[str, list[Mapping[str, Any]]]] = {}
        for name, [run] in groups.items():
            for row in run.evaluations:
                for key in measured(row):
                    rows.setdefault(key, {}).setdefault(name, []).append(row)
        for (label, one), by_name in rows.items():
            series = {
                name: curve(by_name[name], one.name, name, error=one.bars) for name in by_name
            }
            yield from _over_axes(groups, label[:1].upper() + label[1:], _BARS, series)
        return
    for (label, _), figures in found.items():
        series = {
            name: Series(
                name,
                one.steps,
                one.middle.value.tolist(),
                band=(one.middle.low.tolist(), one.middle.high.tolist()),
            )
            for name, one in figures.items()
        }
        yield from _over_axes(groups, label[:1].upper() + label[1:], _BANDS, series)
    yield from _profiles(groups, found)


def _over_axes(
    groups: Groups, heading: str, caption: str, series: Mapping[str, Series]
) -> Iterator[Chart]:
    """A chart over each axis of a run; none without points."""
    if not any(len(one.x) for one in series.values()):
        return
    by_axis = {}
    for axis in get_args(Axis):
        by_axis[axis] = []
        for name, runs in groups.items():
            one = series.get(name, Series(name, [], []))
            # Seeds collect different numbers of positions, in different times.
            each = [dataclasses.replace(run, axis=axis).along(one.x) for run in runs]
            by_axis[axis].append(dataclasses.replace(one, x=np.mean(each, axis=0).tolist()))
    yield Chart(heading, caption, by_axis)


def _profiles(groups: Groups, found: Found) -> Iterator[Chart]:
    """How many episodes score above each threshold at the last evaluation of each group, or how
    many runs, where the log has no episodes and where these only win or lose."""
    last = lambda name: {
        label: figures[name].steps[-1] for (label, _), figures in found.items() if name in figures
    }
    episodes = {name: [_episodes(run, last(name)) for run in runs] for name, runs in groups.items()}
    for (label, measure), figures in found.items():
        told = not measure.share and all(label in one for name in figures for one in episodes[name])
        scores = {
            name: [one[label] for one in episodes[name]] if told else [*figure.means[-1][:, None]]
            for name, figure in figures.items()
        }
        values = np.unique(np.concatenate([x for runs in scores.values() for x in runs]))
        if len(values) > _THRESHOLDS:
            values = np.quantile(values, np.linspace(0, 1, _THRESHOLDS))
        # A profile begins with all of them.
        at = np.array([values[0] - ((values[-1] - values[0]) / 50 or 1), *values])
        series = [
            _profile(name, scores[name], at) if name in scores else Series(name, [], [])
            for name in groups
        ]
        what = "episodes, with a 95 % stratified bootstrap band over seeds" if told else "runs"
        caption = f"Share above each value, of the {what}, at the last evaluation."
        yield Chart(f"Profile of {label}", caption, {measure.called: series})


def _profile(name: str, scores: Sequence[np.ndarray], at: np.ndarray) -> Series:
    """The share of scores above each threshold, the mean over the runs, as steps."""
    shares = np.array([[np.mean(run > limit) for run in scores] for limit in at])
    mean = zero_train.stratified_bootstrap(lambda x: x.mean(axis=(-2, -1)), shares[..., None])
    y, low, high = (np.repeat(x, 2)[:-1].tolist() for x in (mean.value, mean.low, mean.high))
    return Series(name, np.repeat(at, 2)[1:].tolist(), y, band=(low, high))


def _episodes(run: StoredRun, steps: Mapping[str, int]) -> dict[str, np.ndarray]:
    """What each episode of an evaluation was, by how that is called, at the step of each."""
    return {
        label: np.asarray(values)
        for row in run.episodes()
        for label, values in ((named(name, row), values) for name, values in row.items())
        if isinstance(values, list) and steps.get(label) == row["step"]
    }
