"""The report of a run: one HTML page without external files."""

import dataclasses
import json
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from .._command._errors import UsageError
from ._lines import lines_of, MOST, read_lines, read_object, RunError
from ._measures import half_width, kind_of, Measure, MEASURES, named, NAMING, RETURN, SCORE
from ._page import charts, picture, table, text
from ._results import Results
from ._stored import app_packages, no_run
from ._view import clock, number


#: What a chart can be drawn over.
Axis = Literal["steps", "positions", "hours"]
#: How many series a chart can tell apart.
MAX_SERIES = 6
# What says in words whom a row is about.
_WORDS = NAMING.keys() - {"simulations"}


@dataclasses.dataclass(frozen=True)
class Series:
    """A curve of a chart.

    **Attributes:**

    - `label`: for the legend; a single series may have an empty one.
    - `x`, `y`: the points, in order.
    - `error`: lengths `(below, above)` of error bars; such points are drawn as marks.
    - `band`: the ends `(low, high)` of an interval around every point, NaN where it is not known.
        Such points are drawn as they are, and others, where they are many, as means of neighbours.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float]
    error: tuple[Sequence[float], Sequence[float]] | None = None
    band: tuple[Sequence[float], Sequence[float]] | None = None


def curve(
    rows: Iterable[Mapping[str, Any]],
    name: str,
    label: str = "",
    *,
    error: str | Callable[[Mapping[str, Any]], tuple[float, float]] | None = None,
    scale: float = 1.0,
) -> Series:
    """One metric of a run's lines by step, times `scale`. Lines without it are left out. `error` is
    the name of its standard error, for bars of a 95 % interval, or what gives the lengths of the
    bars below and above the point of a row."""
    rows = [row for row in rows if row.get(name) is not None]
    bars = None
    if error is not None:
        ends = (lambda row: (half_width(row[error]),) * 2) if isinstance(error, str) else error
        # The ends of an interval may be rounded to the other side of the point, or not be known.
        lengths = [[float(np.maximum(0.0, length)) for length in ends(row)] for row in rows]
        bars = [below for below, _ in lengths], [above for _, above in lengths]
    heights = [scale * row[name] for row in rows]
    return Series(label, [row["step"] for row in rows], heights, bars)


def smoothed(y: Sequence[float], window: int) -> np.ndarray:
    """Means over `window` neighbours, over fewer of them near the ends."""
    near = np.ones(2 * (window // 2) + 1)
    sums, counts = (np.convolve(x, near, "same") for x in (y, np.ones(len(y))))
    return sums / counts


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
    points. The arguments are those of `_chart.draw`, with `series` over steps."""
    from ._chart import draw  # matplotlib: seconds to import

    shown = [dataclasses.replace(one, x=run.along(one.x)) for one in series]
    svg = draw(shown, axis=run.axis, levels=levels, percent=percent, from_zero=from_zero)
    return picture(heading, caption, svg or '<p class="none">nothing yet</p>')


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


def configuration(run: "StoredRun") -> str:
    """Every entry of the configuration of a run, those marked that differ from its preset."""
    if not run.config:
        return ""
    preset = run.preset.get("config", {})
    items, changed = [], 0
    for key, value in run.config.items():
        differs = key in preset and preset[key] != value
        changed += differs
        was = f"<s>{text(_shown(preset[key]))}</s>" if differs else ""
        kind = ' class="changed"' if differs else ""
        items.append(f"<div{kind}><dt>{text(key)}</dt><dd>{was}{text(_shown(value))}</dd></div>")
    said = ""
    if preset:
        number = f"{changed} differ" if changed != 1 else "1 differs"
        said = f"<p>The preset is {text(run.preset.get('name'))}; {number} from it.</p>"
    if run.identity:
        said += f"<p>This is run {text(run.identity)}.</p>"
    return f"<h2>Configuration</h2>{said}<dl>{''.join(items)}</dl>"


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


