"""A run: its folder, its metrics, and signals to stop."""

import contextlib
import errno
import itertools
import json
import os
import pathlib
import secrets
import shutil
import signal
import threading
import time
import types
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import FrameType
from typing import Any, Protocol

import jax
import numpy as np
from jax.experimental.multihost_utils import reached_preemption_sync_point

from zero_train import is_writer, together

from .._command._errors import NonFiniteError
from ._disk import children, reason, temporary, write_whole
from ._lines import (
    check_kind,
    complaining,
    cut_lines,
    files_of,
    JsonLines,
    numpy_of,
    plain,
    read_object,
    RunError,
)
from ._lock import is_lock, LOCK, Lock
from ._provenance import check_run, CONFIG, differences, EVALUATED, LOGS, run_of


class Sink(Protocol):
    """Receives metrics: a file, TensorBoard, a web service."""

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Writes the metrics of one step."""

    def close(self) -> None:
        """Ends the log."""


def check_finite(step: int, metrics: Mapping[str, Any]) -> None:
    """Checks metrics before they are logged or saved. A [`zero_app.NonFiniteError`][] names the
    step and every metric that is NaN or infinite."""
    check_kind("check_finite", Mapping, "numbers by name", metrics=metrics)
    numbers = {name: numpy_of(x) for name, x in metrics.items()}
    for name, x in numbers.items():
        if x.dtype.kind not in "biuf":
            raise ValueError(f"`{name}` is of {x.dtype}; give real numbers.")
    bad = {name: x[~np.isfinite(x)] for name, x in numbers.items()}
    wrong = [f"{name}={x[0]}" for name, x in bad.items() if x.size]
    if wrong:
        then = "Resume from its last checkpoint, or start anew with a lower learning rate."
        if "turn_error" in bad and bad["turn_error"].size:
            then = (
                "A player moved twice in a row, so the values of a learned model have wrong signs; "
                "give an --agent that knows the rules."
            )
        raise NonFiniteError(
            f"Step {step} gave {', '.join(wrong)}, which is not finite; the run stops here. {then}"
        )


class RunFolder:
    """The folder of a run, with its configuration and a line for every step.

    - `config.json`: the configuration.
    - `metrics.jsonl`: the metrics of each step, without times: a run that was stopped and resumed
        writes the same bytes as one that was not.
    - `timings.jsonl`: the duration of each step.
    - `evaluations.jsonl`: one line per evaluation.
    - `episodes.jsonl`: one line for each of those, with lists of a number for each episode.
    - `starts.jsonl`: what the run was started with, and resumed with, and its identity.
    - `lock`: while a process has it, which one that is.

    A log that has grown goes on in another file, as [`zero_app.JsonLines`][] says.

    `create` makes one. Close it at the end, or use it in a `with` statement.

    Of several processes only the first writes; all must call `create`, `begin_again` and `rewind`,
    on a shared disk.

    **Attributes:**

    - `path`, `config`: as given.
    - `run`: the identity of the run, a random text; empty where another process writes. What is
        saved in `checkpoints` and `parameters` says it as the `run` of its `about`, and may say the
        `config` it was saved with.
    """

    def __init__(
        self,
        path: pathlib.Path,
        config: dict[str, Any],
        lock: Lock | None = None,
        *,
        made: bool = False,
    ):
        self.path = path
        self.config = config
        self._lock, self._made = lock, made
        self.run = (run_of(path) or secrets.token_hex(8)) if is_writer() else ""
        self._opened: dict[str, JsonLines] | None = None
        together("RunFolder")

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        config: Mapping[str, Any],
        *,
        resume: bool = False,
        may_differ: Collection[str] = (),
        absent: Mapping[str, Any] = types.MappingProxyType({}),
        tell: Callable[[str], object] = lambda line: None,
    ) -> "RunFolder":
        """Makes the folder of a new run, which must be empty or missing, or opens that of an
        earlier one to `resume`.

        - `config`: with `resume` it must equal the stored one, except for the keys in `may_differ`,
            whose new values are stored once anything else is logged, rewound or moved: whoever
            cannot restore the run until then has changed nothing.
        - `absent`: what keys are that the stored configuration of an older run lacks.
        - `tell`: called with a line where it waits to see whether a process on another machine
            that was training here still lives.

        **Raises:** [`zero_app.RunError`][] where the folder is not empty, holds no run to resume or
        one of another configuration, has checkpoints or players of another run, or another process
        trains in it. It changes nothing then.
        """
        path = pathlib.Path(path).absolute()
        given, made = _plain(config), not path.exists()
        if not is_writer():
            return cls(path, given)
        cls.check(path, config, resume=resume, may_differ=may_differ, absent=absent)
        with _writing(path), contextlib.ExitStack() as undo:
            path.mkdir(parents=True, exist_ok=True)
            if made:
                undo.callback(_remove_empty, path)
            lock = Lock(path, tell=tell)
            undo.callback(lock.release)
            if not resume:
                _check_empty(path)  # another process may have been faster
            folder = cls(path, given, lock, made=made)
            if not resume:
                folder._begin()
            undo.pop_all()
        return folder

    @staticmethod
    def check(
        path: str | os.PathLike[str],
        config: Mapping[str, Any],
        *,
        resume: bool = False,
        may_differ: Collection[str] = (),
        absent: Mapping[str, Any] = types.MappingProxyType({}),
    ) -> None:
        """Checks the arguments of `create` without changing anything."""
        path = pathlib.Path(path).absolute()
        with _writing(path):
            if resume:
                given, stored = _plain(config), {**absent, **_stored(path)}
                check_run(path)
                keys = (given.keys() | stored.keys()) - set(may_differ)
                if different := differences(given, stored, keys):
                    raise RunError(
                        f"The run in {path} has another configuration than the one given: "
                        f"{different}. Give the stored values, or another folder."
                    )
            else:
                _check_empty(path)

    def _begin(self) -> dict[str, JsonLines]:
        """The logs. They are opened, and the configuration is stored, at the first call, where this
        process writes them."""
        if self._opened is not None:
            return self._opened
        logs: dict[str, JsonLines] = {}
        if is_writer():
            self.write(CONFIG, json.dumps(self.config, indent=2) + "\n")
            with contextlib.ExitStack() as stack:
                for name in LOGS:
                    lines = JsonLines(self.path / f"{name}.jsonl")
                    logs[name] = stack.enter_context(contextlib.closing(lines))
                stack.pop_all()  # they stay open, unless one of them could not be opened
        self._opened = logs
        return logs

    def discard(self) -> None:
        """Removes the files of a run that could not start, and the folder if `create` made it."""
        self._close_logs()
        if is_writer():
            for path in children(self.path):
                if path.name != LOCK:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
        self.close()
        if is_writer() and self._made:
            self.path.rmdir()

    def begin_again(self) -> pathlib.Path | None:
        """Moves the files of a run that has to start again, but the configuration, into a folder
        inside this one, and returns it; `None` where no step was logged and nothing was moved."""
        aside = None
        logs = [lines.path for name, lines in self._begin().items() if name != "starts"]
        if any(file.stat().st_size for path in logs for file in files_of(path)):
            self._close_logs()
            everything = children(self.path)
            names = (self.path / f"before-{number}" for number in itertools.count(1))
            aside = next(path for path in names if not path.exists())
            aside.mkdir()
            for path in everything:
                if path.name not in (CONFIG, LOCK) and not path.name.startswith("before-"):
                    path.rename(aside / path.name)
            self._opened, self.run = None, secrets.token_hex(8)
            self._begin()
        together("RunFolder.begin_again")
        return aside

    def rewind(self, step: int, *, evaluated: bool = True) -> None:
        """Removes all lines after `step`, which a resumed run writes again. With `evaluated` the
        evaluations of `step`, and their episodes, stay; without it they are removed too."""
        logs = self._begin()
        for name, lines in logs.items():
            lines.close()
            cut_lines(lines.path, step - (name in EVALUATED and not evaluated))
            logs[name] = JsonLines(lines.path)
        together("RunFolder.rewind")

    @property
    def written(self) -> dict[str, tuple[int, int]]:
        """The bytes of each log so far, and their CRC-32; empty where another process writes."""
        return {name: lines.written for name, lines in self._begin().items()}

    def log(self, step: int, metrics: Mapping[str, Any], timings: Mapping[str, Any]) -> None:
        """Writes the metrics and the timings of one step, unless another process has taken the
        folder meanwhile."""
        if self._lock is not None:
            self._lock.check()
        self._append("metrics", step, metrics)
        self._append("timings", step, timings)

    def log_evaluation(
        self, step: int, *rows: Mapping[str, Any], episodes: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        """Writes the rows of one evaluation, and those of its episodes before them: rows without
        their episodes would not be evaluated again."""
        self._append("episodes", step, *episodes)
        self._append("evaluations", step, *rows)

    def log_start(self, step: int, origin: Mapping[str, Any]) -> None:
        """Writes what the run goes on with after `step`."""
        self._append("starts", step, {**origin, "run": self.run})

    def _append(self, name: str, step: int, *rows: Mapping[str, Any]) -> None:
        if name in (logs := self._begin()):
            logs[name].log(step, *rows)

    def write(self, name: str, text: str) -> None:
        """Writes or replaces a file of the folder, atomically."""
        if is_writer():
            with complaining(self.path / name, "written"):
                write_whole(self.path / name, text)

    def write_json(self, name: str, value: Mapping[str, Any]) -> None:
        """Writes or replaces a file that [`zero_app.read_of_run`][] reads: an object, to which
        the identity of the run is added as `run`."""
        self.write(name, json.dumps({"run": self.run, **plain(value)}, indent=1) + "\n")

    def close(self) -> None:
        """Closes the files, and leaves the folder to other processes."""
        self._close_logs()
        if self._lock is not None:
            self._lock.release()

    def _close_logs(self) -> None:
        for lines in (self._opened or {}).values():
            lines.close()

    def __enter__(self) -> "RunFolder":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class StopSignal:
    """Turns SIGTERM, SIGINT and the end of a time into a request to stop, in a `with` statement of
    the main thread, or in several, one after the other.

    ```python
    with StopSignal() as stop:
        while not stop.requested: ...
    ```

    A second signal raises `KeyboardInterrupt`. On leaving, the earlier handlers are restored.

    A signal to one of several processes stops all of them before the same step: they agree on it in
    `agreed`.

    **Attributes:**

    - `requested`: whether a signal came.
    - `name`: the signal's name, or `None`, as where one of several processes heard it.
    - `over`: whether the time is over.
    """

    def __init__(self, seconds: float | None = None):
        """`seconds` is the time after which to stop, from now on; by default there is none."""
        self.requested = self.over = False
        self.name: str | None = None
        self._ends = None if seconds is None else time.monotonic() + seconds
        self._timer: threading.Timer | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "StopSignal":
        # JAX hears SIGTERM itself where several processes have to agree.
        heard = [signal.SIGINT] if jax.process_count() > 1 else [signal.SIGTERM, signal.SIGINT]
        for number in heard:
            self._before[number] = signal.signal(number, self._hear)
        if self._ends is not None:
            left = min(max(0, self._ends - time.monotonic()), threading.TIMEOUT_MAX)
            self._timer = threading.Timer(left, self._end)
            self._timer.daemon = True
            self._timer.start()
        return self

    def agreed(self, step: int) -> bool:
        """Whether to stop before this step, the number of which rises from call to call."""
        if jax.process_count() > 1 and reached_preemption_sync_point(step):
            self.requested = True
        return self.requested

    def ask(self) -> None:
        """Asks to stop, as a signal does: all processes if there are several."""
        if jax.process_count() > 1:
            signal.raise_signal(signal.SIGTERM)
        else:
            self.requested = True

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        while self._before:
            signal.signal(*self._before.popitem())

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self.name is not None:
            raise KeyboardInterrupt
        self.name = signal.Signals(number).name
        self.ask()

    def _end(self) -> None:
        self.over = True
        self.ask()


def _remove_empty(path: pathlib.Path) -> None:
    with contextlib.suppress(OSError):
        path.rmdir()


def _plain(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration as its file returns it."""
    return json.loads(json.dumps(plain(config)))


