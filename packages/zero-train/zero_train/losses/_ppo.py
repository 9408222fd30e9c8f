"""Policy losses that stay near the policy that acted."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._arguments import check_axes, check_positive


def ppo_clip_loss(
    log_prob: Float[Array, ""],
    old_log_prob: Float[Array, ""],
    advantage: Float[Array, ""],
    *,
    epsilon: float | Float[Array, ""],
) -> Float[Array, ""]:
    """`-min(rho * A, clip(rho, 1 - epsilon, 1 + epsilon) * A)` with
    `rho = pi / mu` (Schulman et al. 2017, https://arxiv.org/abs/1707.06347, equation 7).

    **Arguments:**

    - `log_prob`: of the action taken, under the policy `pi` that learns.
    - `old_log_prob`: the same under `mu`, which took it. A constant; where it is -inf, as for a
        filler action, `rho` is 1 and has no gradient.
    - `advantage`: of the action, from the view of the player who took it. A constant.
    - `epsilon`: how far `rho` may leave 1 before the gradient ends, such as 0.2.
    """
    ratio = jnp.exp(_log_ratio("ppo_clip_loss", log_prob, old_log_prob, advantage))
    check_positive("ppo_clip_loss", epsilon=epsilon)
    advantage = jax.lax.stop_gradient(advantage)
    clipped = jnp.clip(ratio, 1 - epsilon, 1 + epsilon)
    return -jnp.minimum(ratio * advantage, clipped * advantage)


def ppo_penalty_loss(
    log_prob: Float[Array, ""],
    old_log_prob: Float[Array, ""],
    advantage: Float[Array, ""],
    kl: Float[Array, ""],
    *,
    beta: float | Float[Array, ""],
) -> Float[Array, ""]:
    """`-(rho * A - beta * KL(mu || pi))` (Schulman et al. 2017,
    https://arxiv.org/abs/1707.06347, equation 8).

    **Arguments:** those of [`zero_train.losses.ppo_clip_loss`][], and

    - `kl`: of `mu` from `pi` in this row's state; it takes a gradient.
    - `beta`: the penalty's weight. Section 4 doubles it where the mean `kl` of an update exceeds
        1.5 times its goal, and halves it where the goal exceeds 1.5 times the `kl`.
    """
    check_axes("ppo_penalty_loss", kl=(kl, ""))
    ratio = jnp.exp(_log_ratio("ppo_penalty_loss", log_prob, old_log_prob, advantage))
    return beta * kl - ratio * jax.lax.stop_gradient(advantage)


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

    Arguments are those of [`zero_train.losses.ppo_clip_loss`][]; the paper's are the defaults.
    """
    log_ratio = _log_ratio("dpo_loss", log_prob, old_log_prob, advantage)
    check_positive("dpo_loss", alpha=alpha, beta=beta)
    ratio, advantage = jnp.exp(log_ratio), jax.lax.stop_gradient(advantage)
    gain, loss = (ratio - 1) * advantage, log_ratio * advantage
    drift = jnp.where(
        advantage >= 0,
        jax.nn.relu(gain - alpha * jnp.tanh(gain / alpha)),
        jax.nn.relu(loss - beta * jnp.tanh(loss / beta)),
    )
    return drift - ratio * advantage


def _log_ratio(owner: str, log_prob: Array, old_log_prob: Array, advantage: Array) -> Array:
    check_axes(
        owner, log_prob=(log_prob, ""), old_log_prob=(old_log_prob, ""), advantage=(advantage, "")
    )
    # An illegal filler action is that to both policies, and -inf minus -inf is NaN, which would
    # reach the gradient through a weight of 0.
    possible = ~jnp.isneginf(old_log_prob)
    old_log_prob = jax.lax.stop_gradient(old_log_prob)
    return jnp.where(possible, log_prob, 0.0) - jnp.where(possible, old_log_prob, 0.0)
