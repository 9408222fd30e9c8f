"""Sinks of metrics besides the run folder: TensorBoard, Weights & Biases and MLflow."""

import concurrent.futures
import contextlib
import functools as ft
import logging
import os
import pathlib
import queue
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from zero_train import is_writer

from .._command._errors import UsageError, warn
from ._background import in_background
from ._disk import read_whole, write_whole
from ._folder import RunFolder, Sink
from ._lines import complaining, PART
from ._options import MISSING, Options


#: Flushing waits for the disk itself: not after every step.
_FLUSH_SECONDS = 5
# How often a thread is looked at that may have failed, in seconds.
_POLL = 0.1


class TensorBoardSink:
    """Writes scalars as TensorBoard events: a [`zero_app.Sink`][]. Each 64 MB are a file, which
    TensorBoard shows as one run."""

    def __init__(self, folder: str | os.PathLike[str], *, resumed_at: int | None = None):
        """The folder is made if it is missing. After `resumed_at`, the last step done, TensorBoard
        hides the steps of the run that was interrupted."""
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto import event_pb2

        self._folder = pathlib.Path(folder)
        self._proto: Any = event_pb2  # makes its classes at import; type checkers do not see them
        # tensorboardX's `SummaryWriter` writes in a thread; where the disk refuses that thread
        # dies, and whoever logs after it waits for ever.
        with self._complaining():
            self._folder.mkdir(parents=True, exist_ok=True)
            self._new_file = ft.partial(EventsWriter, str(self._folder / "events"))
            self._writer, self._files, self._size = self._new_file(), 1, 0
            if resumed_at is not None:
                event = self._event(resumed_at + 1)
                event.session_log.status = self._proto.SessionLog.START
                self._writer.write_event(event)
            self._flush()

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Writes one step; it reaches the disk within a few seconds of steps."""
        event = self._event(step)
        for name, value in metrics.items():
            event.summary.value.add(tag=name, simple_value=float(value))
        with self._complaining():
            if self._size >= PART:
                self._writer.close()
                # Files made in the same second would have the same name.
                self._writer = self._new_file(f".{self._files}")
                self._files, self._size = self._files + 1, 0
            self._writer.write_event(event)
            self._size += event.ByteSize()
            if time.monotonic() - self._flushed > _FLUSH_SECONDS:
                self._flush()

    def close(self) -> None:
        """Closes the event file."""
        # What a full disk refused is still in the file's own memory, and `log` has complained.
        with contextlib.suppress(OSError):
            self._writer.close()

    def _event(self, step: int) -> Any:
        return self._proto.Event(step=step, wall_time=time.time())

    def _flush(self) -> None:
        self._writer.flush()
        self._flushed = time.monotonic()

    def _complaining(self) -> contextlib.AbstractContextManager[None]:
        return complaining(f"Events in {self._folder}", "written")


class WandbSink:
    """Sends scalars to Weights & Biases: a [`zero_app.Sink`][]. Needs the extra `wandb`.

    Its own steps only grow, so that it would refuse what a resumed run logs again. The steps of the
    run are therefore a metric, `training_step`, over which it draws all others.
    """

    def __init__(self, project: str, folder: pathlib.Path, config: Mapping[str, Any]):
        """The name of the run folder is the run's name there; its file wandb.id is the run's
        identity, so that only this folder's own run is ever resumed."""
        try:
            import wandb  # pyright: ignore[reportMissingImports]  # an extra
        except ImportError as e:
            raise UsageError(MISSING.format("--wandb", "wandb")) from e
        identity = folder / "wandb.id"
        if not identity.exists():
            write_whole(identity, uuid.uuid4().hex)
        self._run = wandb.init(
            project=project,
            name=folder.name,
            id=read_whole(identity).decode(),
            resume="allow",
            dir=str(folder),
            config=dict(config),
            settings={"console": "off"},  # the live view is no log
        )
        self._run.define_metric("training_step")
        self._run.define_metric("*", step_metric="training_step")

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Sends one step."""
        self._run.log({name: float(x) for name, x in metrics.items()} | {"training_step": step})

    def close(self) -> None:
        """Waits until everything is sent."""
        self._run.finish()


#: The variable of the environment that says where MLflow writes to.
_TRACKED = "MLFLOW_TRACKING_URI"


class MlflowSink:
    """Sends scalars to MLflow: a [`zero_app.Sink`][]. Needs the extra `mlflow`.

    Where to is what the environment variable `MLFLOW_TRACKING_URI` says; without it MLflow writes
    into a file of the working folder, and a line says so.
    """

    def __init__(self, experiment: str, folder: pathlib.Path, config: Mapping[str, Any]):
        """The experiment is made if it is missing. The file mlflow.id of the run folder is the
        run's identity."""
        for noisy in ("mlflow.store.db", "alembic"):  # which say how they make their tables
            logging.getLogger(noisy).setLevel(logging.WARNING)
        try:
            from mlflow import entities, MlflowClient  # pyright: ignore[reportMissingImports]
        except ImportError as e:
            raise UsageError(MISSING.format("--mlflow", "mlflow")) from e
        self._client, self._metric = MlflowClient(), entities.Metric
        if _TRACKED not in os.environ:
            warn(f"MLflow writes to {self._client.tracking_uri}; {_TRACKED} names another place.")
        identity = folder / "mlflow.id"
        if identity.exists():
            self._id = read_whole(identity).decode()
            self._client.update_run(self._id, status="RUNNING")
            return
        known = self._client.get_experiment_by_name(experiment)
        where = known.experiment_id if known else self._client.create_experiment(experiment)
        self._id = self._client.create_run(where, run_name=folder.name).info.run_id
        write_whole(identity, self._id)
        shown = [entities.Param(name, str(value)) for name, value in config.items()]
        self._client.log_batch(self._id, params=shown)

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Sends one step."""
        now = int(1000 * time.time())
        rows = [self._metric(name, float(x), now, step) for name, x in metrics.items()]
        self._client.log_batch(self._id, metrics=rows)

    def close(self) -> None:
        """Says that the run has ended."""
        self._client.set_terminated(self._id)


class BackgroundSink:
    """Hands metrics to another [`zero_app.Sink`][] in a thread, so that one that fails, waits for
    a network or hangs neither ends nor delays a run. The first time that something is lost, a line
    says so."""

    def __init__(
        self,
        name: str,
        make: Callable[[], Sink],
        *,
        room: int = 1000,
        patience: float = 60.0,
        tell: Callable[[str], None] = warn,
    ):
        """Messages call the sink `name`, and `make` makes it, in the thread. `room` steps may wait
        for it, and further ones are left out; `close` waits `patience` seconds for it."""
        self._name, self._make, self._tell = name, make, tell
        self._patience = patience
        self._told = False
        self._steps = queue.Queue[tuple[int, dict[str, Any]] | None](room)
        self._thread = in_background(self._send)

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Leaves the metrics of a step for the thread to log."""
        if self._thread.done():  # it failed
            return
        try:
            self._steps.put_nowait((step, dict(metrics)))
        except queue.Full:
            self._lose(f"does not keep up; it lacks some steps from {step} on")

    def close(self) -> None:
        """Waits until everything is logged and the sink is closed, but not for ever."""
        if self._thread.done():  # it failed, and empties no queue
            return
        until = time.monotonic() + self._patience
        # It may fail while its queue is full, and then empties it no more.
        while not self._thread.done() and time.monotonic() < until:
            with contextlib.suppress(queue.Full):
                self._steps.put(None, timeout=_POLL)
                break
        left = max(0.0, until - time.monotonic())
        if not concurrent.futures.wait([self._thread], timeout=left).done:
            self._lose(f"did not end within {self._patience:.0f} s; it may lack the last steps")

    def _send(self) -> None:
        try:
            sink = self._make()
            while (item := self._steps.get()) is not None:
                sink.log(*item)
            sink.close()
        except BaseException as e:
            said = " ".join(str(e).split())[:200] or type(e).__name__
            self._lose(f"failed ({said}), and gets no more steps")

    def _lose(self, how: str) -> None:
        if not self._told:
            self._told = True
            self._tell(f"{self._name} {how}. The run goes on, and metrics.jsonl has every step.")


@contextlib.contextmanager
def logging_to_sinks(
    folder: RunFolder, done: int, name: str, options: Options
) -> Iterator[Callable[[int, Mapping[str, Any]], None]]:
    """A function that logs a step to TensorBoard, and to the trackers that are asked for, in the
    process that writes. `done` steps are done; `name` is that of the project and of the experiment.
    """
    sinks: list[Sink] = []
    if is_writer():
        sinks.append(TensorBoardSink(folder.path, resumed_at=done if options.resume else None))
        for asked, called, kind in (
            (options.wandb, "Weights & Biases", WandbSink),
            (options.mlflow, "MLflow", MlflowSink),
        ):
            if asked:
                make = ft.partial(kind, name, folder.path, folder.config)
                sinks.append(BackgroundSink(called, make))

    def log(step: int, metrics: Mapping[str, Any]) -> None:
        for sink in sinks:
            sink.log(step, metrics)

    try:
        yield log
    finally:
        for sink in sinks:
            sink.close()
