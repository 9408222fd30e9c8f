"""The losses of MPO and SPO against the definitions in NumPy, rlax, and simpler cases."""

import functools as ft
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rlax
import scipy.special
import scipy.stats

from zero_train.losses import (
    Dual,
    masked_mean,
    mpo_categorical_loss,
    mpo_decoupled_loss,
    mpo_loss,
    nonparametric_policy,
    weighted_policy_loss,
)

from .policies import Categorical, Gaussian


DUALS: dict[str, Any] = {"temperature": Dual(0.3), "alpha": Dual(0.8)}
BOUNDS: dict[str, Any] = {"epsilon": 0.1, "epsilon_policy": 1e-3}
ETA, ALPHA = (np.logaddexp(0, float(dual.rho)) + 1e-8 for dual in DUALS.values())
STATES, SAMPLES, DIMS = 5, 6, 3
DRAWS = np.random.default_rng(0)


def array(x) -> jax.Array:
    return jnp.asarray(x, jnp.float32)


def test_weighted_policy_loss():
    """A weight of 0 makes an impossible action harmless, in the gradient too; any other weight
    shows it."""
    log_probs, weights = jnp.array([-1.0, -jnp.inf, -2.0]), jnp.array([0.25, 0.0, 0.75])
    value, slopes = jax.value_and_grad(weighted_policy_loss, (0, 1))(log_probs, weights)
    assert float(value) == 1.75
    assert slopes[0].tolist() == [-0.25, 0.0, -0.75] and not np.any(slopes[1])
    assert weighted_policy_loss(log_probs, weights[::-1] + 0.1) == jnp.inf


@pytest.mark.parametrize("stored", (False, True))
def test_sampled_discrete(stored):
    """Every term for one state. With weights of a search these are what is fitted, while the
    temperature still learns from the values (SPO)."""
    logits, old, values = DRAWS.normal(size=(3, SAMPLES))
    actions = np.array([0, 3, 3, 5])
    weights = np.array([0.1, 0.2, 0.3, 0.4]) if stored else scipy.special.softmax(values[:4] / ETA)
    log_policy, log_old = scipy.special.log_softmax(logits), scipy.special.log_softmax(old)
    policy_loss = -np.sum(weights * log_policy[actions])
    kl = np.sum(scipy.special.rel_entr(np.exp(log_old), np.exp(log_policy)))
    log_z = np.logaddexp.reduce(values[:4] / ETA) - np.log(4)
    loss, metrics = jax.jit(ft.partial(mpo_loss, **DUALS, **BOUNDS))(
        Categorical(array(logits)),
        Categorical(array(old)),
        jnp.asarray(actions, jnp.int32),
        array(values[:4]),
        weights=array(weights) if stored else None,
    )
    improved = scipy.special.softmax(values[:4] / ETA)
    kl_nonparametric = np.sum(improved * np.log(4 * improved))
    wanted = {
        "policy_loss": policy_loss,
        "temperature_loss": ETA * (0.1 + log_z),
        "kl_loss": ALPHA * kl,
        "alpha_loss": ALPHA * (1e-3 - kl),
        "kl": kl,
        "kl_relative": kl / 1e-3,
        "alpha": ALPHA,
        "temperature": ETA,
        "kl_nonparametric": kl_nonparametric,
        "kl_nonparametric_relative": kl_nonparametric / 0.1,
        "effective_sample_size": 1 / np.sum(improved**2),
    }
    assert {name: float(x) for name, x in metrics.items()} == pytest.approx(wanted, rel=1e-5)
    parts = ("policy_loss", "temperature_loss", "kl_loss", "alpha_loss")
    assert float(loss) == pytest.approx(sum(wanted[name] for name in parts), rel=1e-5)


def gaussians(seed: int) -> tuple[Gaussian, Gaussian, jax.Array, jax.Array]:
    """Policies of several states, old ones, actions and values."""
    draws = np.random.default_rng(seed)
    policy = Gaussian(
        array(draws.normal(size=(STATES, DIMS))), array(draws.uniform(0.5, 2, (STATES, DIMS)))
    )
    old = Gaussian(
        array(draws.normal(size=(STATES, DIMS))), array(draws.uniform(0.5, 2, (STATES, DIMS)))
    )
    actions = array(draws.normal(size=(STATES, SAMPLES, DIMS)))
    return policy, old, actions, array(draws.normal(size=(STATES, SAMPLES)))


