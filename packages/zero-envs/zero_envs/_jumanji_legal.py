"""What Jumanji's masks allow: of joint actions, or of each component by itself."""

import functools as ft
import math

import jax.numpy as jnp
from jaxtyping import Array, Bool


def joint_legal(mask: Array | None, num_values: tuple[int, ...]) -> Bool[Array, " actions"]:
    """Of a mask over joint actions, or of one row for each component: then a joint action is legal
    where all of it is."""
    if mask is None:
        return jnp.ones(math.prod(num_values), jnp.bool_)
    if mask.shape != num_values:
        mask = ft.reduce(jnp.logical_and.outer, _rows(mask, num_values))
    return _something(jnp.ravel(mask))


def factored_legal(mask: Array | None, num_values: tuple[int, ...]) -> Bool[Array, " values"]:
    """Component after component. Of a mask over joint actions, a value is legal that some legal
    action has."""
    if mask is None:
        return jnp.ones(sum(num_values), jnp.bool_)
    if mask.shape != num_values:
        return jnp.concatenate(_rows(mask, num_values))
    axes = range(mask.ndim)
    rows = [jnp.any(mask, axis=tuple(j for j in axes if j != i)) for i in axes]
    return jnp.concatenate([_something(row) for row in rows])


def _rows(mask: Array, num_values: tuple[int, ...]) -> list[Bool[Array, " values"]]:
    """What each component may do. Values that its row leaves out are illegal."""
    if mask.ndim != 2 or len(mask) != len(num_values) or mask.shape[1] > max(num_values):
        raise ValueError(
            f"Jumanji's action mask has the shape {mask.shape} for actions of {num_values}; it "
            "must be the same, or one row for each component."
        )
    width = mask.shape[1]
    rows = [mask[i, :n] for i, n in enumerate(num_values)]
    rows = [jnp.pad(row, (0, max(0, n - width))) for row, n in zip(rows, num_values, strict=True)]
    return [_something(row) for row in rows]


def _something(legal: Array) -> Bool[Array, " values"]:
    """Everything where nothing is: no softmax can do without."""
    legal = legal.astype(jnp.bool_)
    return legal | ~jnp.any(legal)
