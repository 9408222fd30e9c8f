"""Log files with one JSON object per line."""

import contextlib
import glob
import json
import math
import operator
import os
import pathlib
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, SupportsIndex

import numpy as np

from .._command._lazy import jax
from ._disk import checksum, opened, read_whole, reason, write_whole


#: A log that has so many bytes goes on in another file: about 100 000 steps of most agents.
PART = 64 * 2**20


#: Sums of numbers up to it stay finite.
MOST, _MOST_STEPS = 1e100, 2**62
#: The bytes of the longest line.
_LONGEST = 16 * 2**20
PUT_BACK = "put a copy of it back"
_THEN = "Put a copy of the file back, or remove the line to go on without it."


class RunError(ValueError):
    """A run folder cannot be used. The message is one line for the user."""


class Row(dict[str, Any]):
    """An object of a file, which says of an entry that is missing, or is something else than it
    should be, its `place`, such as "line 3 of runs/a/metrics.jsonl", and what to do `then`."""

    def __init__(self, entries: Mapping[str, Any], place: str, then: str = _THEN):
        super().__init__(entries)
        self.place, self.then = place, then

    def __missing__(self, name: str) -> Any:
        raise RunError(f"{self.place} has no {name}. {self.then}")

    def checked(self, kind: "Kind") -> "Row":
        """The row without numbers and texts that are null. Numbers are that were not finite."""
        kept = Row({}, self.place, self.then)
        for name, value in self.items():
            wanted = kind(name)
            fits = isinstance(value, wanted)
            if wanted in (int, float):  # a boolean is no number here
                fits = type(value) in {int, wanted} and -MOST < value < MOST
            if fits:
                kept[name] = value
            elif value is not None:
                said = json.dumps(value)[:40]
                raise RunError(
                    f"{self.place} has {said} as its {name}, not {_CALLED[wanted]}. {self.then}"
                )
        return kept


#: By the name of an entry whether it is a number (`float`), a whole one (`int`), a text (`str`) or
#: anything (`object`).
Kind = Callable[[str], type]
#: What two lines of a log may not share, whose steps are in order: the step, or all of a line.
Distinct = Literal["step", "line", "nothing"]
_CALLED = {float: "a finite number", int: "a whole number", str: "a text"}


def plain(value: Any) -> Any:
    """Converts a value to what JSON can hold: arrays to numbers, NaN and infinities to null.

    A float of 32 bits or fewer becomes the shortest decimal that rounds back to it.
    """
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, jax.Array | np.ndarray | np.generic):
        array = numpy_of(value)
        if array.ndim:
            return [plain(x) for x in array]
        value = array.item()
        if jax.numpy.issubdtype(array.dtype, jax.numpy.floating) and array.dtype.itemsize <= 4:
            value = float(str(np.float32(array)))
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def as_step(step: Any, error: type[ValueError], name: str = "step") -> int:
    """The number of a step, or of what has this `name`. It may be an array. An `error` is raised
    where it is no whole number."""
    try:
        number = operator.index(step)
        if isinstance(step, bool) or not -_MOST_STEPS < number < _MOST_STEPS:
            raise TypeError
        return number
    except TypeError as e:
        said = " ".join(str(step).split())[:40]
        raise error(f"{name}={said} was given; give a whole number below 2**62.") from e


def check_kind(owner: str, kind: type, called: str, /, **parts: Any) -> None:
    """Raises a `ValueError` where an argument of `owner` is not of this kind."""
    for name, part in parts.items():
        if not isinstance(part, kind):
            shown = " ".join(repr(part).split())[:60]
            raise ValueError(f"`{owner}({name}={shown})`: must be {called}.")


def numpy_of(value: Any) -> np.ndarray:
    """A number or an array in NumPy, whose own checks do not know bfloat16 and its like."""
    array = np.asarray(value)
    return (
        array.astype(np.float32) if jax.numpy.issubdtype(array.dtype, jax.numpy.bfloat16) else array
    )


class JsonLines:
    """A [`zero_app.Sink`][] with one JSON object per line, each flushed when it is written.

    An existing file is continued. Where `metrics.jsonl` has 64 MB, it becomes
    `metrics.00001.jsonl`, the next time `metrics.00002.jsonl`, and a new `metrics.jsonl` begins.
    [`zero_app.read_lines`][] and [`zero_app.cut_lines`][] take all of them for one. No line is
    ever removed for lack of room.

    **Attributes:**

    - `path`: as given.
    - `written`: how many bytes all files of the log have, and their CRC-32.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = pathlib.Path(path)
        self._open()
        try:
            self.written = measured(self.path)
        except RunError:
            self.close()
            raise

    def log(self, step: SupportsIndex, *metrics: Mapping[str, Any]) -> None:
        """Appends a line `{"step": step, **metrics}` for each of the metrics, keys sorted, numbers
        as in `json`. Several are written at once. What [`zero_app.read_lines`][] would refuse
        raises a `ValueError`: a step that is no integer, metrics with another step, and values that
        JSON does not have."""
        number = as_step(step, RunError)
        if any(row.get("step", number) != number for row in metrics):
            raise ValueError("`JsonLines.log` was given metrics of another `step`; rename it.")
        rows = (plain({"step": number, **row}) for row in metrics)
        try:
            text = "".join(json.dumps(row, sort_keys=True, allow_nan=False) + "\n" for row in rows)
        except TypeError as e:
            raise ValueError(f"`JsonLines.log`: {e}; give numbers, texts and arrays.") from e
        with complaining(self.path, "written"):
            if self._file.tell() >= PART:
                self._set_aside()
            self._file.write(text)
            self._file.flush()
        size, value = self.written
        self.written = size + len(text), zlib.crc32(text.encode(), value)  # JSON writes ASCII

    def close(self) -> None:
        """Closes the file."""
        # What a full disk refused is still in the file's own memory, and `log` has complained.
        with contextlib.suppress(OSError):
            self._file.close()

    def _set_aside(self) -> None:
        self._file.close()
        parts = files_of(self.path)[:-1]
        # One of them may have been removed to save space: numbers go on from the last.
        number = 1 + int(parts[-1].suffixes[-2][1:]) if parts else 1
        self.path.rename(self.path.with_suffix(f".{number:05d}{self.path.suffix}"))
        self._open()

    def _open(self) -> None:
        with complaining(self.path, "written"):
            self._file = open(self.path, "a", opener=opened)


def files_of(path: pathlib.Path) -> list[pathlib.Path]:
    """The files of a log that are there, in the order of their lines; `path` itself is the last."""
    stem, suffix = glob.escape(path.stem), glob.escape(path.suffix)
    grown = path.parent.glob(f"{stem}.{5 * '[0-9]'}{suffix}")
    return [*sorted(grown), *([path] if path.exists() else [])]


def measured(path: pathlib.Path, size: float = math.inf) -> tuple[int, int]:
    """The bytes of a log, or the first `size` of them, and their CRC-32."""
    with complaining(path, "read"):
        return checksum(*files_of(path), size=size)


def read_object(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Reads a JSON file of one object, such as the configuration of a run."""
    found = read_json(path)
    if not isinstance(found, dict):
        raise RunError(f"{path} is not a JSON object, as it must be; {PUT_BACK}.")
    return found


