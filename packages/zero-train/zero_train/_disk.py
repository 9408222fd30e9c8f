"""What checkpoints and runs need of a disk: files that are whole or not there."""

import os
import pathlib
import shutil
import zlib
from collections.abc import Iterator


def write_whole(path: pathlib.Path, text: str) -> None:
    """Replaces `path` at once: whoever reads it sees the old text or the new."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(text)
    sync(temporary)
    temporary.replace(path)


def children(folder: pathlib.Path) -> list[pathlib.Path]:
    return list(folder.iterdir()) if folder.is_dir() else []


def _files(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())


def inventory(folder: pathlib.Path) -> dict[str, tuple[int, int]]:
    return {
        path.relative_to(folder).as_posix(): (path.stat().st_size, checksum(path))
        for path in _files(folder)
    }


def checksum(path: pathlib.Path) -> int:
    value = 0
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            value = zlib.crc32(block, value)
    return value


def to_disk(folder: pathlib.Path) -> None:
    for path in _files(folder):
        sync(path)
    sync(folder)


def sync(path: pathlib.Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove(folder: pathlib.Path) -> None:
    if folder.exists():
        # Renamed first: a removal cut short must not leave half a checkpoint under its step.
        hidden = folder.rename(folder.with_name(f".{folder.name}.tmp"))
        shutil.rmtree(hidden)
