"""Weighted means over a batch."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._arrays import taken
from .._checks import check_range


def masked_mean(
    x: Float[Array, "*batch"],
    weights: Float[Array, "*batch"],
    *,
    total: Float[Array, ""] | None = None,
) -> Float[Array, ""]:
    """The weighted mean over all axes, `sum(weights * x) / sum(weights)`; 0 where no row counts.

    Rows of weight 0, such as final ones, may hold anything, NaN included. A weight below 0 makes
    the mean NaN.

    There is a weight for each number of `x`. Give the sum of the weights as `total` to several
    means over the same ones: over several devices a gradient has to wait for this sum, and XLA does
    not see that two sums are the same; with one for all means, everything else is sent together.
    """
    x, weights = taken("`masked_mean(x=)`", x), taken("`masked_mean(weights=)`", weights)
    if jnp.shape(x) != jnp.shape(weights):
        raise ValueError(
            f"`masked_mean` was given x {list(jnp.shape(x))} and weights "
            f"{list(jnp.shape(weights))}: one weight for each number is needed"
        )
    whole: Any = jnp.sum(weights) if total is None else taken("`masked_mean(total=)`", total)
    weights = jnp.where(weights < 0, jnp.nan, weights)
    counted = jnp.sum(jnp.where(weights == 0, 0.0, weights * x))
    return counted / jnp.where(whole == 0, 1.0, whole)


def standardise(
    x: Float[Array, "*batch"], weights: Float[Array, "*batch"], *, epsilon: float = 1e-8
) -> Float[Array, "*batch"]:
    """Shifts and scales `x` to mean 0 and variance 1 under the weights, over all axes, as PPO does
    with advantages. Rows of weight 0 become 0. `epsilon` is added to the variance, so that equal
    numbers become 0.
    """
    check_range("standardise", 0, epsilon=epsilon)
    x, weights = taken("`standardise(x=)`", x), taken("`standardise(weights=)`", weights)
    mean = masked_mean(x, weights)
    rest = jnp.where(weights == 0, 0.0, x - mean)
    # Far from 0 the mean is rounded: the mean of what is left corrects it.
    rest = jnp.where(weights == 0, 0.0, rest - masked_mean(rest, weights))
    variance = masked_mean(jnp.square(rest), weights)
    return rest / jnp.sqrt(variance + epsilon)
