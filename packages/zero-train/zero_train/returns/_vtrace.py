"""Returns of state values under a policy that did not act."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._arguments import check_positive
from ._recurrence import check_rows, cut, end_rows, following, solve, stopped


def importance_corrected_td_errors(
    reward: Float[Array, " rows"],
    discount: Float[Array, " rows"],
    value: Float[Array, " rows"],
    log_ratio: Float[Array, " rows"],
    last: Bool[Array, " rows"],
    *,
    lambda_: float | Float[Array, ""] | Float[Array, " rows"],
    stop_gradient: bool = True,
) -> Float[Array, " rows"]:
    """Multistep errors of state values, each step weighed by its importance ratio
    `rho = pi / mu` (Sutton et al. 2014, http://proceedings.mlr.press/v32/sutton14.html):

    `e[t] = rho[t] * (delta[t] + d[t] * lambda[t] * e[t+1])` with
    `delta[t] = r[t] + d[t] * V[t+1] - V[t]`, and 0 in a row with `last` and in the window's last
    row.

    **Arguments:**

    - `reward`, `discount`, `value`, `last`, `lambda_`: as in
        [`zero_train.returns.lambda_returns`][].
    - `log_ratio`: `log pi - log mu` of each row's own action. End rows' own are not used.
    - `stop_gradient`: an error is a target minus the value. The value takes its gradient, -1, so
        that half the square is a loss; the target is a constant, unless this is `False`.
    """
    check_rows(
        "importance_corrected_td_errors",
        lambda_,
        reward=reward,
        discount=discount,
        value=value,
        log_ratio=log_ratio,
        last=last,
    )
    reward, discount, constant, log_ratio, lambda_ = stopped(
        stop_gradient, reward, discount, value, log_ratio, lambda_
    )
    _, errors = _errors(reward, discount, constant, log_ratio, lambda_, last, jnp.inf, jnp.inf)
    # Adds 0, and takes the gradient that was stopped.
    return errors + jnp.where(end_rows(last), 0.0, constant - value)


def vtrace(
    reward: Float[Array, " rows"],
    discount: Float[Array, " rows"],
    value: Float[Array, " rows"],
    log_ratio: Float[Array, " rows"],
    last: Bool[Array, " rows"],
    *,
    lambda_: float | Float[Array, ""] | Float[Array, " rows"] = 1.0,
    clip_rho: float = 1.0,
    clip_c: float = 1.0,
    stop_gradient: bool = True,
) -> tuple[Float[Array, " rows"], Float[Array, " rows"]]:
    """V-trace (Espeholt et al. 2018, https://arxiv.org/abs/1802.01561, equation 1 and remark 2):

    `e[t] = rho[t] * delta[t] + d[t] * lambda[t] * c[t] * e[t+1]` with
    `rho = min(clip_rho, pi / mu)` and `c = min(clip_c, pi / mu)`.

    **Arguments:** those of [`zero_train.returns.importance_corrected_td_errors`][], which are
    these errors without clips, and

    - `clip_rho`: decides whose value is learned: that of `mu` near 0, of `pi` at infinity.
    - `clip_c`: trades variance for speed; the value learned is the same.
    - `stop_gradient`: if `False`, gradients flow into everything that went in.

    **Returns:** the advantages of the policy gradient,
    `rho[t] * (r[t] + d[t] * (V[t+1] + lambda[t] * e[t+1]) - V[t])`, and the targets of the value,
    `V + e`. Where `pi = mu` and nothing is clipped they are those of
    [`zero_train.returns.truncated_gae`][].

    Raises a `ValueError` for a clip that is not above 0.
    """
    check_rows(
        "vtrace",
        lambda_,
        reward=reward,
        discount=discount,
        value=value,
        log_ratio=log_ratio,
        last=last,
    )
    check_positive("vtrace", clip_rho=clip_rho, clip_c=clip_c)
    reward, discount, value, log_ratio, lambda_ = stopped(
        stop_gradient, reward, discount, value, log_ratio, lambda_
    )
    advantages, errors = _errors(
        reward, discount, value, log_ratio, lambda_, last, clip_rho, clip_c
    )
    return advantages, value + errors


def _errors(
    reward: Array,
    discount: Array,
    value: Array,
    log_ratio: Array,
    lambda_: float | Array,
    last: Array,
    clip_rho: float,
    clip_c: float,
) -> tuple[Array, Array]:
    ends, discount = cut(last, discount)
    # An end row's filler action may be illegal to both policies: -inf minus -inf.
    log_ratio = jnp.where(ends, 0.0, log_ratio)
    rho = jnp.exp(jnp.minimum(log_ratio, jnp.log(clip_rho)))
    c = jnp.exp(jnp.minimum(log_ratio, jnp.log(clip_c)))
    delta = jnp.where(ends, 0.0, reward + discount * following(value) - value)
    trace = jnp.where(ends, 0.0, discount * lambda_)
    errors = solve(rho * delta, trace * c)
    return rho * (delta + trace * following(errors)), errors
