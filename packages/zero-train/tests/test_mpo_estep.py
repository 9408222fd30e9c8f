"""The E-step: its golden, its slope, its extremes, and the temperature it settles at."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rlax
import scipy.optimize
import scipy.special

from zero_train.losses import Dual, nonparametric_policy, temperature_loss

from .policies import descend


def expected(values, eta, epsilon, prior):
    """Loss, KL and policy in double precision over the legal actions, from the definitions."""
    legal = prior > 0
    values, prior = np.asarray(values, np.float64)[legal], prior[legal]
    scaled = (values - values.max()) / eta
    normaliser = np.sum(prior * np.exp(scaled))
    policy = np.zeros(legal.shape)
    policy[legal] = prior * np.exp(scaled) / normaliser
    kl = np.sum(scipy.special.rel_entr(policy[legal], prior))
    return eta * epsilon + values.max() + eta * np.log(normaliser), kl, policy


def test_golden():
    values, temperature = jnp.array([1.0, 0.0, -1.0]), Dual.from_value(1.0)
    loss, metrics = temperature_loss(values, temperature, 0.1)
    weights = jnp.exp(nonparametric_policy(values, temperature))
    assert float(loss) == pytest.approx(0.408994, abs=1e-5)
    assert np.allclose(weights, [0.665241, 0.244728, 0.090031], atol=1e-5)
    assert float(metrics["effective_sample_size"]) == pytest.approx(1.958699, abs=1e-5)
    assert float(metrics["kl_nonparametric"]) == pytest.approx(0.266217, abs=1e-5)
    assert float(metrics["kl_nonparametric_relative"]) == pytest.approx(2.66217, abs=1e-4)
    assert float(metrics["temperature"]) == pytest.approx(1.0, abs=1e-6)


@jax.jit
def sloped(values, temperature, log_prior=None):
    """Loss and metrics, and the slope in the temperature."""
    loss = lambda dual: temperature_loss(values, dual, 0.1, log_prior=log_prior)
    return jax.value_and_grad(loss, has_aux=True)(temperature)


@pytest.mark.parametrize("eta", (0.05, 1.0, 300.0))
def test_definition(eta):
    """With a prior and illegal actions; and the slope that makes the minimum the bound:
    `d loss / d rho = sigmoid(rho) * (epsilon - KL)`."""
    draws = np.random.default_rng(0)
    values = draws.normal(size=7)
    prior = draws.random(7) * [1, 1, 0, 1, 1, 0, 1]
    prior /= prior.sum()
    # What an illegal action is worth is anything.
    values[2], values[5] = np.nan, np.inf
    loss, kl, policy = expected(values, eta, 0.1, prior)
    temperature = Dual.from_value(eta)
    with np.errstate(divide="ignore"):
        log_prior = jnp.asarray(np.log(prior), jnp.float32)
    values = jnp.asarray(values, jnp.float32)
    (value, metrics), slope = sloped(values, temperature, log_prior)
    log_policy = jax.jit(nonparametric_policy)(values, temperature, log_prior=log_prior)
    assert float(value) == pytest.approx(loss, rel=1e-5)
    assert float(metrics["kl_nonparametric"]) == pytest.approx(kl, abs=3e-7)
    assert np.allclose(jnp.exp(log_policy), policy, atol=1e-6)
    assert np.all(jnp.isneginf(log_policy) == (prior == 0))
    slope, sigmoid = float(slope.rho), float(jax.nn.sigmoid(temperature.rho))
    assert slope == pytest.approx(sigmoid * (0.1 - kl), abs=1e-6)


@pytest.mark.parametrize("rho", (-18.0, 0.0, 500.0, 1e8))
@pytest.mark.parametrize("size", (1e-6, 1.0, 1e6))
def test_extremes(rho, size):
    """As exact as float32 can be however far the values and the temperature are apart. (A
    log-sum-exp of `values / eta` would lose the slope, or overflow.)"""
    # Exact in float32, also after the multiplication.
    values = size * np.array([3.0, -1.0, 3.0, 0.5], np.float32)
    eta = float(Dual(rho).value)
    loss, kl, _ = expected(values, eta, 0.1, np.full(4, 0.25))
    (value, metrics), slope = sloped(jnp.asarray(values), Dual(rho))
    assert float(value) == pytest.approx(loss, rel=1e-6)
    assert float(metrics["kl_nonparametric"]) == pytest.approx(kl, abs=1e-6)
    sigmoid = float(jax.nn.sigmoid(jnp.float32(rho)))
    assert float(slope.rho) == pytest.approx(sigmoid * (0.1 - kl), rel=1e-4, abs=1e-7 * sigmoid)


def test_a_value_of_minus_infinity_is_illegal_too():
    """As Q-values say it, of an action that the prior has not ruled out: as if it had, but for the
    prior's share. A NaN is not taken for it."""

    @jax.jit
    def loss(values, log_prior):
        policy = nonparametric_policy(values, Dual(0.0), log_prior=log_prior)
        return sloped(values, Dual(0.0), log_prior), jnp.exp(policy)

    values, log_prior = jnp.array([1.0, 0.0, -1.0]), jnp.log(jnp.array([0.5, 0.3, 0.2]))
    found = loss(values.at[1].set(-jnp.inf), log_prior)
    wanted = loss(values, log_prior.at[1].set(-jnp.inf))
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert np.all(np.isfinite(x)) and np.array_equal(x, y)
    assert np.isnan(loss(values.at[1].set(jnp.nan), log_prior)[0][0][0])
    nothing = loss(jnp.full(3, -jnp.inf), log_prior)
    assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(nothing))


