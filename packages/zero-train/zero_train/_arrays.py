"""Checks and numbers that losses and returns share.

Illegal is -inf, in logits, log-probabilities and Q-values. Filler rows and final states may have no
legal action at all. A weight or discount of 0 makes such a row count for nothing, but 0 times
infinity is NaN, in the value or in the gradient.
"""

import functools as ft
import inspect
import math
from collections.abc import Callable
from typing import Any, get_args, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


_P = ParamSpec("_P")
_T = TypeVar("_T")


def check_axes(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Makes a function raise where its arguments do not have the axes of its annotations, and
    compute in float32 at least.

    jaxtyping checks them too, but few users turn that on, and a loss of a batch that should have
    been vmapped is an ordinary number.
    """
    parameters = inspect.signature(function).parameters
    reals = {name for name, parameter in parameters.items() if _is_real(parameter.annotation)}
    annotated = {name: _axes(parameter.annotation) for name, parameter in parameters.items()}

    @ft.wraps(function)
    def checked(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        arguments: dict[str, Any] = dict(zip(parameters, args, strict=False)) | kwargs
        for name, x in arguments.items():
            optional = x is None and parameters[name].default is None
            if annotated.get(name) and not optional and not _is_numeric(x):
                raise ValueError(
                    f"`{function.__name__}({name}={x!r})`: must be an array; make one of a list "
                    "by `jnp.asarray`."
                )
        shapes = {
            name: jnp.shape(x)
            for name, x in arguments.items()
            if annotated.get(name) and x is not None
        }
        takes = {name: _nearest(annotated[name], len(shape)) for name, shape in shapes.items()}
        lengths: dict[str, int] = {}
        if not all(_fits(takes[name], shape, lengths) for name, shape in shapes.items()):
            raise ValueError(
                f"`{function.__name__}` was given "
                + ", ".join(f"{name}{list(shape)}" for name, shape in shapes.items())
                + " but takes "
                + ", ".join(f"{name}[{axes}]" for name, axes in takes.items())
                + ": one example, axes of one name equally long and not empty; `jax.vmap` it over "
                "a batch."
            )
        named = {name: wide(x) for name, x in arguments.items() if name in reals}
        given = [named.get(name, x) for name, x in zip(parameters, args, strict=False)]
        rest = {name: named.get(name, x) for name, x in kwargs.items()}
        return function(*given, *args[len(given) :], **rest)  # pyright: ignore[reportCallIssue]

    return checked


def wide(x: Any) -> Any:
    """Arrays of half precision and of integers in float32. In half precision the sum of many terms
    loses the small ones, and its differences of large numbers are noise."""
    dtype = getattr(x, "dtype", None)
    if dtype is not None and jnp.issubdtype(dtype, jnp.complexfloating):
        raise ValueError(f"an array of {dtype} was given; give real numbers.")
    if dtype is None or (jnp.issubdtype(dtype, jnp.floating) and dtype.itemsize >= 4):
        return x
    return x.astype(jnp.float32)


def at_action(x: Array, action: Array) -> Array:
    """The entry of the action, or NaN where there is no such action: JAX takes the nearest one."""
    exists = (action >= 0) & (action < x.shape[0])
    return jnp.where(exists, x[jnp.where(exists, action, 0)], jnp.nan)


def _is_numeric(x: Any) -> bool:
    return hasattr(x, "dtype") or isinstance(x, bool | int | float)


def _is_real(annotation: Any) -> bool:
    """Whether an argument is an array of floating-point numbers, or a union with one."""
    kinds = [getattr(x, "dtypes", ()) for x in (annotation, *get_args(annotation))]
    return any(isinstance(x, tuple | list) and "float32" in x for x in kinds)


def _axes(annotation: Any) -> list[str]:
    """The axes that an argument may have: those of each array type of a union."""
    names = [
        x.dim_str.strip() for x in (annotation, *get_args(annotation)) if hasattr(x, "dim_str")
    ]
    return [x for x in names if not x.startswith("*")]


def _nearest(axes: list[str], ndim: int) -> str:
    return next((x for x in axes if len(x.split()) == ndim), axes[-1])


def _fits(axes: str, shape: tuple[int, ...], lengths: dict[str, int]) -> bool:
    """Whether the shape has these axes, of lengths seen before."""
    names = axes.split()
    if names[-1:] == ["..."]:
        names = names[:-1]
        shape = shape[: len(names)]
    return (
        len(shape) == len(names)
        and 0 not in shape
        and all(lengths.setdefault(x, size) == size for x, size in zip(names, shape, strict=True))
    )


def check_range(owner: str, least: float, most: float = math.inf, /, **fields: Any) -> None:
    """Raises where a hyperparameter of `owner` is neither an array nor
    a finite number in `[least, most]`."""
    for name, value in fields.items():
        if isinstance(value, Array):
            continue
        inside = (
            isinstance(value, int | float | np.integer | np.floating) and least <= value <= most
        )
        if not (inside and math.isfinite(value)):
            low = "" if least == -math.inf else f", {least:g} or more"
            allowed = f"finite{low}" if most == math.inf else f"{least:g} to {most:g}"
            raise ValueError(f"`{owner}({name}={value!r})`: must be a number, {allowed}.")


def check_positive(owner: str, **fields: Any) -> None:
    """Raises where a hyperparameter of `owner` is neither an array nor a number above 0."""
    for name, value in fields.items():
        if not isinstance(value, Array) and not (
            isinstance(value, int | float | np.integer | np.floating) and value > 0
        ):
            raise ValueError(f"`{owner}({name}={value!r})`: must be above 0.")


def check_count(owner: str, least: int = 1, /, **fields: Any) -> None:
    """Raises where an argument of `owner` is not an integer of at least `least`."""
    for name, value in fields.items():
        if not (isinstance(value, int | np.integer) and value >= least):
            raise ValueError(f"`{owner}({name}={value!r})`: must be an integer, at least {least}.")


def check_kind(owner: str, kind: Any, called: str, /, **parts: Any) -> None:
    """Raises where a part of `owner` is none of `kind`, which is `callable` or a class."""
    for name, part in parts.items():
        if not (callable(part) if kind is callable else isinstance(part, kind)):
            raise ValueError(f"`{owner}({name}={_line(part)})`: must be {called}.")


def _line(part: Any) -> str:
    return repr(part) if len(repr(part)) < 60 and "\n" not in repr(part) else type(part).__name__


def ratio(log_ratio: Float[Array, "*axes"]) -> Float[Array, "*axes"]:
    """`exp(log_ratio)`, at most a number that is far below the largest one, and so its slope: an
    infinite slope times a weight, or the slope of a clip, of 0 would be NaN."""
    most = math.log(float(jnp.finfo(log_ratio.dtype).max)) - 10
    return jnp.exp(log_ratio - jax.lax.stop_gradient(jax.nn.relu(log_ratio - most)))


def finite(x: Float[Array, "*axes"]) -> Float[Array, "*axes"]:
    """0 for -inf, without a gradient."""
    return jnp.where(jnp.isneginf(x), 0.0, x)


def log_softmax(logits: Float[Array, "*axes actions"]) -> Float[Array, "*axes actions"]:
    """Log-probabilities; the uniform ones where nothing is legal."""
    some = jnp.any(~jnp.isneginf(logits), axis=-1, keepdims=True)
    return jax.nn.log_softmax(jnp.where(some, logits, 0.0), axis=-1)