@ft.partial(jax.jit, static_argnames="per_dimension")
def decoupled(policy, old, actions, values, *, per_dimension: bool):
    shape = (DIMS,) if per_dimension else ()
    return mpo_decoupled_loss(
        policy,
        old,
        actions,
        values,
        temperature=Dual(0.3),
        alpha_mean=Dual(1.2, shape),
        alpha_stddev=Dual(4.0, shape),
        epsilon=0.1,
        epsilon_mean=0.05,
        epsilon_stddev=5e-4,
    )


@pytest.mark.parametrize("per_dimension", (False, True))
def test_decoupled(per_dimension):
    """Every term by the formulas of the Gaussians, in the first of several states."""
    policy, old, actions, values = jax.tree.map(lambda x: x[0], gaussians(1))
    loss, metrics = decoupled(policy, old, actions, values, per_dimension=per_dimension)
    mean, stddev, old_mean, old_stddev, x, q = (
        np.asarray(leaf, np.float64) for leaf in jax.tree.leaves((policy, old, actions, values))
    )
    weights = scipy.special.softmax(q / ETA)
    alpha_mean, alpha_stddev = np.logaddexp(0, 1.2), np.logaddexp(0, 4.0)
    kl_mean = (old_mean - mean) ** 2 / (2 * old_stddev**2)
    kl_stddev = np.log(stddev / old_stddev) + old_stddev**2 / (2 * stddev**2) - 0.5
    bounds = DIMS if per_dimension else 1
    wanted: dict[str, Any] = {
        "policy_loss_mean": -weights @ scipy.stats.norm.logpdf(x, mean, old_stddev).sum(1),
        "policy_loss_stddev": -weights @ scipy.stats.norm.logpdf(x, old_mean, stddev).sum(1),
        "kl_loss_mean": alpha_mean * kl_mean.sum(),
        "kl_loss_stddev": alpha_stddev * kl_stddev.sum(),
        "alpha_loss_mean": alpha_mean * (bounds * 0.05 - kl_mean.sum()),
        "alpha_loss_stddev": alpha_stddev * (bounds * 5e-4 - kl_stddev.sum()),
        "temperature_loss": ETA * (0.1 + np.logaddexp.reduce(q / ETA) - np.log(SAMPLES)),
    }
    total = float(np.sum(list(wanted.values())))
    wanted |= {
        "kl_mean": kl_mean.sum(),
        "kl_stddev": kl_stddev.sum(),
        "kl_relative_mean": kl_mean.sum() / (bounds * 0.05),
        "kl_relative_stddev": kl_stddev.sum() / (bounds * 5e-4),
        "alpha_mean": alpha_mean,
        "alpha_stddev": alpha_stddev,
    }
    assert {name: float(metrics[name]) for name in wanted} == pytest.approx(wanted, rel=2e-5)
    assert float(loss) == pytest.approx(total, rel=1e-5)
    estep = {
        "temperature",
        "kl_nonparametric",
        "kl_nonparametric_relative",
        "effective_sample_size",
    }
    assert set(metrics) == set(wanted) | estep


def test_decoupled_mean_and_deviation_do_not_mix():
    """Each has its own terms: pulling the mean cannot move the deviation through a policy term or
    a penalty of the mean, and nothing reaches the target, the values or the actions' weights."""
    policy, old, actions, values = jax.tree.map(lambda x: x[0], gaussians(1))

    def term(policy, old, values, name):
        return decoupled(policy, old, actions, values, per_dimension=True)[1][name]

    gradient = jax.jit(jax.grad(term, (0, 1, 2)), static_argnums=3)
    for name in ("policy_loss_mean", "kl_loss_mean", "policy_loss_stddev", "kl_loss_stddev"):
        own, *fixed = gradient(policy, old, values, name)
        moved = (bool(np.all(own.loc)), bool(np.all(own.scale)))
        assert moved == (name.endswith("mean"), name.endswith("stddev"))
        assert not np.any(own.scale if name.endswith("mean") else own.loc)
        assert not any(np.any(leaf) for leaf in jax.tree.leaves(fixed))


