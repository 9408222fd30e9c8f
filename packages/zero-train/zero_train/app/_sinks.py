"""Sinks of metrics besides the run folder: TensorBoard and Weights & Biases."""

import contextlib
import functools as ft
import os
import pathlib
import time
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from .. import RunError
from .._lines import PART
from ._errors import UsageError


NO_WANDB = "--wandb needs the extra wandb; install zero-train[wandb], or leave the flag out."
#: Flushing waits for the disk itself: not after every step.
_FLUSH_SECONDS = 5


class TensorBoardSink:
    """Writes scalars as TensorBoard events: a [`zero_train.Sink`][]. Each 64 MB are a file, which
    TensorBoard shows as one run."""

    def __init__(self, folder: str | os.PathLike[str], *, resumed_at: int | None = None):
        """**Arguments:**

        - `folder`: for the event files; made if missing.
        - `resumed_at`: the last step done. TensorBoard hides later steps of the interrupted run.
        """
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
        """Writes one step; it reaches the disk within a few seconds of steps.

        **Raises:** [`zero_train.RunError`][] where the disk refuses.
        """
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

    @contextlib.contextmanager
    def _complaining(self) -> Iterator[None]:
        try:
            yield
        except OSError as e:
            raise RunError(f"Events in {self._folder} cannot be written: {e.strerror}.") from e


class WandbSink:
    """Sends scalars to Weights & Biases: a [`zero_train.Sink`][]. Needs the extra `wandb`."""

    def __init__(self, project: str, folder: pathlib.Path, config: Mapping[str, Any]):
        """**Arguments:**

        - `project`: the project's name there.
        - `folder`: the run folder. Its name is the run's name; its file wandb.id is the run's
            identity, so that only this folder's own run is ever resumed.
        - `config`: shown there.

        **Raises:** [`zero_train.app.UsageError`][] where wandb is not installed.
        """
        try:
            import wandb  # pyright: ignore[reportMissingImports]  # an extra
        except ImportError as e:
            raise UsageError(NO_WANDB) from e
        self._run = wandb.init(
            project=project,
            name=folder.name,
            id=_identity(folder / "wandb.id"),
            resume="allow",
            dir=str(folder),
            config=dict(config),
        )

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Sends one step."""
        self._run.log({name: float(value) for name, value in metrics.items()}, step=step)

    def close(self) -> None:
        """Waits until everything is sent."""
        self._run.finish()


def _identity(path: pathlib.Path) -> str:
    """A random name, the same whenever this file is asked again."""
    if not path.exists():
        path.write_text(uuid.uuid4().hex)
    return path.read_text()
