"""The report of a run: one HTML page without external files."""

import dataclasses
import html
import json
import os
import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from .. import read_json, read_lines
from .._disk import write_whole
from ._view import clock, number


#: What a chart can be drawn over.
Axis = Literal["steps", "positions", "hours"]
#: How many series a chart can tell apart.
MAX_SERIES = 6


@dataclasses.dataclass(frozen=True)
class Series:
    """A curve of a chart.

    **Attributes:**

    - `label`: for the legend; a single series may have an empty one.
    - `x`, `y`: the points, in order.
    - `error`: lengths `(below, above)` of error bars; such points are drawn as marks.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float]
    error: tuple[Sequence[float], Sequence[float]] | None = None


def curve(
    rows: Iterable[Mapping[str, Any]],
    name: str,
    label: str = "",
    *,
    error: str | Callable[[Mapping[str, Any]], tuple[float, float]] | None = None,
) -> Series:
    """One metric of a run's lines by step. Lines without it are left out.

    **Arguments:**

    - `error`: the name of its standard error, two of which are drawn as bars, or what gives the
        lengths of the bars below and above the point of a row.
    """
    rows = [row for row in rows if row.get(name) is not None]
    bars = None
    if error is not None:
        ends = (lambda row: (2 * row[error],) * 2) if isinstance(error, str) else error
        below, above = zip(*map(ends, rows), strict=True) if rows else ((), ())
        bars = below, above
    return Series(label, [row["step"] for row in rows], [row[name] for row in rows], bars)


def smoothed(y: Sequence[float], window: int) -> np.ndarray:
    """Means over `window` neighbours, over fewer of them near the ends."""
    sums = np.concatenate([[0.0], np.cumsum(y)])
    index = np.arange(len(y))
    first = np.maximum(index - window // 2, 0)
    last = np.minimum(index + window // 2 + 1, len(y))
    return (sums[last] - sums[first]) / (last - first)


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{
  color-scheme: light dark;
  --page: #ffffff; --card: #f7f7f8; --ink: #1d1f23; --soft: #6b7078; --line: #e2e4e8;
  --series-0: #2f6fb3; --series-1: #d0741c; --series-2: #2e8b62;
  --series-3: #8160b8; --series-4: #bf4a3d; --series-5: #7a7f87;
}}
@media (prefers-color-scheme: dark) {{
  :root {{
    --page: #16181c; --card: #1e2126; --ink: #e7e9ec; --soft: #9aa0a9; --line: #33373e;
    --series-0: #6aa6e6; --series-1: #eb9a4d; --series-2: #5bbd90;
    --series-3: #b198e0; --series-4: #e57f73; --series-5: #a5abb4;
  }}
}}
* {{ box-sizing: border-box; }}
body {{
  margin: 0 auto; max-width: 1120px; padding: 32px 24px 64px; background: var(--page);
  color: var(--ink); font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif;
}}
h1 {{ margin: 0 0 24px; font-size: 26px; font-weight: 650; letter-spacing: -0.01em; }}
h2 {{ margin: 40px 0 12px; font-size: 18px; font-weight: 650; }}
h3 {{ margin: 0; font-size: 14px; font-weight: 600; }}
p {{ margin: 0; color: var(--soft); font-size: 13px; }}
.figures, .charts {{ display: grid; gap: 12px; }}
.figures {{ grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); }}
.figures div, figure {{ background: var(--card); border-radius: 8px; padding: 14px 16px; }}
.figures b {{ display: block; font-size: 20px; font-weight: 600; }}
.figures b, td {{ font-variant-numeric: tabular-nums; }}
.charts {{ grid-template-columns: repeat(auto-fit, minmax(min(400px, 100%), 1fr)); }}
.tables {{ display: flex; flex-wrap: wrap; column-gap: 64px; }}
figure {{ margin: 0; }}
figure .none {{ padding: 48px 0; text-align: center; }}
svg {{ display: block; width: 100%; height: auto; margin-top: 8px; }}
svg text {{ font-family: inherit !important; }}
.scroll {{ overflow-x: auto; }}
table {{ border-collapse: collapse; font-size: 14px; }}
th {{ color: var(--soft); font-weight: 500; }}
th, td {{ padding: 5px 16px 5px 0; text-align: right; border-bottom: 1px solid var(--line); }}
th:first-child, td:first-child {{ text-align: left; }}
dl {{ margin: 0; columns: 3 260px; column-gap: 40px; font-size: 14px; }}
dl div {{
  display: flex; justify-content: space-between; gap: 12px; break-inside: avoid;
  border-bottom: 1px solid var(--line); padding: 4px 0;
}}
dt {{ color: var(--soft); }}
dd {{ margin: 0; font-variant-numeric: tabular-nums; }}
</style>
</head>
<body>
<h1>{title}</h1>
{body}
</body>
</html>
"""


