"""The loop around the loop, with the clock, the log and the disk."""

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.random as jr
from jaxtyping import Array, PyTree

from .. import (
    check_finite,
    Checkpoints,
    compiled_step,
    fill,
    init,
    Loop,
    LoopState,
    read_lines,
    RunError,
    RunFolder,
    Sink,
    StopSignal,
    template,
)
from ._config import check_bounds, folder_of, Options, RunConfig
from ._errors import UsageError, warn
from ._run import AbstractRun, Records, Standing
from ._sinks import TensorBoardSink, WandbSink
from ._view import View


#: What [`zero_train.step`][] counts of each step; logged as totals, and by the second.
_COUNTS = ("positions", "games")


def train(
    config: RunConfig,
    loop: Loop,
    options: Options,
    run: Callable[[Records], AbstractRun],
    *,
    steps: int,
) -> None:
    """Trains until all steps are done, the time is up, or a signal asks to stop.

    In each case the whole state is saved, so that `--resume` goes on exactly where it was: the
    lines of metrics.jsonl are those of a run that never stopped, byte for byte. Where the latest
    checkpoint is damaged it goes on from the one before, and where the run was killed before the
    first, from the beginning.

    **Arguments:**

    - `config`: a dataclass, stored as config.json.
    - `loop`: what was built from it.
    - `run`: makes what is the app's own, once the folder is there.
    - `steps`: how many steps of the loop make a whole run.

    **Raises:** [`zero_train.app.UsageError`][] for what cannot be trained at all;
    [`zero_train.NonFiniteError`][], and keeps the last good checkpoint;
    [`zero_train.RunError`][] and [`zero_train.CheckpointError`][] where the folder or the disk
    refuses.
    """
    started = time.monotonic()
    if steps < 1:
        raise UsageError(f"--steps {steps} was given; give at least 1.")
    check_bounds(config, {"checkpoint_every": (1, math.inf)})
    like = template(loop)
    _check_memory(like)
    with (
        StopSignal() as stop,
        RunFolder.create(**folder_of(config, options)) as folder,
        _discarded(folder, options),
    ):
        checkpoints = Checkpoints(folder.path / "checkpoints")
        players = Checkpoints(folder.path / "players", keep=None)
        state, done, aside = None, 0, None
        if checkpoints.steps():
            done, state = checkpoints.restore_latest(like, tell=warn)
            for kept in (checkpoints, folder, players):
                kept.rewind(done)
        elif options.resume:
            aside = folder.begin_again()
        lines = read_lines(folder.path / "evaluations.jsonl")
        own = run(Records(folder, players, lines))
        with (
            View(steps, own.shown, start=done) as view,
            _Sinks(folder, done, own.project if options.wandb else None) as sinks,
        ):
            books = _Books(own, folder, checkpoints, players)
            if state is None:
                if options.resume:
                    had = f"; what it had written is in {aside.name}" if aside else ""
                    view.note(f"the run has no checkpoint yet and begins again{had}")
                view.note("compiling, then filling the replay with the first games")
                state = fill(loop, init(loop, key=jr.fold_in(jr.key(config.seed), 0)))
                view.note(f"the first games were over after {time.monotonic() - started:.0f} s")
            # Also a player that was not yet saved with its checkpoint.
            books.save(done, state)
            with _reported(own, folder):
                run_step = _compiled(loop, state, view)
                while done < steps and not stop.requested:
                    if options.max_minutes is not None:
                        if time.monotonic() - started > 60 * options.max_minutes:
                            view.note(f"--max-minutes {options.max_minutes:g} are over")
                            break
                    began = time.perf_counter()
                    state, new = run_step(state)
                    new = jax.device_get(new)
                    timings = _timings(new, time.perf_counter() - began)
                    done += 1
                    metrics, standing = books.measure(done, new, state.agent)
                    folder.log(done, metrics, timings)
                    sinks.log(done, metrics | timings)
                    view.update(done, metrics, timings)
                    if standing is not None:
                        view.standing(standing.figures, standing.verdict)
                    if done % config.checkpoint_every == 0:
                        books.save(done, state)
                if stop.requested:
                    view.note(f"{stop.name} came: saving; go on with --resume")
                books.save(done, state)


