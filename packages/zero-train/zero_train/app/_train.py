"""The run of an app: the training loop with logs, checkpoints and evaluations."""

import abc
import concurrent.futures
import contextlib
import dataclasses
import hashlib
import json
import math
import os
import pathlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.random as jr
from jaxtyping import Array, PyTree

from .. import (
    check_finite,
    Checkpoints,
    compiled_step,
    episode_metrics,
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
from ._background import in_background
from ._config import check_bounds, folder_of, Options, RunConfig
from ._errors import UsageError, warn
from ._sinks import TensorBoardSink, WandbSink
from ._view import View


@dataclasses.dataclass(frozen=True)
class RunFiles:
    """What a run has on disk when it starts or is resumed.

    **Attributes:**

    - `folder`: the run folder, where the app may write files of its own.
    - `parameters`: what [`zero_train.app.AbstractRun`][]`.parameters` returned, by step.
    - `evaluations`: the lines of evaluations.jsonl so far.
    """

    folder: RunFolder
    parameters: Checkpoints
    evaluations: list[dict[str, Any]]


@dataclasses.dataclass(frozen=True)
class EvaluationResult:
    """What [`zero_train.app.AbstractRun`][]`.evaluate` returns.

    **Attributes:**

    - `rows`: new lines of evaluations.jsonl.
    - `metrics`: logged with the step.
    - `figures`: labelled figures for the live view.
    - `headline`: a line for the live view.
    """

    rows: Sequence[Mapping[str, Any]]
    metrics: Mapping[str, Any]
    figures: Mapping[str, str]
    headline: str = ""


class AbstractRun(abc.ABC):
    """What an app adds to [`zero_train.app.train`][].

    Its state must follow from the configuration and the [`zero_train.app.RunFiles`][], so that a
    resumed run writes the same lines as one that never stopped.

    **Attributes:**

    - `project`: the project of the app's runs in Weights & Biases.
    - `shown`: the metrics that the live view shows, and what it calls them.
    """

    project: str
    shown: Mapping[str, str]

    @abc.abstractmethod
    def parameters(self, agent: PyTree[Array]) -> PyTree[Array]:
        """The part of an agent's state that plays, such as its parameters. It is evaluated, and
        saved with every checkpoint and every evaluation."""

    @abc.abstractmethod
    def measure(self, step: int) -> Mapping[str, Any]:
        """More metrics of a step than [`zero_train.step`][] returns, such as the learning rate."""

    @abc.abstractmethod
    def evaluate(self, step: int, parameters: PyTree[Array]) -> EvaluationResult | None:
        """Evaluates these parameters after a step; returns `None` where no evaluation is due."""

    @abc.abstractmethod
    def report(self, folder: pathlib.Path) -> None:
        """Writes the report of the run in `folder`. Called when the run ends, also by an error."""


#: The counts that [`zero_train.step`][] returns. They are logged as totals, and per second.
_COUNTS = ("positions", "games")


def train(
    config: RunConfig,
    loop: Loop,
    options: Options,
    run: Callable[[RunFiles], AbstractRun],
    *,
    steps: int,
) -> bool:
    """Trains until all steps are done, the time is up, or a signal asks to stop.

    In each case the whole state is saved, so that `--resume` continues exactly: metrics.jsonl is
    the same, byte for byte, as that of a run that never stopped. Where the latest checkpoint is
    damaged, the run continues from the one before. Where it was killed before its first
    checkpoint, it starts again.

    **Arguments:**

    - `config`: a dataclass, stored as config.json.
    - `loop`: what was built from it.
    - `run`: builds the app's part, after the folder is made.
    - `steps`: the number of steps of a whole run.

    **Returns:** whether there is something to play with: not where a signal came before the first
    step.

    **Raises:** [`zero_train.app.UsageError`][] for what cannot be trained at all;
    [`zero_train.NonFiniteError`][], and keeps the last good checkpoint;
    [`zero_train.RunError`][] and [`zero_train.CheckpointError`][] where the folder or the disk
    refuses.
    """
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
        parameters = Checkpoints(folder.path / "parameters", keep=None)
        state, done, aside = None, 0, None
        if checkpoints.steps():
            done, state = checkpoints.restore_latest(like, tell=warn)
            for kept in (checkpoints, folder, parameters):
                kept.rewind(done)
        elif options.resume:
            aside = folder.begin_again()
        own = run(RunFiles(folder, parameters, read_lines(folder.path / "evaluations.jsonl")))
        with (
            View(steps, own.shown, start=done) as view,
            _Sinks(folder, done, own.project if options.wandb else None) as sinks,
        ):
            bookkeeping = _Bookkeeping(own, folder, checkpoints, parameters)
            if state is None and options.resume:
                had = f"; what it had written is in {aside.name}" if aside else ""
                view.note(f"the run has no checkpoint yet and begins again{had}")
            prepared = _prepare(config, loop, state, like, stop, view)
            if prepared is None:
                then = "begins the run again" if state is None else f"goes on from step {done}"
                view.note(f"{stop.name} came before the first step; --resume {then}")
                return state is not None
            state, run_step = prepared
            # Also parameters that were not yet saved with their checkpoint.
            bookkeeping.save(done, state)
            started = time.monotonic()
            with _reported(own, folder):
                while done < steps and not stop.requested:
                    if options.max_minutes is not None:
                        if time.monotonic() - started > 60 * options.max_minutes:
                            view.note(f"--max-minutes {options.max_minutes:g} are over")
                            break
                    began = time.perf_counter()
                    state, new = run_step(state)
                    new = jax.device_get(new) | episode_metrics(state.episodes)
                    timings = _timings(new, time.perf_counter() - began)
                    done += 1
                    metrics, result = bookkeeping.measure(done, new, state.agent)
                    folder.log(done, metrics, timings)
                    sinks.log(done, metrics | timings)
                    view.update(done, metrics, timings)
                    if result is not None:
                        view.evaluation(result.figures, result.headline)
                    if done % config.checkpoint_every == 0:
                        bookkeeping.save(done, state)
                if stop.requested:
                    view.note(f"{stop.name} came: saving; go on with --resume")
                bookkeeping.save(done, state)
    return True


def _prepare(
    config: RunConfig,
    loop: Loop,
    state: LoopState | None,
    like: LoopState,
    stop: StopSignal,
    view: View,
) -> tuple[LoopState, Callable[..., Any]] | None:
    """The state after the first games, and the compiled step; `None` if a signal came meanwhile.

    Learning is compiled while the search is compiled and the first games are played. Both have
    threads of their own, because the main thread hears no signal while it waits for XLA. A run
    that goes on compiles its search in its first step.
    """
    began = time.monotonic()
    tasks = [in_background(lambda: compiled_step(loop, like))]
    what = "compiling"
    if state is None:
        key = jr.fold_in(jr.key(config.seed), 0)
        tasks.append(in_background(lambda: fill(loop, init(loop, key=key))))
        what = "compiling and playing the first games"
    last_time = _LastTime(config)
    with view.waiting(what, last_time.seconds if state is None else None):
        pending = set(tasks)
        while pending:
            done, pending = concurrent.futures.wait(
                pending, timeout=0.1, return_when=concurrent.futures.FIRST_EXCEPTION
            )
            for task in done:
                task.result()
            if stop.requested:
                return None
    seconds = time.monotonic() - began
    view.note(f"the first step begins after {seconds:.0f} s")
    if state is None:
        last_time.keep(seconds)
    run_step, *filled = (task.result() for task in tasks)
    return (filled[0] if state is None else state), run_step


class _LastTime:
    """How long the first step took to begin in the last run of a configuration, kept beside the
    compiled programs."""

    def __init__(self, config: RunConfig):
        cache: Any = jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue]
        self._path = pathlib.Path(cache) / "first_steps.json" if cache else None
        fields = {name: value for name, value in vars(config).items() if name != "seed"}
        self._name = hashlib.sha256(repr(fields).encode()).hexdigest()[:16]

    @property
    def seconds(self) -> float | None:
        """The seconds, or `None` where there was no such run."""
        return self._read().get(self._name)

    def keep(self, seconds: float) -> None:
        """Remembers the seconds of this run."""
        if self._path is not None:
            times = dict(list(self._read().items())[-99:]) | {self._name: round(seconds, 1)}
            with contextlib.suppress(OSError):
                self._path.write_text(json.dumps(times))

    def _read(self) -> dict[str, float]:
        try:
            return {} if self._path is None else dict(json.loads(self._path.read_text()))
        except (OSError, ValueError, TypeError):
            return {}


