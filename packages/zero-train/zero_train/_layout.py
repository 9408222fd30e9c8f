"""One evaluation's outcome, and the nested layout in which marl-eval stores many."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ._metrics import plain


_ABSOLUTE = "absolute_metrics"


class ResultKey(NamedTuple):
    """Which evaluation it was.

    **Attributes:**

    - `environment`, `task`, `algorithm`: names, such as `"brax"`, `"ant"`, `"spo"`.
    - `run`: `"seed_0"` for the seed 0; in the files of others it may be any other name.
    - `step`: environment steps the parameters had been trained for; `None` for the absolute
        metric.
    """

    environment: str
    task: str
    algorithm: str
    run: str
    step: int | None

    def __str__(self) -> str:
        step = "absolute metric" if self.step is None else f"step {self.step}"
        return ", ".join((*self[:4], step))


class Result(NamedTuple):
    """What came of an evaluation.

    **Attributes:**

    - `metrics`: by name, one number an episode.
    - `elapsed_time`: seconds since training began, or `None`.
    """

    metrics: Mapping[str, tuple[float, ...]]
    elapsed_time: float | None = None


def order(key: ResultKey) -> tuple:
    """Sorts evaluations: `seed_9` before `seed_10`, the absolute metric after all steps."""
    parts = re.split(r"(\d+)", key.run)
    run = [int(x) if i % 2 else x for i, x in enumerate(parts)]
    return *key[:3], run, key.step is None, key.step or 0


def episodes(key: ResultKey, name: str, values: Any) -> tuple[float, ...]:
    """One metric's numbers, checked."""
    numbers = plain(values)
    if not isinstance(numbers, list) or not numbers:
        raise ValueError(f"{key}: {name} must be a list of at least one number, one an episode")
    for i, x in enumerate(numbers):
        if not isinstance(x, int | float):
            raise ValueError(f"{key}: {name}[{i}] is {values[i]}; it must be a finite number")
    return tuple(int(x) if isinstance(x, bool) else x for x in numbers)


def to_layout(entries: Mapping[ResultKey, Result]) -> dict[str, Any]:
    """See [`zero_train.Results.to_json`][]."""
    tree: dict[str, Any] = {}
    for key in sorted(entries, key=order):
        run = tree
        for name in key[:4]:
            run = _child(run, name)
        entry = _child(run, _ABSOLUTE if key.step is None else f"step_{len(run)}")
        result = entries[key]
        if key.step is not None:
            entry["step_count"] = key.step
            if result.elapsed_time is not None:
                entry["elapsed_time"] = result.elapsed_time
        for name, values in result.metrics.items():
            _child(entry, name)
            entry[name] = list(values)
    return tree


def from_layout(data: Any) -> Iterator[tuple[ResultKey, Result]]:
    """The evaluations in the nested layout, in its order."""
    for (environment, task, algorithm, run, name), entry in _leaves((), data):
        # A run that is not over has an empty absolute metric, if marl-eval's own logger wrote it.
        if entry or "absolute" not in name:
            yield _read(ResultKey(environment, task, algorithm, run, None), name, entry)


def _leaves(names: tuple[str, ...], node: Any) -> Iterator[tuple[Any, dict[str, Any]]]:
    """What is five names deep: environment, task, algorithm, run and step."""
    if not isinstance(node, dict):
        where = ", ".join(names) or "the whole"
        raise ValueError(f"{where} is a {type(node).__name__} where an object should be")
    if len(names) == 5:
        yield names, node
    else:
        for name, child in node.items():
            yield from _leaves((*names, name), child)


def _read(key: ResultKey, name: str, entry: dict[str, Any]) -> tuple[ResultKey, Result]:
    metrics = dict(entry)
    step, elapsed = metrics.pop("step_count", None), metrics.pop("elapsed_time", None)
    if "absolute" not in name:
        if not isinstance(step, int):
            where = ", ".join((*key[:4], name))
            raise ValueError(f"{where} has the step_count {step}; it must be an integer")
        key = key._replace(step=step)
    values = {metric: episodes(key, metric, values) for metric, values in metrics.items()}
    return key, Result(values, elapsed)


def _child(node: dict[str, Any], name: str) -> dict[str, Any]:
    if name not in node:
        for other in node:
            if other.lower() == name.lower():
                raise ValueError(f"{other} and {name} differ in case only; marl-eval drops one")
    return node.setdefault(name, {})
