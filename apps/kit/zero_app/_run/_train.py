"""The run of an app: the training loop with logs, checkpoints and evaluations."""

import concurrent.futures
import contextlib
import dataclasses
import os
import pathlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import jax
from jaxtyping import Array, PyTree
from rich.console import Console

from zero_train import (
    AbstractActor,
    close,
    episode_metrics,
    is_writer,
    Loop,
    LoopState,
    of_writer,
    step,
    template,
    together,
)

from .._command._config import AbstractConfig
from .._command._errors import UsageError, warn
from ._app import App, built
from ._background import ended, in_background, quiet_compiler
from ._checkpoint import Checkpoints
from ._evaluation import Evaluate, EvaluationResult, RunFiles
from ._folder import check_finite, RunFolder, StopSignal
from ._lines import lines_of, RunError
from ._manifest import CheckpointError, Damage
from ._measures import identifying
from ._options import folder_of, MAY_DIFFER, Options
from ._origin import origin_of
from ._pacing import Pacing
from ._players import load, player_arrays, player_file, player_of, player_shapes, PRETRAINED
from ._prepare import check_memory, prepare
from ._provenance import check_logs, CHECKPOINTS, FINISHED, finished_steps, PLAYERS
from ._report import StoredRun
from ._reporting import Report
from ._sinks import logging_to_sinks
from ._view import View


Config = TypeVar("Config", bound=AbstractConfig)

#: The counts that [`zero_train.step`][] returns. They are logged as totals, and per second.
_COUNTS = ("positions", "games")
#: As many episodes of an evaluation are logged at the most: a line must not be too long to be read.
_MOST_EPISODES = 2**16
#: The seconds that an evaluation may take after a signal, as the scheduler that sends it may end
#: the process half a minute later, and after the time that the user gave.
_AFTER_SIGNAL, _AFTER_TIME = 20, 60


def train(
    app: App[Config],
    config: Config,
    options: Options,
    preset: str | None = None,
    *,
    stop: StopSignal | None = None,
    told: Callable[[int, EvaluationResult], None] = lambda step, result: None,
) -> StoredRun | None:
    """Trains until all steps are done, the time is up, or a signal asks to stop.

    In each case the whole state is saved, so that `--resume` continues exactly: metrics.jsonl is
    the same, byte for byte, as that of a run that never stopped, but where simulators on the host
    begin anew. Where the latest checkpoint is damaged, the run continues from the one before. Where
    it was killed before its first checkpoint, it starts again. When all steps are done and the
    player of the last one is evaluated, the folder has a file `finished`.

    **Arguments:**

    - `preset`: the name of the preset from which the report says what differs; by default the
        app's.
    - `stop`: a `StopSignal` that the caller has made, and may ask afterwards whether to stop. It
        replaces `max_minutes`, which count from this call on.
    - `told`: hears of each evaluation after its lines are written. What it raises ends the run.

    **Returns:** the run, or `None` where it was stopped before its first step.

    **Raises:** [`zero_app.NonFiniteError`][], and keeps the last good checkpoint.
    """
    limit = options.max_minutes
    stop = StopSignal(None if limit is None else 60 * limit) if stop is None else stop
    loop = built(app, config, options.launch.num_devices, options.launch.fsdp)
    like = template(loop)
    # What acting and learning need in addition is known only when they are compiled.
    size = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(like)) / jax.process_count()
    check_memory(size, "The games, replay and network of this run take", "games, less replay")
    first = _first_player(app, config, loop, options)
    with (
        stop,
        RunFolder.create(**folder_of(config, options), tell=warn) as folder,
        _discarded(folder, options),
    ):
        record = _Record(app, config, loop, folder)
        state, aside = record.restored(like), None
        if state is None and options.resume:
            aside = folder.begin_again()
        record.start()
        if state is not None:
            record.rewind()
        folder.log_start(record.done, _origin(app, config, preset or app.default_preset))
        console = None if is_writer() else Console(quiet=True)
        with (
            View(record.num_steps, start=record.done, console=console) as view,
            logging_to_sinks(folder, record.done, app.name, options) as log,
        ):
            if state is None and options.resume:
                had = f"; what it had written is in {aside.name}" if aside else ""
                view.note(f"the run has no checkpoint yet and begins again{had}")
            steps, prepared = _Steps(record, options, stop, view, log, told), state
            if state is None or record.done < record.num_steps:
                prepared = prepare(config, loop, state, like, stop, view, first)
            if prepared is None:
                then = "begins the run again"
                if state is not None:
                    then = f"goes on from step {record.done}"
                view.note(f"{steps.cause()} before the first step; --resume {then}")
            else:
                with Report(app, folder) as report:
                    with record.finished():
                        steps.run(loop, prepared, report)
                    # An evaluation that was given up is still to come.
                    if record.done == record.num_steps and record.evaluated:
                        folder.write(FINISHED, f"{record.done} steps of run {folder.run}\n")
    return None if state is None and prepared is None else StoredRun.read(options.out)


