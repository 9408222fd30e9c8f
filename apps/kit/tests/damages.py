"""What may happen to a file."""

import contextlib
import os
import pathlib
import random
import resource
import signal
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest


def flip(path: pathlib.Path, randomly: random.Random) -> None:
    """One bit changes, or an empty file gets a byte."""
    content = bytearray(path.read_bytes())
    if content:
        content[randomly.randrange(len(content))] ^= 1 << randomly.randrange(8)
    path.write_bytes(content or b"\0")


def cut(path: pathlib.Path, randomly: random.Random) -> None:
    """Its end is missing, or an empty file gets a byte."""
    content = path.read_bytes()
    path.write_bytes(content[: randomly.randrange(len(content))] if content else b"\0")


def empty(path: pathlib.Path, randomly: random.Random) -> None:
    """All of it is missing."""
    del randomly
    path.write_bytes(b"")


def lose(path: pathlib.Path, randomly: random.Random) -> None:
    """The file itself is missing."""
    del randomly
    path.unlink()


def confuse(path: pathlib.Path, randomly: random.Random) -> None:
    """Another file beside it has its name."""
    content = path.read_bytes()
    beside = sorted(p for p in path.parent.parent.rglob("*") if p.is_file())
    others = [other for p in beside if (other := p.read_bytes()) != content]
    path.write_bytes(randomly.choice(others))


def _socket(path: pathlib.Path) -> None:
    with socket.socket(socket.AF_UNIX) as made, contextlib.chdir(path.parent):
        made.bind(path.name)  # a whole path may be too long for one


def _huge(path: pathlib.Path) -> None:
    path.touch()
    os.truncate(path, 2**26 + 1)


#: What may stand in the place of an ordinary file: a reader of the first two would wait or fill the
#: memory for ever.
SPECIAL: dict[str, Callable[[pathlib.Path], None]] = {
    "pipe": os.mkfifo,
    "endless": lambda path: path.symlink_to("/dev/zero"),
    "full": lambda path: path.symlink_to("/dev/full"),
    "folder": lambda path: path.mkdir(),
    "nowhere": lambda path: path.symlink_to(path.with_name("nowhere")),
    "loop": lambda path: path.symlink_to(path),
    "socket": _socket,
    "huge": _huge,
}


def special(kind: str) -> Callable[[pathlib.Path, random.Random], None]:
    """One of `SPECIAL` has its name."""

    def replace(path: pathlib.Path, randomly: random.Random) -> None:
        del randomly
        path.unlink()
        SPECIAL[kind](path)

    replace.__name__ = kind
    return replace


DAMAGES: tuple[Callable[[pathlib.Path, random.Random], None], ...] = (
    flip,
    cut,
    empty,
    lose,
    confuse,
    *map(special, ("folder", "pipe", "endless")),
)


@contextlib.contextmanager
def bounded(seconds: float = 20, memory: int = 2**29) -> Iterator[None]:
    """Fails where what is inside takes longer, and gives it so many bytes of memory more."""

    def fail(number: int, frame: Any) -> None:
        pytest.fail("it takes too long")

    before = signal.signal(signal.SIGALRM, fail)
    limits = resource.getrlimit(resource.RLIMIT_AS)
    now = resource.getpagesize() * int(pathlib.Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (now + memory, limits[1]))
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, limits)
