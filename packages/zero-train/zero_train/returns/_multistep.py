"""Returns of n steps, of all steps, and their exponential mixture."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ._recurrence import check_rows, cut, following, solve, stopped


def lambda_returns(
    reward: Float[Array, " rows"],
    discount: Float[Array, " rows"],
    value: Float[Array, " rows"],
    last: Bool[Array, " rows"],
    *,
    lambda_: float | Float[Array, ""] | Float[Array, " rows"],
    stop_gradient: bool = True,
) -> Float[Array, " rows"]:
    """The lambda-return of every row (Sutton & Barto 2018, equation 12.18):

    `G[t] = r[t] + d[t] * ((1 - lambda[t]) * V[t+1] + lambda[t] * G[t+1])`, and `G[t] = V[t]` in a
    row with `last` and in the window's last row. 0 is one-step TD, 1 the discounted return.

    **Arguments:**

    - `reward`, `discount`: of the step out of each row; `discount` is gamma times the signed
        discount of the environment, so a return is from the view of the player to move.
    - `value`: of each row's own observation, from the view of the player to move in it.
    - `last`: rows with the true final observation of an episode. `T` targets need `T + 1` rows.
    - `lambda_`: a number, or one for each row's step. End rows' own are not used.
    - `stop_gradient`: if `False`, gradients flow into everything that went in.
    """
    check_rows("lambda_returns", lambda_, reward=reward, discount=discount, value=value, last=last)
    reward, discount, value, lambda_ = stopped(stop_gradient, reward, discount, value, lambda_)
    return solve(*_mixture(reward, discount, value, lambda_, last))


def discounted_returns(
    reward: Float[Array, " rows"],
    discount: Float[Array, " rows"],
    value: Float[Array, " rows"],
    last: Bool[Array, " rows"],
    *,
    stop_gradient: bool = True,
) -> Float[Array, " rows"]:
    """The sum of discounted rewards to the end of the episode or window, and the value there:
    `G[t] = r[t] + d[t] * G[t+1]` (Sutton & Barto 2018, equation 3.9).

    The other values are not used. Arguments are those of
    [`zero_train.returns.lambda_returns`][].
    """
    check_rows("discounted_returns", 1.0, reward=reward, discount=discount, value=value, last=last)
    reward, discount, value = stopped(stop_gradient, reward, discount, value)
    return solve(*_mixture(reward, discount, value, 1.0, last))


def n_step_returns(
    reward: Float[Array, " rows"],
    discount: Float[Array, " rows"],
    value: Float[Array, " rows"],
    last: Bool[Array, " rows"],
    *,
    n: int,
    lambda_: float | Float[Array, ""] | Float[Array, " rows"] = 1.0,
    stop_gradient: bool = True,
) -> Float[Array, " rows"]:
    """The return of `n` steps, then the value (Sutton & Barto 2018, equation 7.1):

    `G_n[t] = r[t] + d[t] * ((1 - lambda[t]) * V[t+1] + lambda[t] * G_(n-1)[t+1])` with `G_0 = V`,
    so a lambda below 1 mixes the shorter returns in. Where fewer than `n` steps are left in the
    episode or window, it is the value after those; `n` may exceed the window.

    Arguments are those of [`zero_train.returns.lambda_returns`][]. Raises a `ValueError` for `n`
    below 1.
    """
    check_rows("n_step_returns", lambda_, reward=reward, discount=discount, value=value, last=last)
    if n < 1:
        raise ValueError(f"`n_step_returns(n={n})`: must be 1 or more steps.")
    reward, discount, value, lambda_ = stopped(stop_gradient, reward, discount, value, lambda_)
    a, b = _mixture(reward, discount, value, lambda_, last)
    if n >= a.size - 1:
        return solve(a, b)
    a, b = _compose(a, b, n)
    return a + b * following(value, n)


def _mixture(
    reward: Array, discount: Array, value: Array, lambda_: float | Array, last: Array
) -> tuple[Array, Array]:
    """`G[t] = a[t] + b[t] * G[t + 1]`."""
    ends, discount = cut(last, discount)
    a = jnp.where(ends, value, reward + discount * (1 - lambda_) * following(value))
    return a, jnp.where(ends, 0.0, discount * lambda_)


def _compose(a: Array, b: Array, n: int) -> tuple[Array, Array]:
    """The map `g -> a[t] + b[t] * g` of `n` rows in a row, in about `2 log2(n)` passes."""
    total_a, total_b, done = a, b, 1
    for bit in bin(n)[3:]:
        total_a = total_a + total_b * following(total_a, done)
        total_b = total_b * following(total_b, done)
        done *= 2
        if bit == "1":
            total_a = a + b * following(total_a, 1)
            total_b = b * following(total_b, 1)
            done += 1
    return total_a, total_b