@dataclasses.dataclass(frozen=True)
class StoredRun:
    """The contents of a [`zero_app.RunFolder`][]. A missing file counts as empty, and a line that
    was cut short is left out.

    **Attributes:**

    - `folder`: its path.
    - `config`: the configuration.
    - `preset`: the `name` and `config` of the preset that the run began with.
    - `metrics`, `timings`: the lines of these files, in order. Of a long file they are means of
        neighbours, more than a chart can show, and its last line. A timing has in addition
        `elapsed`, the seconds of all steps until then.
    - `evaluations`: the lines of that file, in order.
    - `axis`: what charts are drawn over.
    - `identity`: of the run, a random text; empty for a run of an older version.
    """

    folder: pathlib.Path
    config: dict[str, Any]
    metrics: list[Mapping[str, Any]]
    timings: list[Mapping[str, Any]]
    evaluations: list[dict[str, Any]]
    axis: Axis = "steps"
    preset: dict[str, Any] = dataclasses.field(default_factory=dict)
    identity: str = ""

    @classmethod
    def read(cls, folder: str | os.PathLike[str], axis: Axis = "steps") -> "StoredRun":
        """Reads the folder of a run, which may still be running."""
        folder, number = pathlib.Path(folder), lambda name: float
        starts, config = read_lines(folder / "starts.jsonl"), folder / "config.json"
        first = [*starts, {}][0].get("preset")
        known = isinstance(first, dict) and isinstance(first.get("config"), dict)
        return cls(
            folder=folder,
            config=read_object(config) if os.path.lexists(config) else {},
            metrics=condensed(lines_of(folder / "metrics.jsonl", number, distinct="step")),
            timings=condensed(
                _with_elapsed(lines_of(folder / "timings.jsonl", number, distinct="step"))
            ),
            evaluations=[*lines_of(folder / "evaluations.jsonl", kind_of, distinct="nothing")],
            axis=axis,
            preset=first if known else {},
            identity=next((str(row["run"]) for row in starts if "run" in row), ""),
        )

    def along(self, steps: Sequence[float]) -> Sequence[float]:
        """Where steps are on the axis: themselves, the positions collected until then, or the hours
        of training."""
        if self.axis == "steps":
            return steps
        if self.axis == "positions":
            known = [(row["step"], row.get("positions", 0)) for row in self.metrics]
        else:
            known = [(row["step"], row["elapsed"] / 3600) for row in self.timings]
        x, y = zip((0.0, 0.0), *known, strict=True)
        return np.interp(steps, x, y).tolist()

    @property
    def log(self) -> Any:
        """Every line of metrics.jsonl and timings.jsonl as a `pandas.DataFrame`, which must be
        installed: a row a step, which is the index."""
        import pandas  # an extra

        rows: dict[float, dict[str, Any]] = {}
        for name in ("metrics", "timings"):
            for row in lines_of(self.folder / f"{name}.jsonl", distinct="step"):
                rows.setdefault(row["step"], {}).update(row)
        columns = None if rows else ["step"]
        return pandas.DataFrame([*rows.values()], columns=columns).set_index("step")

    def plot(self, *names: str) -> Any:
        """A `matplotlib.figure.Figure` of these metrics over the axis, by default of what the
        evaluations measured, with bars of 95 %."""
        from matplotlib.figure import Figure  # seconds to import

        charts = [(name, curve(self.metrics, name, name)) for name in names]
        measured: dict[str, tuple[Measure, list[Mapping[str, Any]]]] = {}
        for row in () if names else self.evaluations:
            for one in MEASURES:
                if row.get(one.name) is not None:
                    measured.setdefault(named(one.called, row), (one, []))[1].append(row)
        charts += [
            (label, curve(rows, one.name, label, error=one.bars))
            for label, (one, rows) in measured.items()
        ]
        lacking = [name for name, series in charts if not series.x]
        if lacking or not charts:
            missing = " and no ".join(lacking) or "evaluation"
            raise ValueError(f"{self.folder} has no {missing} yet.")
        figure = Figure(figsize=(6, 2.5 * len(charts)), layout="constrained")
        places = figure.subplots(len(charts), squeeze=False)[:, 0]
        for axes, (label, series) in zip(places, charts, strict=True):
            axes.errorbar(self.along(series.x), series.y, series.error, capsize=2)
            axes.set(xlabel=self.axis, ylabel=label)
        return figure

    @property
    def environment(self) -> str:
        """The environment; of an app with one environment the name of its package, and after a
        slash its `world` where it has several."""
        name = self.config.get("env") or "".join(app_packages(self.folder)[:1]) or "unknown"
        return "/".join(str(x) for x in (name, self.config.get("world")) if x is not None)

    def episodes(self) -> Iterator[Mapping[str, Any]]:
        """The lines of episodes.jsonl, one for each of `evaluations` that told of its episodes: the
        `step`, the `positions` collected until then, whom it is about, and lists of a number for
        each episode."""
        kind = lambda name: int if name == "positions" else str if name in _WORDS else object
        number = lambda x: type(x) in (int, float) and -MOST < x < MOST
        for row in lines_of(self.folder / "episodes.jsonl", kind, distinct="nothing"):
            lists = {name: values for name, values in row.items() if isinstance(values, list)}
            for name, values in lists.items():
                if not all(map(number, values)):
                    raise RunError(f"{row.place} has more than numbers in {name}. {row.then}")
            if len({len(values) for values in lists.values()} | {0}) != 2:
                raise RunError(f"{row.place} has no lists of one length. {row.then}")
            yield row

    def results(self, algorithm: str = "") -> Results:
        """Every episode of every evaluation, by the names of episodes.jsonl, with whom it is about
        where that says so, such as `"score: against random"`. The environment `"pgx/hex"` has the
        task `"hex"`.

        A step is one of an environment. It counts the final states of games too, so that it is the
        same for every seed: steps of the loop, times environments, times moves. All seeds have the
        same `algorithm`, by default the name of the agent.
        """
        size = self.config.get("envs", 1) * self.config.get("unroll", 1)
        seconds = dataclasses.replace(self, axis="hours").along
        found = [
            Results().add(
                {
                    named(name, row): np.asarray(values)
                    for name, values in row.items()
                    if isinstance(values, list)
                },
                environment=self.environment.partition("/")[0],
                task=self.environment.rpartition("/")[2],
                algorithm=algorithm or str(self.config.get("agent", "agent")),
                seed=self.config.get("seed", 0),
                step=row["step"] * size,
                elapsed_time=3600 * seconds([row["step"]])[0] if self.timings else None,
            )
            for row in self.episodes()
        ]
        return Results().merge(*found)


