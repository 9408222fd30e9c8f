"""Atomic writes and checksums of files, for checkpoints and runs."""

import contextlib
import errno
import math
import os
import pathlib
import shutil
import stat
import zlib
from collections.abc import Iterator, Mapping, Sequence


#: The bytes of the largest file that is read as a whole. As Python's objects, JSON takes up to 20
#: times as many.
LARGEST = 64 * 2**20


def opened(path: str | os.PathLike[str], flags: int) -> int:
    """Opens a file, for the `opener` of `open`, and raises `OSError` where it is no regular file,
    too: nothing is read from or written into a pipe, a socket or a device, which may wait for ever,
    have no end, or take what was written with it."""
    handle = os.open(path, flags | os.O_NONBLOCK, 0o666)
    try:
        _check_regular(os.fstat(handle), path)
    except OSError:
        os.close(handle)
        raise
    return handle


def _check_regular(found: os.stat_result, path: str | os.PathLike[str]) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "it is no regular file", str(path))


def read_whole(path: str | os.PathLike[str], largest: int = LARGEST) -> bytes:
    """The content of a regular file of at most so many bytes. An `OSError` names `path`."""
    with open(path, "rb", opener=opened) as file:
        content = file.read(largest + 1)
    if len(content) > largest:
        raise OSError(errno.EFBIG, f"it has more than {largest >> 20} MB", str(path))
    return content


def reason(error: Exception) -> str:
    """What is wrong, without the number and the path that Python says with it."""
    return getattr(error, "strerror", None) or str(error)


def target_of(path: pathlib.Path) -> pathlib.Path:
    """The file that is written in the place of `path`: where that is a link, its target, so that it
    stays one. `OSError` is raised where anything but a regular file is there, which nothing may
    replace."""
    target = pathlib.Path(os.path.realpath(path))
    with contextlib.suppress(FileNotFoundError):
        _check_regular(os.stat(target), path)
    return target


def write_whole(path: pathlib.Path, content: str | bytes) -> None:
    """Replaces the file atomically: a reader sees what it had or the new content. Of a link the
    target is replaced. An `OSError` names `path`, and is raised where that is no regular file,
    too."""
    try:
        target = target_of(path)
        written = temporary(target)
        if written.is_dir() and not written.is_symlink():
            raise OSError(errno.EISDIR, f"{written} is a folder; move it away")
        try:
            # What an earlier process left may be a link to something else.
            written.unlink(missing_ok=True)
            with written.open("xb") as file:
                file.write(content.encode() if isinstance(content, str) else content)
            sync(written)
            written.replace(target)
        finally:
            written.unlink(missing_ok=True)
    except OSError as e:
        e.filename, e.filename2 = str(path), None
        raise


def temporary(path: pathlib.Path) -> pathlib.Path:
    """The path at which a file is written before it replaces `path`."""
    return path.with_name(f".{path.name}.tmp")


def children(folder: pathlib.Path) -> list[pathlib.Path]:
    """The entries of `folder`; none if it does not exist."""
    return list(folder.iterdir()) if folder.is_dir() else []


def _files(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())


def inventory(folder: pathlib.Path) -> dict[str, tuple[int, int]]:
    """Size and checksum of every file in `folder`, by relative name."""
    return {path.relative_to(folder).as_posix(): checksum(path) for path in _files(folder)}


def changed(folder: pathlib.Path, files: Mapping[str, Sequence[int]]) -> str | None:
    """Describes the first difference from `inventory`; `None` where there is none."""
    for name, written in files.items():
        path = folder / name
        if not path.is_file():
            return f"{name} is missing"
        if path.stat().st_size != written[0]:
            return f"{name} has {path.stat().st_size} bytes instead of {written[0]}"
        try:
            if checksum(path) != tuple(written):
                return f"{name} is not what was written"
        except OSError as e:
            return f"{name} cannot be read ({e.strerror})"
    return None


def checksum(*paths: pathlib.Path, size: float = math.inf) -> tuple[int, int]:
    """The bytes of a file, or of several, one after the other, up to a size; and their CRC-32."""
    count, value = 0, 0
    for path in paths:
        with open(path, "rb", opener=opened) as file:
            while block := file.read(int(min(1 << 20, size - count))):
                count, value = count + len(block), zlib.crc32(block, value)
    return count, value


def to_disk(folder: pathlib.Path) -> None:
    """Waits until everything in `folder` is on disk."""
    for path in _files(folder):
        sync(path)
    sync(folder)


def sync(path: pathlib.Path) -> None:
    """Waits until a file, or a folder's list of names, is on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove(folder: pathlib.Path) -> None:
    """Removes `folder` if it exists, and of a link only the link."""
    if os.path.lexists(folder):
        # Renamed first: a removal cut short must not leave half a checkpoint under its step.
        hidden = folder.with_name(f".{folder.name}.tmp")
        _unlink(hidden)  # what was left of such a removal
        folder.rename(hidden)
        _unlink(hidden)


def _unlink(path: pathlib.Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
