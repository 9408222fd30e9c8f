"""Value prefixes and shorter returns of older rows (EfficientZero) against NumPy, plans over
prefixes beside plans over rewards, and that it learns with both."""

import dataclasses
import functools as ft
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array

from zero_envs import Observation
from zero_search import TreeSearch
from zero_train import (
    bind,
    fill,
    init,
    LatentModel,
    LatentPolicyModel,
    Loop,
    PrefixNetwork,
    step,
    template,
)

from .crossings import check_update
from .test_latent_model import ACTIONS, GAMMA, RING, Table
from .test_muzero import (
    agent_of,
    by_hand,
    Linear,
    N,
    Perceptrons,
    regret,
    ring_loop,
    ROWS,
    STEPS,
    windows,
)


class LinearPrefix(eqx.Module):
    """A linear memory of the hidden states, which says the sum of the rewards."""

    world: Linear
    keeps: Array
    prefix_steps: int = eqx.field(static=True)

    def __init__(self, prefix_steps: int = 3, *, key):
        self.prefix_steps = prefix_steps
        self.world = Linear(key=key)
        self.keeps = 0.5 * jr.normal(jr.fold_in(key, 4), (5, 5))

    def represent(self, features):
        return self.world.represent(features)

    def predict(self, hidden):
        return self.world.predict(hidden)

    def init(self):
        return jnp.zeros(5)

    def step(self, hidden, action, carry):
        hidden, _ = self.world.step(hidden, action)
        carry = self.keeps @ carry + hidden
        return hidden, self.world.heads[-1] @ carry, carry


def forward(net: Any, features: np.ndarray, actions: np.ndarray) -> list:
    """The prefixes after each step."""
    hidden, carry, found = net.world.encode @ features, np.zeros(5), []
    for k, action in enumerate(actions):
        hidden = net.world.move[action] @ hidden
        carry = net.keeps @ (np.zeros(5) if k % 3 == 0 else carry) + hidden
        found.append(net.world.heads[-1] @ carry)
    return found


@pytest.mark.parametrize("num_players", [1, 2])
def test_the_loss_is_that_of_sums_which_begin_anew(num_players):
    """Longer unrolls than sums; episodes end and are cut off inside."""
    agent = agent_of(network=LinearPrefix, num_players=num_players)
    state, batch = agent.init(key=jr.key(0)), windows(1, num_players=num_players)
    net = jax.tree.map(lambda x: np.asarray(x, np.float64), bind(LinearPrefix, state.params))
    assert isinstance(net, PrefixNetwork) and net.prefix_steps < STEPS
    _, metrics, _ = jax.jit(lambda s, b: agent.update(s, b, key=jr.key(2)))(state, batch)
    learned = agent.unrolled(batch.items, batch.items.record.value, key=jr.key(2))
    rows, total, count, ends = jax.tree.map(np.asarray, batch.items), 0.0, 0.0, 0
    for b in np.flatnonzero(~rows.last[:, 0]):
        weight = float(batch.weights[b, 0])
        features = np.asarray(rows.obs.features[b, 0], np.float64)
        found = forward(net, features, np.asarray(learned.action[b]))
        wanted = 0.0
        for k, target in enumerate(by_hand(rows, b)[1:]):
            if target["reward"] is None:
                break
            ends += target["value"] == 0 and k % 3 > 0
            before = 0.0 if k % 3 == 0 else wanted
            wanted = target["reward"] + (before if num_players == 1 else -before)
            total += weight * 0.5 * (found[k] - wanted) ** 2 / STEPS
        count += weight
    assert float(metrics["reward_loss"]) == pytest.approx(total / count, rel=1e-4) and ends > 3


def test_a_sum_that_is_longer_than_the_unroll_is_refused():
    agent = agent_of(network=LinearPrefix, num_unroll=2)
    with pytest.raises(
        ValueError, match="sums 3 rewards, of which the last would never be learned"
    ):
        agent.actor(agent.init(key=jr.key(0)), explore=True)


