"""Where the losses' gradients flow, how large they are, and that nothing illegal spoils them."""

import functools as ft

import jax
import jax.numpy as jnp
import jax.test_util
import numpy as np
import pytest

from zero_train import losses


ACTIONS, ATOMS = 4, 5
SUPPORT = np.array([-2, -1, 0.5, 1, 3], np.float32)
FRACTIONS = np.array([0.1, 0.3, 0.5, 0.7, 0.9], np.float32)

STATE = "value", "reward", "discount"
ACTION = "action", "reward", "discount"
#: Loss -> what it learns from, what is constant, options.
LOSSES = {
    "ppo_clip_loss": (("log_prob",), ("old_log_prob", "advantage"), dict(epsilon=0.2)),
    "ppo_penalty_loss": (("log_prob", "kl"), ("old_log_prob", "advantage"), dict(beta=0.3)),
    "dpo_loss": (("log_prob",), ("old_log_prob", "advantage"), dict(alpha=1.0, beta=0.5)),
    "td_learning_loss": (("value",), (*STATE[1:], "next_value"), dict(huber=0.5)),
    "clipped_value_loss": (("value",), ("old_value", "target"), dict(epsilon=0.3)),
    "q_learning_loss": (("qvalues",), (*ACTION, "next_qvalues"), {}),
    "double_q_learning_loss": (("qvalues",), (*ACTION, "next_qvalues", "selector"), {}),
    "munchausen_q_learning_loss": (
        ("qvalues",),
        (*ACTION, "target_qvalues", "next_qvalues"),
        dict(temperature=0.5, huber=1.0),
    ),
    "categorical_td_loss": (("logits",), (*ACTION[1:], "next_logits"), dict(atoms=SUPPORT)),
    "categorical_double_q_learning_loss": (
        ("logits",),
        (*ACTION, "next_logits", "selector"),
        dict(atoms=SUPPORT),
    ),
    "quantile_regression_loss": (("quantiles",), ("target",), dict(fractions=FRACTIONS)),
    "quantile_q_learning_loss": (
        ("quantiles",),
        (*ACTION, "next_quantiles", "selector"),
        dict(fractions=FRACTIONS, huber=0.7),
    ),
}
each = pytest.mark.parametrize("name", LOSSES)


@pytest.fixture
def double():
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)


def examples(name, *, batch=8):
    rng = np.random.default_rng(0)
    shapes = {
        "qvalues": (ACTIONS,),
        "next_qvalues": (ACTIONS,),
        "target_qvalues": (ACTIONS,),
        "selector": (ACTIONS,),
        "logits": (ATOMS,) if "td" in name else (ACTIONS, ATOMS),
        "next_logits": (ATOMS,) if "td" in name else (ACTIONS, ATOMS),
        "quantiles": (ATOMS,) if "regression" in name else (ACTIONS, ATOMS),
        "next_quantiles": (ACTIONS, ATOMS),
        "target": (ATOMS,) if "regression" in name else (),
    }
    learned, constant, options = LOSSES[name]
    given = {}
    for field in learned + constant:
        if field == "action":
            given[field] = jnp.asarray(rng.integers(ACTIONS, size=batch), jnp.int32)
        else:
            given[field] = jnp.asarray(rng.normal(size=(batch, *shapes.get(field, ()))), float)
    options = {k: v.astype(float) if isinstance(v, np.ndarray) else v for k, v in options.items()}
    if not jax.config.read("jax_enable_x64"):
        options = {
            k: v.astype(np.float32) if isinstance(v, np.ndarray) else v for k, v in options.items()
        }
    return given, jax.vmap(lambda x: getattr(losses, name)(**x, **options))


@each
def test_gradient_by_finite_differences(name, double):
    given, loss = examples(name)
    learned = {field: given[field] for field in LOSSES[name][0]}
    constant = {field: given[field] for field in LOSSES[name][1]}
    one = jax.jit(lambda x: loss(x | constant))
    assert one(learned).dtype == np.float64 and np.isfinite(one(learned)).all()
    jax.test_util.check_grads(one, (learned,), order=1, modes=["rev"], atol=1e-6)


@each
def test_targets_are_constants(name):
    given, loss = examples(name)
    action = {k: x for k, x in given.items() if k == "action"}
    floats = {k: x for k, x in given.items() if k != "action"}
    gradient = jax.jit(jax.grad(lambda x: jnp.sum(loss(x | action))))(floats)
    assert {k for k, x in gradient.items() if np.any(x)} == set(LOSSES[name][0])


