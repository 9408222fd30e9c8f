"""What went wrong on the user's side."""

import contextlib
import sys
from collections.abc import Iterator


class UsageError(ValueError):
    """Bad input. Its message is one line: what was given, what is allowed, what to do."""


@contextlib.contextmanager
def as_usage_error() -> Iterator[None]:
    """While parts are built from what the user gave, their complaints are the user's to mend."""
    try:
        yield
    except ValueError as e:
        raise UsageError(str(e)) from e


def warn(line: str) -> None:
    """Says what the user should know of, and need not mend, beside what a command prints."""
    print(line, file=sys.stderr)
