"""Policies as losses see them, and the losses of PPO."""

from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._arrays import check_axes, ratio
from .._checks import check_positive, check_range


@runtime_checkable
class Policy(Protocol):
    """A distribution over the actions of one state: any pytree with these methods, such as the
    distributions of zero-nets."""

    def log_prob(self, action: Any) -> Float[Array, ""]:
        """The log-probability or log-density of one action, summed over its dimensions."""
        ...

    def kl(self, other: Any) -> Float[Array, "*dims"]:
        """KL(self || other) in nats, for each independent action dimension or as a scalar."""
        ...


@runtime_checkable
class DecoupledPolicy(Policy, Protocol):
    """A policy with a mean and a standard deviation that can be held fixed separately."""

    def decouple(self, other: Any) -> tuple[Policy, Policy]:
        """Two policies: the mean of `self` with the deviation of `other`, and the reverse."""
        ...


@check_axes
def ppo_clip_loss(
    log_prob: Float[Array, ""],
    old_log_prob: Float[Array, ""],
    advantage: Float[Array, ""],
    *,
    epsilon: float | Float[Array, ""],
) -> Float[Array, ""]:
    """PPO's clipped loss, `-min(rho * A, clip(rho, 1 - epsilon, 1 + epsilon) * A)` with
    `rho = pi / mu` (Schulman et al. 2017, https://arxiv.org/abs/1707.06347, equation 7).

    The log-probabilities are of the action taken, under the policy `pi` to learn and under the old
    policy `mu` that acted. Where the latter is -inf, as for a filler action, `rho` is 1 and has no
    gradient. At the distance `epsilon` from 1, such as 0.2, `rho` is clipped.
    """
    rho = ratio(_log_ratio(log_prob, old_log_prob))
    check_positive("ppo_clip_loss", epsilon=epsilon)
    advantage = jax.lax.stop_gradient(advantage)
    clipped = jnp.clip(rho, 1 - epsilon, 1 + epsilon)
    return -jnp.minimum(rho * advantage, clipped * advantage)


@check_axes
def ppo_penalty_loss(
    log_prob: Float[Array, ""],
    old_log_prob: Float[Array, ""],
    advantage: Float[Array, ""],
    kl: Float[Array, ""],
    *,
    beta: float | Float[Array, ""],
) -> Float[Array, ""]:
    """PPO's loss with a KL penalty, `-(rho * A - beta * KL(mu || pi))` (Schulman et al. 2017,
    https://arxiv.org/abs/1707.06347, equation 8).

    The other arguments are those of [`zero_train.losses.ppo_clip_loss`][]. The `kl` has a gradient
    for `pi`. The paper (section 4) doubles `beta` when the mean `kl` of an update exceeds 1.5 times
    its goal, and halves it when the goal exceeds 1.5 times the `kl`.
    """
    check_range("ppo_penalty_loss", 0, beta=beta)
    rho = ratio(_log_ratio(log_prob, old_log_prob))
    return beta * kl - rho * jax.lax.stop_gradient(advantage)


@check_axes
def dpo_loss(
    log_prob: Float[Array, ""],
    old_log_prob: Float[Array, ""],
    advantage: Float[Array, ""],
    *,
    alpha: float | Float[Array, ""] = 2.0,
    beta: float | Float[Array, ""] = 0.6,
) -> Float[Array, ""]:
    """Discovered policy optimisation (Lu et al. 2022, https://arxiv.org/abs/2210.05639):
    `-(rho * A - f)` with the drift

    - `f = max(0, (rho - 1) * A - alpha * tanh((rho - 1) * A / alpha))` where `A >= 0`,
    - `f = max(0, A * log(rho) - beta * tanh(A * log(rho) / beta))` where `A < 0`.

    Arguments are those of [`zero_train.losses.ppo_clip_loss`][]; `alpha` and `beta` are by default
    those of the paper.
    """
    log_ratio = _log_ratio(log_prob, old_log_prob)
    check_positive("dpo_loss", alpha=alpha, beta=beta)
    rho, advantage = ratio(log_ratio), jax.lax.stop_gradient(advantage)
    # An impossible action has a log-ratio of -inf, and an advantage of 0 makes it NaN.
    gain, loss = (rho - 1) * advantage, jnp.where(advantage < 0, log_ratio, 0.0) * advantage
    drift = jnp.where(
        advantage >= 0,
        jax.nn.relu(gain - alpha * jnp.tanh(gain / alpha)),
        jax.nn.relu(loss - beta * jnp.tanh(loss / beta)),
    )
    return drift - rho * advantage


def _log_ratio(log_prob: Array, old_log_prob: Array) -> Array:
    # An illegal filler action is that to both policies, and -inf minus -inf is NaN, which would
    # reach the gradient through a weight of 0.
    possible = ~jnp.isneginf(old_log_prob)
    old_log_prob = jax.lax.stop_gradient(old_log_prob)
    return jnp.where(possible, log_prob, 0.0) - jnp.where(possible, old_log_prob, 0.0)