@contextlib.contextmanager
def _writing(path: pathlib.Path) -> Iterator[None]:
    """Makes a [`zero_app.RunError`][] of what the disk refuses in the `with` block."""
    try:
        yield
    except OSError as e:
        said = f"The run folder {path} cannot be written ({reason(e)}); give another one."
        raise RunError(said) from e


def _check_empty(path: pathlib.Path) -> None:
    there = path
    while not there.exists() and there != there.parent:
        there = there.parent
    if not there.is_dir():
        if there == path:
            raise RunError(f"{path} is a file; give a folder for the run.")
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    if not os.access(there, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    if (path / CONFIG).exists():
        raise RunError(
            f"The run folder {path} is not empty, it holds a run already; --resume goes on with "
            "it, or give another one."
        )
    # A start that was killed at once leaves files, which the next one replaces.
    left = (temporary(path / CONFIG).name, *[LOCK] * is_lock(path / LOCK))
    if any(child.name not in left for child in children(path)):
        raise RunError(
            f"The run folder {path} is not empty, and holds no run to --resume; give another one."
        )


def _stored(path: pathlib.Path) -> dict[str, Any]:
    file = path / CONFIG
    if not os.path.lexists(file):
        start = "" if children(path) else ", or leave out --resume to start one"
        raise RunError(
            f"There is no run to resume in {path} (no {CONFIG}); give the folder of a run{start}."
        )
    return read_object(file)
