"""Multistep returns beside their definitions, the published values and each other."""

import functools as ft

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from zero_train import returns

from . import windows as w


# The reference's values: step t of these is the step out of row t, and its value that of row t + 1.
REWARD = (1.0, 0.0, -1.0, 2.0, 0.5)
DISCOUNT = (0.9, 0.9, 0.0, 0.9, 0.9)
VALUE = (0.5, 1.0, 1.5, 2.0, 2.5)
NAN = float("nan")


def f32(*x):
    return jnp.asarray(x, jnp.float32)


def rows(*, first=NAN):
    """The reference's window, with a bootstrap row behind it."""
    return f32(*REWARD, NAN), f32(*DISCOUNT, NAN), f32(first, *VALUE), jnp.zeros(6, bool)


def padded(*x):
    """Numbers of the actions at steps 1 to 4: row 0's own is not used, the last row has none."""
    return f32(NAN, *x, NAN)


def test_reference_values_of_state_values():
    r, d, v, last = rows()
    one = ft.partial(returns.n_step_returns, r, d, v, last, n=3)
    expected = {
        (0.19, -0.9, -1, 4.475, 2.75): one(),
        (1.225, 0, -1, 4.1375, 2.75): one(lambda_=0.5),
        (0.7012, -0.54, -1, 4.34, 2.75): returns.lambda_returns(r, d, v, last, lambda_=0.8),
    }
    for values, found in expected.items():
        np.testing.assert_allclose(found[:-1], values, atol=1e-5)
        assert found[-1] == 2.5


def test_reference_values_of_action_values():
    r, d, v, last = rows()
    q = padded(0.3, 0.6, 0.9, 1.2)
    found = returns.off_policy_returns(r, d, q, v, padded(0.8, 0.4, 1, 0.2), last)
    np.testing.assert_allclose(found[:-1], (1.46728, 0.324, -1, 4.079, 2.75), atol=1e-5)
    ratio = jnp.log(padded(1.25, 0.4, 2, 0.2))
    found = returns.retrace_returns(r, d, q, v, ratio, last, lambda_=0.9)
    error = found[:-1] - f32(0.1, 0.2, 0.3, 0.4, 0.5)
    np.testing.assert_allclose(error, (1.416096, 0.1816, -1.3, 3.6511, 2.25), atol=1e-5)


def test_reference_values_of_weighed_errors():
    r, d, v, last = rows(first=0.2)
    ratio = jnp.log(f32(1, 0.5, 2, 1.5, 0.8, NAN))
    found = returns.importance_corrected_td_errors(r, d, v, ratio, last, lambda_=0.9)
    np.testing.assert_allclose(found, (0.0998, -1.42, -4, 4.179, 0.6, 0), atol=1e-5)


@pytest.mark.parametrize("name", ("importance_corrected_td_errors", "importance_sampling_returns"))
def test_a_ratio_that_overflows_has_finite_slopes(name):
    *window, last = rows(first=0.2)
    r, d, v = map(jnp.nan_to_num, window)
    values = (v,) if name == "importance_corrected_td_errors" else (v, v)
    function = ft.partial(getattr(returns, name), lambda_=0.9, stop_gradient=False)
    found = jax.grad(lambda x: jnp.sum(function(r, d, *values, x, last)))(
        jnp.zeros(6).at[1].set(1e30)
    )
    assert np.isfinite(found).all() and abs(found[1]) > 1e30


def test_reference_values_of_truncated_gae():
    """Truncated in the third step: with the true successor's value beside it, or in a row."""
    advantages, targets = [2.103717, 0.9985, 0.7, 2.94125, 0.75], [2.303717, 1.4985, 1.7, 4.44125]
    value, next_value = f32(0.2, 0.5, 1, 1.5, 2), f32(0.5, 1, 3, 2, 2.5)
    step = f32(*REWARD), jnp.full(5, 0.9)
    found = returns.truncated_gae_from_successors(
        *step, value, next_value, jnp.arange(5) == 2, lambda_=0.95
    )
    np.testing.assert_allclose(found[0], advantages, atol=1e-5)
    np.testing.assert_allclose(found[1], [*targets, 2.75], atol=1e-5)

    step = f32(1, 0, -1, NAN, 2, 0.5, NAN), f32(0.9, 0.9, 0.9, NAN, 0.9, 0.9, NAN)
    value = f32(0.2, 0.5, 1, 3, 1.5, 2, 2.5)
    found = returns.truncated_gae(*step, value, jnp.arange(7) == 3, lambda_=0.95)
    np.testing.assert_allclose(found[0], [*advantages[:3], 0, *advantages[3:], 0], atol=1e-5)
    np.testing.assert_allclose(found[1], [*targets[:3], 3, targets[3], 2.75, 2.5], atol=1e-5)


@pytest.mark.parametrize(
    "lambda_, expected",
    (
        (1.0, (-1.451188, -4.455746, 2.539651, 0.5249, -0.49)),
        (0.7, (-0.676979, -5.248167, 2.484608, 0.67043, -0.49)),
        (0.4, (0.567319, -6.042124, 2.34312, 0.81596, -0.49)),
    ),
)
def test_reference_values_of_gae(lambda_, expected):
    reward, value = f32(0, 0, 1, 0, -0.5, NAN), f32(1, 4, -3, -2, -1, -1)
    given = reward, jnp.full(6, 0.99), value, jnp.zeros(6, bool)
    found, _ = returns.truncated_gae(*given, lambda_=lambda_)
    np.testing.assert_allclose(found, (*expected, 0), atol=1e-5)