def test_no_gradient_but_into_the_temperature():
    values, log_prior = jnp.array([1.0, 0.0, -1.0]), jnp.log(jnp.array([0.5, 0.3, 0.2]))

    def loss(values, log_prior, dual):
        value, _ = temperature_loss(values, dual, 0.1, log_prior=log_prior)
        return value + nonparametric_policy(values, dual, log_prior=log_prior)[0]

    gradient = jax.jit(jax.grad(loss, (0, 1, 2)))
    values, log_prior, dual = gradient(values, log_prior, Dual(0.0))
    assert not np.any(values) and not np.any(log_prior) and dual.rho != 0


def test_rlax():
    """Loss, weights and slope over a batch of states with rlax's samples on the leading axis."""
    values = jnp.asarray(np.random.default_rng(1).normal(size=(5, 16)), jnp.float32)
    temperature = Dual.from_value(0.3)

    def ours(dual):
        return jnp.mean(jax.vmap(lambda x: temperature_loss(x, dual, 0.2)[0])(values))

    def theirs(dual):
        constraint = rlax.LagrangePenalty(dual.value, jnp.float32(0.2))
        with jax.numpy_rank_promotion("allow"):
            loss, weights, _ = rlax.mpo_compute_weights_and_temperature_loss(
                values.T, constraint, lambda x: x
            )
        return jnp.mean(loss), weights

    @jax.jit
    def both(dual):
        log_policy = jax.vmap(lambda x: nonparametric_policy(x, dual))(values)
        expected = jax.value_and_grad(theirs, has_aux=True)(dual)
        return expected, jax.value_and_grad(ours)(dual), log_policy

    ((loss, weights), slope), (value, own_slope), log_policy = both(temperature)
    assert float(value) == pytest.approx(float(loss), rel=1e-5)
    assert float(own_slope.rho) == pytest.approx(float(slope.rho), rel=1e-4)
    assert np.allclose(jnp.exp(log_policy), weights.T, atol=1e-6)


def test_temperature_settles_at_the_bound():
    """Descent on the dual alone, from far above and from far below, makes the mean KL `epsilon`;
    the temperature is then scipy's minimiser of the same dual function, written with NumPy."""
    draws = np.random.default_rng(2)
    values = draws.normal(size=(8, 16)) * draws.uniform(0.5, 2.0, (8, 1))
    epsilon = 0.2

    def dual_function(eta):
        return np.mean([expected(x, eta, epsilon, np.full(16, 1 / 16))[0] for x in values])

    best: Any = scipy.optimize.minimize_scalar(
        dual_function, bounds=(1e-2, 1e2), method="bounded", options={"xatol": 1e-8}
    )
    data = jnp.asarray(values, jnp.float32)

    def loss(dual):
        losses, metrics = jax.vmap(lambda x: temperature_loss(x, dual, epsilon))(data)
        return jnp.mean(losses), jnp.mean(metrics["kl_nonparametric_relative"])

    @jax.jit
    def settled(start):
        dual = descend(lambda dual: loss(dual)[0], start, Dual.clipped)
        return dual, loss(dual)[1]

    for start in (Dual(10.0), Dual.from_value(1e-3)):
        dual, relative = settled(start)
        assert float(relative) == pytest.approx(1.0, rel=0.01)
        assert float(dual.value) == pytest.approx(float(best.x), rel=0.01)


@pytest.mark.usefixtures("unhooked")
@pytest.mark.parametrize("values", ((2, 3), (4,), (0,), ()))
def test_bad_shapes(values):
    with pytest.raises(ValueError, match=r"given values\[.*\], log_prior\[3\] but"):
        temperature_loss(jnp.ones(values), Dual(0.0), 0.1, log_prior=jnp.zeros(3))


def test_bad_temperature_and_bound():
    with pytest.raises(ValueError, match=r"`temperature` has shape \[2\]"):
        nonparametric_policy(jnp.ones(3), Dual(0.0, (2,)))
    with pytest.raises(ValueError, match=r"temperature_loss\(epsilon=-0.1\)"):
        temperature_loss(jnp.ones(3), Dual(0.0), -0.1)
