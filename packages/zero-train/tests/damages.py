"""What may happen to a file."""

import pathlib
import random
from collections.abc import Callable


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


def shadow(path: pathlib.Path, randomly: random.Random) -> None:
    """A folder has its name."""
    del randomly
    path.unlink()
    path.mkdir()


DAMAGES: tuple[Callable[[pathlib.Path, random.Random], None], ...] = (
    flip,
    cut,
    empty,
    lose,
    confuse,
    shadow,
)