def test_the_gradient_into_the_memory_is_not_halved():
    """As that into a hidden state is: of the first of two steps of descent on rewards alone."""
    network = ft.partial(LinearPrefix, 2)
    agent = agent_of(network=network, num_unroll=2, value_weight=0.0)
    batch = jax.tree.map(lambda x: x[:1], windows(1))
    # Policies that equal the targets have no gradient.
    uniform = jnp.full_like(batch.items.record.weights, 1 / ACTIONS)
    actions = jnp.arange(ROWS, dtype=jnp.int32)[None] % ACTIONS
    batch = eqx.tree_at(
        lambda b: (b.items.record.weights, b.items.action, b.items.last, b.items.discount),
        batch,
        (uniform, actions, jnp.zeros((1, ROWS), bool), jnp.ones((1, ROWS))),
    )
    state = agent.init(key=jr.key(0))
    heads = jnp.zeros_like(state.params.world.heads).at[-1].set(state.params.world.heads[-1])
    state = eqx.tree_at(lambda s: s.params.world.heads, state, heads)
    after, _, _ = jax.jit(lambda s, b: agent.update(s, b, key=jr.key(2)))(state, batch)
    net = jax.tree.map(lambda x: np.asarray(x, np.float64), bind(network, state.params))
    features, reward = (np.asarray(x[0]) for x in (batch.items.obs.features, batch.items.reward))
    hidden, head = net.world.encode @ features[0], net.world.heads[-1]
    errors = forward(net, features[0], np.array([0, 1])) - np.cumsum(reward[:2])
    reaches = errors[0] * head + errors[1] * (net.keeps + 0.5 * net.world.move[1]).T @ head
    wanted = 1.3 / 2 * np.outer(reaches, hidden)
    found = (state.params.world.move[0] - after.params.world.move[0]) / 0.1
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4)


class Sums(eqx.Module):
    """A table of the ring that says sums of rewards, for the player who moved. It is wrong where
    its memory is not cleared in time."""

    table: Table
    num_players: int = 1
    prefix_steps: int = 2

    def represent(self, features):
        return self.table.represent(features)

    def predict(self, hidden):
        return self.table.predict(hidden)

    def init(self):
        return jnp.zeros(()), jnp.zeros((), jnp.int32)

    def step(self, hidden, action, carry):
        total, steps = carry
        hidden, reward = self.table.step(hidden, action)
        total = jnp.where(steps < self.prefix_steps, total, 1e3)
        total = reward + (total if self.num_players == 1 else -total)
        return hidden, total, (total, steps + 1)


@pytest.mark.parametrize("num_players", [1, 2])
@pytest.mark.parametrize("search", ["muzero", "gumbel"])
def test_sums_are_planned_over_as_rewards_are(search, num_players):
    """Visit by visit, in trees that are deeper than the sums."""
    table = Table(jr.normal(jr.key(8), (7, ACTIONS + 1)))
    planner = getattr(TreeSearch, search)(48)
    obs = jax.vmap(RING.observe)(jnp.arange(7, dtype=jnp.int32))

    @eqx.filter_jit
    def plan(network):
        model = LatentModel(network, GAMMA, num_players)
        state = planner.init(model, obs)
        return planner.plan(model, obs, state, key=jr.split(jr.key(9), 7), obs=obs)[0]

    wanted, found = plan(table), plan(Sums(table, num_players))
    assert np.min(wanted.stats["depth"]) > 2
    np.testing.assert_array_equal(wanted.visits, found.visits)
    np.testing.assert_allclose(wanted.value, found.value, rtol=1e-4, atol=1e-5)
    without = plan(Sums(table, num_players, prefix_steps=1))
    np.testing.assert_array_equal(wanted.visits, without.visits)


@pytest.mark.parametrize("num_players", [1, 2])
@pytest.mark.parametrize("kind", [LatentModel, LatentPolicyModel])
def test_what_is_imagined_are_rewards(kind, num_players):
    table = Table(jr.normal(jr.key(8), (7, ACTIONS + 1)))
    obs = jax.vmap(RING.observe)(jnp.arange(7, dtype=jnp.int32))
    actions = jr.randint(jr.key(1), (7, 7), 0, ACTIONS, jnp.int32)
    found = [
        eqx.filter_jit(kind(network, GAMMA, num_players).imagine)(
            obs, actions, key=jr.split(jr.key(2), 7)
        )
        for network in (table, Sums(table, num_players))
    ]
    for wanted, other in zip(*found, strict=True):
        np.testing.assert_allclose(wanted, other, rtol=1e-4, atol=1e-5)


def dated(batch: Any, updates: Any) -> Any:
    where = lambda batch: batch.items.record.updates
    return eqx.tree_at(where, batch, updates, is_leaf=lambda x: x is None)