def _compiled(loop: Loop, state: LoopState, view: View) -> Callable[..., Any]:
    began = time.perf_counter()
    run_step = compiled_step(loop, state)
    if not loop.actor_devices:
        view.note(f"a step was compiled in {time.perf_counter() - began:.1f} s")
    return run_step


def _check_memory(state: LoopState) -> None:
    """**Raises:** [`zero_train.app.UsageError`][] where the state alone is more than the memory
    there is; what acting and learning need besides shows when they are run."""
    device, *others = jax.devices()
    room = (device.memory_stats() or {}).get("bytes_limit", 0) * (1 + len(others))
    if device.platform == "cpu":
        room = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    size = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(state))
    if room and size > room:
        raise UsageError(
            f"The games, replay and network of this run take {size / 1e9:,.0f} GB, and there are "
            f"{room / 1e9:,.0f}; give fewer games, less replay or a smaller network."
        )


@contextlib.contextmanager
def _discarded(folder: RunFolder, options: Options) -> Iterator[None]:
    """Leaves no folder of a run that was not resumed and failed before anything of it was saved,
    such as for lack of memory. One that was killed stays, and `--resume` begins again."""
    try:
        yield
    except Exception:
        if not options.resume and not Checkpoints(folder.path / "checkpoints").steps():
            folder.discard()
        raise


@contextlib.contextmanager
def _reported(own: AbstractRun, folder: RunFolder) -> Iterator[None]:
    """Writes the report at the end. Where an error ends the run, it is that one which is raised,
    not what the report may have met for the same reason, such as a full disk."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError, RunError):
            own.report(folder.path)
        raise
    own.report(folder.path)


class _Books:
    """What a run adds up and keeps besides its log: totals, checkpoints and players."""

    def __init__(
        self, own: AbstractRun, folder: RunFolder, checkpoints: Checkpoints, players: Checkpoints
    ):
        self._own = own
        self._folder = folder
        self._checkpoints = checkpoints
        self._players = players
        before = read_lines(folder.path / "metrics.jsonl")
        self._totals = {name: int(before[-1][name]) if before else 0 for name in _COUNTS}

    def measure(
        self, done: int, new: Mapping[str, Any], agent: PyTree[Array]
    ) -> tuple[dict[str, Any], Standing | None]:
        """Everything to log of a step, with what its evaluation found if it is due.

        **Raises:** [`zero_train.NonFiniteError`][] before anything is written; the update itself
        has refused to learn from such a step.
        """
        check_finite(done, new)
        for name in _COUNTS:
            self._totals[name] += int(new[name])
        metrics = {**new, **self._totals, **self._own.measure(done)}
        player = self._own.player(agent)
        standing = self._own.evaluate(done, player)
        if standing is not None:
            self._players.save(done, player)
            for row in standing.rows:
                self._folder.log_evaluation(done, row)
            metrics |= standing.metrics
        return metrics, standing

    def save(self, done: int, state: LoopState) -> None:
        """Saves the whole state, and the player it holds."""
        if done not in self._checkpoints.steps():
            self._checkpoints.save(done, state)
        if done not in self._players.steps():
            self._players.save(done, self._own.player(state.agent))


class _Sinks:
    """TensorBoard always, Weights & Biases where a project is given."""

    def __init__(self, folder: RunFolder, done: int, project: str | None):
        self._sinks: list[Sink] = [TensorBoardSink(folder.path, resumed_at=done or None)]
        if project is not None:
            self._sinks.append(WandbSink(project, folder.path, folder.config))

    def __enter__(self) -> "_Sinks":
        return self

    def __exit__(self, *_: object) -> None:
        for sink in self._sinks:
            sink.close()

    def log(self, done: int, metrics: Mapping[str, Any]) -> None:
        for sink in self._sinks:
            sink.log(done, metrics)


def _timings(new: Mapping[str, Any], seconds: float) -> dict[str, float]:
    return {"seconds": seconds} | {
        f"{name}_per_second": int(new[name]) / seconds for name in _COUNTS
    }
