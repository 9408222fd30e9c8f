"""Generalised advantage estimation."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ._recurrence import check_rows, cut, following, solve, stopped


def truncated_gae(
    reward: Float[Array, " rows"],
    discount: Float[Array, " rows"],
    value: Float[Array, " rows"],
    last: Bool[Array, " rows"],
    *,
    lambda_: float | Float[Array, ""] | Float[Array, " rows"],
    stop_gradient: bool = True,
) -> tuple[Float[Array, " rows"], Float[Array, " rows"]]:
    """Generalised advantage estimates, cut at the end of the episode or window
    (Schulman et al. 2016, https://arxiv.org/abs/1506.02438, equation 16; Schulman et al. 2017,
    https://arxiv.org/abs/1707.06347, equation 11):

    `A[t] = delta[t] + d[t] * lambda[t] * A[t+1]` with `delta[t] = r[t] + d[t] * V[t+1] - V[t]`, and
    0 in a row with `last` and in the window's last row.

    Arguments are those of [`zero_train.returns.lambda_returns`][].

    **Returns:** the advantages, from the view of the player who acts, and the targets of the
    value, `V + A`, which are the lambda-returns.
    """
    check_rows(
        "truncated_gae",
        lambda_,
        reward=reward,
        discount=discount,
        value=value,
        last=last,
    )
    reward, discount, value, lambda_ = stopped(stop_gradient, reward, discount, value, lambda_)
    ends, discount = cut(last, discount)
    error = jnp.where(ends, 0.0, reward + discount * following(value) - value)
    advantage = solve(error, jnp.where(ends, 0.0, discount * lambda_))
    return advantage, value + advantage


def truncated_gae_from_successors(
    reward: Float[Array, " steps"],
    discount: Float[Array, " steps"],
    value: Float[Array, " steps"],
    next_value: Float[Array, " steps"],
    truncated: Bool[Array, " steps"],
    *,
    lambda_: float | Float[Array, ""] | Float[Array, " steps"],
    stop_gradient: bool = True,
) -> tuple[Float[Array, " steps"], Float[Array, " steps"]]:
    """[`zero_train.returns.truncated_gae`][] for collectors that keep each step's true successor
    instead of a row for it.

    **Arguments:**

    - `value`, `next_value`: of the observation before each step and of the true one after it, also
        where the next entry starts a new episode.
    - `truncated`: steps whose next entry is not their successor although `discount` is not 0. Such
        a step bootstraps from its `next_value` and the sum stops.

    **Returns:** the advantages and the targets of the value, of all steps.
    """
    check_rows(
        "truncated_gae_from_successors",
        lambda_,
        reward=reward,
        discount=discount,
        value=value,
        next_value=next_value,
        truncated=truncated,
    )
    reward, discount, value, next_value, lambda_ = stopped(
        stop_gradient, reward, discount, value, next_value, lambda_
    )
    error = reward + discount * next_value - value
    advantage = solve(error, jnp.where(truncated, 0.0, discount * lambda_))
    return advantage, value + advantage
