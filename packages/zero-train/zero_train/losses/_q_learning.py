"""Losses of action values."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .._arguments import check_axes, check_positive
from .._illegal import finite
from ._value import regression


def q_learning_loss(
    qvalues: Float[Array, " actions"],
    action: Int[Array, ""],
    reward: Float[Array, ""],
    discount: Float[Array, ""],
    next_qvalues: Float[Array, " actions"],
    *,
    huber: float | None = None,
) -> Float[Array, ""]:
    """Q-learning (Watkins & Dayan 1992; Mnih et al. 2015) of the target
    `r + d * max(Q')`.

    A Q-value of -inf marks an illegal action. The next state may have no legal one, if it is final.

    **Arguments:**

    - `qvalues`: to learn, of the state before the step; only the one of `action` is.
    - `reward`, `discount`: of the step; `discount` is gamma times the environment's signed one.
    - `next_qvalues`: of the state after it, from the view of the player to move there; usually of
        a target network. The target is a constant.
    - `huber`: from which size of error the loss is linear; `None` for half the square.
    """
    _check("q_learning_loss", qvalues, action, reward, discount, next_qvalues=next_qvalues)
    target = reward + discount * _greedy(next_qvalues, next_qvalues)
    return regression("q_learning_loss", finite(qvalues)[action], target, huber)


def double_q_learning_loss(
    qvalues: Float[Array, " actions"],
    action: Int[Array, ""],
    reward: Float[Array, ""],
    discount: Float[Array, ""],
    next_qvalues: Float[Array, " actions"],
    selector: Float[Array, " actions"],
    *,
    huber: float | None = None,
) -> Float[Array, ""]:
    """Double Q-learning (van Hasselt et al. 2016, https://arxiv.org/abs/1509.06461, equation 4) of
    the target `r + d * Q'[argmax(selector)]`.

    **Arguments:** those of [`zero_train.losses.q_learning_loss`][], and

    - `selector`: Q-values that choose the next action; usually the learning network's own.
    """
    owner = "double_q_learning_loss"
    _check(owner, qvalues, action, reward, discount, next_qvalues=next_qvalues, selector=selector)
    target = reward + discount * _greedy(next_qvalues, selector)
    return regression(owner, finite(qvalues)[action], target, huber)


def munchausen_q_learning_loss(
    qvalues: Float[Array, " actions"],
    action: Int[Array, ""],
    reward: Float[Array, ""],
    discount: Float[Array, ""],
    target_qvalues: Float[Array, " actions"],
    next_qvalues: Float[Array, " actions"],
    *,
    temperature: float | Float[Array, ""] = 0.03,
    scale: float | Float[Array, ""] = 0.9,
    minimum: float | Float[Array, ""] = -1.0,
    huber: float | None = None,
) -> Float[Array, ""]:
    """Munchausen Q-learning (Vieillard et al. 2020, https://arxiv.org/abs/2007.14430) of the
    target

    `r + scale * clip(tau * log pi[a], minimum, 0) + d * tau * logsumexp(Q' / tau)`

    with `pi = softmax(target_qvalues / tau)`. The last term is `sum(pi' * (Q' - tau * log pi'))`
    with `pi' = softmax(Q' / tau)`.

    **Arguments:** those of [`zero_train.losses.q_learning_loss`][], and

    - `target_qvalues`: of the state before the step, of the target network like
        `next_qvalues`.
    - `temperature`: `tau`, above 0.
    - `scale`, `minimum`: of the bonus. A scale of 0 leaves soft Q-learning.
    """
    owner = "munchausen_q_learning_loss"
    _check(
        owner,
        qvalues,
        action,
        reward,
        discount,
        target_qvalues=target_qvalues,
        next_qvalues=next_qvalues,
    )
    check_positive(owner, temperature=temperature)
    log_policy = target_qvalues[action] - _soft_maximum(target_qvalues, temperature)
    bonus = scale * jnp.clip(log_policy, minimum, 0.0)
    target = reward + bonus + discount * _soft_maximum(next_qvalues, temperature)
    return regression(owner, finite(qvalues)[action], target, huber)


def _greedy(qvalues: Array, selector: Array) -> Array:
    legal_selector = jnp.where(jnp.isneginf(qvalues), -jnp.inf, selector)
    return finite(qvalues)[jnp.argmax(legal_selector)]


def _soft_maximum(qvalues: Array, temperature: float | Array) -> Array:
    return finite(temperature * jax.nn.logsumexp(qvalues / temperature))


def _check(
    owner: str, qvalues: Array, action: Array, reward: Array, discount: Array, **others: Array
) -> None:
    check_axes(
        owner,
        qvalues=(qvalues, "actions"),
        action=(action, ""),
        reward=(reward, ""),
        discount=(discount, ""),
        **{name: (x, "actions") for name, x in others.items()},
    )
