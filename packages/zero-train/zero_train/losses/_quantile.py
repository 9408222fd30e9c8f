"""Losses of return distributions given by their quantiles."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

from .._arguments import check_axes, check_positive
from .._illegal import finite


def quantile_regression_loss(
    quantiles: Float[Array, " quantiles"],
    fractions: Float[Array | np.ndarray, " quantiles"],
    target: Float[Array, " samples"],
    *,
    huber: float | None = None,
) -> Float[Array, ""]:
    """The sum over `i` of the mean over `j` of `|tau[i] - (delta < 0)| * L(delta)` with
    `delta = target[j] - quantiles[i]` (Dabney et al. 2018, https://arxiv.org/abs/1710.10044,
    equation 10).

    **Arguments:**

    - `quantiles`: to learn.
    - `fractions`: `tau`, which quantile each of them is, such as `(i + 1/2) / N`.
    - `target`: equally likely samples or quantiles of the target. A constant.
    - `huber`: `L` is the Huber loss, linear from this size of error on and not divided by it;
        `None` for the absolute value.
    """
    owner = "quantile_regression_loss"
    check_axes(
        owner,
        quantiles=(quantiles, "quantiles"),
        fractions=(fractions, "quantiles"),
        target=(target, "samples"),
    )
    error = jax.lax.stop_gradient(target)[None, :] - quantiles[:, None]
    weight = jnp.abs(jnp.asarray(fractions)[:, None] - (error < 0).astype(error.dtype))
    if huber is None:
        loss = jnp.abs(error)
    else:
        check_positive(owner, huber=huber)
        loss = optax.losses.huber_loss(error, delta=huber)
    return jnp.sum(jnp.mean(weight * loss, axis=1))


def quantile_q_learning_loss(
    quantiles: Float[Array, "actions quantiles"],
    fractions: Float[Array | np.ndarray, " quantiles"],
    action: Int[Array, ""],
    reward: Float[Array, ""],
    discount: Float[Array, ""],
    next_quantiles: Float[Array, "actions samples"],
    selector: Float[Array, " actions"],
    *,
    huber: float | None = None,
) -> Float[Array, ""]:
    """Q-learning of quantiles (Dabney et al. 2018, https://arxiv.org/abs/1710.10044,
    algorithm 1): [`zero_train.losses.quantile_regression_loss`][] of the target
    `r + d * next_quantiles[argmax(selector)]`.

    **Arguments:** those of [`zero_train.losses.quantile_regression_loss`][], and

    - `action`, `reward`, `discount`: of the step, as in [`zero_train.losses.q_learning_loss`][].
    - `next_quantiles`: of the state after it, from the view of the player to move there.
    - `selector`: Q-values that choose the next action, -inf where illegal:
        `next_quantiles.mean(1)`, or the learning network's for double Q-learning.
    """
    check_axes(
        "quantile_q_learning_loss",
        quantiles=(quantiles, "actions quantiles"),
        fractions=(fractions, "quantiles"),
        action=(action, ""),
        reward=(reward, ""),
        discount=(discount, ""),
        next_quantiles=(next_quantiles, "actions samples"),
        selector=(selector, "actions"),
    )
    target = reward + discount * finite(next_quantiles[jnp.argmax(selector)])
    return quantile_regression_loss(finite(quantiles)[action], fractions, target, huber=huber)
