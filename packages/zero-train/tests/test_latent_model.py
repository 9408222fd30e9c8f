"""An exact latent model is planned over as the world is, and two players want the opposite."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array

from zero_envs import AbstractDiscreteEnvironment, Observation, Transition
from zero_envs.testing import Nim
from zero_search import TreeSearch
from zero_train import EnvironmentModel, LatentModel


ACTIONS, GAMMA = 3, 0.9


class Ring(AbstractDiscreteEnvironment[Array]):
    """Seven places in a circle, with a reward for each move; it never ends."""

    rewards: Array
    num_actions: int = ACTIONS
    hidden: bool = False

    def init(self, *, key):
        return jr.randint(key, (), 0, 7, jnp.int32)

    def step(self, state, action, *, key):
        del key
        reward = self.rewards[state, action]
        transition = Transition(reward, jnp.ones((), jnp.float32), jnp.zeros((), bool))
        return (state + action + 1) % 7, transition

    def observe(self, state):
        return Observation(jax.nn.one_hot(state, 7), jnp.ones(ACTIONS, bool))


RING = Ring(rewards=jr.normal(jr.key(7), (7, ACTIONS)))


class Table(eqx.Module):
    """The ring as a model that was learned without a fault, and some policy and value of it."""

    guesses: Array

    def represent(self, features):
        return features

    def step(self, hidden, action):
        place = jnp.argmax(hidden)
        return jnp.roll(hidden, action + 1), RING.rewards[place, action]

    def predict(self, hidden):
        out = self.guesses[jnp.argmax(hidden)]
        return out[:ACTIONS], out[ACTIONS]


@pytest.mark.parametrize("search", ["muzero", "gumbel"])
def test_an_exact_model_is_planned_over_as_the_world_is(search):
    """Visit by visit, and no row depends on its neighbours."""
    table = Table(jr.normal(jr.key(8), (7, ACTIONS + 1)))
    planner = getattr(TreeSearch, search)(24)
    models = (
        EnvironmentModel(RING, lambda obs: table.predict(obs.features), gamma=GAMMA),
        LatentModel(table, gamma=GAMMA),
    )
    state = jnp.arange(14, dtype=jnp.int32) % 7
    keys = jr.split(jr.key(9), 14)

    @eqx.filter_jit
    def plan(model, state, keys):
        obs = jax.vmap(RING.observe)(state)
        return planner.plan(model, state, planner.init(model, state), key=keys, obs=obs)[0]

    with jax.debug_key_reuse(False):
        world, latent = (plan(model, state, keys) for model in models)
        order = np.r_[7:14, 0:7]
        turned = plan(models[1], state[order], keys[order])
    np.testing.assert_array_equal(world.visits, latent.visits)
    np.testing.assert_allclose(world.value, latent.value, rtol=1e-5)
    np.testing.assert_array_equal(turned.visits, latent.visits[order])


class Fixed(eqx.Module):
    """Nim as a model: the heap, as a number. Past the end nothing happens."""

    def represent(self, features):
        return jnp.argmax(features).astype(jnp.float32)[None]

    def step(self, hidden, action):
        left = jnp.maximum(hidden - action.astype(jnp.float32) - 1, 0)
        return left, jnp.where((hidden > 0) & (left == 0), 1.0, 0.0)[0]

    def predict(self, hidden):
        # More than there is may not be taken, as the network has learned.
        logits = jnp.where(
            jnp.arange(1, 4, dtype=jnp.float32) <= jnp.maximum(hidden[0], 1), 0.0, -20.0
        )
        return logits, jnp.zeros(())


def test_two_players_want_the_opposite():
    """In Nim, where the last taker wins, a multiple of four is lost."""
    env = Nim(heap=8, most=3)
    model, planner = LatentModel(Fixed(), num_players=2), TreeSearch.muzero(400)
    heaps = jnp.arange(1, 9, dtype=jnp.int32)
    state = jax.vmap(lambda key: env.init(key=key))(jr.split(jr.key(0), 8))
    state = eqx.tree_at(lambda s: s.heap, state, heaps)
    obs = jax.vmap(env.observe)(state)
    plan, _ = eqx.filter_jit(planner.plan)(
        model, state, planner.init(model, state), key=jr.split(jr.key(1), 8), obs=obs
    )
    won = np.asarray(heaps) % 4 != 0
    np.testing.assert_array_equal(np.asarray(plan.action)[won] + 1, np.asarray(heaps)[won] % 4)
    assert np.all(plan.value[~won] < 0)
