"""Actions of several integers, too many to be numbered: an environment of Jumanji, a policy of
zero-nets with a categorical for each component, and the particles and trees that plan with both."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import scipy.special
from jaxtyping import Array, Float

from zero_envs import FactoredJumanjiEnvironment, JumanjiEnvironment, JumanjiState, Observation
from zero_nets import MultiDiscrete, MultiDiscreteHead
from zero_search import ParticleSearch, SampledSearch, TreeSearch
from zero_train import EnvironmentModel, PolicyModel


class Judge(eqx.Module):
    """A policy that knows nothing of legality; every value is 0."""

    head: MultiDiscreteHead

    def __call__(self, obs: Observation) -> tuple[MultiDiscrete, Float[Array, ""]]:
        return self.head(obs.features), jnp.zeros(())


@pytest.fixture(scope="module")
def env() -> FactoredJumanjiEnvironment:
    """A block, its rotation, its row and its column."""
    grid = lambda observation: observation.grid.astype(jnp.float32).ravel()
    env = FactoredJumanjiEnvironment("FlatPack-v0", features=grid)
    assert env.num_values == (25, 4, 9, 9)
    return env


@pytest.fixture(scope="module")
def model(env: FactoredJumanjiEnvironment) -> PolicyModel:
    return PolicyModel(env, Judge(MultiDiscreteHead(121, env.num_values, key=jr.key(0))))


@pytest.fixture(scope="module")
def states(env: FactoredJumanjiEnvironment) -> JumanjiState:
    """Four, in each of which eight blocks lie."""

    def place(i: Array, state: JumanjiState) -> JumanjiState:
        first = jnp.argmax(jnp.ravel(state.observation.action_mask))
        parts = jnp.stack(jnp.unravel_index(first, env.num_values)).astype(jnp.int32)
        return env.step(state, parts, key=jr.key(0))[0]

    one = lambda key: jax.lax.fori_loop(0, 8, place, env.init(key=key))
    return jax.jit(jax.vmap(one))(jr.split(jr.key(1), 4))


def test_particles_plan_with_a_categorical_for_each_component(
    env: FactoredJumanjiEnvironment, model: PolicyModel, states: JumanjiState
):
    """Candidates are of legal values, some of them in illegal combinations; those cover no cell,
    and the plan turns from them as their rewards say."""
    search = ParticleSearch(num_particles=32, depth=1, temperature=0.01, resample_every=None)
    step = jax.vmap(lambda s, a: jax.vmap(lambda x: env.step(s, x, key=jr.key(0))[1].reward)(a))

    @jax.jit
    def plan(states: JumanjiState) -> Any:
        found, _ = search.plan(model, states, None, key=jr.split(jr.key(2), 4))
        legal = jax.vmap(env.observe)(states).legal
        return found, legal, step(states, found.candidates)

    found, legal, rewards = plan(states)
    candidates, rewards = np.asarray(found.candidates), np.asarray(rewards)
    assert candidates.shape == (4, 32, 4) and found.action.shape == (4, 4)
    offsets = np.cumsum([0, 25, 4, 9])
    row = np.arange(4)[:, None, None]
    assert np.asarray(legal)[row, candidates + offsets].all()
    assert not np.asarray(legal).all(axis=-1).any()
    allowed = np.asarray(states.observation.action_mask)
    fits = allowed[(row[..., 0], *np.moveaxis(candidates, -1, 0))]
    np.testing.assert_array_equal(rewards > 0, fits)
    wanted = scipy.special.softmax(rewards / 0.01, axis=1)
    np.testing.assert_allclose(found.weights, wanted, rtol=1e-4, atol=1e-6)
    light = np.where(fits, 0, found.weights).sum(axis=1)
    assert ((~fits).mean(axis=1) > 0.3).all() and (light < 0.1).all()


def test_a_tree_is_searched_among_candidates(
    env: FactoredJumanjiEnvironment, model: PolicyModel, states: JumanjiState
):
    """What is drawn more than once is searched once, and a block that fits is preferred to one that
    does not."""
    search = SampledSearch(TreeSearch.gumbel(32, gumbel_scale=0.0), 16)

    @jax.jit
    def plan(states: JumanjiState) -> Any:
        carry = search.init(model, states)
        return search.plan(model, states, carry, key=jr.split(jr.key(3), 4))[0]

    found = jax.tree.map(np.asarray, plan(states))
    assert found.candidates.shape == (4, 16, 4) and found.action.shape == (4, 4)
    allowed, row = np.asarray(states.observation.action_mask), np.arange(4)[:, None]
    fits = allowed[(row, *np.moveaxis(found.candidates, -1, 0))]
    assert fits.any(axis=1).all() and not fits.all(axis=1).any()
    assert allowed[(row[:, 0], *found.action.T)].all()
    light = np.where(fits, 0, found.weights).sum(axis=1) / (~fits).sum(axis=1)
    heavy = np.where(fits, found.weights, 0).sum(axis=1) / fits.sum(axis=1)
    assert (heavy > 2 * light).all()


def test_tree_search_wants_one_integer(env: FactoredJumanjiEnvironment, model: PolicyModel):
    """Each refusal says what to use instead."""
    with pytest.raises(
        ValueError, match="8100 joint actions.*construct FactoredJumanjiEnvironment"
    ):
        JumanjiEnvironment("FlatPack-v0")
    with pytest.raises(ValueError, match="FactoredJumanji.*one integer each.*over a PolicyModel"):
        EnvironmentModel(env, model.evaluate)