def write_page(
    run: "StoredRun", title: str, shown: Mapping[str, str], sections: Iterable[str]
) -> pathlib.Path:
    """Writes `report.html` into a run folder, replacing an earlier one at once: figures, sections,
    the speed and the configuration.

    **Arguments:**

    - `title`: plain text.
    - `shown`: figures to show beside the progress.
    - `sections`: made by the functions of this module; empty ones are left out.

    **Returns:** the page's path.
    """
    folder = run.folder.absolute()
    body = [figures(progress(run) | dict(shown)), *sections, speed(run), configuration(run.config)]
    path, title = folder / "report.html", f"{title}: {folder.name}"
    parts = "\n".join(filter(None, body))
    write_whole(path, _PAGE.format(title=html.escape(title), body=parts))
    return path


def figures(shown: Mapping[str, str]) -> str:
    """The main figures of a run, each with its name."""
    cells = "".join(
        f"<div><b>{_text(value)}</b><p>{_text(name)}</p></div>" for name, value in shown.items()
    )
    return f'<div class="figures">{cells}</div>'


def charts(heading: str, *parts: str) -> str:
    """A section of charts side by side."""
    return "\n".join([f'<h2>{_text(heading)}</h2><div class="charts">', *parts, "</div>"])


def chart(
    run: "StoredRun",
    heading: str,
    caption: str,
    *series: Series,
    levels: Sequence[tuple[str, float]] = (),
    percent: bool = False,
    from_zero: bool = False,
) -> str:
    """Draws curves over the axis of a run, the first `MAX_SERIES` of them; "nothing yet" without
    points.

    **Arguments:**

    - `series`: over steps.
    - `levels`: labelled horizontal lines.
    - `percent`: `y` is a share of 1.
    - `from_zero`: the axis starts at 0.
    """
    from ._chart import draw  # matplotlib: seconds to import

    shown = [dataclasses.replace(one, x=run.along(one.x)) for one in series]
    axis = run.axis.removesuffix("s") if run.axis == "steps" else run.axis
    svg = draw(shown, axis=axis, levels=levels, percent=percent, from_zero=from_zero)
    return picture(heading, caption, svg or '<p class="none">nothing yet</p>')


def picture(heading: str, caption: str, svg: str) -> str:
    """A drawing among charts.

    **Arguments:**

    - `heading`, `caption`: plain text.
    - `svg`: an SVG element. The page defines the colours `var(--ink)`, `var(--line)` and
        `var(--series-0)` to `var(--series-5)`.
    """
    return f"<figure><h3>{_text(heading)}</h3><p>{_text(caption)}</p>{svg}</figure>"


def tables(*parts: str) -> str:
    """Tables side by side."""
    return "\n".join(['<div class="tables">', *parts, "</div>"])