@pytest.mark.parametrize("per_dimension", (False, True))
def test_rlax(per_dimension):
    """Loss and gradient over a batch of states: two policy terms, two decoupled constraints."""
    policy, old, actions, values = gaussians(2)
    shape = (DIMS,) if per_dimension else ()
    duals = {
        "temperature": Dual(0.3),
        "alpha_mean": Dual(1.2, shape),
        "alpha_stddev": Dual(4.0, shape),
    }

    def ours(policy, duals):
        def one(policy, old, actions, values):
            return mpo_decoupled_loss(
                policy,
                old,
                actions,
                values,
                **duals,
                epsilon=0.1,
                epsilon_mean=0.05,
                epsilon_stddev=5e-4,
            )

        losses, _ = jax.vmap(one)(policy, old, actions, values)
        return jnp.mean(losses)

    def theirs(policy, duals):
        def log_prob(loc, scale):
            each = jax.scipy.stats.norm.logpdf(actions, loc[:, None], scale[:, None])
            return jnp.sum(each, axis=-1).T

        kl_mean = jnp.square(policy.loc - old.loc) / (2 * jnp.square(old.scale))
        ratio = old.scale / policy.scale
        kl_stddev = -jnp.log(ratio) + jnp.square(ratio) / 2 - 0.5
        constraints = []
        for kl, name, bound in ((kl_mean, "mean", 0.05), (kl_stddev, "stddev", 5e-4)):
            kl = kl if per_dimension else jnp.sum(kl, axis=-1)
            alpha = duals[f"alpha_{name}"].value
            constraints.append((kl, rlax.LagrangePenalty(alpha, jnp.float32(bound), per_dimension)))
        temperature = rlax.LagrangePenalty(duals["temperature"].value, jnp.float32(0.1))
        loss, _ = rlax.mpo_loss(
            log_prob(policy.loc, old.scale), values.T, temperature, constraints, lambda x: x
        )
        # Only the policy loss is there twice.
        other, _ = rlax.mpo_loss(
            log_prob(old.loc, policy.scale),
            values.T,
            temperature,
            constraints,
            lambda x: x,
            temperature_loss_weight=0.0,
            kl_loss_weight=0.0,
            alpha_loss_weight=0.0,
        )
        return jnp.mean(loss + other)

    with jax.numpy_rank_promotion("allow"):
        wanted = jax.jit(jax.value_and_grad(theirs, (0, 1)))(policy, duals)
    found = jax.jit(jax.value_and_grad(ours, (0, 1)))(policy, duals)
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert np.allclose(x, y, rtol=2e-5, atol=1e-6)


@jax.jit
def categorical(logits, old, values, duals=DUALS):
    return mpo_categorical_loss(array(logits), array(old), array(values), **duals, **BOUNDS)


def test_exact_categorical():
    """Every term, over the legal actions only; what an illegal action is said to be worth is
    ignored."""
    logits, old, values = DRAWS.normal(size=(3, SAMPLES))
    illegal = np.array([0, 1, 0, 0, 1, 0], bool)
    hide = lambda x, filler: np.where(illegal, filler, x)
    loss, metrics = categorical(hide(logits, -np.inf), hide(old, -np.inf), hide(values, np.nan))

    log_policy, log_old = (scipy.special.log_softmax(x[~illegal]) for x in (logits, old))
    unnormalised = values[~illegal] / ETA + log_old
    log_z = np.logaddexp.reduce(unnormalised)
    improved = np.exp(unnormalised - log_z)
    kl = np.sum(scipy.special.rel_entr(np.exp(log_old), np.exp(log_policy)))
    wanted: dict[str, Any] = {
        "policy_loss": -np.sum(improved * log_policy),
        "temperature_loss": ETA * (0.1 + log_z),
        "kl_loss": ALPHA * kl,
        "alpha_loss": ALPHA * (1e-3 - kl),
    }
    total = float(np.sum(list(wanted.values())))
    wanted |= {
        "kl": kl,
        "kl_nonparametric": np.sum(scipy.special.rel_entr(improved, np.exp(log_old))),
        "policy_entropy": scipy.stats.entropy(np.exp(log_policy)),
        "target_entropy": scipy.stats.entropy(improved),
    }
    assert {name: float(metrics[name]) for name in wanted} == pytest.approx(wanted, rel=1e-5)
    assert float(loss) == pytest.approx(total, rel=1e-5)


