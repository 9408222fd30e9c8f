"""The folder of a run, and how a run is asked to stop."""

import json
import os
import pathlib
import signal
from collections.abc import Collection, Mapping
from types import FrameType, TracebackType
from typing import Any

from ._disk import write_whole
from ._metrics import cut_lines, JsonLines, plain, RunError


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

    def __init__(self, path: pathlib.Path, config: dict[str, Any]):
        self.path = path
        self.config = config
        self._lines = {name: JsonLines(path / f"{name}.jsonl") for name in _LINES}

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
        path = pathlib.Path(path).absolute()
        given: dict[str, Any] = json.loads(json.dumps(plain(config)))
        if resume:
            _check_config(path, given, _stored(path), may_differ)
        else:
            _check_empty(path)
        try:
            path.mkdir(parents=True, exist_ok=True)
            write_whole(path / _CONFIG, json.dumps(given, indent=2) + "\n")
        except OSError as e:
            raise RunError(
                f"The run folder {path} cannot be written ({e.strerror}); give another one."
            ) from e
        return cls(path, given)

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


def _check_empty(path: pathlib.Path) -> None:
    if path.exists() and not path.is_dir():
        raise RunError(f"{path} is a file; give a folder for the run.")
    if path.is_dir() and any(path.iterdir()):
        raise RunError(
            f"The run folder {path} is not empty; give another one, or --resume to go on with it."
        )


def _stored(path: pathlib.Path) -> dict[str, Any]:
    file = path / _CONFIG
    if not file.is_file():
        raise RunError(
            f"There is no run to resume in {path} (no {_CONFIG}); "
            "give the folder of a run, or leave out --resume to start one."
        )
    try:
        config = json.loads(file.read_text())
    except (OSError, ValueError) as e:
        raise RunError(f"{file} cannot be read: {e}.") from e
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