def table(heading: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table under its heading; the first column names the rows."""
    head = "".join(f"<th>{_text(name)}</th>" for name in header)
    body = "".join(f"<tr>{''.join(f'<td>{_text(x)}</td>' for x in row)}</tr>" for row in rows)
    whole = f"<table><tr>{head}</tr>{body}</table>"
    return f'<div class="scroll"><h2>{_text(heading)}</h2>{whole}</div>'


def last_evaluation(
    run: "StoredRun",
    header: Sequence[str],
    cells: Callable[[Mapping[str, Any]], Sequence[object]],
    *first: Sequence[object],
) -> str:
    """A table of the last evaluation, whose lines `cells` turns into rows, after those of `first`;
    empty before any evaluation."""
    if not run.evaluations:
        return ""
    step = run.evaluations[-1]["step"]
    rows = [cells(row) for row in run.evaluations if row["step"] == step]
    return table(f"Last evaluation, at step {step:,}", header, [*first, *rows])


def configuration(config: Mapping[str, Any]) -> str:
    """Every entry of a configuration."""
    if not config:
        return ""
    items = "".join(
        f"<div><dt>{_text(key)}</dt><dd>{_text(_shown(value))}</dd></div>"
        for key, value in config.items()
    )
    return f"<h2>Configuration</h2><dl>{items}</dl>"


def _text(value: object) -> str:
    return html.escape(str(value), quote=False)


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


@dataclasses.dataclass(frozen=True)
class StoredRun:
    """The contents of a [`zero_train.RunFolder`][]. A missing file counts as empty, and a line that
    was cut short is left out.

    **Attributes:**

    - `folder`: its path.
    - `config`: the configuration.
    - `metrics`, `timings`, `evaluations`: the lines of these files, in order.
    - `axis`: what charts are drawn over.
    """

    folder: pathlib.Path
    config: dict[str, Any]
    metrics: list[dict[str, Any]]
    timings: list[dict[str, Any]]
    evaluations: list[dict[str, Any]]
    axis: Axis = "steps"

    @classmethod
    def read(cls, folder: str | os.PathLike[str], axis: Axis = "steps") -> "StoredRun":
        """Reads the folder of a run, which may still be running."""
        folder = pathlib.Path(folder)
        config = folder / "config.json"
        return cls(
            folder=folder,
            config=read_json(config) if config.exists() else {},
            metrics=read_lines(folder / "metrics.jsonl"),
            timings=read_lines(folder / "timings.jsonl"),
            evaluations=read_lines(folder / "evaluations.jsonl"),
            axis=axis,
        )

    def along(self, steps: Sequence[float]) -> Sequence[float]:
        """Where steps are on the axis: themselves, the positions collected until then, or the hours
        of training."""
        if self.axis == "steps":
            return steps
        if self.axis == "positions":
            known = [(row["step"], row.get("positions") or 0) for row in self.metrics]
        else:
            spent = np.cumsum([row.get("seconds") or 0 for row in self.timings]) / 3600
            known = zip((row["step"] for row in self.timings), spent.tolist(), strict=True)
        x, y = zip((0.0, 0.0), *known, strict=True)
        return np.interp(steps, x, y).tolist()


def progress(run: StoredRun) -> dict[str, str]:
    """Steps, games, positions and training time of a run."""
    shown = {}
    if run.metrics:
        shown["steps"] = number(run.metrics[-1]["step"])
        for name in ("games", "positions"):
            if run.metrics[-1].get(name) is not None:
                shown[name] = f"{run.metrics[-1][name]:,.0f}"
    if run.timings:
        shown["training time"] = clock(sum(row.get("seconds") or 0 for row in run.timings))
    return shown


def speed(run: StoredRun) -> str:
    """A section of charts of the speed of a run."""
    return charts(
        "Speed",
        *(
            chart(run, heading, caption, curve(run.timings, name), from_zero=True)
            for heading, caption, name in (
                ("Positions a second", "Collected while also learning.", "positions_per_second"),
                ("Games a second", "Finished while also learning.", "games_per_second"),
            )
        ),
    )


def imitation(run: StoredRun, *, value_loss: str, value_error: str) -> str:
    """A section of charts of the metrics of [`zero_train.ExpertIteration`][].

    **Arguments:**

    - `value_loss`, `value_error`: the captions of these two charts.
    """
    return charts(
        "Learning",
        chart(
            run,
            "Policy loss",
            "Cross-entropy to the plan, in nats; its floor is the plan's own entropy.",
            curve(run.metrics, "policy_loss", "loss"),
            curve(run.metrics, "target_entropy", "floor"),
        ),
        chart(run, "Value loss", value_loss, curve(run.metrics, "value_loss")),
        chart(
            run,
            "Policy entropy",
            "How undecided the network is about the next move, in nats.",
            curve(run.metrics, "policy_entropy"),
        ),
        chart(run, "Value error", value_error, curve(run.metrics, "value_error")),
    )


def page_of(run: StoredRun) -> tuple[dict[str, str], list[str]]:
    """The figures and sections of an agent that searches a tree and is measured by
    [`zero_train.app.network_alone`][]."""
    last = run.evaluations[-1] if run.evaluations else {}
    shown = {}
    if "score" in last:
        shown = {"score against random": f"{last['score']:.1%}"}
        caption = "Of the network without a search, against random moves."
        strength = chart(run, "Score", caption, curve(run.evaluations, "score"), percent=True)
    else:
        if "return_mean" in last:
            shown = {"return": f"{last['return_mean']:.4g} ± {last['return_se']:.2g}"}
        returns = curve(run.evaluations, "return_mean")
        strength = chart(run, "Return", "Of the network without a search.", returns)
    lengths = chart(
        run,
        "Length of games",
        "Mean and median of the games that ended in a step of training.",
        curve(run.metrics, "episode_length_mean", "mean"),
        curve(run.metrics, "episode_length_median", "median"),
    )
    learning = imitation(
        run,
        value_loss="The loss of the value's target.",
        value_error="Mean distance between the predicted value and its target.",
    )
    return shown, [charts("Strength", strength, lengths), learning]
