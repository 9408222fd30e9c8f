"""Results of many evaluations, in the nested layout of marl-eval."""

import dataclasses
import functools
import json
import os
import pathlib
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ._disk import read_whole, write_whole
from ._lines import as_step, check_kind, complaining, parsed, plain, RunError


_ABSOLUTE = "absolute_metrics"
# Of many seeds and tasks, with a number for each episode.
_LARGEST = 2**28


class ResultKey(NamedTuple):
    """The identity of an evaluation.

    **Attributes:**

    - `environment`, `task`, `algorithm`: names, such as `"brax"`, `"ant"`, `"spo"`.
    - `run`: `"seed_0"` for the seed 0. Files of other programs may have other names.
    - `step`: the number of environment steps of training before; `None` for the absolute metric.
    """

    environment: str
    task: str
    algorithm: str
    run: str
    step: int | None

    def __str__(self) -> str:
        step = "absolute metric" if self.step is None else f"step {self.step}"
        return ", ".join(map(str, (*self[:4], step)))


class Result(NamedTuple):
    """The result of an evaluation.

    **Attributes:**

    - `metrics`: one number per episode, by name.
    - `elapsed_time`: seconds since training began, or `None`.
    """

    metrics: Mapping[str, tuple[float, ...]]
    elapsed_time: float | None = None