def _first_player(
    app: App[Config], config: Config, loop: Loop, options: Options
) -> AbstractActor | None:
    """The player of `--init`, where the run begins with it."""
    if not config.init or Checkpoints(options.out / CHECKPOINTS).steps():
        return None
    then = ""
    try:
        pretrained = config.init == PRETRAINED
        where = player_file(app, PRETRAINED, config) if pretrained else config.init
        player = load(app, where, run_code=options.run_code).player
        then = "; give a player of this configuration."
        template(loop, player)
    except ValueError as e:
        raise UsageError(f"--init {config.init}: {str(e).rstrip('.')}{then}") from e
    return player


def _origin(app: App[Any], config: AbstractConfig, preset: str) -> dict[str, Any]:
    """What the run is started with, and the preset."""
    package = type(config).__module__.partition(".")[0]
    made = origin_of(type(config), dict.fromkeys([package, "zero_app", "zero_train", "jax"]))
    values = dataclasses.asdict(app.presets[preset])
    return {**made, "preset": {"name": preset, "config": values}}


@dataclasses.dataclass(frozen=True)
class _Steps:
    """The steps of a run, and all that hears of them."""

    record: "_Record"
    options: Options
    stop: StopSignal
    view: View
    log: Callable[[int, Mapping[str, Any]], None]
    told: Callable[[int, EvaluationResult], None]

    def run(self, loop: Loop, state: LoopState, report: Report) -> None:
        """Trains until all are done, or the run is to stop."""
        record, stop, view = self.record, self.stop, self.view
        try:
            # Also parameters that were not yet saved with their checkpoint.
            record.save(state)
            evaluating = self._evaluate(state)
            while record.done < record.num_steps and not stop.agreed(record.done):
                began = time.perf_counter()
                state, new = step(loop, state)
                new = jax.device_get(new) | episode_metrics(state.episodes)
                timings = _timings(new, time.perf_counter() - began)
                metrics = record.step(new, timings)
                self.log(record.done, metrics | timings)
                view.update(record.done, metrics, timings)
                evaluating = self._evaluate(state)
                if record.pacing.due(record.done):
                    record.save(state)
                report.write_if_due()
        finally:
            close(state)
        if not stop.requested:
            return record.save(state)
        with view.waiting(f"{self.cause()}: saving step {record.done}", None):
            record.save(state)
            record.finish()
        goes_on = "" if record.done == record.num_steps else "; --resume goes on from there"
        view.note(f"saved at step {record.done}{goes_on}")
        if not record.done:
            view.note("nothing is learned yet, so nothing is evaluated")
        elif not record.evaluated:
            self._evaluate_at_stop(state, evaluating)

    def cause(self) -> str:
        """Why the run stops."""
        if self.stop.name:
            return f"{self.stop.name} came"
        if self.stop.over:
            minutes = self.options.max_minutes
            if minutes is None:
                return "the time is over"
            return f"{minutes:g} minute{' is' if minutes == 1 else 's are'} over"
        return "one of the processes was told to stop"

    def _evaluate(self, state: LoopState) -> concurrent.futures.Future | None:
        """Evaluates the player if it is due. Where it is to stop meanwhile, this returns the
        evaluation that goes on."""
        if self.stop.requested or not self.record.evaluation_due:
            return None
        return self._shown(self.record.evaluating(state.agent), lambda: self.stop.requested)

    def _shown(
        self, evaluating: concurrent.futures.Future, given_up: Callable[[], bool]
    ) -> concurrent.futures.Future | None:
        """Waits for an evaluation, then shows it and writes its lines; returns it where it was
        given up."""
        record, view = self.record, self.view
        expected = record.evaluation_seconds
        compiles = ", and compiling it" if expected is None else ""
        what = f"evaluating the player of step {record.done}{compiles}"
        with view.waiting(what, expected), quiet_compiler():
            if not ended(evaluating, lambda: view.still() or given_up()):
                return evaluating
        result = evaluating.result()
        together("an evaluation")
        record.keep(result)
        self.log(record.done, result.metrics)
        view.evaluation(result.figures, result.headline)
        self.told(record.done, result)
        return None

    def _evaluate_at_stop(
        self, state: LoopState, evaluating: concurrent.futures.Future | None
    ) -> None:
        """Evaluates what is saved already, so that a short run has a figure too, or says what does.
        Only for a while: who sends a signal may soon end the process. A resumed run forgets the
        figure, unless it is due."""
        record, stop, view = self.record, self.stop, self.view
        later = f"`{record.app.command} eval {self.options.out}` measures the player"
        if jax.process_count() > 1:  # each of which may be ended while others wait for it
            return view.note(later)
        name = stop.name
        seconds = _AFTER_SIGNAL if name else _AFTER_TIME
        until = time.monotonic() + seconds
        given_up = lambda: time.monotonic() > until or stop.name != name
        if evaluating is None:
            evaluating = record.evaluating(state.agent)
        if self._shown(evaluating, given_up) is not None:
            why = f"takes more than {seconds} s" if stop.name == name else f"{stop.name} came"
            view.note(f"the evaluation is left out ({why}); {later}")