@pytest.mark.parametrize("name", [name for name in LOSSES if name.endswith("q_learning_loss")])
def test_illegal_actions(name):
    """Row 0: some are illegal, among them the best. Row 1: a final state follows, without legal
    actions. Row 2: a final state's filler, without any at all. Only rows that count may move the
    gradient, which is a number all the same."""
    given, loss = examples(name, batch=3)
    learned = LOSSES[name][0][0]
    tables = ("selector", "next_qvalues", "target_qvalues", "next_logits", "next_quantiles")
    legal = {*tables} & {*given}
    given["action"] = jnp.array([2, 2, 0], jnp.int32)
    given["discount"] = jnp.array([0.9, 0.0, 0.0], np.float32)
    for field in legal:
        table = np.array(given[field])
        table[0, 0] = 100  # would be chosen
        table[0, 1] = -np.inf
        table[2 if field == "target_qvalues" else 1 :] = -np.inf
        given[field] = jnp.asarray(table)
    if learned == "qvalues":
        given["qvalues"] = given["qvalues"].at[0, 1].set(-jnp.inf).at[2].set(-jnp.inf)

    @jax.jit
    @ft.partial(jax.value_and_grad, has_aux=True)
    def mean(x, given):
        rows = loss(given | {learned: x})
        return losses.masked_mean(rows, jnp.array([1, 1, 0], np.float32)), rows

    (value, rows), gradient = mean(given[learned], given)
    assert np.isfinite(value) and np.isfinite(gradient).all()
    assert np.any(gradient[0, 2]) and np.any(gradient[1, 2])
    assert not np.any(gradient[2]) and not np.any(gradient[:, [0, 1, 3]])
    # One -inf is enough: what else is said of the illegal action changes nothing.
    doubly = {"selector", "next_qvalues"} if name.startswith("double") else set()
    for field in (doubly | {"next_logits", "next_quantiles"}) & set(given):
        other = given | {field: given[field].at[0, 1].set(1000.0)}
        assert mean(given[learned], other)[0][0] == value
    assert float(rows[1]) == pytest.approx(final(name, given), rel=1e-5)


def final(name, given):
    """Row 1's loss without a next state."""
    reward = float(given["reward"][1])
    if "categorical" in name:
        logits = np.asarray(given["logits"][1, 2], np.float64)
        high = int(np.searchsorted(SUPPORT, reward))
        share = (reward - SUPPORT[high - 1]) / (SUPPORT[high] - SUPPORT[high - 1])
        log_probs = logits - np.log(np.exp(logits).sum())
        return -(1 - share) * log_probs[high - 1] - share * log_probs[high]
    if "quantile" in name:
        error = reward - np.asarray(given["quantiles"][1, 2])
        return float(np.sum(np.abs(FRACTIONS - (error < 0)) * huber(error, 0.7)))
    if "munchausen" not in name:
        return 0.5 * (reward - float(given["qvalues"][1, 2])) ** 2
    scaled = np.asarray(given["target_qvalues"][1], np.float64) / 0.5
    log_policy = 0.5 * (scaled[2] - np.log(np.exp(scaled).sum()))
    return huber(reward + 0.9 * max(log_policy, -1) - float(given["qvalues"][1, 2]), 1.0)


def huber(error, delta):
    size = np.abs(error)
    return np.where(size < delta, 0.5 * size**2, delta * (size - 0.5 * delta))


@pytest.mark.parametrize("name", ("ppo_clip_loss", "ppo_penalty_loss", "dpo_loss"))
def test_a_filler_action_illegal_to_both_policies(name):
    given, loss = examples(name, batch=2)
    given["log_prob"] = given["old_log_prob"] = given["log_prob"].at[1].set(-jnp.inf)

    @jax.jit
    @jax.value_and_grad
    def mean(log_prob, weights):
        return losses.masked_mean(loss(given | {"log_prob": log_prob}), weights)

    for weights in ([1.0, 0.0], [1.0, 1.0]):
        value, gradient = mean(given["log_prob"], jnp.array(weights, jnp.float32))
        assert np.isfinite(value) and np.isfinite(gradient).all()
        assert gradient[0] != 0 and gradient[1] == 0


