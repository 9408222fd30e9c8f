"""Checks of arguments, which import no JAX."""

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np


def check_range(owner: str, least: float, most: float = math.inf, /, **fields: Any) -> None:
    """Raises where a hyperparameter of `owner` is no finite number in `[least, most]`."""
    for name, value in fields.items():
        if not within(value, lambda x: (least <= x) & (x <= most) & (abs(x) < math.inf)):
            low = "" if least == -math.inf else f", {least:g} or more"
            allowed = f"finite{low}" if most == math.inf else f"{least:g} to {most:g}"
            raise ValueError(f"`{owner}({name}={as_line(value)})`: must be a number, {allowed}.")


def check_positive(owner: str, **fields: Any) -> None:
    """Raises where a hyperparameter of `owner` is no number above 0."""
    for name, value in fields.items():
        if not within(value, lambda x: x > 0):
            raise ValueError(f"`{owner}({name}={as_line(value)})`: must be above 0.")


def within(value: Any, fits: Callable[[Any], Any]) -> bool:
    """Whether a number, or each of an array, does. Of a traced array nothing is known."""
    if isinstance(value, int | float | np.integer | np.floating):
        return bool(fits(value))
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "iuf" and bool(np.all(fits(value)))
    from jax import Array  # seconds, which numbers of the host do without
    from jax.core import Tracer

    if not isinstance(value, Array):
        return False
    known = not isinstance(value, Tracer) and value.is_fully_addressable
    return not known or bool(np.all(fits(np.asarray(value, np.float64))))


def check_count(owner: str, least: int = 1, /, **fields: Any) -> None:
    """Raises where an argument of `owner` is not an integer of at least `least`."""
    for name, value in fields.items():
        try:
            fits = operator.index(value) >= least
        except TypeError:
            fits = False
        if not fits:
            raise ValueError(
                f"`{owner}({name}={as_line(value)})`: must be an integer, at least {least}."
            )


def check_kind(owner: str, kind: Any, called: str, /, **parts: Any) -> None:
    """Raises where a part of `owner` is none of `kind`, a class or several."""
    for name, part in parts.items():
        if not isinstance(part, kind):
            raise ValueError(f"`{owner}({name}={as_line(part)})`: must be {called}.")


def reals(called: str, x: Any) -> np.ndarray:
    """Real numbers in double precision, for what is computed on the host."""
    try:
        array = np.asarray(x)
        if array.dtype.kind not in "cSUmM":  # complex numbers, texts and dates
            return array.astype(np.float64)
        given = f"of {array.dtype}"
    except (TypeError, ValueError, OverflowError):
        given = as_line(x)
    raise ValueError(f"`{called}` is {given}; give real numbers, equally many in every row.")


def as_line(part: Any) -> str:
    return repr(part) if len(repr(part)) < 60 and "\n" not in repr(part) else type(part).__name__