#: A long log is read as at least so many means, and fewer than twice as many.
_MEANS = 2000


def open(run: str | os.PathLike[str]) -> StoredRun:
    """What the folder of a run holds, also while it is trained: its `log` is a frame, and `plot`
    draws it."""
    if not os.path.lexists(pathlib.Path(run) / "config.json"):
        raise UsageError(f"{no_run(run)}; give the folder of a run.")
    return StoredRun.read(run)


def condensed(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Rows as they are, or where there are many the means of neighbours, and the last row. So a
    report takes no more memory for a longer run. Missing values are skipped; two merged means get
    equal weight."""
    kept: list[Mapping[str, Any]] = []
    rest: list[Mapping[str, Any]] = []
    every, last = 1, None
    for last in rows:
        rest.append(last)
        if len(rest) == every:
            kept.append(_mean(rest))
            rest = []
        if len(kept) == 2 * _MEANS:
            kept, every = [_mean(kept[i : i + 2]) for i in range(0, len(kept), 2)], 2 * every
    if last is None or every == 1:
        return kept
    return [*kept, *([_mean(rest)] if rest else []), last]


def _mean(rows: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The mean of each number over the rows that have it; of anything else the last one."""
    if len(rows) == 1:
        return rows[0]
    mean: dict[str, Any] = {name: value for row in rows for name, value in row.items()}
    for name in mean:
        numbers = [row[name] for row in rows if isinstance(row.get(name), int | float)]
        if numbers:
            mean[name] = sum(numbers) / len(numbers)
    return mean


def _with_elapsed(rows: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    elapsed = 0.0
    for row in rows:
        elapsed += row.get("seconds", 0.0)
        yield {**row, "elapsed": elapsed}


def progress(run: StoredRun) -> dict[str, str]:
    """Steps, games, positions and training time of a run."""
    shown = {}
    if run.metrics:
        shown["steps"] = number(run.metrics[-1]["step"])
        for name in ("games", "positions"):
            if run.metrics[-1].get(name) is not None:
                shown[name] = f"{run.metrics[-1][name]:,.0f}"
    if run.timings:
        shown["training time"] = clock(run.timings[-1]["elapsed"])
    return shown


def speed(run: StoredRun) -> str:
    """A section of charts of the speed of a run, and of the memory that it takes."""
    draw = lambda heading, caption, *series: chart(run, heading, caption, *series, from_zero=True)
    moves, games = (curve(run.timings, f"{what}_per_second") for what in ("positions", "games"))
    parts = [
        draw("Positions a second", "Collected while also learning.", moves),
        draw("Games a second", "Finished while also learning.", games),
    ]
    kinds = (("host_bytes", "host"), ("device_bytes", "devices"))
    memory = [curve(run.timings, name, label, scale=1e-9) for name, label in kinds]
    if measured := [one for one in memory if one.x]:
        about = "In GB: the process's own on the host, and what is in use on its devices."
        parts.append(draw("Memory", about, *measured))
    return charts("Speed and memory", *parts)


def optimisation(run: StoredRun) -> str:
    """A section of charts of the optimiser; empty where nothing of it was logged."""
    logged, parts = sorted({name for row in run.metrics for name in row}), []
    for word, heading, caption in (
        ("gradient_norm", "Gradient norm", "Of all parameters, before it is clipped."),
        ("learning_rate", "Learning rate", "Mean over the updates of a step."),
    ):
        short = lambda name, word=word: name.replace(word, "").strip("_").replace("_", " ")
        series = [curve(run.metrics, name, short(name)) for name in logged if word in name]
        if series:
            parts.append(chart(run, heading, caption, *series, from_zero=True))
    return charts("Optimisation", *parts)


def imitation(run: StoredRun, *, value_loss: str, value_error: str) -> str:
    """A section of charts of the metrics of [`zero_train.ExpertIteration`][], with the captions of
    two of them."""
    loss = "Cross-entropy to the plan, in nats; its floor is the plan's own entropy."
    entropy = "How undecided the network is about the next move, in nats."
    of = lambda name, label="": curve(run.metrics, name, label)
    return charts(
        "Learning",
        chart(run, "Policy loss", loss, of("policy_loss", "loss"), of("target_entropy", "floor")),
        chart(run, "Value loss", value_loss, of("value_loss")),
        chart(run, "Policy entropy", entropy, of("policy_entropy")),
        chart(run, "Value error", value_error, of("value_error")),
    )


def page_of(run: StoredRun) -> tuple[dict[str, str], list[str]]:
    """The figures and sections of an agent that searches a tree and is measured by
    [`zero_app.network_alone`][]."""
    last = run.evaluations[-1] if run.evaluations else {}
    shown = {}
    if "score" in last:
        shown = {"network alone against random moves": f"{last['score']:.1%}"}
        against = "Of the network without a search, against random moves; bars are 95 % intervals."
        scores = curve(run.evaluations, SCORE.name, error=SCORE.bars)
        strength = chart(run, "Score", against, scores, percent=True)
    else:
        if "return_mean" in last:
            shown = {"return of the network alone (95 %)": RETURN.shown(last)}
        alone = "Of the network without a search; bars are 95 % intervals."
        returns = curve(run.evaluations, RETURN.name, error=RETURN.bars)
        strength = chart(run, "Return", alone, returns)
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