def read_json(path: str | os.PathLike[str]) -> Any:
    """Reads a JSON file of at most 64 MB."""
    try:
        return parsed(read_whole(path))
    except (OSError, ValueError) as e:
        raise RunError(f"{path} cannot be read: {reason(e)}; {PUT_BACK}.") from e


def read_lines(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Reads the objects of a [`zero_app.JsonLines`][] log, in order; none if it does not exist.

    A last line that a crash cut short is left out. Another line that is damaged, and asking an
    object for an entry that it does not have, raise a [`zero_app.RunError`][] with the file and
    the line.
    """
    return [*lines_of(path)]


def lines_of(
    path: str | os.PathLike[str],
    kind: Kind = lambda name: object,
    *,
    distinct: Distinct | None = None,
) -> Iterator[Row]:
    """What `read_lines` reads, one object after the other: a log may be too long to be held. Their
    entries are checked to be of a `kind` and, of a log of a run, the lines to be `distinct`."""
    last: list[Row] = []
    for file in files_of(pathlib.Path(path)):
        for _, row in _rows(file):
            step = last[-1]["step"] if last and distinct is not None else row["step"]
            if row["step"] < step or (distinct == "step" and last and row["step"] == step):
                said = f"{row.place} has step {row['step']} after step {step}"
                raise RunError(f"{said}: lines are repeated, or not in order. {_THEN}")
            last = [*last, row] if distinct == "line" and row["step"] == step else [row]
            if row in last[:-1]:
                raise RunError(f"{row.place} repeats another one of its step. {_THEN}")
            yield row.checked(kind)


def cut_lines(path: str | os.PathLike[str], after: int) -> None:
    """Removes all lines of steps after `after`, and a line that was cut short, atomically. Lines
    that are logged then make the same files as if those had never been there."""
    path = pathlib.Path(path)
    for file in reversed(files_of(path)):
        kept = [line for line, row in _rows(file) if row["step"] <= after]
        if kept or file == path:
            write_whole(file, "".join(f"{line}\n" for line in kept))
        else:
            file.unlink()
        if kept:
            file.replace(path)
            return


def _rows(path: pathlib.Path) -> Iterator[tuple[str, Row]]:
    with complaining(path, "read"), open(path, "rb", opener=opened) as file:
        for number, line in enumerate(iter(lambda: file.readline(_LONGEST), b""), start=1):
            try:
                if len(line) == _LONGEST:
                    raise ValueError(f"it has more than {_LONGEST >> 20} MB")
                row = parsed(line)
                step = row.get("step") if isinstance(row, dict) else None
                if type(step) is not int or not -_MOST_STEPS < step < _MOST_STEPS:
                    raise ValueError("it is no object with a step")
            except ValueError as e:
                if not line.endswith(b"\n") and len(line) < _LONGEST:
                    return
                raise RunError(f"line {number} of {path} is damaged: {e}. {_THEN}") from e
            yield line.decode().removesuffix("\n"), Row(row, f"line {number} of {path}")


@contextlib.contextmanager
def complaining(path: str | os.PathLike[str], done: Literal["read", "written"]) -> Iterator[None]:
    """Makes a [`zero_app.RunError`][] of what the disk refuses in the `with` block."""
    try:
        yield
    except OSError as e:
        raise RunError(f"{e.filename or path} cannot be {done}: {reason(e)}.") from e


def parsed(text: bytes) -> Any:
    """**Raises:** `ValueError`, whatever is wrong with the text."""
    try:
        # Names are stored once for all lines: they would take more than the rest.
        shared = lambda pairs: {sys.intern(name): value for name, value in pairs}
        return json.loads(text.decode(), object_pairs_hook=shared, parse_int=_integer)
    except RecursionError as e:
        raise ValueError("it is nested too deeply") from e


def _integer(digits: str) -> int:
    if len(digits) > 1000:  # Python reads no more than 4300, and says how to change that
        raise ValueError(f"it has a number of {len(digits)} digits")
    return int(digits)
