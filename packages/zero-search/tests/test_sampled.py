"""Sampled search: equal to a tree search where all actions are drawn, and exact shares of draws."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array

from zero_search import (
    _sampled as module,
    AbstractPriorModel,
    AbstractProposalModel,
    DirichletNoise,
    SampledModel,
    SampledSearch,
    TreeSearch,
)

from .helpers import quick_jit


ACTIONS, PLACES = 3, 7


class Ring(AbstractPriorModel[Array]):
    """Places in a circle with a reward for each move and a value for each place; from the last one
    it does not go on."""

    rewards: Array
    values: Array
    logits: Array

    def root(self, state, obs, *, key):
        return state

    def step(self, node, action, *, key):
        last = node == PLACES - 1
        after = jnp.where(last, node, (node + action + 1) % PLACES)
        discount = jnp.where(last, 0.0, 0.9).astype(jnp.float32)
        return after, jnp.where(last, 0.0, self.rewards[node, action]), discount, last

    def predict(self, node, *, key):
        return self.logits[node], self.values[node]


RING = Ring(
    jr.normal(jr.key(0), (PLACES, ACTIONS)),
    jr.normal(jr.key(1), (PLACES,)),
    jnp.zeros((PLACES, ACTIONS)),
)
STATE = jnp.arange(14, dtype=jnp.int32) % PLACES


def keys_of(rows: Any = range(14)):
    return jr.split(jr.key(2), 14)[np.asarray(rows)]


def planned(planner, model, state=STATE, keys=None):
    keys = keys_of() if keys is None else keys
    run = quick_jit(lambda s, k: planner.plan(model, s, planner.init(model, s), key=k)[0])
    return jax.tree.map(np.asarray, run(state, keys))


@pytest.mark.parametrize(
    "planner",
    [
        TreeSearch.muzero(24),
        TreeSearch.muzero(24, noise=DirichletNoise(), temperature=1.0),
        TreeSearch.gumbel(24),
    ],
)
def test_all_actions_drawn_once_are_a_tree_search(planner, monkeypatch):
    """Visit by visit, over a prior that is equal everywhere."""

    def each_once(policy, key):
        shape = key.shape
        actions = jnp.broadcast_to(jnp.arange(shape[1], dtype=jnp.int32)[None], shape)
        return actions, jnp.zeros(shape, bool)

    monkeypatch.setattr(module, "draw", each_once)
    wanted = planned(planner, RING)
    found = planned(SampledSearch(planner, ACTIONS), RING)
    for name in ("action", "candidates", "visits"):
        np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name))
    for name in ("weights", "qvalues", "value"):
        np.testing.assert_allclose(getattr(found, name), getattr(wanted, name), rtol=1e-5)


def test_equal_draws_share_their_prior():
    """By hand: of discrete actions, of actions with components, and of several arrays."""
    discrete = jnp.array([[2, 0, 2, 2, 1], [1, 1, 1, 1, 1]], jnp.int32)
    shares = np.exp(module.log_shares(discrete))
    np.testing.assert_allclose(shares, [[0.6, 0.2, 0, 0, 0.2], [1, 0, 0, 0, 0]], rtol=1e-6)
    pairs = jnp.array([[[0, 1], [1, 0], [0, 1]]], jnp.int32)
    np.testing.assert_allclose(np.exp(module.log_shares(pairs)), [[2 / 3, 1 / 3, 0]], rtol=1e-6)
    both = {"turn": jnp.array([[[0.5], [0.5], [0.5]]]), "gear": jnp.array([[0, 1, 0]], jnp.int32)}
    np.testing.assert_allclose(np.exp(module.log_shares(both)), [[2 / 3, 1 / 3, 0]], rtol=1e-6)


class Gaussian(eqx.Module):
    loc: Array

    def sample(self, *, key):
        return self.loc + jr.normal(key, self.loc.shape, self.loc.dtype)

    def log_prob(self, action):
        return -0.5 * jnp.sum(jnp.square(action - self.loc))


class Target(AbstractProposalModel[Array]):
    """One step: the nearer to a place, the better. Rewards are known, values are not."""

    goal: float = 0.7
    worth: float = 0.0

    def root(self, state, obs, *, key):
        return state

    def step(self, node, action, *, key):
        over = jnp.zeros(node.shape[0], jnp.float32)
        return node, -jnp.sum(jnp.square(action - self.goal), axis=1), over, over == 0

    def propose(self, node, *, key):
        return Gaussian(node), jnp.full(node.shape[0], self.worth, jnp.float32)


def test_the_weights_of_a_bandit_are_on_its_best_candidate():
    state = jnp.zeros((40, 2))
    planner = SampledSearch(TreeSearch.gumbel(96, gumbel_scale=0.0), 12)
    plan = planned(planner, Target(), state, jr.split(jr.key(4), 40))
    assert plan.candidates.shape == (40, 12, 2) and plan.weights.shape == (40, 12)
    worth = -np.sum((plan.candidates - 0.7) ** 2, axis=2)
    np.testing.assert_array_equal(plan.weights.argmax(axis=1), worth.argmax(axis=1))
    better = worth >= np.median(worth, axis=1, keepdims=True)
    assert np.sum(plan.weights * better, axis=1).min() > 0.7
    rows = np.arange(40)
    np.testing.assert_array_equal(plan.action, plan.candidates[rows, worth.argmax(axis=1)])
    np.testing.assert_allclose(plan.weights.sum(axis=1), 1, rtol=1e-6)
    visited = plan.visits > 0
    np.testing.assert_allclose(plan.qvalues[visited], worth[visited], rtol=1e-4)
    # Those of a standard Gaussian, drawn independently.
    assert abs(plan.candidates.mean()) < 4 / np.sqrt(plan.candidates.size)
    assert abs(plan.candidates.std() - 1) < 4 / np.sqrt(2 * plan.candidates.size)


@pytest.mark.parametrize("search", ["muzero", "gumbel"])
def test_no_row_depends_on_its_neighbours(search):
    planner = SampledSearch(getattr(TreeSearch, search)(16), 5)
    model = eqx.tree_at(lambda m: m.logits, RING, jr.normal(jr.key(3), (PLACES, ACTIONS)))
    plan, order = planned(planner, model), np.r_[7:14, 0:7]
    turned = planned(planner, model, STATE[order], keys_of(order))
    alone = planned(planner, model, STATE[3:4], keys_of([3]))
    for found, rows in ((turned, order), (alone, slice(3, 4))):
        np.testing.assert_array_equal(found.candidates, plan.candidates[rows])
        np.testing.assert_array_equal(found.visits, plan.visits[rows])
        np.testing.assert_array_equal(found.action, plan.action[rows])
    # Of equal candidates only the first one is searched.
    again = np.tril(plan.candidates[:, :, None] == plan.candidates[:, None], -1).any(axis=2)
    assert again.any() and not plan.visits[again].any() and not plan.weights[again].any()


def test_illegal_actions_are_never_candidates_and_nothing_legal_is_filler():
    """Of a model with logits."""
    logits = jnp.zeros((PLACES, ACTIONS)).at[:, 1].set(-jnp.inf).at[2].set(-jnp.inf)
    model = eqx.tree_at(lambda m: m.logits, RING, logits)
    plan = planned(SampledSearch(TreeSearch.muzero(16), 8), model)
    filler = np.asarray(STATE) == 2
    assert not (plan.candidates[~filler] == 1).any()
    assert not plan.weights[filler].any() and np.all(plan.weights[~filler].sum(axis=1) > 0.99)
    assert not plan.stats["invalid"].any()


def test_what_is_not_finite_is_counted():
    state = jnp.array([[0.0], [jnp.inf], [0.0]])
    plan = planned(SampledSearch(TreeSearch.muzero(4), 3), Target(), state, keys_of(range(3)))
    np.testing.assert_array_equal(plan.stats["invalid"] > 0, [False, True, False])
    assert np.isfinite(plan.action).all() and np.isfinite(plan.value).all()
    plan = planned(
        SampledSearch(TreeSearch.muzero(4), 3), Target(worth=jnp.nan), state, keys_of(range(3))
    )
    assert np.all(plan.stats["invalid"] > 0) and np.isfinite(plan.value).all()


def test_the_temperature_of_moves_follows_the_game():
    planner = SampledSearch(TreeSearch.muzero(4), 3)
    carry = planner.init(Target(), jnp.zeros((2, 1)))
    last = jnp.array([False, True])
    carry = planner.advance(planner.advance(carry, jnp.zeros((2, 1)), ~last), None, last)
    np.testing.assert_array_equal(carry.ply, [1, 0])


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="draws its candidates anew.*leave `reuse` out"):
        SampledSearch(TreeSearch.muzero(4, reuse=True))
    with pytest.raises(ValueError, match="num_candidates=0.*must be an integer, 1 or more"):
        SampledSearch(TreeSearch.muzero(4), 0)
    with pytest.raises(ValueError, match="num_candidates=-1.*must be an integer, 1 or more"):
        SampledModel(RING, -1)
