"""Trust regions: which bound and which dual goes where, and which are refused."""

from typing import Any

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

from zero_train.losses import DecoupledTrustRegion, Dual, mpo_decoupled_loss, mpo_loss, TrustRegion

from .policies import Categorical, Gaussian


DISCRETE: dict[str, Any] = dict(
    epsilon=0.3, epsilon_policy=0.02, temperature=Dual(0.1), alpha=Dual(0.7)
)
DECOUPLED: dict[str, Any] = dict(
    epsilon=0.3,
    epsilon_mean=0.05,
    epsilon_stddev=0.007,
    temperature=Dual(0.1),
    alpha_mean=Dual(0.7, (2,)),
    alpha_stddev=Dual(2.0, (2,)),
)
DRAWS = np.random.default_rng(0)
VALUES, WEIGHTS = jnp.array([1.0, 0.0, -1.0]), jnp.array([0.2, 0.5, 0.3])


def array(*shape: int) -> jax.Array:
    return jnp.asarray(DRAWS.normal(size=shape), jnp.float32)


CATEGORICALS = [Categorical(array(4)) for _ in range(2)]
GAUSSIANS = [Gaussian(array(2), jnp.exp(array(2))) for _ in range(2)]


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["of values", "of a search"])
@pytest.mark.parametrize(
    "make, given, loss, policies, actions",
    [
        (TrustRegion, DISCRETE, mpo_loss, CATEGORICALS, jnp.array([0, 2, 2], jnp.int32)),
        (DecoupledTrustRegion, DECOUPLED, mpo_decoupled_loss, GAUSSIANS, array(3, 2)),
    ],
    ids=["one bound", "decoupled"],
)
def test_loss_is_that_of_its_bounds(make, given, loss, policies, actions, weights):
    """With duals other than those at first: what is given counts, not what the region holds."""
    region = make(**given)
    begin = region.duals()
    assert set(begin) == {name for name, x in given.items() if isinstance(x, Dual)}
    for name, dual in begin.items():
        np.testing.assert_array_equal(dual.rho, given[name].rho)
    learned = jax.tree.map(lambda rho: rho + 0.4, begin)
    found = region.loss(*policies, actions, VALUES, learned, weights=weights)
    wanted = loss(*policies, actions, VALUES, **{**given, **learned}, weights=weights)
    assert set(found[1]) == set(wanted[1])
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_array_equal(x, y)
    # What V-MPO adds to its own fit is all but the fit and the temperature's loss.
    constraint, metrics = region.constraint(*policies, learned)
    assert all(x == wanted[1][name] for name, x in metrics.items())
    rest = sum(x for name, x in metrics.items() if "_loss" in name)
    np.testing.assert_allclose(constraint, rest, rtol=1e-6)
    fit = [x for name, x in wanted[1].items() if name.startswith(("policy_", "temperature_"))]
    np.testing.assert_allclose(constraint, wanted[0] - sum(fit), rtol=1e-4)
    # No two of the parts are alike, so that none could have stood in for another.
    terms = [float(x) for name, x in wanted[1].items() if "_loss" in name]
    assert len(set(terms)) == len(terms) == (4 if make is TrustRegion else 7)


@pytest.mark.parametrize("bad", [0, 0.0, -0.1, float("nan")])
@pytest.mark.parametrize(
    "make, given, name",
    [(TrustRegion, DISCRETE, name) for name in DISCRETE if "epsilon" in name]
    + [(DecoupledTrustRegion, DECOUPLED, name) for name in DECOUPLED if "epsilon" in name],
    ids=lambda x: x if isinstance(x, str) else getattr(x, "__name__", ""),
)
def test_a_bound_must_leave_room(make, given, name, bad):
    with pytest.raises(ValueError, match=rf"^`{make.__name__}\({name}={bad}\)`: must be above 0"):
        make(**{**given, name: bad})


def test_discrete_policies_have_no_deviation(monkeypatch):
    """In a user's program, where no import hook complains first."""
    region = DecoupledTrustRegion(**DECOUPLED)
    policy, target = CATEGORICALS
    actions = jnp.array([0, 2, 2], jnp.int32)
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    with pytest.raises(ValueError, match=r"`Categorical`, which has no `decouple`: .*TrustRegion"):
        region.loss(policy, target, actions, VALUES, region.duals())
