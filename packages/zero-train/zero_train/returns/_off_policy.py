"""Returns of action values under a policy that did not act."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .._illegal import finite
from ._multistep import lambda_returns
from ._recurrence import check_rows, cut, end_rows, following, solve, stopped


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
    """Returns of the actions taken, corrected for a policy `pi` other than the `mu` that acted
    (Munos et al. 2016, https://arxiv.org/abs/1606.02647, equation 3):

    `G[t] = r[t] + d[t] * (V[t+1] + c[t+1] * (G[t+1] - Q[t+1]))`. An end row, that is one with
    `last` or the window's last, corrects nothing: its `G[t]` is `V[t]`.

    The other functions here choose the coefficients; a constant `c = lambda` is the Q(lambda) of
    Harutyunyan et al. (2016, https://arxiv.org/abs/1602.04951).

    **Arguments:**

    - `reward`, `discount`, `last`: as in [`zero_train.returns.lambda_returns`][].
    - `qvalue`: of each row's own action, from the view of the player who took it.
    - `value`: of each row under `pi`, such as `sum(pi * Q)` over the actions.
    - `coefficient`: `c`, how much of each row's own action is believed. End rows' `qvalue` and
        `coefficient` are not used.
    - `stop_gradient`: if `False`, gradients flow into everything that went in.
    """
    check_rows(
        "off_policy_returns",
        1.0,
        reward=reward,
        discount=discount,
        qvalue=qvalue,
        value=value,
        coefficient=coefficient,
        last=last,
    )
    reward, discount, qvalue, value, coefficient = stopped(
        stop_gradient, reward, discount, qvalue, value, coefficient
    )
    ends, discount = cut(last, discount)
    coefficient = jnp.where(ends, 0.0, coefficient)
    # `qvalue` itself too: an illegal filler action has -inf, and 0 * -inf is NaN.
    base = value - coefficient * jnp.where(ends, 0.0, qvalue)
    a = jnp.where(ends, value, reward + discount * following(base))
    return solve(a, discount * following(coefficient))


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
    importance sampling (Precup et al. 2000). Unbiased at lambda 1; its variance has no bound.

    `log_ratio` is `log pi - log mu` of each row's own action.
    """
    check_rows("importance_sampling_returns", lambda_, log_ratio=log_ratio, last=last)
    coefficient = lambda_ * jnp.exp(_of_steps(log_ratio, last))
    return off_policy_returns(
        reward, discount, qvalue, value, coefficient, last, stop_gradient=stop_gradient
    )


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
    Retrace(lambda) (Munos et al. 2016, https://arxiv.org/abs/1606.02647).

    `log_ratio` is `log pi - log mu` of each row's own action, discrete or continuous.
    """
    check_rows("retrace_returns", lambda_, log_ratio=log_ratio, last=last)
    coefficient = lambda_ * jnp.exp(jnp.minimum(0.0, _of_steps(log_ratio, last)))
    return off_policy_returns(
        reward, discount, qvalue, value, coefficient, last, stop_gradient=stop_gradient
    )


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
    (Precup et al. 2000). It need not know `mu`, and cuts early even where `pi = mu`.

    `policy` holds the probabilities of `pi`. Q-values of -inf mark illegal actions, whose
    probability is not used; a row without a legal one counts as 0.
    """
    check_rows(
        "tree_backup_returns", lambda_, qvalues=qvalues, action=action, policy=policy, last=last
    )
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
    `V = max(Q)`, whatever was played.

    Q-values of -inf mark illegal actions; a row without a legal one counts as 0.
    """
    check_rows("peng_q_lambda_returns", lambda_, qvalues=qvalues, last=last)
    value = finite(jnp.max(qvalues, axis=-1))
    return lambda_returns(
        reward, discount, value, last, lambda_=lambda_, stop_gradient=stop_gradient
    )


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
    `V = max(Q)` with `c = lambda` where the row's own action is greedy and 0 elsewhere.

    Q-values of -inf mark illegal actions; a row without a legal one counts as 0.
    """
    check_rows("watkins_q_lambda_returns", lambda_, qvalues=qvalues, action=action, last=last)
    value, qvalue = finite(jnp.max(qvalues, axis=-1)), _taken(qvalues, action)
    coefficient = lambda_ * (qvalue == value).astype(value.dtype)
    return off_policy_returns(
        reward, discount, qvalue, value, coefficient, last, stop_gradient=stop_gradient
    )


def _of_steps(log_ratio: Array, last: Array) -> Array:
    """0 in end rows, whose filler action may be illegal to both: -inf minus -inf."""
    return jnp.where(end_rows(last), 0.0, log_ratio)


def _taken(x: Array, action: Array) -> Array:
    return jnp.take_along_axis(x, action[:, None], axis=-1)[:, 0]
