"""Errors that the user can correct."""

import contextlib
import sys
from collections.abc import Iterator


class UsageError(ValueError):
    """Bad input. Its message is one line: what was given, what is allowed, what to do."""


@contextlib.contextmanager
def as_usage_error() -> Iterator[None]:
    """Turns a `ValueError` inside the `with` block into a [`zero_train.app.UsageError`][]."""
    try:
        yield
    except ValueError as e:
        raise UsageError(str(e)) from e


def warn(line: str) -> None:
    """Prints a warning to stderr."""
    print(line, file=sys.stderr)