def test_exact_is_sampled_with_every_action_once():
    """Under a uniform old policy; metrics and gradients too."""
    logits, values = array(DRAWS.normal(size=SAMPLES)), array(DRAWS.normal(size=SAMPLES))
    old = jnp.zeros(SAMPLES)

    def exact(logits, duals):
        return mpo_categorical_loss(logits, old, values, **duals, **BOUNDS)

    def sampled(logits, duals):
        actions = jnp.arange(SAMPLES, dtype=jnp.int32)
        policy, target = Categorical(logits), Categorical(old)
        return mpo_loss(policy, target, actions, values, **duals, **BOUNDS)

    one = jax.jit(jax.value_and_grad(exact, (0, 1), has_aux=True))(logits, DUALS)
    other = jax.jit(jax.value_and_grad(sampled, (0, 1), has_aux=True))(logits, DUALS)
    del one[0][1]["policy_entropy"], one[0][1]["target_entropy"]
    for x, y in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert np.allclose(x, y, rtol=1e-5, atol=1e-6)


def test_small_divergences_are_exact():
    """At the bound of 1e-3 and far below the rounding of a log-probability."""
    old = DRAWS.normal(size=SAMPLES).astype(np.float32)
    for size in (1e-1, 1e-2, 1e-3, 1e-4):
        logits = (old + size * np.arange(SAMPLES)).astype(np.float32)
        policy, target = (scipy.special.softmax(x.astype(np.float64)) for x in (logits, old))
        kl = np.sum(scipy.special.rel_entr(target, policy))
        found = float(categorical(logits, old, np.zeros(SAMPLES))[1]["kl"])
        assert found == pytest.approx(kl, rel=1e-2)


def test_rows_that_do_not_count():
    """A final row, without a single legal action, changes neither loss nor gradient nor metric,
    also where its values are those of a network with the illegal ones masked."""
    logits, old, values = array(DRAWS.normal(size=(3, STATES, SAMPLES)))
    weights = jnp.array([1.0, 0.5, 1.0, 2.0, 0.0])

    @jax.jit
    @ft.partial(jax.value_and_grad, has_aux=True)
    def loss(variables, old, values):
        logits, duals = variables
        losses, metrics = jax.vmap(lambda x, y, z: categorical(x, y, z, duals))(logits, old, values)
        metrics = jax.tree.map(lambda x: masked_mean(x, weights), metrics)
        return masked_mean(losses, weights), metrics

    final = logits.at[-1].set(-jnp.inf), old.at[-1].set(-jnp.inf)
    wanted = loss((logits, DUALS), old, values)
    for filler in (0.0, -jnp.inf, jnp.nan):
        found = loss((final[0], DUALS), final[1], values.at[-1].set(filler))
        assert not np.any(found[1][0][-1]) and np.all(found[1][0][:-1])
        for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
            assert np.all(np.isfinite(x)) and np.array_equal(x, y)


@pytest.mark.usefixtures("unhooked")
def test_bad_shapes():
    with pytest.raises(ValueError, match=r"given log_probs\[3\], weights\[1\] but"):
        weighted_policy_loss(jnp.zeros(3), jnp.ones(1))
    policy, old, actions, values = jax.tree.map(lambda x: x[0], gaussians(1))
    with pytest.raises(
        ValueError, match=r"actions\[6, 3\], values\[5\] but takes actions\[actions \.\.\."
    ):
        decoupled(policy, old, actions, values[:-1], per_dimension=True)
    with pytest.raises(ValueError, match=r"kl\[3\], dual\[2\]"):
        mpo_loss(policy, old, actions, values, **{**DUALS, "alpha": Dual(0.0, (2,))}, **BOUNDS)
    with pytest.raises(ValueError, match=r"values\[6, 1\]"):
        mpo_loss(policy, old, actions, values[:, None], **DUALS, **BOUNDS)


@pytest.mark.parametrize("name", BOUNDS)
def test_bad_bounds(name):
    with pytest.raises(ValueError, match=r"epsilon=-1\.0"):
        bounds = {**BOUNDS, name: -1.0}
        mpo_categorical_loss(jnp.zeros(3), jnp.zeros(3), jnp.zeros(3), **DUALS, **bounds)


def test_weights_of_the_estep_are_fitted():
    """Repeated gradient steps on the policy term alone end at the improved policy."""
    values = jnp.array([1.0, 0.0, -0.5])
    actions = jnp.arange(3, dtype=jnp.int32)

    def loss(logits):
        _, metrics = mpo_loss(
            Categorical(logits), Categorical(jnp.zeros(3)), actions, values, **DUALS, **BOUNDS
        )
        return metrics["policy_loss"]

    def step(logits, _):
        return logits - jax.grad(loss)(logits), None

    logits, _ = jax.lax.scan(step, jnp.zeros(3), length=200)
    improved = nonparametric_policy(values, DUALS["temperature"])
    assert np.allclose(jax.nn.log_softmax(logits), improved, atol=1e-4)
