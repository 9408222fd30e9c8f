"""Checks and numbers that losses and returns share.

Illegal is -inf, in logits, log-probabilities and Q-values. Filler rows and final states may have no
legal action at all. A weight or discount of 0 makes such a row count for nothing, but 0 times
infinity is NaN, in the value or in the gradient.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def check_axes(owner: str, **arguments: tuple[Any, str]) -> None:
    """Raises where the named axes of `name=(array, "axis axis")` do not fit together.

    Axes of one name must be equally long and not empty; "" is a number.
    """
    lengths: dict[str, int] = {}
    for x, axes in arguments.values():
        shape, names = jnp.shape(x), axes.split()
        fits = len(shape) == len(names) and 0 not in shape
        if not fits or any(
            lengths.setdefault(axis, size) != size for axis, size in zip(names, shape, strict=True)
        ):
            given = ", ".join(f"{name}{list(jnp.shape(x))}" for name, (x, _) in arguments.items())
            takes = ", ".join(f"{name}[{axes}]" for name, (_, axes) in arguments.items())
            raise ValueError(
                f"`{owner}` was given {given} but takes {takes}: one example, axes of one name "
                "equally long and not empty; `jax.vmap` it over a batch."
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