def test_older_rows_have_shorter_returns():
    """Down to one step; the age is that after the updates that were made."""
    agent, batch = agent_of(correction=10), windows(3)
    made = np.random.default_rng(0).integers(0, 61, batch.items.last.shape)
    batch = dated(batch, jnp.asarray(made, jnp.int32))
    horizons = np.maximum(1, N - (60 - made) // 10)
    assert set(horizons.flat) == {1, 2, 3}
    state = dataclasses.replace(agent.init(key=jr.key(0)), updates=jnp.int32(60))
    _, _, priorities = jax.jit(lambda s, b: agent.update(s, b, key=jr.key(2)))(state, batch)
    learned = agent.unrolled(
        batch.items, batch.items.record.value, updates=state.updates, key=jr.key(2)
    )
    rows = jax.tree.map(np.asarray, batch.items)
    for b in np.flatnonzero(~rows.last[:, 0]):
        wanted = by_hand(rows, b, horizons)
        for k, target in enumerate(wanted):
            if target["value"] is not None:
                np.testing.assert_allclose(
                    learned.value[b, k], target["value"], rtol=1e-4, atol=1e-6
                )
        first = abs(rows.record.value[b, 0] - wanted[0]["value"])
        assert priorities[b] == pytest.approx(first, rel=1e-4, abs=1e-5)


def test_rows_say_with_how_many_updates_they_were_made():
    """And still do when they are planned anew."""
    agent = agent_of(correction=10, explorer=TreeSearch.gumbel(2))
    state = dataclasses.replace(agent.init(key=jr.key(0)), updates=jnp.int32(42))
    obs = Observation(jnp.ones((3, 4)), jnp.ones((3, ACTIONS), bool))

    @jax.jit
    def play(state):
        actor = agent.actor(state, explore=True)
        return actor.act(obs, obs, actor.init(obs), key=jr.split(jr.key(1), 3))[1]

    np.testing.assert_array_equal(play(state).updates, [42, 42, 42])
    batch = dated(windows(3, batch=3), jnp.arange(3 * ROWS, dtype=jnp.int32).reshape(3, ROWS))
    anew = jax.jit(lambda rows, keys: agent.reanalyser(state)(rows, key=keys))
    with jax.debug_key_reuse(False):
        rows = anew(batch.items, jr.split(jr.key(1), 3))
    np.testing.assert_array_equal(rows.record.updates, batch.items.record.updates)
    assert not np.allclose(rows.record.value, batch.items.record.value)


def test_what_does_not_fit_is_refused():
    agent, batch = agent_of(correction=10), windows(3)
    with pytest.raises(ValueError, match="correction=10.*do not say how old they are"):
        jax.eval_shape(lambda b: agent.update(agent.init(key=jr.key(0)), b, key=jr.key(1)), batch)
    with pytest.raises(ValueError, match="no returns to shorten"):
        agent_of(n_steps=0, correction=10)
    with pytest.raises(ValueError, match="correction=-1"):
        agent_of(correction=-1)


class PrefixPerceptrons(eqx.Module):
    """Perceptrons with a memory of the hidden states for the sums of rewards."""

    world: Perceptrons
    keeps: eqx.nn.GRUCell
    total: eqx.nn.Linear
    prefix_steps: int = eqx.field(static=True, default=2)

    def __init__(self, *, key):
        keys = jr.split(key, 3)
        self.world = Perceptrons(key=keys[0])
        self.keeps = eqx.nn.GRUCell(16, 16, key=keys[1])
        self.total = eqx.nn.Linear(16, 1, key=keys[2])

    def represent(self, features):
        return self.world.represent(features)

    def predict(self, hidden):
        return self.world.predict(hidden)

    def init(self):
        return jnp.zeros(16)

    def step(self, hidden, action, carry):
        hidden, _ = self.world.step(hidden, action)
        carry = self.keeps(hidden, carry)
        return hidden, self.total(carry)[0], carry


def both(loop: Loop) -> Loop:
    agent = dataclasses.replace(loop.agent, network=PrefixPerceptrons, correction=400)
    return dataclasses.replace(loop, agent=agent)


def test_an_update_with_both_waits_for_the_other_devices_twice(collectives, sums_in_turn):
    loop = both(ring_loop(8))
    check_update(loop, template(loop), collectives, sums_in_turn)


@pytest.mark.slow
def test_it_learns_the_ring_with_both():
    loop = both(ring_loop(1))
    state, metrics = fill(loop, init(loop, key=jr.key(0))), {}
    for _ in range(200):
        state, metrics = step(loop, state)
    assert metrics["reward_loss"] < 0.02
    assert regret(loop, state) < 0.3
