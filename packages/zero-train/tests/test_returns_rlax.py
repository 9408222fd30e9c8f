"""Multistep returns beside rlax's, in one episode that outlasts the window: rlax has no final rows.

Its index t is "after step t": its rewards, discounts and lambdas are those of our first T rows,
and its values those of our last T.
"""

import functools as ft

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rlax

from zero_train import returns

from . import windows as w


def window(seed):
    x = w.windows(seed, batch=8, finals=0.0)
    x["qvalues"] = np.where(np.isfinite(x["qvalues"]), x["qvalues"], -5)
    return {
        k: jnp.asarray(y, jnp.float32 if y.dtype == np.float64 else y.dtype) for k, y in x.items()
    }


def state_values(x, lambda_):
    r, d, v, last = x["reward"], x["discount"], x["value"], x["last"]
    state, theirs = (r, d, v, last), (r[:-1], d[:-1], v[1:])
    # A number for everybody, or one a step.
    rows, steps = (x["trace"], x["trace"][:-1]) if lambda_ is None else (lambda_, lambda_)
    ratio = jnp.exp(x["log_ratio"][:-1])
    weighed = r, d, v, x["log_ratio"], last
    traced = rlax.vtrace_td_error_and_advantage(
        v[:-1], v[1:], r[:-1], d[:-1], ratio, steps, clip_rho_threshold=1.5
    )
    # rlax clips the weight of the policy gradient at a threshold of its own.
    gains, targets = returns.vtrace(*weighed, lambda_=rows, clip_rho=1.5)
    gains = gains[:-1] / jnp.minimum(ratio, 1.5) * jnp.minimum(ratio, 1.0)
    n_steps = {
        f"n_step_{n}": (
            returns.n_step_returns(*state, n=n, lambda_=rows)[:-1],
            rlax.n_step_bootstrapped_returns(*theirs, n, steps),
        )
        for n in (1, 4, 11, 15)
    }
    return n_steps | {
        "lambda": (
            returns.lambda_returns(*state, lambda_=rows)[:-1],
            rlax.lambda_returns(*theirs, steps),
        ),
        "discounted": (returns.discounted_returns(*state)[:-1], rlax.discounted_returns(*theirs)),
        "gae": (
            returns.truncated_gae(*state, lambda_=rows)[0][:-1],
            rlax.truncated_generalized_advantage_estimation(r[:-1], d[:-1], steps, v),
        ),
        "vtrace": ((targets - v)[:-1], traced.errors),
        "vtrace_gains": (gains, traced.pg_advantage),
        "peng": (
            returns.peng_q_lambda_returns(r, d, x["qvalues"], last, lambda_=rows)[:-1]
            - _taken(x["qvalues"], x["action"])[:-1],
            rlax.q_lambda(
                x["qvalues"][:-1], x["action"][:-1], r[:-1], d[:-1], x["qvalues"][1:], steps
            ),
        ),
    }


def action_values(x, lambda_):
    r, d, v, q, last = x["reward"], x["discount"], x["value"], x["qvalue"], x["last"]
    # rlax wants the numbers of the actions at steps 1 to T - 1.
    inner, table = slice(1, -1), x["qvalues"]
    corrected = q[inner], v[1:], r[:-1], d[:-1]
    a, probs = x["action"], x["policy"]
    taken = _taken(probs, a)
    # The window's last row is no end to rlax, which has probabilities there: none is read.
    log_ratio = jnp.nan_to_num(x["log_ratio"])
    mean = jnp.sum(probs * table, -1)
    discrete = r, d, _taken(table, a), mean
    steps = a[1:], r[:-1], d[:-1]
    behaviour = taken / jnp.exp(log_ratio)
    return {
        "general": (
            returns.off_policy_returns(r, d, q, v, x["coefficient"], last)[:-1],
            rlax.general_off_policy_returns_from_q_and_v(*corrected, x["coefficient"][inner]),
        ),
        "importance": (
            returns.importance_sampling_returns(*discrete, log_ratio, last, lambda_=lambda_)[:-1],
            rlax.general_off_policy_returns_from_action_values(
                table[1:], *steps, lambda_ * jnp.exp(log_ratio[1:]), probs[1:]
            ),
        ),
        "tree_backup": (
            returns.tree_backup_returns(r, d, table, a, probs, last, lambda_=lambda_)[:-1],
            rlax.general_off_policy_returns_from_action_values(
                table[1:], *steps, lambda_ * taken[1:], probs[1:]
            ),
        ),
        "retrace": (
            (returns.retrace_returns(*discrete, log_ratio, last, lambda_=lambda_) - discrete[2])[
                :-1
            ],
            rlax.retrace(
                table[:-1], table[1:], a[:-1], *steps, probs[1:], behaviour[1:], lambda_, eps=0.0
            ),
        ),
        "retrace_continuous": (
            returns.retrace_returns(r, d, q, v, log_ratio, last, lambda_=lambda_)[:-1] - q[:-1],
            rlax.retrace_continuous(q[:-1], *corrected, log_ratio[inner], lambda_),
        ),
    }


def _taken(table, action):
    return jnp.take_along_axis(table, action[:, None], -1)[:, 0]


@pytest.mark.parametrize(
    "both, lambda_", ((state_values, 0.7), (state_values, None), (action_values, 0.7))
)
def test_as_rlax(both, lambda_):
    with jax.numpy_dtype_promotion("standard"):  # rlax multiplies by booleans
        found = jax.jit(jax.vmap(ft.partial(both, lambda_=lambda_)))(window(0))
    for name, (ours, theirs) in found.items():
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-5, err_msg=name)
