"""Checks and numbers that losses and returns share.

Illegal is -inf, in logits, log-probabilities and Q-values. Filler rows and final states may have no
legal action at all. A weight or discount of 0 makes such a row count for nothing, but 0 times
infinity is NaN, in the value or in the gradient.
"""

import functools as ft
import inspect
from collections.abc import Callable
from typing import Any, get_args, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


_P = ParamSpec("_P")
_T = TypeVar("_T")


def check_axes(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Makes a function raise where its arguments do not have the axes of its annotations.

    jaxtyping checks them too, but few users turn that on, and a loss of a batch that should have
    been vmapped is an ordinary number.
    """
    parameters = inspect.signature(function).parameters
    annotated = {name: _axes(parameter.annotation) for name, parameter in parameters.items()}

    @ft.wraps(function)
    def checked(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        arguments: dict[str, Any] = dict(zip(parameters, args, strict=False)) | kwargs
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
        return function(*args, **kwargs)

    return checked


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


def check_positive(owner: str, **fields: Any) -> None:
    """Raises where a hyperparameter is a number, not a traced array, and not above 0."""
    for name, value in fields.items():
        if isinstance(value, int | float) and not value > 0:
            raise ValueError(f"`{owner}({name}={value})`: must be above 0.")


def finite(x: Float[Array, "*axes"]) -> Float[Array, "*axes"]:
    """0 for -inf, without a gradient."""
    return jnp.where(jnp.isneginf(x), 0.0, x)


def log_softmax(logits: Float[Array, "*axes actions"]) -> Float[Array, "*axes actions"]:
    """Log-probabilities; the uniform ones where nothing is legal."""
    some = jnp.any(~jnp.isneginf(logits), axis=-1, keepdims=True)
    return jax.nn.log_softmax(jnp.where(some, logits, 0.0), axis=-1)
