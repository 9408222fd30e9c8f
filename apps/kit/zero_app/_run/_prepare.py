"""What a run does before its first step: it compiles its programs and plays its first games."""

import concurrent.futures
import contextlib
import functools as ft
import hashlib
import json
import os
import pathlib
import time
from typing import Any

import jax
import jax.random as jr

from zero_envs import Hosted
from zero_train import (
    AbstractActor,
    collect_half,
    fill,
    init,
    learn_half,
    Loop,
    LoopState,
    together,
)

from .._command._config import AbstractConfig
from .._command._errors import as_usage_error, UsageError
from ._background import ended, in_background, quiet_compiler
from ._disk import write_whole
from ._folder import StopSignal
from ._lines import read_object, RunError
from ._view import View


#: Where Linux says how much the processes of a container may take.
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def prepare(
    config: AbstractConfig,
    loop: Loop,
    state: LoopState | None,
    like: LoopState,
    stop: StopSignal,
    view: View,
    player: AbstractActor | None,
) -> LoopState | None:
    """The state after the first games, when a step is compiled; `None` if it is to stop meanwhile.
    A resumed run has a `state`, and has played them; a new one learns on from `player`, if any.
    `like` has the shapes and shardings of the state.

    Threads compile, because the main thread hears no signal while it waits for XLA: first what
    collects, so that the first games begin early, and what learns while they are played.
    """
    began, last_time, fresh = time.monotonic(), _LastTime(config), state is None
    after = lambda: f"after {time.monotonic() - began:.0f} s"
    first = second = games = None
    if not fresh and isinstance(loop.env, Hosted):
        view.note(
            f"the simulators of {loop.env.name} cannot be saved: all running episodes begin anew"
        )
    if not loop.actor_devices:
        first = in_background(ft.partial(_compile_collecting, loop, like))
        second = in_background(ft.partial(_compile_learning, loop, like, first))
    if fresh:
        games = in_background(ft.partial(_first_games, config, loop, first, player))
    what = "compiling the first step" + ", and playing the first games" * fresh
    with view.waiting(what, last_time.seconds if fresh else None), quiet_compiler():
        for task in filter(None, (first, games, second)):
            if not ended(task, lambda: view.still() or stop.requested):
                return None
            if fresh and task is first:
                view.note(f"the first games begin {after()}")
    together("the first step")
    view.note(f"the first step begins {after()}")
    if fresh:
        last_time.keep(time.monotonic() - began)
    return state if games is None else games.result()


def _compile_collecting(loop: Loop, like: LoopState) -> None:
    """**Raises:** [`zero_app.UsageError`][] where it does not fit into memory. A CPU would
    refuse nothing: the system ends a process that takes too much."""
    sizes = collect_half.lower(loop, None, like).compile().memory_analysis()
    if sizes is not None and loop.mesh.devices.flat[0].platform == "cpu":
        local = len(loop.mesh.local_devices)
        here = sizes.temp_size_in_bytes + sizes.argument_size_in_bytes
        check_memory(local * here, "Collecting takes", "simulations, fewer games, less replay")


def _compile_learning(loop: Loop, like: LoopState, first: concurrent.futures.Future) -> None:
    """Compiles what learns after what collects, which is needed first."""
    first.result()
    learn_half.lower(loop, None, like).compile()


def _first_games(
    config: AbstractConfig,
    loop: Loop,
    compiled: concurrent.futures.Future | None,
    player: AbstractActor | None,
) -> LoopState:
    """The state after them, played as soon as what collects is compiled."""
    if compiled is not None and jax.process_count() > 1:
        compiled.result()
    together("the first state")
    key = jr.fold_in(jr.key(config.seed), 0)
    state = jax.block_until_ready(init(loop, key=key, player=player))
    if compiled is not None:
        compiled.result()
    # Sums over devices wait for 30 s at most with gloo, and processes compile at different speeds.
    together("the first games")
    with as_usage_error():
        return fill(loop, state)


def check_memory(size: float, what: str, less: str) -> None:
    """Refuses what takes more bytes than all devices of this process have. The message begins with
    `what`, and names of what there may be `less`."""
    room = _room()
    if room and size > room:
        raise UsageError(
            f"{what} {size / 1e9:,.0f} GB, and there are {room / 1e9:,.0f}; give fewer {less} or a "
            "smaller network."
        )


def _room() -> int:
    """The bytes of memory, 0 where nobody says."""
    device, *others = jax.local_devices()
    if device.platform != "cpu":
        return (device.memory_stats() or {}).get("bytes_limit", 0) * (1 + len(others))
    room = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for limit in _LIMITS:
        with contextlib.suppress(OSError, ValueError):  # of no container, or without a limit
            room = min(room, int(pathlib.Path(limit).read_text()))
    return room


class _LastTime:
    """The `seconds` until the first step began in the last run of a configuration, kept beside the
    compiled programs; `None` where there was no such run."""

    def __init__(self, config: AbstractConfig):
        cache: Any = jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue]
        self._path = pathlib.Path(cache) / "first_steps.json" if cache else None
        fields = {name: value for name, value in vars(config).items() if name != "seed"}
        self._name = hashlib.sha256(repr(fields).encode()).hexdigest()[:16]
        self.seconds = self._read().get(self._name)

    def keep(self, seconds: float) -> None:
        """Remembers the seconds of this run."""
        if self._path is not None:
            times = dict(list(self._read().items())[-99:]) | {self._name: round(seconds, 1)}
            with contextlib.suppress(OSError):
                write_whole(self._path, json.dumps(times))

    def _read(self) -> dict[str, float]:
        with contextlib.suppress(RunError):
            found = {} if self._path is None else read_object(self._path)
            return {name: x for name, x in found.items() if type(x) in (int, float)}
        return {}
