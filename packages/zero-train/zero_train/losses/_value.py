"""Losses of state values."""

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from .._arguments import check_axes, check_positive


def td_learning_loss(
    value: Float[Array, ""],
    reward: Float[Array, ""],
    discount: Float[Array, ""],
    next_value: Float[Array, ""],
    *,
    huber: float | None = None,
) -> Float[Array, ""]:
    """One-step TD learning (Sutton & Barto 2018, equation 6.2) of the target `r + d * V'`.

    **Arguments:**

    - `value`: to learn, of the state before the step.
    - `reward`, `discount`: of the step; `discount` is gamma times the environment's signed one.
    - `next_value`: of the state after it, from the view of the player to move there; usually of a
        target network. The target is a constant.
    - `huber`: from which size of error the loss is linear (`optax.losses.huber_loss`); `None` for
        half the square.
    """
    check_axes(
        "td_learning_loss",
        value=(value, ""),
        reward=(reward, ""),
        discount=(discount, ""),
        next_value=(next_value, ""),
    )
    return regression("td_learning_loss", value, reward + discount * next_value, huber)


def clipped_value_loss(
    value: Float[Array, ""],
    old_value: Float[Array, ""],
    target: Float[Array, ""],
    *,
    epsilon: float | Float[Array, ""],
) -> Float[Array, ""]:
    """`max((V - G)^2, (clip(V, V_old - epsilon, V_old + epsilon) - G)^2) / 2`,
    the value loss of most implementations of PPO (Engstrom et al. 2020,
    https://arxiv.org/abs/2005.12729, section 3).

    **Arguments:**

    - `value`: to learn.
    - `old_value`: what it was when the data were collected. A constant.
    - `target`: such as that of [`zero_train.returns.truncated_gae`][]. A constant.
    - `epsilon`: how far one update may take the value. Has its unit.
    """
    check_axes(
        "clipped_value_loss", value=(value, ""), old_value=(old_value, ""), target=(target, "")
    )
    check_positive("clipped_value_loss", epsilon=epsilon)
    old_value, target = jax.lax.stop_gradient((old_value, target))
    clipped = old_value + jnp.clip(value - old_value, -epsilon, epsilon)
    return 0.5 * jnp.maximum(jnp.square(value - target), jnp.square(clipped - target))


def regression(owner: str, prediction: Array, target: Array, huber: float | None) -> Array:
    """Half the squared error or the Huber loss, of a constant target."""
    target = jax.lax.stop_gradient(target)
    if huber is None:
        return optax.losses.l2_loss(prediction, target)
    check_positive(owner, huber=huber)
    return optax.losses.huber_loss(prediction, target, delta=huber)
