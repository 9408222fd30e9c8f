"""What is compiled until the first step is done, how often, and for how long?

Each command trains in a process of its own that begins with an empty cache of compiled programs,
and ends when it has logged its first step. One JSON line for each:

- `programs`: how many XLA compiled; `names`: under how many names; `seconds`: by the clock, summed
    over threads that compile beside each other; `of_these_cached`: how many of the programs had
    been compiled by this process before, and were taken from the cache.
- `small`: how many of them took less than 0.1 s, which are mostly single operations; and their
    `small_seconds`.
- `traced`, `lowered`: the seconds in which JAX made these programs, before XLA saw them.
- `cpu_seconds`: those of the whole process until the first step is done, of which
    `cpu_seconds_compiling` passed while XLA compiled something. A busy machine changes them little.
- `longest`: of each of the ten names that took longest, how often it was compiled, the seconds, and
    the CPU seconds of the process meanwhile, also for what it did beside compiling.

    uv run python benchmarks/compile_table.py ["zero train cartpole --preset tiny" ...]
"""

import argparse
import collections
import importlib.metadata
import json
import os
import shlex
import subprocess
import sys
import tempfile
import threading
import time
import unittest.mock
from typing import Any, NoReturn


COMMANDS = tuple(
    f"{command} --preset tiny"
    for command in (
        *("zero train cartpole", "zero train pgx/connect_four", "zero train othello"),
        *("othello train", "spo train", "minesweeper train", "monsters train"),
    )
)
_COMPILED = "/jax/core/compile/backend_compile_duration"
_TRACED = "/jax/core/compile/jaxpr_trace_duration"
_LOWERED = "/jax/core/compile/jaxpr_to_mlir_module_duration"
_HIT = "/jax/compilation_cache/cache_hits"
_SMALL, _LONGEST = 0.1, 10


class Seen:
    """What JAX says that it compiles, in whatever thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.seconds: dict[str, list[float]] = collections.defaultdict(list)
        self.cpu_of: dict[str, float] = collections.defaultdict(float)
        self.totals: dict[str, float] = collections.defaultdict(float)
        self.cpu, self._any_began = 0.0, 0.0
        self._began: dict[int, float] = {}  # by thread

    def listen(self) -> None:
        import jax.monitoring as monitoring

        monitoring.register_scalar_listener(self._begins)
        monitoring.register_event_duration_secs_listener(self._ends)
        monitoring.register_event_listener(self._happens)

    def _begins(self, event: str, value: float, **about: Any) -> None:
        if event == _COMPILED:
            with self._lock:
                now = time.process_time()
                if not self._began:
                    self._any_began = now
                self._began[threading.get_ident()] = now

    def _ends(self, event: str, duration_secs: float, **about: Any) -> None:
        with self._lock:
            self.totals[event] += duration_secs
            if event == _COMPILED:
                self.seconds[about["fun_name"]].append(duration_secs)
                now = time.process_time()
                self.cpu_of[about["fun_name"]] += now - self._began.pop(threading.get_ident())
                if not self._began:
                    self.cpu += now - self._any_began

    def _happens(self, event: str, **about: Any) -> None:
        with self._lock:
            self.totals[event] += 1

    def row(self) -> dict[str, Any]:
        with self._lock:
            every = [one for some in self.seconds.values() for one in some]
            small = [one for one in every if one < _SMALL]
            longest = sorted(self.seconds.items(), key=lambda item: -sum(item[1]))[:_LONGEST]
            return {
                "programs": len(every),
                "names": len(self.seconds),
                "seconds": round(sum(every), 2),
                "of_these_cached": int(self.totals[_HIT]),
                "small": len(small),
                "small_seconds": round(sum(small), 2),
                "traced": round(self.totals[_TRACED], 2),
                "lowered": round(self.totals[_LOWERED], 2),
                "cpu_seconds": round(time.process_time(), 1),
                "cpu_seconds_compiling": round(self.cpu, 1),
                "longest": [
                    [name, len(some), round(sum(some), 2), round(self.cpu_of[name], 2)]
                    for name, some in longest
                ],
            }


def work(words: list[str]) -> None:
    """Runs the command until its first step is logged, and prints what was compiled."""
    (script,) = importlib.metadata.entry_points(group="console_scripts", name=words[0])
    main, seen = script.load(), Seen()
    from zero_app import RunFolder

    def log(*_: Any) -> NoReturn:
        print(json.dumps(seen.row()), flush=True)
        os._exit(0)  # what the run would do next is not asked for

    seen.listen()
    sys.argv = words
    with unittest.mock.patch.object(RunFolder, "log", log):
        main()


def measured(command: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        words = [*shlex.split(command), "--out", f"{folder}/run"]
        env = os.environ | {"JAX_COMPILATION_CACHE_DIR": f"{folder}/cache"}
        start = [sys.executable, __file__, "--worker", *words]
        done = subprocess.run(start, env=env, stdout=subprocess.PIPE, text=True, check=True)
        return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("commands", nargs="*", default=COMMANDS)
    for command in parser.parse_args().commands:
        row = {"question": "compile_table", "command": command} | measured(command)
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        work(sys.argv[2:])
    else:
        main()