@dataclasses.dataclass(frozen=True)
class Results:
    """Evaluations of any number of environments, tasks, algorithms and seeds.

    It is immutable, and merging never replaces an evaluation: two that differ raise a `ValueError`.
    A resumed run may add its evaluations again if they are equal.

    ```python
    results = Results().add(
        evaluation.metrics(), environment="brax", task="ant", algorithm="spo", seed=0, step=10_000
    )
    results.write("results.json")
    ```

    **Attributes:**

    - `entries`: the evaluations, in no particular order.
    """

    entries: Mapping[ResultKey, Result] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        check_kind("Results", Mapping, "a Result by its ResultKey", entries=self.entries)
        for key, result in self.entries.items():
            check_kind("Results", ResultKey, "a ResultKey", key=key)
            check_kind("Results", Result, "a Result", result=result)
            for name in (*key[:4], *result.metrics):
                if not isinstance(name, str) or not name:
                    raise ValueError(f"{key} has the name {name!r}; every name must be a text")

    def add(
        self,
        metrics: Mapping[str, Any],
        *,
        environment: str,
        task: str,
        algorithm: str,
        seed: int,
        step: int | None,
        elapsed_time: float | None = None,
    ) -> "Results":
        """Returns the results with one more evaluation, or with more metrics of one: one number per
        episode by name, see [`zero_train.Evaluation.metrics`][]. For the identity see
        [`zero_app.ResultKey`][]. The first `elapsed_time` given is kept: seconds since training
        began.

        **Raises:** `ValueError` for a name that marl-eval cannot read, and for an evaluation that
        contradicts an earlier one.
        """
        if step is not None and (step := as_step(step, ValueError)) < 0:
            raise ValueError(f"step={step} was given; it counts environment steps, from 0 on")
        run = f"seed_{as_step(seed, ValueError, 'seed')}"
        key = ResultKey(environment, task, algorithm, run, step)
        check_kind("Results.add", Mapping, "numbers by the name of their metric", metrics=metrics)
        return self.merge(Results({key: _checked(key, metrics, elapsed_time)}))

    def merge(self, *others: "Results") -> "Results":
        """Returns these results together with `others`, such as those of other seeds."""
        entries = dict(self.entries)
        for other in others:
            check_kind("Results.merge", Results, "Results", other=other)
            for key, result in other.entries.items():
                entries[key] = _merged(key, entries.get(key, Result({})), result)
        return Results(entries)

    def tasks(self, environment: str) -> list[str]:
        """The environment's tasks, sorted: the columns of `scores` and `curves`."""
        return sorted({key.task for key in self.entries if key.environment == environment})

    def scores(
        self, environment: str, metric: str, *, last: bool = False
    ) -> dict[str, Float[np.ndarray, "runs tasks"]]:
        """The absolute metric of every algorithm, as means over episodes, in rliable's layout. With
        `last` it is the mean of the last evaluation instead.

        Columns are `tasks(environment)`. Rows are runs, which are independent across tasks.

        **Raises:** `ValueError` where an algorithm lacks a task, or has more runs of one task than
        of another; where a run lacks the metric, or with `last` ends at another step than others.
        """
        part, absolute = (slice(-1, None), False) if last else (slice(None), True)
        tables = self._tables(environment, metric, part, absolute=absolute)
        return {name: values[0] for name, (_, values) in tables.items()}

    def curves(
        self, environment: str, metric: str
    ) -> dict[str, tuple[Int[np.ndarray, " steps"], Float[np.ndarray, "steps runs tasks"]]]:
        """The evaluations of every algorithm: environment steps, and means over episodes.

        [`zero_train.aggregate`][] computes curves with confidence bands from them.

        **Raises:** `ValueError` as `scores`, and where runs were evaluated at different steps.
        """
        tables = self._tables(environment, metric, slice(None), absolute=False)
        return {name: (np.asarray(steps), values) for name, (steps, values) in tables.items()}

    def _tables(
        self, environment: str, metric: str, part: slice, *, absolute: bool
    ) -> dict[str, tuple[list[int | None], Float[np.ndarray, "steps runs tasks"]]]:
        """This part of the evaluations, or of the absolute metric, of every algorithm."""
        tasks = self.tasks(environment)
        if not tasks:
            there = sorted({key.environment for key in self.entries})
            raise ValueError(f"there are no results of {environment!r}, only of {there}")
        means: dict[str, dict[str, dict[str, dict[int | None, float]]]] = {}
        for key in sorted(self.entries, key=_order):
            if key.environment == environment:
                runs = means.setdefault(key.algorithm, {task: {} for task in tasks})[key.task]
                run = runs.setdefault(key.run, {})
                if metric in self.entries[key].metrics and (key.step is None) == absolute:
                    run[key.step] = float(np.mean(self.entries[key].metrics[metric]))
        kind = "absolute metric" if absolute else "evaluation with the metric"
        return {
            algorithm: _table(f"{environment}, {algorithm}", f"{kind} {metric!r}", by_task, part)
            for algorithm, by_task in means.items()
        }

    def to_json(self) -> dict[str, Any]:
        """Converts the results to nested dictionaries in marl-eval's layout (Gorsane et al. 2022,
        https://arxiv.org/abs/2209.10485).

        `{environment: {task: {algorithm: {run: {"step_0": {"step_count": 10000, "elapsed_time":
        12.3, metric: [one number an episode]}, "step_1": ..., "absolute_metrics": {metric:
        [...]}}}}}}`, steps numbered in their order, times left out where they are unknown.

        **Raises:** `ValueError` for names that differ in case only: marl-eval would drop one.
        """
        tree: dict[str, Any] = {}
        for key in sorted(self.entries, key=_order):
            run = functools.reduce(_child, key[:4], tree)
            entry = _child(run, _ABSOLUTE if key.step is None else f"step_{len(run)}")
            result = self.entries[key]
            if key.step is not None:
                entry["step_count"] = key.step
                if result.elapsed_time is not None:
                    entry["elapsed_time"] = result.elapsed_time
            for name, values in result.metrics.items():
                _child(entry, name)
                entry[name] = list(values)
        return tree

    @classmethod
    def from_json(cls, data: Any) -> "Results":
        """Reads what `to_json`, or another program that writes this layout, returned. Data of
        another layout, or that contradicts itself, raises a `ValueError`."""
        return cls().merge(*(cls({key: result}) for key, result in _evaluations(data)))

    def write(self, path: str | os.PathLike[str]) -> None:
        """Adds these results to a file, or makes the file, atomically. Earlier results stay in the
        file. Only one process at a time may write to it: give every seed its own file, and `merge`
        them.

        **Raises:** [`zero_app.RunError`][] where the file holds something else, or contradicts
        these results. It is unchanged then.
        """
        path = pathlib.Path(path)
        there = Results.read(path) if path.exists() else Results()
        try:
            text = json.dumps(there.merge(self).to_json(), allow_nan=False) + "\n"
        except ValueError as e:
            raise RunError(f"{path} was left as it is: {e}.") from e
        with complaining(path, "written"):
            write_whole(path, text)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> "Results":
        """Reads the results of a file."""
        with complaining(path, "read"):
            content = read_whole(path, _LARGEST)
        try:
            return cls.from_json(parsed(content))
        except ValueError as e:
            raise RunError(f"{path} holds no results in marl-eval's layout: {e}.") from e


def _order(key: ResultKey) -> tuple:
    """Sorts evaluations: `seed_9` before `seed_10`, the absolute metric after all steps."""
    return *key[:3], natural(key.run), key.step is None, key.step or 0