def _check_memory(state: LoopState) -> None:
    """**Raises:** [`zero_train.app.UsageError`][] where the state alone does not fit into memory.
    What acting and learning need in addition is known only when they run."""
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
    """Removes the folder of a new run that fails before its first checkpoint, such as for lack of
    memory. The folder of a run that was killed stays, and `--resume` starts it again."""
    try:
        yield
    except Exception:
        if not options.resume and not Checkpoints(folder.path / "checkpoints").steps():
            folder.discard()
        raise


@contextlib.contextmanager
def _reported(own: AbstractRun, folder: RunFolder) -> Iterator[None]:
    """Writes the report at the end. Where an error ends the run, that error is raised, and not
    another one that the report may meet for the same reason, such as a full disk."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError, RunError):
            own.report(folder.path)
        raise
    own.report(folder.path)


class _Bookkeeping:
    """The totals, checkpoints and parameters of a run."""

    def __init__(
        self,
        own: AbstractRun,
        folder: RunFolder,
        checkpoints: Checkpoints,
        parameters: Checkpoints,
    ):
        self._own = own
        self._folder = folder
        self._checkpoints = checkpoints
        self._parameters = parameters
        before = read_lines(folder.path / "metrics.jsonl")
        self._totals = {name: int(before[-1][name]) if before else 0 for name in _COUNTS}

    def measure(
        self, done: int, new: Mapping[str, Any], agent: PyTree[Array]
    ) -> tuple[dict[str, Any], EvaluationResult | None]:
        """All metrics of a step, and the result of its evaluation if one is due.

        **Raises:** [`zero_train.NonFiniteError`][] before anything is written. The agent has not
        learned from such a step.
        """
        check_finite(done, new)
        for name in _COUNTS:
            self._totals[name] += int(new[name])
        metrics = {**new, **self._totals, **self._own.measure(done)}
        parameters = self._own.parameters(agent)
        result = self._own.evaluate(done, parameters)
        if result is not None:
            self._parameters.save(done, parameters)
            for row in result.rows:
                self._folder.log_evaluation(done, row)
            metrics |= result.metrics
        return metrics, result

    def save(self, done: int, state: LoopState) -> None:
        """Saves the whole state, and the parameters that play."""
        if done not in self._checkpoints.steps():
            self._checkpoints.save(done, state)
        if done not in self._parameters.steps():
            self._parameters.save(done, self._own.parameters(state.agent))


class _Sinks:
    """Logs to TensorBoard, and to Weights & Biases where a project is given."""

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