@contextlib.contextmanager
def _discarded(folder: RunFolder, options: Options) -> Iterator[None]:
    """Removes the folder of a new run that fails before its first checkpoint, such as for lack of
    memory. The folder of a run that was killed stays, and `--resume` starts it again."""
    try:
        yield
    except Exception:
        if not options.resume and not Checkpoints(folder.path / CHECKPOINTS).steps():
            # A thread, or another process, may still write there.
            with contextlib.suppress(OSError):
                folder.discard()
        raise


class _Record:
    """What a run has done so far, in its folder: `done` of `num_steps` steps. The last evaluation
    of this process took `evaluation_seconds`, `None` before the first one, which also compiles."""

    def __init__(self, app: App[Any], config: AbstractConfig, loop: Loop, folder: RunFolder):
        self.config, self.done, self.num_steps = config, 0, app.num_steps(config)
        self.evaluation_seconds: float | None = None
        self.app, self._loop, self._folder = app, loop, folder
        self._checkpoints = Checkpoints(folder.path / CHECKPOINTS)
        self._parameters = Checkpoints(folder.path / PLAYERS)
        # The last step that each has; a new run saves its step 0.
        self._saved = dict.fromkeys((self._parameters, self._checkpoints), -1)

    def restored(self, like: LoopState) -> LoopState | None:
        """The state of the last checkpoint, or `None` without one. Nothing is changed."""
        if not of_writer("saved", self._checkpoints.steps()):
            return None
        self.done, state = self._checkpoints.restore_latest(like, tell=warn)
        if is_writer():
            check_logs(self._folder.path, tell=warn, step=self.done)
        self._saved = {self._parameters: self.done - 1, self._checkpoints: self.done}
        if self.done in of_writer("player", self._parameters.steps()):
            try:
                self._player_of(self.done)
                self._saved[self._parameters] = self.done
            except CheckpointError as e:
                if not isinstance(e.__cause__, Damage):  # such as one of another version
                    raise
                if is_writer():
                    warn(f"{e} It is saved again, from the checkpoint.")
        return state

    def rewind(self) -> None:
        """Removes what came after the state that was restored, once nothing refuses to go on: an
        evaluation, too, that is not due there."""
        self._folder.rewind(self.done, evaluated=self.evaluated)
        finished = self._folder.path / FINISHED
        if is_writer() and (said := finished_steps(finished.parent)) > self.done:
            if said not in self._checkpoints.steps():
                warn(
                    f"{finished} says that {said} steps are done, and checkpoint {said} is "
                    f"missing; the run goes on from step {self.done}."
                )
            finished.unlink()
        for store, last in self._saved.items():
            store.rewind(last)

    def start(self) -> None:
        """Reads what was logged until then, and makes the app's evaluation."""
        self.pacing = Pacing(self.config.checkpoint_every, self.done)
        self._totals = of_writer("totals", self._stored_totals())
        until = self.done - (not self._is_evaluated_step)
        log = self._folder.path / "evaluations.jsonl"
        # A shared disk may show them to one process later than to another, and all have to evaluate
        # at the same steps.
        rows = [row for row in lines_of(log) if row["step"] <= until]
        evaluations = of_writer("evaluations", rows)
        self._evaluated = evaluations[-1]["step"] if evaluations else 0
        self._parameters.pinned = {0, *(row["step"] for row in evaluations)}
        files = RunFiles(self._folder, evaluations, self._player_of)
        try:
            self._evaluate: Evaluate = self.app.evaluation(self.config, self._loop, files)
        except (LookupError, TypeError) as e:
            if not evaluations:
                raise
            raise RunError(f"{log} has lines of another kind ({e!r}); put a copy back.") from e

    def _stored_totals(self) -> dict[str, int]:
        """The totals after the steps that are done. Older versions had them in the log alone."""
        said = self._checkpoints.about(self.done).get("totals") if self.done else {}
        if said is None:
            rows = lines_of(self._folder.path / "metrics.jsonl")
            said = next((row for row in rows if row["step"] == self.done), {})
        return {name: int(said.get(name, 0)) for name in _COUNTS}

    def step(self, new: Mapping[str, Any], timings: Mapping[str, float]) -> dict[str, Any]:
        """Logs a step, and returns its metrics with the totals. Before anything is written it
        raises a [`zero_app.NonFiniteError`][], of a step from which the agent has not learned."""
        self.done += 1
        check_finite(self.done, new)
        for name in _COUNTS:
            self._totals[name] += int(new[name])
        metrics = {**new, **self._totals}
        self._folder.log(self.done, metrics, timings)
        return metrics

    @property
    def evaluated(self) -> bool:
        """Whether the player of this step was evaluated."""
        return self._evaluated >= self.done

    @property
    def evaluation_due(self) -> bool:
        """Whether the player is to be evaluated after this step, and was not yet."""
        return self._is_evaluated_step and not self.evaluated

    @property
    def _is_evaluated_step(self) -> bool:
        """Whether a run that is not stopped evaluates the player of this step."""
        last = self.done == self.num_steps
        return self.done > 0 and (self.done % self.config.evaluate_every == 0 or last)

    def evaluating(self, agent: PyTree[Array]) -> concurrent.futures.Future:
        """Begins what the app finds of the player at full strength, in a thread that writes no
        log. The player is saved, and kept."""
        arrays = player_arrays(self._loop, agent)
        self._parameters.pinned.add(self.done)
        self._save(self._parameters, arrays)
        player, self._evaluation_began = player_of(self._loop, arrays), time.monotonic()
        return in_background(lambda: self._evaluate(self.done, player))

    def keep(self, result: EvaluationResult) -> None:
        """Writes the lines of an evaluation."""
        known = {"positions": self._totals["positions"]}
        cut = lambda each: {name: values[_few(each)] for name, values in each.items()}
        pairs = zip(result.rows, result.episodes, strict=bool(result.episodes))
        episodes = [identifying(row) | known | cut(each) for row, each in pairs]
        self._folder.log_evaluation(self.done, *result.rows, episodes=episodes)
        self._evaluated = self.done
        self.evaluation_seconds = time.monotonic() - self._evaluation_began

    def save(self, state: LoopState) -> None:
        """Has the player and the whole state saved, in this order: no checkpoint lacks its player.
        This takes as long as copying them; threads write."""
        with self.pacing.saving(self.done, self._checkpoints):
            self._save(self._parameters, player_arrays(self._loop, state.agent))
            self._save(self._checkpoints, state, totals=self._totals, logs=self._folder.written)

    def finish(self) -> None:
        """Waits until all is on disk."""
        for store in self._saved:
            store.finish()

    @contextlib.contextmanager
    def finished(self) -> Iterator[None]:
        """Waits at the end until all is on disk. Where an error ends the run, that is raised; one
        of several processes does not wait then, because another one may never write its part."""
        try:
            yield
            self.finish()
        except BaseException:
            if jax.process_count() == 1:
                for store in self._saved:
                    with contextlib.suppress(CheckpointError):
                        store.finish()
            raise

    def _save(self, store: Checkpoints, state: PyTree[Array], **about: Any) -> None:
        if self.done > self._saved[store]:
            config = {k: v for k, v in self._folder.config.items() if k not in MAY_DIFFER}
            about |= {"run": self._folder.run, "config": config}
            store.save(self.done, state, about=about, wait=False)
            self._saved[store] = self.done

    def _player_of(self, step: int) -> AbstractActor:
        self._parameters.finish()
        return player_of(self._loop, self._parameters.restore(player_shapes(self._loop), step=step))


def _few(episodes: Mapping[str, Any]) -> Any:
    """The index of as many as are logged: of a match all games of the first openings, because the
    games in which one player moves first come before the others."""
    opening = episodes.get("opening")
    return slice(_MOST_EPISODES) if opening is None else opening < _MOST_EPISODES // 2


def _timings(new: Mapping[str, Any], seconds: float) -> dict[str, float]:
    rates = {f"{name}_per_second": int(new[name]) / seconds for name in _COUNTS}
    return {"seconds": seconds} | rates | _memory()


def _memory() -> dict[str, float]:
    """The bytes of this process on the host, and those in use on its devices, where the system says
    so. A CPU has no memory of its own."""
    found = {}
    with contextlib.suppress(OSError, ValueError):
        resident = pathlib.Path("/proc/self/statm").read_text().split()[1]
        found["host_bytes"] = int(resident) * os.sysconf("SC_PAGE_SIZE")
    stats = [device.memory_stats() or {} for device in jax.local_devices()]
    if used := sum(one.get("bytes_in_use", 0) for one in stats):
        found["device_bytes"] = used
    return found
