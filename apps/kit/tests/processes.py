"""A tiny app on Nim. As a script it forks the processes of runs, each of which can be told to do
something at a step: `AT_STEP="4 SIGTERM"` sends itself a signal after it,
`AT_STEP="9 SIGKILL collecting"` within it, also while `updating` or when its checkpoint is
`writing`. Of that checkpoint it cannot write files of more than 8 KB, so its part is never whole;
`AT_STEP="5 SIGXFSZ writing"` does nothing else. `SLEEP=0.3` makes every step that long, `VERSION=0`
has all packages of that version, and `CACHE=FOLDER` keeps compiled programs there."""

import dataclasses
import functools as ft
import importlib
import json
import os
import pathlib
import resource
import runpy
import select
import signal
import sys
import time
import types
from collections.abc import Callable
from typing import Any

import jax

import zero_app._run._checkpoint as checkpoint
import zero_app._run._processes as processes
import zero_train._step as halves
from zero_app import AbstractConfig, App, main, network_alone, View
from zero_envs.testing import Nim
from zero_memory import EpisodeBuffer
from zero_train import Loop

from .nim_agent import nim_agent, nim_loop


#: The first word of a run of Nim.
NIM = "nim"


@dataclasses.dataclass(frozen=True)
class Config(AbstractConfig):
    steps: int = 24
    envs: int = 16
    batch: int = 32
    evaluate_every: int = 10
    checkpoint_every: int = 5


def build(config: Config) -> Loop:
    env = Nim(heap=7, most=3)
    buffer = EpisodeBuffer(
        capacity=32,
        num_envs=config.envs,
        batch_size=config.batch,
        num_players=2,
        num_shards=config.shards,
    )
    return nim_loop(1, env=env, agent=nim_agent(env, width=128), buffer=buffer)


def _disturbed() -> None:
    """Has this process do at a step what its environment says."""
    when, name, place = f"{os.environ.get('AT_STEP', '-1 SIGTERM')} shown".split()[:3]
    pause, shown, last = float(os.environ.get("SLEEP", 0)), View.update, [0]
    strike = lambda: os.kill(os.getpid(), getattr(signal, name))

    def show(view: View, step: int, *given: Any) -> None:
        shown(view, step, *given)
        last[0] = step
        time.sleep(pause)
        if (str(step), place) == (when, "shown"):
            strike()

    def struck(half: Callable[..., Any]) -> Callable[..., Any]:
        def call(loop: Any, given: Any, state: Any) -> Any:
            if last[0] + 1 != int(when):
                return half(loop, given, state)
            jax.block_until_ready(state)
            half(loop, given, state)  # returns at once
            return strike()

        return call

    def write(folder: pathlib.Path, arrays: dict[str, Any]) -> Callable[[], Any]:
        if last[0] != int(when) or folder.parent.parent.name != "checkpoints":
            return begin(folder, arrays)
        # Python ignores the signal, so that writing fails, and the part is never whole.
        limit = lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, -1))
        limit(8192)
        written = begin(folder, arrays)

        def fail() -> None:
            if name == "SIGKILL":
                strike()
            try:
                written()
            finally:
                limit(-1)

        return fail

    begin = checkpoint._write
    patches: list[tuple[Any, str, Any]] = [(View, "update", show)]
    if place == "collecting":
        patches.append((halves, "collect_half", struck(halves.collect_half)))
    if place == "updating":
        patches.append((halves, "learn_half", struck(halves.learn_half)))
    if place == "writing":
        patches.append((checkpoint, "_write", write))
    if "CACHE" in os.environ:  # JAX reads its own variable when it is imported
        jax.config.update("jax_compilation_cache_dir", os.environ["CACHE"])
    if "VERSION" in os.environ:
        patches.append((processes, "_version", lambda name: os.environ["VERSION"]))
    for owner, what, patch in patches:
        setattr(owner, what, patch)


def _fork() -> None:
    """Forks a process for every line of its input, `[words, log, code, environment]` as JSON, says
    its number, and writes its exit code when it has ended. It returns in each of the processes,
    which have little left to import; JAX has not started anything there. The first word is the
    module to run. Reports have no charts, which would be a third of what it costs."""
    charts: Any = types.ModuleType("zero_app._run._chart")  # so that matplotlib is not imported
    charts.draw = lambda series, **_: None
    sys.modules[charts.__name__] = charts
    # It takes seconds to import; commands that need no checkpoint should not wait for it.
    assert "orbax.checkpoint" not in sys.modules
    importlib.import_module("orbax.checkpoint")
    importlib.import_module("tensorboardX.event_file_writer")
    codes: dict[int, pathlib.Path] = {}
    while True:
        if select.select([0], [], [], 0.02)[0]:
            line = sys.stdin.readline()
            if not line:
                sys.exit()
            words, log, code, environment = json.loads(line)
            pid = os.fork()
            if pid == 0:
                # Whoever starts the tests in the background has them ignore it.
                signal.signal(signal.SIGINT, signal.default_int_handler)
                os.environ.update(environment)
                sys.argv[:] = words
                file = os.open(log, os.O_WRONLY | os.O_CREAT)
                os.dup2(file, 1)
                os.dup2(file, 2)
                return
            codes[pid] = pathlib.Path(code)
            print(pid, flush=True)
        while codes and (ended := os.waitpid(-1, os.WNOHANG))[0]:
            codes.pop(ended[0]).write_text(f"{os.waitstatus_to_exitcode(ended[1])}")


if __name__ == "__main__":
    _fork()
    _disturbed()
    if sys.argv[0] == NIM:
        main(App("nim", "Nim.", {"tiny": Config()}, build, ft.partial(network_alone, players=2)))
    else:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