def natural(name: str) -> list[Any]:
    """Sorts names with their numbers as numbers."""
    return [int(x) if i % 2 else x for i, x in enumerate(re.split(r"(\d+)", name))]


def _child(node: dict[str, Any], name: str) -> dict[str, Any]:
    if name not in node:
        for other in node:
            if other.lower() == name.lower():
                raise ValueError(f"{other} and {name} differ in case only; marl-eval drops one")
    return node.setdefault(name, {})


def _evaluations(data: Any) -> Iterator[tuple[ResultKey, Result]]:
    """The evaluations in the nested layout, in its order."""
    for (*names, name), entry in _leaves((), data):
        metrics, absolute = dict(entry), "absolute" in str(name)
        step, elapsed = metrics.pop("step_count", None), metrics.pop("elapsed_time", None)
        if not absolute and (type(step) is not int or step < 0):
            where = ", ".join(map(str, (*names, name)))
            raise ValueError(f"{where} has the step_count {step}; it must be an integer from 0 on")
        # A run that is not over has an empty absolute metric, if marl-eval's own logger wrote it.
        if entry or not absolute:
            key = ResultKey(*names, step=None if absolute else step)
            yield key, _checked(key, metrics, elapsed)


def _leaves(names: tuple[str, ...], node: Any) -> Iterator[tuple[Any, dict[str, Any]]]:
    """The objects at depth five, by environment, task, algorithm, run and step."""
    if not isinstance(node, dict):
        where = ", ".join(map(str, names)) or "the whole"
        raise ValueError(f"{where} is a {type(node).__name__} where an object should be")
    if len(names) == 5:
        yield names, node
    else:
        for name, child in node.items():
            yield from _leaves((*names, name), child)


def _checked(key: ResultKey, metrics: Mapping[str, Any], elapsed: Any) -> Result:
    """The result of an evaluation, if its metrics and its time are numbers."""
    values = {}
    for name, given in metrics.items():
        numbers = plain(given)
        if not isinstance(numbers, list) or not numbers:
            raise ValueError(f"{key}: {name} must be a list of at least one number, one an episode")
        for i, x in enumerate(numbers):
            if not isinstance(x, int | float):
                raise ValueError(f"{key}: {name}[{i}] is {given[i]}; it must be a finite number")
        values[name] = tuple(int(x) if isinstance(x, bool) else x for x in numbers)
    if elapsed is None:
        return Result(values)
    seconds = plain(elapsed)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds >= 0:
        raise ValueError(f"{key} has the elapsed_time {elapsed!r}; it must be seconds, 0 or more")
    return Result(values, float(elapsed))


def _merged(key: ResultKey, old: Result, new: Result) -> Result:
    if "," in key.algorithm:
        raise ValueError(f"{key.algorithm!r} has a comma, which marl-eval does not allow")
    for name, values in new.metrics.items():
        if name.lower() in ("step_count", "elapsed_time"):
            raise ValueError(f"{key}: {name} cannot be a metric's name in marl-eval's layout")
        if old.metrics.get(name, values) != values:
            pair = (old.metrics[name], values)
            there, given = (f"mean {np.mean(x):g} (episodes: {len(x)})" for x in pair)
            raise ValueError(f"{key}: {name} is there already with {there}; {given} was refused")
    elapsed = new.elapsed_time if old.elapsed_time is None else old.elapsed_time
    return Result({**old.metrics, **new.metrics}, elapsed)


def _table(
    where: str, what: str, by_task: Mapping[str, Mapping[str, Mapping[Any, float]]], part: slice
) -> tuple[list[Any], Float[np.ndarray, "steps runs tasks"]]:
    """The steps that all runs share, and the means of the runs at these steps."""
    if len({len(runs) for runs in by_task.values()}) > 1:
        counts = ", ".join(f"{len(runs)} of {task}" for task, runs in by_task.items())
        raise ValueError(f"{where} has different numbers of runs: {counts}")
    shared: list[Any] = []
    for task, runs in by_task.items():
        for run, means in runs.items():
            steps = list(means)[part]
            if not steps:
                raise ValueError(f"{where}, {task}, {run} has no {what}")
            if steps != (shared := shared or steps):
                raise ValueError(
                    f"{where}, {task}, {run} was evaluated at {steps}, other runs at {shared}; "
                    "only what was evaluated at the same steps compares"
                )
    columns = [[list(run.values())[part] for run in runs.values()] for runs in by_task.values()]
    return shared, np.asarray(columns).T
