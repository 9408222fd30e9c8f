"""Off-policy returns: values and Q-values of another policy than the one that acted."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .._arrays import at_action, check_axes, finite, ratio
from .._checks import check_positive
from ._multistep import cut, end_rows, following, lambda_returns, solve, stopped


@check_axes
def off_policy_returns(
    reward: Float[Array, " rows"],
    discount: Float[Array, " rows"],
    qvalue: Float[Array, " rows"],
    value: Float[Array, " rows"],
    coefficient: Float[Array, " rows"],
    last: Bool[Array, " rows"],
    *,
    stop_gradient: bool = True,
) -> Float[Array, " rows"]:
    """Returns of the policy `pi` from the steps of another policy `mu` (Munos et al. 2016,
    https://arxiv.org/abs/1606.02647, equation 3):

    `G[t] = r[t] + d[t] * (V[t+1] + c[t+1] * (G[t+1] - Q[t+1]))`, and `G[t] = V[t]` in an end row.

    The functions below choose the coefficients `c`. A constant `c = lambda` gives the Q(lambda) of
    Harutyunyan et al. (2016, https://arxiv.org/abs/1602.04951).

    **Arguments:**

    - `qvalue`: of the action taken in each row.
    - `value`: of each row under `pi`, such as `sum(pi * Q)` over the actions.
    - `coefficient`: the trace coefficient `c`. In end rows it and `qvalue` are not used.
    """
    reward, discount, qvalue, value, coefficient = stopped(
        stop_gradient, reward, discount, qvalue, value, coefficient
    )
    ends, discount = cut(last, discount)
    coefficient = jnp.where(ends, 0.0, coefficient)
    # `qvalue` itself too: an illegal filler action has -inf, and 0 * -inf is NaN.
    base = value - coefficient * jnp.where(ends, 0.0, qvalue)
    a = jnp.where(ends, value, reward + discount * following(base))
    return solve(a, discount * following(coefficient))


@check_axes
def importance_sampling_returns(
    reward: Float[Array, " rows"],
    discount: Float[Array, " rows"],
    qvalue: Float[Array, " rows"],
    value: Float[Array, " rows"],
    log_ratio: Float[Array, " rows"],
    last: Bool[Array, " rows"],
    *,
    lambda_: float | Float[Array, ""] | Float[Array, " rows"] = 1.0,
    stop_gradient: bool = True,
) -> Float[Array, " rows"]:
    """[`zero_train.returns.off_policy_returns`][] with `c = lambda * pi / mu`: per-decision
    importance sampling (Precup et al. 2000). With a lambda of 1 it is unbiased, with unbounded
    variance."""
    coefficient = lambda_ * ratio(_of_steps(log_ratio, last))
    return off_policy_returns(
        reward, discount, qvalue, value, coefficient, last, stop_gradient=stop_gradient
    )


@check_axes
def retrace_returns(
    reward: Float[Array, " rows"],
    discount: Float[Array, " rows"],
    qvalue: Float[Array, " rows"],
    value: Float[Array, " rows"],
    log_ratio: Float[Array, " rows"],
    last: Bool[Array, " rows"],
    *,
    lambda_: float | Float[Array, ""] | Float[Array, " rows"],
    stop_gradient: bool = True,
) -> Float[Array, " rows"]:
    """[`zero_train.returns.off_policy_returns`][] with `c = lambda * min(1, pi / mu)`:
    Retrace(lambda) (Munos et al. 2016, https://arxiv.org/abs/1606.02647)."""
    coefficient = lambda_ * jnp.exp(jnp.minimum(0.0, _of_steps(log_ratio, last)))
    return off_policy_returns(
        reward, discount, qvalue, value, coefficient, last, stop_gradient=stop_gradient
    )


@check_axes
def tree_backup_returns(
    reward: Float[Array, " rows"],
    discount: Float[Array, " rows"],
    qvalues: Float[Array, "rows actions"],
    action: Int[Array, " rows"],
    policy: Float[Array, "rows actions"],
    last: Bool[Array, " rows"],
    *,
    lambda_: float | Float[Array, ""] | Float[Array, " rows"] = 1.0,
    stop_gradient: bool = True,
) -> Float[Array, " rows"]:
    """[`zero_train.returns.off_policy_returns`][] with `c = lambda * pi`: tree backup
    (Precup et al. 2000). It does not need `mu`, and its traces are short even where `pi = mu`.

    `policy` holds the probabilities of `pi`; those of illegal actions are not used.
    """
    # The policy too: where nothing is legal, a softmax is NaN.
    policy = jnp.where(jnp.isneginf(qvalues), 0.0, policy)
    value = jnp.sum(policy * finite(qvalues), axis=-1)
    return off_policy_returns(
        reward,
        discount,
        _taken(qvalues, action),
        value,
        lambda_ * _taken(policy, action),
        last,
        stop_gradient=stop_gradient,
    )


@check_axes
def peng_q_lambda_returns(
    reward: Float[Array, " rows"],
    discount: Float[Array, " rows"],
    qvalues: Float[Array, "rows actions"],
    last: Bool[Array, " rows"],
    *,
    lambda_: float | Float[Array, ""] | Float[Array, " rows"],
    stop_gradient: bool = True,
) -> Float[Array, " rows"]:
    """Peng's Q(lambda) (Peng & Williams 1996): [`zero_train.returns.lambda_returns`][] of
    `V = max(Q)`, for any action taken."""
    value = finite(jnp.max(qvalues, axis=-1))
    return lambda_returns(
        reward, discount, value, last, lambda_=lambda_, stop_gradient=stop_gradient
    )


@check_axes
def watkins_q_lambda_returns(
    reward: Float[Array, " rows"],
    discount: Float[Array, " rows"],
    qvalues: Float[Array, "rows actions"],
    action: Int[Array, " rows"],
    last: Bool[Array, " rows"],
    *,
    lambda_: float | Float[Array, ""] | Float[Array, " rows"],
    stop_gradient: bool = True,
) -> Float[Array, " rows"]:
    """Watkins's Q(lambda) (Watkins 1989): [`zero_train.returns.off_policy_returns`][] of
    `V = max(Q)` with `c = lambda` where the action taken is greedy, and `c = 0` elsewhere."""
    value, qvalue = finite(jnp.max(qvalues, axis=-1)), _taken(qvalues, action)
    coefficient = lambda_ * (qvalue == value).astype(value.dtype)
    return off_policy_returns(
        reward, discount, qvalue, value, coefficient, last, stop_gradient=stop_gradient
    )


def _of_steps(log_ratio: Array, last: Array) -> Array:
    """The ratios with 0 in end rows. Their filler action may be illegal for both policies, which
    gives -inf minus -inf."""
    return jnp.where(end_rows(last), 0.0, log_ratio)


def _taken(x: Array, action: Array) -> Array:
    return jax.vmap(at_action)(x, action)


@check_axes
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
    """Multistep TD errors of state values, weighted by the importance ratios `rho = pi / mu`
    (Sutton et al. 2014, http://proceedings.mlr.press/v32/sutton14.html):

    `e[t] = rho[t] * (delta[t] + d[t] * lambda[t] * e[t+1])` with
    `delta[t] = r[t] + d[t] * V[t+1] - V[t]`, and 0 in end rows.

    `stop_gradient` says whether the target is a constant. The value, which is subtracted from it,
    always has a gradient, so that half the squared error is a loss.
    """
    reward, discount, constant, log_ratio, lambda_ = stopped(
        stop_gradient, reward, discount, value, log_ratio, lambda_
    )
    _, errors = _errors(reward, discount, constant, log_ratio, lambda_, last, jnp.inf, jnp.inf)
    # Adds 0, and takes the gradient that was stopped.
    return errors + jnp.where(end_rows(last), 0.0, constant - value)


@check_axes
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

    [`zero_train.returns.importance_corrected_td_errors`][] computes these errors without clipping.
    `clip_rho` sets whose value is learned: that of `mu` near 0, that of `pi` at infinity. `clip_c`
    trades variance for speed and does not change the value that is learned.

    **Returns:** the advantages of the policy gradient,
    `rho[t] * (r[t] + d[t] * (V[t+1] + lambda[t] * e[t+1]) - V[t])`, and the value targets `V + e`.
    Where `pi = mu` and nothing is clipped they are those of
    [`zero_train.returns.truncated_gae`][].
    """
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
    log_ratio = _of_steps(log_ratio, last)
    rho = ratio(jnp.minimum(log_ratio, jnp.log(clip_rho)))
    c = ratio(jnp.minimum(log_ratio, jnp.log(clip_c)))
    delta = jnp.where(ends, 0.0, reward + discount * following(value) - value)
    trace = jnp.where(ends, 0.0, discount * lambda_)
    errors = solve(rho * delta, trace * c)
    return rho * (delta + trace * following(errors)), errors
