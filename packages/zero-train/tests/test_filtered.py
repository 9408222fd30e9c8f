"""Planning over beliefs that are kept by a filter: nothing leaks, and listening pays."""

import functools as ft

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from zero_envs import (
    Filtered,
    Observation,
    ParticleFilter,
    RockFilter,
    RockSample,
    Tag,
    TagFilter,
    Tiger,
)
from zero_search import PUCT, read_tree, TreeSearch
from zero_train import EnvironmentModel


ENV = Filtered(Tiger(20), ParticleFilter(100))


def nothing(obs: Observation) -> tuple[jax.Array, jax.Array]:
    """Equal logits and the value 0."""
    return jnp.zeros(3), jnp.zeros(())


MODEL = EnvironmentModel(ENV, nothing, gamma=0.95)
PLANNER = TreeSearch(150, PUCT(20.0), max_depth=6)


@ft.cache
def listened(times: int):
    """Eight states after listening so many times."""
    step = jax.jit(jax.vmap(lambda s, k: ENV.step(s, jnp.int32(0), key=k)))
    state = jax.jit(jax.vmap(lambda k: ENV.init(key=k)))(jr.split(jr.key(0), 8))
    for i in range(times):
        state, _ = step(state, jr.split(jr.key(i + 1), 8))
    return state


@eqx.filter_jit
def planned(state, key):
    carry = PLANNER.init(MODEL, state)
    return PLANNER.plan(MODEL, state, carry, key=jr.split(key, 8))[0]


def test_the_true_state_changes_no_plan():
    state = listened(1)
    plan = planned(state, jr.key(5))
    other = eqx.tree_at(lambda s: s.state.tiger, state, 1 - state.state.tiger)
    swapped = planned(other, jr.key(5))
    for one, two in zip(jax.tree.leaves(plan), jax.tree.leaves(swapped), strict=True):
        assert np.array_equal(one, two)
    assert np.all(np.asarray(plan.stats["invalid"]) == 0)


def test_listening_pays_until_it_is_known_enough():
    """With equal odds opening a door is worth -45 at once; if all samples have the tiger behind the
    left door the right one is opened."""
    plan = planned(listened(0), jr.key(6))
    assert np.all(np.asarray(plan.action) == 0)
    # The reward of a door is the expected one, and not -100 or 10.
    assert np.all(np.abs(np.asarray(plan.qvalues)[:, 1:] + 45) < 25)
    state = listened(0)
    sure = jnp.zeros_like(state.belief.states.tiger)  # all samples: on the left
    known = eqx.tree_at(lambda s: s.belief.states.tiger, state, sure)
    plan = planned(known, jr.key(7))
    assert np.all(np.asarray(plan.action) == 2)


def test_a_tree_is_kept_where_the_belief_is_the_same():
    """A second plan of the same positions goes on with the trees of the first one."""
    planner, state = TreeSearch(8, PUCT(20.0), reuse=True), listened(1)

    @eqx.filter_jit
    def twice(state):
        carry, plans = planner.init(MODEL, state), []
        for i in range(2):
            plan, carry = planner.plan(MODEL, state, carry, key=jr.split(jr.key(i), 8))
            plans.append(plan)
        return plans

    first, second = twice(state)
    assert np.all(np.asarray(first.stats["reused"]) == 0)
    assert np.all(np.asarray(second.stats["reused"]) == 8)


def test_a_likelihood_of_nan_is_counted():
    class Broken(Tiger):
        def observation_log_prob(self, observation, state, action, next_state):
            return jnp.full((), jnp.nan)

    env = Filtered(Broken(20), ParticleFilter(16))
    seen = lambda obs: (jnp.zeros(3), jnp.sum(obs.features["mean"]))
    model, planner = EnvironmentModel(env, seen), TreeSearch(4)
    state = jax.vmap(lambda k: env.init(key=k))(jr.split(jr.key(0), 2))
    plan = jax.jit(lambda k: planner.plan(model, state, planner.init(model, state), key=k)[0])(
        jr.split(jr.key(1), 2)
    )
    assert np.all(np.asarray(plan.stats["invalid"]) > 0)


def test_a_hidden_environment_needs_a_filter():
    with pytest.raises(ValueError, match="or a Filtered one"):
        EnvironmentModel(Tiger(), nothing)
    assert MODEL.random and MODEL.num_outcomes == 0


def test_known_odds_of_observations_are_chance_nodes():
    """One rock in the only cell. To check it is worth the mean of its two outcomes; nothing else
    has two, nor needs a node for them."""
    env = Filtered(RockSample(1, ((0, 0),), (0, 0)), RockFilter())

    def known(obs):
        """Leave, or before that sample what is surely good."""
        chance = obs.features["rocks"][0, 0]
        return jnp.zeros(6), jnp.where(chance == 1, 10 + 0.95 * 10, 10.0)

    model = EnvironmentModel(env, known, 0.95)
    assert model.num_outcomes == 2 and not model.random
    state = jax.vmap(lambda k: env.init(key=k))(jr.key(0)[None])
    planner = TreeSearch(6, PUCT(1e6), evaluate_outcomes=True)
    carry = planner.init(model, state)
    plan, _, tree = eqx.filter_jit(planner.grow)(model, state, carry, key=jr.key(1)[None])
    checked = 0.95 * (19.5 + 10) / 2
    np.testing.assert_allclose(plan.qvalues[0], [9.5, 9.5, 10, 9.5, 9.5, checked], rtol=1e-5)
    grown = read_tree(tree, 0)
    assert grown.action[grown.chance].tolist() == [5]


def test_the_tree_below_what_was_observed_is_kept():
    """Beliefs that the search found are those that the environment has then, bit by bit."""
    env = Filtered(Tag(((0, 0), (1, 0), (2, 0), (0, 1), (2, 1))), TagFilter())
    model = EnvironmentModel(env, lambda obs: (jnp.zeros(5), jnp.zeros(())), 0.95)
    planner = TreeSearch(40, PUCT(1.0), reuse=True)
    state = jax.vmap(lambda k: env.init(key=k))(jr.split(jr.key(0), 4))

    @eqx.filter_jit
    def twice(state):
        carry, keys = planner.init(model, state), jr.split(jr.key(1), (3, 4))
        plan, carry = planner.plan(model, state, carry, key=keys[0])
        after, transition = jax.vmap(lambda s, a, k: env.step(s, a, key=k))(
            state, plan.action, keys[1]
        )
        carry = planner.advance(carry, plan.action, transition.last)
        return planner.plan(model, after, carry, key=keys[2])[0].stats["reused"]

    assert (np.asarray(twice(state)) > 0).all()
