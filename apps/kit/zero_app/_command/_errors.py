"""Errors that the user can correct."""

import contextlib
import re
import sys
from collections.abc import Iterator
from typing import Any

import zero_envs

from ._lazy import jax


_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


class UsageError(ValueError):
    """Bad input. Its message is one line: what was given, what is allowed, what to do."""


class NonFiniteError(ValueError):
    """A metric, or what a player's network returned, is NaN or infinite. The message is one line
    for the user."""


@contextlib.contextmanager
def as_usage_error(*fields: str) -> Iterator[None]:
    """Turns a `ValueError` inside the `with` block into a [`zero_app.UsageError`][], which
    calls an argument of the name of one of the fields as the command line does."""
    try:
        yield
    except ValueError as e:
        said = str(e)
        for name in fields:
            said = re.sub(rf"\b{name}=(?=\S)", f"{flag(name)} ", said)
        raise UsageError(said) from e


def flag(name: str) -> str:
    """A field's flag on the command line."""
    return f"--{name.replace('_', '-')}"


def environment(name: str, **options: Any) -> "zero_envs.AbstractEnvironment":
    """The environment of a name of [`zero_envs.make`][]. One of the user's own is traced before
    anything is compiled, by [`zero_envs.testing.check_shapes`][]."""
    with as_usage_error():
        try:
            env = zero_envs.make(name, **options)
        except ImportError as e:
            raise UsageError(str(e)) from e
        # Some libraries mix dtypes in double precision, and say so when they are traced.
        is_traced = not isinstance(env, zero_envs.Hosted)  # whose `step` always raises
        x64 = jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue]
        if is_traced and (":" in name or x64):
            zero_envs.testing.check_shapes(env)
    return env


def warn(line: str) -> None:
    """Prints a warning to stderr."""
    print(as_line(line), file=sys.stderr)


def as_line(text: str) -> str:
    """A text in one line, without what a terminal obeys: files of others have been quoted in it."""
    return _CONTROL.sub(" ", text)
