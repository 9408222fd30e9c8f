"""On-policy multistep returns and advantages, and the recurrence that computes them."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .._arrays import check_axes
from .._checks import check_range


def stopped(stop_gradient: bool, *given: Any) -> tuple[Any, ...]:
    """Stops the gradients of the arguments if asked to, so that no derivative is traced."""
    return jax.lax.stop_gradient(given) if stop_gradient else given


def end_rows(last: Bool[Array, " rows"]) -> Bool[Array, " rows"]:
    """Rows without a step: final observations, and the last row of the window."""
    return last | (jnp.arange(last.size) == last.size - 1)


def cut(
    last: Bool[Array, " rows"], discount: Float[Array, " rows"]
) -> tuple[Bool[Array, " rows"], Float[Array, " rows"]]:
    """The end rows, and the discounts with 0 in these rows. Their filler may be NaN, which would
    reach the gradient of a value through a `where`."""
    ends = end_rows(last)
    return ends, jnp.where(ends, 0.0, discount)


def following(x: Float[Array, " rows"], steps: int = 1) -> Float[Array, " rows"]:
    """`x[t + steps]` at row `t`, and 0 after the end of the window."""
    # Unlike a concatenation, XLA fuses it with what comes after: GAE in nine tenths of the time.
    return jax.lax.pad(x, jnp.zeros((), x.dtype), [(-steps, steps, 0)])


def solve(a: Float[Array, " rows"], b: Float[Array, " rows"]) -> Float[Array, " rows"]:
    """Solves `g[t] = a[t] + b[t] * g[t + 1]`, with 0 after the last row."""
    # In as many steps as rows: on a CPU the parallel `associative_scan` takes twice as long, and
    # unrolling does not help.
    return jax.lax.scan(_step, jnp.zeros_like(a[0]), (a, b), reverse=True)[1]


def _step(g: Array, ab: tuple[Array, Array]) -> tuple[Array, Array]:
    g = ab[0] + ab[1] * g
    return g, g


@check_axes
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

    `G[t] = r[t] + d[t] * ((1 - lambda[t]) * V[t+1] + lambda[t] * G[t+1])`, and `G[t] = V[t]` in an
    end row. A lambda of 0 gives one-step TD targets, and 1 the discounted return. What the
    arguments are, `help(zero_train.returns)` says.
    """
    reward, discount, value, lambda_ = stopped(stop_gradient, reward, discount, value, lambda_)
    return solve(*_mixture(reward, discount, value, lambda_, last))


@check_axes
def discounted_returns(
    reward: Float[Array, " rows"],
    discount: Float[Array, " rows"],
    value: Float[Array, " rows"],
    last: Bool[Array, " rows"],
    *,
    stop_gradient: bool = True,
) -> Float[Array, " rows"]:
    """The discounted rewards up to the end of the episode or window, and the value there:
    `G[t] = r[t] + d[t] * G[t+1]` (Sutton & Barto 2018, equation 3.9).
    """
    reward, discount, value = stopped(stop_gradient, reward, discount, value)
    return solve(*_mixture(reward, discount, value, 1.0, last))


@check_axes
def n_step_returns(
    reward: Float[Array, " rows"],
    discount: Float[Array, " rows"],
    value: Float[Array, " rows"],
    last: Bool[Array, " rows"],
    *,
    n: int | Int[Array, ""] | Int[Array, " rows"],
    lambda_: float | Float[Array, ""] | Float[Array, " rows"] = 1.0,
    stop_gradient: bool = True,
) -> Float[Array, " rows"]:
    """The return of `n` steps, bootstrapped from the value (Sutton & Barto 2018, equation 7.1):

    `G_n[t] = r[t] + d[t] * ((1 - lambda[t]) * V[t+1] + lambda[t] * G_(n-1)[t+1])` with `G_0 = V`,
    so a lambda below 1 mixes in the shorter returns. Where the episode or window has fewer than `n`
    steps left, the return takes those. `n` is at least 1, the same everywhere or in an array one
    for each row, which takes as many passes as there are rows.
    """
    check_range("n_step_returns", 1, n=n)
    reward, discount, value, lambda_ = stopped(stop_gradient, reward, discount, value, lambda_)
    a, b = _mixture(reward, discount, value, lambda_, last)
    if isinstance(n, Array):
        return _each(a, b, value, n)
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


def _each(a: Array, b: Array, value: Array, n: Array) -> Array:
    """The returns of `n` steps, of as many as each row says."""

    def longer(found: tuple[Array, Array], steps: Array) -> tuple[tuple[Array, Array], None]:
        g = a + b * following(found[0])
        return (g, jnp.where(steps <= n, g, found[1])), None

    counts = jnp.arange(1, a.size, dtype=jnp.int32)
    return jax.lax.scan(longer, (value, value), counts)[0][1]


def _compose(a: Array, b: Array, n: int) -> tuple[Array, Array]:
    """Composes the maps `g -> a[t] + b[t] * g` of `n` consecutive rows in `2 log2(n)` passes."""
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


@check_axes
def truncated_gae(
    reward: Float[Array, " rows"],
    discount: Float[Array, " rows"],
    value: Float[Array, " rows"],
    last: Bool[Array, " rows"],
    *,
    lambda_: float | Float[Array, ""] | Float[Array, " rows"],
    stop_gradient: bool = True,
) -> tuple[Float[Array, " rows"], Float[Array, " rows"]]:
    """Generalised advantage estimates, truncated at the end of the episode or window
    (Schulman et al. 2016, https://arxiv.org/abs/1506.02438, equation 16; Schulman et al. 2017,
    https://arxiv.org/abs/1707.06347, equation 11):

    `A[t] = delta[t] + d[t] * lambda[t] * A[t+1]` with `delta[t] = r[t] + d[t] * V[t+1] - V[t]`, and
    0 in end rows.

    **Returns:** the advantages, and the value targets `V + A`, which are the lambda-returns.
    """
    reward, discount, value, lambda_ = stopped(stop_gradient, reward, discount, value, lambda_)
    ends, discount = cut(last, discount)
    error = jnp.where(ends, 0.0, reward + discount * following(value) - value)
    advantage = solve(error, jnp.where(ends, 0.0, discount * lambda_))
    return advantage, value + advantage


@check_axes
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
    """[`zero_train.returns.truncated_gae`][] for collectors that store the next observation with
    each step, and no final rows: `value` and `next_value` are of the observations before and after
    each step, also where the next entry starts a new episode. Steps whose next entry does not
    follow them although `discount` is not 0 are `truncated`. They bootstrap from their
    `next_value`, and the sum stops.
    """
    reward, discount, value, next_value, lambda_ = stopped(
        stop_gradient, reward, discount, value, next_value, lambda_
    )
    error = reward + discount * next_value - value
    advantage = solve(error, jnp.where(truncated, 0.0, discount * lambda_))
    return advantage, value + advantage
