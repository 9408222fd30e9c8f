"""The gradient of every loss against central differences in double precision.

Each loss is a sum of terms that move either the policy or one dual. So its gradient in the policy
is the slope of the policy's terms with the duals held, and in the duals that of the duals' terms
with the divergences and the weights held.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from zero_train.losses import (
    Dual,
    kl_penalty,
    mpo_categorical_loss,
    mpo_decoupled_loss,
    mpo_loss,
    temperature_loss,
    vmpo_loss,
    weighted_policy_loss,
)

from .policies import Categorical, Gaussian


@pytest.fixture(autouse=True)
def double():
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)


def dual_of(*args):
    """A dual of double precision, of which the differences here are taken."""
    return jax.tree.map(lambda x: x.astype(jnp.float64), Dual(*args))


def check(loss, terms, variables):
    """`jax.grad(loss)` against the slopes of `terms`, a function of the same variables."""
    flat, restore = ravel_pytree(variables)
    assert flat.dtype == jnp.float64
    gradient, _ = ravel_pytree(jax.jit(jax.grad(loss))(variables))
    steps = 1e-6 * jnp.eye(flat.size)
    value = jax.jit(jax.vmap(lambda step: terms(restore(flat + step))))
    assert np.allclose(gradient, (value(steps) - value(-steps)) / 2e-6, rtol=1e-6, atol=1e-8)
    assert np.all(gradient != 0)


def check_all(loss, policy, duals):
    """`loss(policy, duals) -> (loss, metrics)`, whose metrics hold the terms."""

    def total(names, policy, duals):
        metrics = loss(policy, duals)[1]
        return sum(x for name, x in metrics.items() if name.startswith(names))

    def policy_terms(policy):
        return total(("policy_loss", "kl_loss"), policy, duals)

    def dual_terms(duals):
        return total(("temperature_loss", "alpha_loss"), policy, duals)

    check(lambda x: loss(x, duals)[0], policy_terms, policy)
    check(lambda x: loss(policy, x)[0], dual_terms, duals)


DRAWS = np.random.default_rng(3)
LOGITS, OLD, VALUES = DRAWS.normal(size=(3, 5))
BOUNDS: dict[str, Any] = {"epsilon": 0.1, "epsilon_policy": 1e-3}


def duals() -> dict[str, Any]:
    # Made in the test, where double precision is on.
    return {"temperature": dual_of(0.3), "alpha": dual_of(0.8)}


def test_categorical():
    """With an illegal action, whose logit has no slope."""

    def loss(logits, duals):
        logits, old = (jnp.append(x, -jnp.inf) for x in (logits, OLD))
        return mpo_categorical_loss(logits, old, jnp.append(VALUES, 9.0), **duals, **BOUNDS)

    check_all(loss, jnp.asarray(LOGITS), duals())


def test_sampled():
    actions = jnp.array([0, 1, 2, 3, 4, 4])
    values = jnp.append(VALUES, 0.5)

    def loss(logits, duals):
        target = Categorical(jnp.asarray(OLD))
        return mpo_loss(Categorical(logits), target, actions, values, **duals, **BOUNDS)

    check_all(loss, jnp.asarray(LOGITS), duals())


@pytest.mark.parametrize("shape", ((), (2,)))
def test_decoupled(shape):
    loc, old_loc = DRAWS.normal(size=(2, 2))
    scale, old_scale = DRAWS.uniform(0.5, 2.0, size=(2, 2))
    actions = DRAWS.normal(size=(5, 2))

    loss = lambda policy, duals: mpo_decoupled_loss(
        policy,
        Gaussian(jnp.asarray(old_loc), jnp.asarray(old_scale)),
        jnp.asarray(actions),
        jnp.asarray(VALUES),
        **duals,
        epsilon=0.1,
        epsilon_mean=0.05,
        epsilon_stddev=5e-4,
    )
    check_all(
        loss,
        Gaussian(jnp.asarray(loc), jnp.asarray(scale)),
        {
            "temperature": dual_of(0.3),
            "alpha_mean": dual_of(1.2, shape),
            "alpha_stddev": dual_of(4.0, shape),
        },
    )


def test_vmpo():
    """In the rows that are kept: the better three of six that count."""
    advantages, weights = jnp.append(VALUES, jnp.array([2.0, 9.0])), jnp.ones(7).at[-1].set(0.0)
    kept = jnp.sort(jnp.argsort(-advantages)[1:4])

    def loss(log_probs, temperature):
        log_probs = jnp.zeros(7).at[kept].set(log_probs)
        return vmpo_loss(log_probs, advantages, weights, temperature=temperature, epsilon=0.1)

    check_all(loss, -jnp.arange(1.0, 4.0), dual_of(0.3))


@pytest.mark.parametrize("rho", (-8.0, -2.0, 0.5, 8.0))
def test_temperature(rho):
    loss = lambda dual: temperature_loss(jnp.asarray(VALUES), dual, 0.1)[0]
    # In units of the slope of softplus, far down: a step of rho is almost no step of its value.
    scale = float(jax.nn.sigmoid(rho))
    check(lambda dual: loss(dual) / scale, lambda dual: loss(dual) / scale, dual_of(rho))


def test_parts():
    """The penalty has no slope in the dual, the dual loss none in the KL."""
    kl, dual = jnp.array([0.2, 0.01]), dual_of(0.5, (2,))
    penalty = lambda kl, dual: kl_penalty(kl, dual, 0.1)[0]
    dual_loss = lambda kl, dual: kl_penalty(kl, dual, 0.1)[1]
    check(lambda kl: penalty(kl, dual), lambda kl: penalty(kl, dual), kl)
    check(lambda dual: dual_loss(kl, dual), lambda dual: dual_loss(kl, dual), dual)
    assert not np.any(jax.grad(penalty, 1)(kl, dual).rho)
    assert not np.any(jax.grad(dual_loss, 0)(kl, dual))
    fit = lambda log_probs: weighted_policy_loss(log_probs, jnp.array([0.3, 0.7]))
    check(fit, fit, jnp.log(kl))
