"""Errors that the user can correct."""

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

from zero_envs import AbstractEnvironment, make
from zero_envs.testing import check_shapes


class UsageError(ValueError):
    """Bad input. Its message is one line: what was given, what is allowed, what to do."""


@contextlib.contextmanager
def as_usage_error() -> Iterator[None]:
    """Turns a `ValueError` inside the `with` block into a [`zero_train.app.UsageError`][]."""
    try:
        yield
    except ValueError as e:
        raise UsageError(str(e)) from e


def environment(name: str, **options: Any) -> AbstractEnvironment:
    """The environment of a name of [`zero_envs.make`][]. One of the user's own is traced before
    anything is compiled, by [`zero_envs.testing.check_shapes`][].

    **Raises:** [`zero_train.app.UsageError`][] where there is none, or it does not keep to its
    interface.
    """
    with as_usage_error():
        try:
            env = make(name, **options)
        except ImportError as e:
            raise UsageError(str(e)) from e
        if ":" in name:
            check_shapes(env)
    return env


def warn(line: str) -> None:
    """Prints a warning to stderr."""
    print(line, file=sys.stderr)