@pytest.mark.parametrize("name", ("ppo_clip_loss", "ppo_penalty_loss", "dpo_loss"))
@pytest.mark.parametrize("log_ratio", (90.0, 1e4, 1e30, -1e4, -jnp.inf))
def test_ratios_that_overflow_have_finite_slopes(name, log_ratio):
    given, loss = examples(name, batch=3)
    given |= {"old_log_prob": jnp.zeros(3), "advantage": jnp.array([1.0, -1.0, 0.0])}
    slope = jax.jit(jax.grad(lambda x: jnp.sum(loss(given | {"log_prob": x}))))
    found = slope(jnp.full(3, log_ratio))
    assert np.isfinite(found).all() and found[2] == 0
    # A likely action that was bad becomes less likely, however unlikely it was.
    assert log_ratio < 0 or found[1] > 1e30


def test_ppo_stops_where_it_would_gain_too_much():
    """The gradient ends outside the clip on the gaining side only."""
    gradient = jax.grad(ft.partial(losses.ppo_clip_loss, epsilon=0.2))
    slopes = [
        float(gradient(jnp.log(jnp.float32(rho)), jnp.float32(0), jnp.float32(advantage)))
        for rho in (0.5, 1.0, 1.5)
        for advantage in (1.0, -1.0)
    ]
    np.testing.assert_allclose(slopes, (-0.5, 0, -1, 1, 0, 1.5), rtol=1e-6)


def test_bad_shapes(unhooked):
    q, one = jnp.zeros(4), jnp.float32(0)
    action = jnp.int32(0)
    with pytest.raises(ValueError, match=r"`q_learning_loss` was given qvalues\[4\].*\[5\] but"):
        losses.q_learning_loss(q, action, one, one, jnp.zeros(5))
    with pytest.raises(ValueError, match=r"value\[3\].*one example.*jax.vmap"):
        losses.td_learning_loss(jnp.zeros(3), jnp.zeros(3), jnp.zeros(3), jnp.zeros(3))
    with pytest.raises(ValueError, match=r"`masked_mean` was given x \[4, 1\] and weights \[4\]"):
        losses.masked_mean(q[:, None], q)
    with pytest.raises(ValueError, match=r"probs\[4\], atoms\[5\]"):
        losses.categorical_projection(jnp.zeros(3), q, SUPPORT)
    with pytest.raises(ValueError, match=r"quantiles\[4\], fractions\[5\]"):
        losses.quantile_regression_loss(q, FRACTIONS, q)
    with pytest.raises(ValueError, match=r"`dpo_loss` was given log_prob\[4\]"):
        losses.dpo_loss(q, q, q)


def test_bad_numbers():
    q, one, action = jnp.zeros(4), jnp.float32(0), jnp.int32(0)
    step = q, action, one, one
    with pytest.raises(ValueError, match=r"ppo_clip_loss\(epsilon=0\)`: must be above 0"):
        losses.ppo_clip_loss(one, one, one, epsilon=0)
    with pytest.raises(ValueError, match=r"dpo_loss\(beta=-1.0\)"):
        losses.dpo_loss(one, one, one, beta=-1.0)
    with pytest.raises(ValueError, match=r"munchausen_q_learning_loss\(temperature=-0.1\)"):
        losses.munchausen_q_learning_loss(*step, q, q, temperature=-0.1)
    with pytest.raises(ValueError, match=r"q_learning_loss\(huber=nan\)"):
        losses.q_learning_loss(*step, q, huber=float("nan"))
    with pytest.raises(ValueError, match=r"q_learning_loss\(huber=inf\)"):
        losses.q_learning_loss(*step, q, huber=float("inf"))
    with pytest.raises(ValueError, match=r"quantile_regression_loss\(huber=inf\)"):
        losses.quantile_regression_loss(q, FRACTIONS[:4], q, huber=float("inf"))
    assert np.isnan(losses.masked_mean(jnp.ones(2), jnp.array([-1.0, 2.0])))
    with pytest.raises(ValueError, match=r"clipped_value_loss\(epsilon=-2\)"):
        losses.clipped_value_loss(one, one, one, epsilon=-2)


def test_bad_supports():
    x, one = jnp.zeros(3), jnp.float32(0)
    for atoms in ([0.0, 2.0, 1.0], [0.0, 2.0, 2.0]):
        with pytest.raises(ValueError, match=r"atoms\[1\] = 2 and atoms\[2\] = .*Sort them"):
            losses.categorical_td_loss(x, np.array(atoms, np.float32), one, one, x)
    with pytest.raises(ValueError, match="was given 1 atom; it needs 2"):
        losses.categorical_projection(x, x, jnp.zeros(1))
