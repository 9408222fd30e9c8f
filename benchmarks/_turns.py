"""Times of calls that take turns, so that other work on the machine slows all of them alike."""

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax


def clocked(call: Callable[..., Any], *args: Any) -> float:
    """The seconds until the result of one call is there."""
    start = time.perf_counter()
    jax.block_until_ready(call(*args))
    return time.perf_counter() - start


def take_turns(calls: Mapping[Any, Callable[[int], float]], runs: int) -> dict[Any, list[float]]:
    """The seconds that every call reports, in turns, after one run of each to warm up."""
    seconds: dict[Any, list[float]] = {name: [] for name in calls}
    for run in range(runs + 1):
        for name, call in calls.items():
            spent = call(run)
            if run:
                seconds[name].append(spent)
    return seconds


def ratio(seconds: Mapping[Any, list[float]], name: Any, base: Any) -> float:
    """How many times as long as `base` something takes: the median over paired runs."""
    pairs = zip(seconds[name], seconds[base], strict=True)
    return statistics.median(x / y for x, y in pairs)
