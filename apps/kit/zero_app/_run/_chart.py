"""Charts as SVG text that takes its colours from the page it stands in, and as files."""

import io
import pathlib
import re
from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from ._disk import write_whole
from ._film import scalable
from ._report import MAX_SERIES, Series, smoothed


# Soft ink, lines, and the colours of the series.
_NAMES = ["soft", "line", *(f"series-{i}" for i in range(MAX_SERIES))]
# Placeholders in the SVG, replaced by the page's own colours.
_COLOURS = {f"#0102{i:02x}": f"var(--{name})" for i, name in enumerate(_NAMES)}
_MAX_POINTS = 600


def _style(colours: Sequence[str]) -> dict[Any, Any]:
    soft, line, *_ = colours
    return {
        "svg.fonttype": "none",  # text stays text, in the page's font
        "pdf.fonttype": 42,  # and here too
        "svg.hashsalt": "zero",  # equal charts give equal bytes
        "text.parse_math": False,  # names of runs are no formulas
        "font.size": 9,
        "text.color": soft,
        "xtick.color": soft,
        "ytick.color": soft,
        "axes.labelcolor": soft,
        "axes.edgecolor": line,
        "grid.color": line,
        "grid.linewidth": 0.8,
    }


def draw(
    series: Sequence[Series],
    *,
    axis: str = "steps",
    levels: Sequence[tuple[str, float]] = (),
    percent: bool = False,
    from_zero: bool = False,
) -> str | None:
    """An `<svg>` element as wide as its surroundings, or `None` where there is nothing to draw. The
    `axis` is one of a [`zero_app.StoredRun`][], or says what `x` is; `levels` are labelled
    horizontal lines; `percent` says that `y` is a share of 1, and `from_zero` that its axis starts
    at 0."""
    series = series[:MAX_SERIES]
    if not any(len(one.x) for one in series):
        return None
    text = io.StringIO()
    with matplotlib.rc_context(_style([*_COLOURS])):
        figure, axes = _figure(series, [*_COLOURS], axis, percent)
        [soft, *_] = _COLOURS
        for label, height in levels:
            axes.axhline(height, color=soft, linewidth=0.8, linestyle=(0, (4, 3)), zorder=1)
            axes.annotate(
                label,
                (1, height),
                xycoords=("axes fraction", "data"),
                xytext=(-2, 3),
                textcoords="offset points",
                horizontalalignment="right",
                fontsize=8,
            )
        if from_zero:
            axes.set_ylim(bottom=0)
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    svg = scalable(text.getvalue())
    for placeholder, own in _COLOURS.items():
        svg = svg.replace(placeholder, own)
    return svg


def save(path: pathlib.Path, series: Sequence[Series], *, axis: str = "steps") -> None:
    """Writes a chart, in the colours of a page on white, as the kind of file that the ending says:
    svg, pdf or png. Equal charts give equal bytes."""
    css = (pathlib.Path(__file__).parent / "report.css").read_text()
    bright = dict(reversed(re.findall(r"--([\w-]+): (#\w+)", css)))  # which stand before the dark
    colours = [bright[name] for name in _NAMES]
    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}
    content, kind = io.BytesIO(), path.suffix[1:]
    with matplotlib.rc_context(_style(colours)):
        figure, _ = _figure(series, colours, axis)
        figure.savefig(content, format=kind, dpi=200, metadata=undated[kind])
    write_whole(path, content.getvalue())


def _figure(
    series: Sequence[Series], colours: Sequence[str], axis: str, percent: bool = False
) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(5.6, 2.7), layout="constrained")
    axes = figure.add_subplot()
    for colour, one in zip(colours[2:], series, strict=False):
        if len(one.x):
            _plot(axes, one, colour)
    _dress(axes, axis, percent)
    labels = [one.label for one in series if len(one.x) and one.label]
    if labels:
        legend = axes.legend(
            frameon=False,
            ncols=3,
            loc="lower left",
            bbox_to_anchor=(0, 1),
            borderaxespad=0.2,
            handlelength=1.2,
            columnspacing=1.4,
        )
        for written, label in zip(legend.get_texts(), labels, strict=True):
            written.set_text(label)
    return figure, axes


def _plot(axes: Axes, one: Series, colour: str) -> None:
    x, y = np.asarray(one.x, float), np.asarray(one.y, float)
    # A place in the legend, which has none for names that begin with an underscore.
    label = "-" if one.label else ""
    if one.error is not None:
        axes.plot(x, y, color=colour, linewidth=1.4, label=label, marker="o", markersize=3.5)
        axes.errorbar(x, y, np.asarray(one.error), fmt="none", color=colour, elinewidth=1)
        return
    if one.band is not None:
        low, high = (np.asarray(end, float) for end in one.band)
        if len(x) == 1:  # which has no area
            axes.vlines(x, low, high, color=colour, linewidth=1)
        axes.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
    else:
        if len(x) > _MAX_POINTS:
            # A chart has fewer pixels than a long run has steps: draw means of neighbours.
            bins = np.array_split(np.arange(len(x)), _MAX_POINTS)
            x, y = (np.asarray([np.mean(v[b]) for b in bins]) for v in (x, y))
        window = len(x) // 20
        if window > 1:
            axes.plot(x, y, color=colour, linewidth=0.8, alpha=0.35)
            y = smoothed(y.tolist(), window)
    marker = "o" if len(x) == 1 else None
    axes.plot(x, y, color=colour, linewidth=1.8, label=label, marker=marker)


def _dress(axes: Axes, axis: str, percent: bool) -> None:
    axes.set_xlabel("step" if axis == "steps" else axis, fontsize=8)
    whole = axis in ("steps", "positions")
    low, high = axes.get_xlim()
    if whole and high - low < 1:  # a single step, which would be named at several places
        axes.set_xlim(low - 1, high + 1)
    axes.xaxis.set_major_locator(MaxNLocator(7, integer=whole, steps=[1, 2, 4, 5, 10]))
    axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
    axes.yaxis.set_major_formatter(
        FuncFormatter(lambda v, _: f"{100 * v:.4g} %" if percent else f"{v:,.6g}")
    )
    axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,.0f}" if whole else f"{v:.4g}"))
    axes.grid(axis="y")
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(length=0, labelsize=8)
