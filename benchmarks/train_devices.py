"""Is training faster with one CPU device a core?

One JSON line a case, for `--devices 1` and for one device a core: the median and least seconds of a
training step, those of its halves, collecting and learning, with the CPU seconds they took, and
the seconds of compiling from an empty cache. `faster` is how many times as fast the second is.

Every number of devices has a process of its own, as `train` would start it. They take turns, and of
their steps those count in which other processes used less than 0.15 cores, or else the quietest.
`others` is how many cores these used. Linux only.

    uv run python benchmarks/train_devices.py [--cases othello spo/reference] [--seconds 20]
"""

import argparse
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import time
from typing import Any

from zero_app import Launch, start_jax


CASES = (
    "othello/quick",
    "minesweeper/default",
    "monsters/default",
    "spo/quick",
    "spo/reference",
    "zero/quick",
)
#: Cores that other processes may use in a step that counts.
QUIET = 0.15
_HALVES = ("collecting", "learning")
_FOUND = (*_HALVES, "collecting_cpu", "learning_cpu", "positions", "others")


def configured(case: str, envs: int | None) -> tuple[Any, Any]:
    """The app of `NAME/PRESET`, and its configuration with so many environments."""
    from zero_cli._apps import APPS

    name, _, preset = case.partition("/")
    app = APPS[name]
    config: Any = app.presets[preset or app.preset or next(iter(app.presets))]
    return app, config if envs is None else dataclasses.replace(config, envs=envs)


def _busy() -> float:
    """The CPU seconds of all processes of this (Linux) machine since it started."""
    with open("/proc/stat") as file:
        user, nice, system, *_ = map(int, file.readline().split()[1:])
    return (user + nice + system) / os.sysconf("SC_CLK_TCK")


def work(case: str, devices: int, envs: int | None) -> None:
    """A process that trains: a line of its standard input is a number of seconds to train for, and
    one of its standard output what it found."""
    start_jax(Launch(devices=devices))
    import jax
    import jax.random as jr

    from zero_app._run._app import built
    from zero_train import fill, init, template
    from zero_train._step import collect_half, learn_half

    app, config = configured(case, envs)
    loop = built(app, config, devices)
    like, times = template(loop), {}
    for name, half in zip(_HALVES, (collect_half, learn_half), strict=True):
        began = time.perf_counter()
        half.lower(loop, None, like).compile()
        times[name] = time.perf_counter() - began
    print(json.dumps(times), flush=True)
    state = fill(loop, init(loop, key=jr.key(config.seed)))
    for line in sys.stdin:
        found: dict[str, list[float]] = {name: [] for name in _FOUND}
        until = time.perf_counter() + float(line)
        while time.perf_counter() < until:
            start, busy, own = time.perf_counter(), _busy(), time.process_time()
            for name, half in zip(_HALVES, (collect_half, learn_half), strict=True):
                began, used = time.perf_counter(), time.process_time()
                state, metrics = half(loop, None, state)
                metrics = jax.device_get(metrics)
                found[name].append(time.perf_counter() - began)
                found[f"{name}_cpu"].append(time.process_time() - used)
                if "positions" in metrics:
                    found["positions"].append(float(metrics["positions"]))
            others = _busy() - busy - (time.process_time() - own)
            found["others"].append(others / (time.perf_counter() - start))
        print(json.dumps(found), flush=True)


class _Worker:
    """Such a process, and what it found in all its turns."""

    def __init__(self, case: str, devices: int, envs: int | None):
        words = [sys.executable, __file__, "--worker", case, str(devices), str(envs or "")]
        environment = {**os.environ, "JAX_ENABLE_COMPILATION_CACHE": "0"}
        self._process = subprocess.Popen(
            words, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.compiled: dict[str, float] = self._read()
        self.turn(0.1)  # after the first games
        self.found: dict[str, list[float]] = {name: [] for name in _FOUND}

    def turn(self, seconds: float) -> dict[str, list[float]]:
        print(seconds, file=self._process.stdin, flush=True)
        return self._read()

    def train(self, seconds: float) -> None:
        """Trains for so long, and keeps what it found but for the first step."""
        for name, values in self.turn(seconds).items():
            self.found[name] += values[1:] or values

    def end(self) -> None:
        self._process.communicate()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())


def row(case: str, counts: tuple[int, int], given: argparse.Namespace) -> dict[str, Any]:
    """The line of a case."""
    workers = [_Worker(case, devices, given.envs) for devices in counts]
    for _ in range(given.turns):
        for worker in workers:
            worker.train(given.seconds)
    found: dict[str, Any] = {"question": "train_devices", "case": case}
    if given.envs is not None:
        found["envs"] = given.envs
    for devices, worker in zip(counts, workers, strict=True):
        worker.end()
        others = worker.found["others"]
        quietest = min(range(len(others)), key=others.__getitem__)
        quiet = [i for i, used in enumerate(others) if used < QUIET] or [quietest]
        kept = {name: [values[i] for i in quiet] for name, values in worker.found.items()}
        medians = {name: statistics.median(values) for name, values in kept.items()}
        whole = [sum(pair) for pair in zip(*(kept[name] for name in _HALVES), strict=True)]
        found[f"devices_{devices}"] = {
            "step_s": round(statistics.median(whole), 4),
            "least_s": round(min(whole), 4),
            "positions_per_second": round(sum(kept["positions"]) / sum(whole)),
            **{f"{name}_s": round(medians[name], 4) for name in _FOUND[:4]},
            "others": round(medians["others"], 2),
            "steps": len(whole),
            "compile_s": round(sum(worker.compiled.values()), 1),
        }
    one, many = (found[f"devices_{devices}"]["step_s"] for devices in counts)
    return found | {"faster": round(one / many, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", nargs="+", default=CASES, help="an app, or APP/PRESET")
    parser.add_argument("--devices", type=int, default=os.cpu_count())
    parser.add_argument("--envs", type=int, help="environments, in place of the preset's")
    parser.add_argument("--seconds", type=float, default=20.0, help="of a turn")
    parser.add_argument("--turns", type=int, default=3)
    given = parser.parse_args()
    for case in given.cases:
        print(json.dumps(row(case, (1, given.devices), given)), flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        work(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]) if sys.argv[4] else None)
    else:
        main()