@ft.cache
def compiled(name, *fields, **options):
    """The function over a batch of windows, given these fields of them."""
    function = ft.partial(getattr(returns, name), **options)

    def one(window):
        traced = {"lambda_": window["trace"]} if "trace" in window else {}
        return function(*[window[field] for field in fields], **traced)

    return jax.jit(jax.vmap(one))


STATE = "reward", "discount", "value", "last"
CORRECTED = "reward", "discount", "qvalue", "value"
WEIGHED = "reward", "discount", "value", "log_ratio", "last"


def ours(window, name, *fields, trace=False, **options):
    given = {
        field: jnp.asarray(x, jnp.float32) if x.dtype == np.float64 else jnp.asarray(x)
        for field, x in window.items()
        if field in fields or (trace and field == "trace")
    }
    return compiled(name, *fields, **options)(given)


def assert_equal(found, expected):
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("seed", (0, 1))
def test_state_values_by_definition(seed):
    """Random episodes in a window: a return that leaks over a final row, reads an end row's own
    step or indexes lambda by the next row cannot be right."""
    window = w.windows(seed)
    mixed = w.by_definition(w.mixed_return, window)
    assert_equal(ours(window, "lambda_returns", *STATE, trace=True), mixed)
    advantages, targets = ours(window, "truncated_gae", *STATE, trace=True)
    assert_equal(targets, mixed)
    assert_equal(advantages, mixed - window["value"])
    whole = w.by_definition(w.mixed_return, window, trace=1.0)
    assert_equal(ours(window, "discounted_returns", *STATE), whole)


@pytest.mark.parametrize("n", (1, 2, 3, 5, 7, w.ROWS - 2, w.ROWS - 1, 100))
def test_n_steps_by_definition(n):
    window = w.windows(n, finals=0.1)
    found = ours(window, "n_step_returns", *STATE, trace=True, n=n)
    assert_equal(found, w.by_definition(w.mixed_return, window, n=n))


@pytest.mark.parametrize("seed", (0, 1))
def test_rows_may_have_horizons_of_their_own(seed):
    window = w.windows(seed, finals=0.1)
    window["n"] = np.random.default_rng(seed).integers(1, w.ROWS + 3, window["last"].shape)
    each = lambda w_, t, end: w.mixed_return(w_, t, end, n=int(w_["n"][t]))
    x = {name: jnp.asarray(y, jnp.float32) for name, y in window.items()}
    found = jax.jit(jax.vmap(lambda *x, n, trace: returns.n_step_returns(*x, n=n, lambda_=trace)))(
        *(x[name] for name in STATE[:3]),
        jnp.asarray(window["last"]),
        n=jnp.asarray(window["n"], jnp.int32),
        trace=x["trace"],
    )
    assert_equal(found, w.by_definition(each, window))


@pytest.mark.parametrize("seed", (0, 1))
def test_weighed_errors_by_definition(seed):
    window = w.windows(seed)
    found = ours(window, "importance_corrected_td_errors", *WEIGHED, trace=True)
    assert_equal(found, w.by_definition(w.weighed_error, window))
    clips = dict(clip_rho=1.5, clip_c=0.7)
    advantages, targets = ours(window, "vtrace", *WEIGHED, trace=True, **clips)
    errors = w.by_definition(w.weighed_error, window, **clips)
    assert_equal(targets, window["value"] + errors)
    ends = np.isnan(window["reward"])[:, :-1]
    following = window["value"][:, 1:] + window["trace"][:, :-1] * errors[:, 1:]
    gain = window["reward"] - window["value"]
    gain = gain[:, :-1] + window["discount"][:, :-1] * following
    gain *= np.minimum(1.5, np.exp(window["log_ratio"][:, :-1]))
    assert_equal(advantages[:, :-1], np.where(ends, 0, gain))


@pytest.mark.parametrize("seed", (0, 1))
def test_action_values_by_definition(seed):
    """Each method is its own coefficients."""
    window = w.windows(seed)

    def expected(coefficient, **changed):
        changed = {**window, **changed, "coefficient": coefficient}
        return w.by_definition(w.corrected_return, changed)

    found = ours(window, "off_policy_returns", *CORRECTED, "coefficient", "last")
    assert_equal(found, expected(window["coefficient"]))
    ratio = np.exp(window["log_ratio"])
    found = ours(window, "importance_sampling_returns", *CORRECTED, "log_ratio", "last", trace=True)
    assert_equal(found, expected(window["trace"] * ratio))
    found = ours(window, "retrace_returns", *CORRECTED, "log_ratio", "last", trace=True)
    assert_equal(found, expected(window["trace"] * np.minimum(1, ratio)))

    table = window["qvalues"]
    legal = np.isfinite(table)
    taken = np.take_along_axis(table, window["action"][..., None], -1)[..., 0]
    probs = np.take_along_axis(window["policy"], window["action"][..., None], -1)[..., 0]
    mean = np.sum(window["policy"] * np.where(legal, table, 0), -1)
    step, act = ("reward", "discount", "qvalues", "action"), ("policy", "last")
    found = ours(window, "tree_backup_returns", *step, *act, trace=True)
    assert_equal(found, expected(window["trace"] * probs, qvalue=taken, value=mean))
    best = table.max(-1)
    found = ours(window, "watkins_q_lambda_returns", *step, "last", trace=True)
    greedy = window["trace"] * (taken == best)
    assert_equal(found, expected(greedy, qvalue=taken, value=best))
    found = ours(window, "peng_q_lambda_returns", *step[:3], "last", trace=True)
    assert_equal(found, w.by_definition(w.mixed_return, {**window, "value": best}))
