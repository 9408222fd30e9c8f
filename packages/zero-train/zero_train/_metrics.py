"""Where a run's numbers go: sinks, JSON lines, and the check that stops a run gone wrong."""

import contextlib
import json
import math
import os
import pathlib
from collections.abc import Mapping
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from ._disk import write_whole


class RunError(ValueError):
    """A run folder that cannot be used. Its message is one line for the user."""


class NonFiniteError(ValueError):
    """A metric is NaN or infinite. Its message is one line for the user."""


class Sink(Protocol):
    """Anything metrics are sent to: a file, TensorBoard, a web service."""

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Takes the metrics of one step."""

    def close(self) -> None:
        """Nothing comes after this."""


def check_finite(step: int, metrics: Mapping[str, Any]) -> None:
    """Looks for numbers gone wrong, before they are logged or saved.

    **Raises:** [`zero_train.NonFiniteError`][], with the step and every metric that is NaN or
    infinite.
    """
    wrong = [f"{k}={float(v)}" for k, v in metrics.items() if not np.all(np.isfinite(_numpy(v)))]
    if wrong:
        raise NonFiniteError(
            f"Step {step} gave {', '.join(wrong)}, which is not finite; the run stops here. "
            "Resume from its last checkpoint, or start anew with a lower learning rate."
        )


def plain(value: Any) -> Any:
    """`value` as JSON holds it: arrays become numbers, NaN and infinities become null.

    A float of 32 bits or fewer becomes the shortest decimal that rounds back to it, so equal
    bits give equal text and different bits different text.
    """
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, jax.Array | np.ndarray | np.generic):
        array = _numpy(value)
        if array.ndim:
            return [plain(x) for x in array]
        value = array.item()
        if jnp.issubdtype(array.dtype, jnp.floating) and array.dtype.itemsize <= 4:
            value = float(str(np.float32(array)))
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


class JsonLines:
    """A file with one JSON object a line, each flushed as it comes: a [`zero_train.Sink`][].

    Opening a file that exists continues it.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = pathlib.Path(path)
        try:
            self._file = self.path.open("a")
        except OSError as e:
            raise RunError(f"{self.path} cannot be written: {e.strerror}.") from e

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Appends `{"step": step, **metrics}`, keys sorted, numbers as in `json`.

        **Raises:** [`zero_train.RunError`][] where the disk refuses.
        """
        line = json.dumps(plain({"step": step, **metrics}), sort_keys=True, allow_nan=False)
        try:
            self._file.write(line + "\n")
            self._file.flush()
        except OSError as e:
            raise RunError(f"{self.path} cannot be written: {e.strerror}.") from e

    def close(self) -> None:
        """Closes the file."""
        # What a full disk refused is still in the file's own memory, and `log` has complained.
        with contextlib.suppress(OSError):
            self._file.close()


def read_json(path: str | os.PathLike[str]) -> Any:
    """What a JSON file holds.

    **Raises:** [`zero_train.RunError`][] where it is no JSON, or cannot be read.
    """
    try:
        return _parsed(pathlib.Path(path).read_bytes())
    except (OSError, ValueError) as e:
        raise RunError(f"{path} cannot be read: {e}.") from e


def read_lines(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """The objects of a [`zero_train.JsonLines`][] file, in order; none where there is no file.

    A last line that was cut short by a crash is left out.

    **Raises:** [`zero_train.RunError`][] where another line is not as it was written.
    """
    return [row for _, row in _rows(pathlib.Path(path))]


def cut_lines(path: str | os.PathLike[str], after: int) -> None:
    """Drops, at once, every line whose step is later than `after`, and a line cut short."""
    path = pathlib.Path(path)
    if path.exists():
        kept = [line for line, row in _rows(path) if row["step"] <= after]
        write_whole(path, "".join(f"{line}\n" for line in kept))


def _rows(path: pathlib.Path) -> list[tuple[str, dict[str, Any]]]:
    rows = []
    *lines, last = path.read_bytes().split(b"\n") if path.exists() else [b""]
    for number, line in enumerate([*lines, last], start=1):
        try:
            row = _parsed(line)
            if not isinstance(row, dict) or not isinstance(row.get("step"), int):
                raise ValueError("it is no object with a step")
        except ValueError as e:
            if number > len(lines):
                break
            raise RunError(
                f"line {number} of {path} is damaged: {e}. Put a copy of the file back, or remove "
                "the line to go on without it."
            ) from e
        rows.append((line.decode(), row))
    return rows


def _parsed(text: bytes) -> Any:
    """**Raises:** `ValueError`, whatever is wrong with the text."""
    try:
        return json.loads(text.decode())
    except RecursionError as e:
        raise ValueError("it is nested too deeply") from e


def _numpy(value: Any) -> np.ndarray:
    array = np.asarray(value)
    # NumPy's own checks do not know bfloat16 and its like.
    return array.astype(np.float32) if jnp.issubdtype(array.dtype, jnp.bfloat16) else array
