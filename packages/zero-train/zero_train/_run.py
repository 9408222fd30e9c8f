"""The folder of a run, and how a run is asked to stop."""

import errno
import itertools
import json
import os
import pathlib
import shutil
import signal
from collections.abc import Collection, Mapping
from types import FrameType, TracebackType
from typing import Any

from ._disk import children, temporary, write_whole
from ._metrics import cut_lines, JsonLines, plain, read_json, RunError


_CONFIG = "config.json"
_LINES = ("metrics", "timings", "evaluations")


class RunFolder:
    """A run is a folder: its configuration, and a line for every step.

    - `config.json`: what the run was started with.
    - `metrics.jsonl`: what each step computed. No clock is in it: a run that was stopped and
        resumed writes the same bytes as one that was not.
    - `timings.jsonl`: how long each step took.
    - `evaluations.jsonl`: one line an evaluation.

    Use `create`, and close it at the end or use it in a `with` statement.
    """

    def __init__(self, path: pathlib.Path, config: dict[str, Any], *, made: bool = False):
        self.path = path
        self.config = config
        self._made = made
        self._lines = _open(path)

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        config: Mapping[str, Any],
        *,
        resume: bool = False,
        may_differ: Collection[str] = (),
    ) -> "RunFolder":
        """A new run's folder, or an earlier run's to go on with.

        **Arguments:**

        - `path`: made if it is missing. Unless `resume`, it must not hold anything.
        - `config`: must equal the stored one when resuming, except for the keys in `may_differ`,
            whose new values are stored.

        **Raises:** [`zero_train.RunError`][] where the folder is not empty, holds no run to
        resume or one of another configuration, or cannot be written. Nothing is changed then.
        """
        cls.check(path, config, resume=resume, may_differ=may_differ)
        path = pathlib.Path(path).absolute()
        given, made = _plain(config), not path.exists()
        try:
            path.mkdir(parents=True, exist_ok=True)
            write_whole(path / _CONFIG, json.dumps(given, indent=2) + "\n")
        except OSError as e:
            raise _unwritable(path, e) from e
        return cls(path, given, made=made)

    @staticmethod
    def check(
        path: str | os.PathLike[str],
        config: Mapping[str, Any],
        *,
        resume: bool = False,
        may_differ: Collection[str] = (),
    ) -> None:
        """Looks, without changing anything, whether `create` would take the same arguments.

        **Raises:** as `create`.
        """
        path = pathlib.Path(path).absolute()
        try:
            if resume:
                _check_config(path, _plain(config), _stored(path), may_differ)
            else:
                _check_empty(path)
        except OSError as e:
            raise _unwritable(path, e) from e

    def discard(self) -> None:
        """Removes what a run wrote that could not begin, and the folder if `create` made it."""
        self.close()
        for path in children(self.path):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        if self._made:
            self.path.rmdir()

    def begin_again(self) -> pathlib.Path | None:
        """Sets aside what a run wrote that has to go on from its beginning.

        Returns the folder inside this one that everything but the configuration is in now; `None`
        where no line had been written, and everything was left.
        """
        if not any(lines.path.stat().st_size for lines in self._lines.values()):
            return None
        self.close()
        everything = children(self.path)
        names = (self.path / f"before-{number}" for number in itertools.count(1))
        aside = next(path for path in names if not path.exists())
        aside.mkdir()
        for path in everything:
            if path.name != _CONFIG and not path.name.startswith("before-"):
                path.rename(aside / path.name)
        self._lines = _open(self.path)
        return aside

    def rewind(self, step: int) -> None:
        """Drops every line after `step`: a resumed run writes those steps again."""
        for name, lines in self._lines.items():
            lines.close()
            cut_lines(lines.path, step)
            self._lines[name] = JsonLines(lines.path)

    def log(self, step: int, metrics: Mapping[str, Any], timings: Mapping[str, Any]) -> None:
        """Writes one step: what it computed, and, apart, how long it took."""
        self._lines["metrics"].log(step, metrics)
        self._lines["timings"].log(step, timings)

    def log_evaluation(self, step: int, evaluation: Mapping[str, Any]) -> None:
        """Writes the result of one evaluation."""
        self._lines["evaluations"].log(step, evaluation)

    def write(self, name: str, text: str) -> None:
        """Writes a file of the folder in whole or not at all, replacing the one of that name.

        **Raises:** [`zero_train.RunError`][] where the disk refuses.
        """
        try:
            write_whole(self.path / name, text)
        except OSError as e:
            raise RunError(f"{self.path / name} cannot be written: {e.strerror}.") from e

    def close(self) -> None:
        """Closes the files."""
        for lines in self._lines.values():
            lines.close()

    def __enter__(self) -> "RunFolder":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class StopSignal:
    """While it is entered, SIGTERM and SIGINT ask to stop instead of killing.

    ```python
    with StopSignal() as stop:
        while not stop.requested: ...
    ```

    The second signal raises `KeyboardInterrupt`, for those who cannot wait. On leaving, signals
    do what they did before. Enter it in the main thread.

    **Attributes:**

    - `requested`: whether a signal came.
    - `name`: the signal's name, or `None`.
    """

    def __init__(self) -> None:
        self.requested = False
        self.name: str | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "StopSignal":
        for number in (signal.SIGTERM, signal.SIGINT):
            self._before[number] = signal.signal(number, self._hear)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        while self._before:
            signal.signal(*self._before.popitem())

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        self.name = signal.Signals(number).name


def _open(path: pathlib.Path) -> dict[str, JsonLines]:
    return {name: JsonLines(path / f"{name}.jsonl") for name in _LINES}


def _plain(config: Mapping[str, Any]) -> dict[str, Any]:
    """`config` as it comes back from its file."""
    return json.loads(json.dumps(plain(config)))


def _unwritable(path: pathlib.Path, error: OSError) -> RunError:
    return RunError(
        f"The run folder {path} cannot be written ({error.strerror}); give another one."
    )


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
    if (path / _CONFIG).exists():
        raise RunError(
            f"The run folder {path} is not empty, it holds a run already; --resume goes on with "
            "it, or give another one."
        )
    # A start that was killed at once leaves a temporary file, which the next one replaces.
    if any(child.name != temporary(path / _CONFIG).name for child in children(path)):
        raise RunError(
            f"The run folder {path} is not empty, and holds no run to --resume; give another one."
        )


def _stored(path: pathlib.Path) -> dict[str, Any]:
    file = path / _CONFIG
    if not file.is_file():
        start = "" if children(path) else ", or leave out --resume to start one"
        raise RunError(
            f"There is no run to resume in {path} (no {_CONFIG}); give the folder of a run{start}."
        )
    config = read_json(file)
    if not isinstance(config, dict):
        raise RunError(f"{file} holds no configuration; it must be a JSON object.")
    return config


def _check_config(
    path: pathlib.Path,
    given: dict[str, Any],
    stored: dict[str, Any],
    may_differ: Collection[str],
) -> None:
    keys = sorted(given.keys() | stored.keys())
    absent = object()
    differences = [
        f"{key} {_shown(given, key)} (stored: {_shown(stored, key)})"
        for key in keys
        if key not in may_differ and given.get(key, absent) != stored.get(key, absent)
    ]
    if differences:
        raise RunError(
            f"The run in {path} has another configuration than the one given: "
            f"{', '.join(differences)}. Give the stored values, or another folder."
        )


def _shown(config: dict[str, Any], key: str) -> str:
    return json.dumps(config[key]) if key in config else "absent"
