"""Every episode of every evaluation of many runs, in one file that others can read too."""

import dataclasses
import json
import operator
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Array, Float, Int, Real

from ._disk import write_whole
from ._layout import episodes, from_layout, order, Result, ResultKey, to_layout
from ._metrics import RunError


@dataclasses.dataclass(frozen=True)
class Results:
    """Evaluations of any number of environments, tasks, algorithms and seeds.

    Immutable, and nothing in it is ever replaced, so that putting results together cannot lose
    any. A resumed run may add its evaluations again, as long as they say the same.

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

    def add(
        self,
        metrics: Mapping[str, Real[Array | np.ndarray, " episodes"]],
        *,
        environment: str,
        task: str,
        algorithm: str,
        seed: int,
        step: int | None,
        elapsed_time: float | None = None,
    ) -> "Results":
        """With one evaluation more, or more metrics of one.

        **Arguments:**

        - `metrics`: by name, one number an episode; see [`zero_train.Evaluation.metrics`][].
        - `environment`, `task`, `algorithm`: names.
        - `seed`: of the run.
        - `step`: environment steps the parameters had been trained for; `None` for the absolute
            metric.
        - `elapsed_time`: seconds since training began; the first one given stays.

        **Raises:** `ValueError` for a metric that is empty or not finite, for a negative step, for
        a name marl-eval cannot read, and where the evaluation is there already with another
        outcome.
        """
        step = None if step is None else operator.index(step)
        if step is not None and step < 0:
            raise ValueError(f"step={step} was given; it counts environment steps, from 0 on")
        key = ResultKey(environment, task, algorithm, f"seed_{operator.index(seed)}", step)
        values = {name: episodes(key, name, numbers) for name, numbers in metrics.items()}
        elapsed = None if elapsed_time is None else float(elapsed_time)
        return self.merge(Results({key: Result(values, elapsed)}))

    def merge(self, *others: "Results") -> "Results":
        """With the results of `others`, such as other seeds'.

        **Raises:** `ValueError` where two tell different things of one evaluation.
        """
        entries = dict(self.entries)
        for other in others:
            for key, result in other.entries.items():
                entries[key] = _merged(key, entries.get(key, Result({})), result)
        return Results(entries)

    def tasks(self, environment: str) -> list[str]:
        """The environment's tasks, sorted: the columns of `scores` and `curves`."""
        return sorted({key.task for key in self.entries if key.environment == environment})

    def scores(
        self, environment: str, metric: str, *, last: bool = False
    ) -> dict[str, Float[np.ndarray, "runs tasks"]]:
        """Every algorithm's absolute metric, the mean over its episodes: rliable's layout.

        Columns are `tasks(environment)`; rows are runs, and do not belong together across tasks.

        **Arguments:**

        - `last`: the last evaluation's mean instead.

        **Raises:** `ValueError` where an algorithm lacks a task or has more runs of one than of
        another, where a run lacks the metric or, with `last`, ended at another step than others.
        """
        part, absolute = (slice(-1, None), False) if last else (slice(None), True)
        tables = self._tables(environment, metric, part, absolute=absolute)
        return {name: values[0] for name, (_, values) in tables.items()}

    def curves(
        self, environment: str, metric: str
    ) -> dict[str, tuple[Int[np.ndarray, " steps"], Float[np.ndarray, "steps runs tasks"]]]:
        """Every algorithm's evaluations: their environment steps, and means over the episodes.

        [`zero_train.aggregate`][] turns them into curves with a band.

        **Raises:** `ValueError` as `scores`, and where runs were evaluated at different steps.
        """
        tables = self._tables(environment, metric, slice(None), absolute=False)
        return {name: (np.asarray(steps), values) for name, (steps, values) in tables.items()}

    def _tables(
        self, environment: str, metric: str, part: slice, *, absolute: bool
    ) -> dict[str, tuple[list[int | None], Float[np.ndarray, "steps runs tasks"]]]:
        """For every algorithm this part of its evaluations, or of its one absolute metric."""
        tasks = self.tasks(environment)
        if not tasks:
            there = sorted({key.environment for key in self.entries})
            raise ValueError(f"there are no results of {environment!r}, only of {there}")
        means: dict[str, dict[str, dict[str, dict[int | None, float]]]] = {}
        for key in sorted(self.entries, key=order):
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
        """Nested dictionaries in marl-eval's layout (Gorsane et al. 2022,
        https://arxiv.org/abs/2209.10485).

        `{environment: {task: {algorithm: {run: {"step_0": {"step_count": 10000, "elapsed_time":
        12.3, metric: [one number an episode]}, "step_1": ..., "absolute_metrics": {metric:
        [...]}}}}}}`, steps numbered in their order, times left out where they are unknown.

        **Raises:** `ValueError` for names that differ in case only: marl-eval would drop one.
        """
        return to_layout(self.entries)

    @classmethod
    def from_json(cls, data: Any) -> "Results":
        """What `to_json` gave, here or in any other program that writes the layout.

        **Raises:** `ValueError` where `data` has another layout, or contradicts itself.
        """
        return cls().merge(*(cls({key: result}) for key, result in from_layout(data)))

    def write(self, path: str | os.PathLike[str]) -> None:
        """Adds these results to a file, or makes one; as a whole or not at all.

        What the file has stays in it. One process at a time may write to it: give every seed a
        file of its own and `merge` them.

        **Raises:** [`zero_train.RunError`][] where the file holds something else, tells other
        things of the same evaluation, or cannot be written; it is as it was then.
        """
        path = pathlib.Path(path)
        there = Results.read(path) if path.exists() else Results()
        try:
            write_whole(path, json.dumps(there.merge(self).to_json(), allow_nan=False) + "\n")
        except OSError as e:
            raise RunError(f"{path} cannot be written: {e.strerror}.") from e
        except ValueError as e:
            raise RunError(f"{path} was left as it is: {e}.") from e

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> "Results":
        """The results in a file.

        **Raises:** [`zero_train.RunError`][] where it cannot be read or holds something else.
        """
        try:
            return cls.from_json(json.loads(pathlib.Path(path).read_text()))
        except OSError as e:
            raise RunError(f"{path} cannot be read: {e.strerror}.") from e
        except ValueError as e:
            raise RunError(f"{path} holds no results in marl-eval's layout: {e}.") from e


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
    """The steps that all runs share, and their means at these."""
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
