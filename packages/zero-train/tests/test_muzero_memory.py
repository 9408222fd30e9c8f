"""MuZero with memory: what is stored, what windows are read with, and that it recalls."""

import dataclasses
import functools as ft
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from jaxtyping import Array

from zero_envs import Observation
from zero_memory import Batch, PrioritisedTrajectoryBuffer
from zero_search import DirichletNoise, TreeSearch
from zero_train import (
    data_mesh,
    fill,
    init,
    LatentModel,
    Loop,
    MuZero,
    PlanningActor,
    RememberingPlanner,
    rollout,
    step,
)

from .test_muzero import ACTIONS, N, ROWS, STEPS, windows
from .test_ppo_memory import Recall


SIZE, BEFORE = 8, 3


class Cell(eqx.Module):
    """A recurrent cell, whose result is its new memory."""

    cell: eqx.nn.GRUCell

    def init(self):
        return jnp.full(SIZE, 0.1)

    def __call__(self, features, memory):
        memory = self.cell(features, memory)
        return memory, memory

    def scan(self, features, resets, memory):
        def body(memory, row):
            memory = self.cell(row[0], jnp.where(row[1], self.init(), memory))
            return memory, memory

        memory, said = jax.lax.scan(body, memory, (features, resets))
        return said, memory


class Told(eqx.Module):
    """A model of the pair of features and what a memory says of them."""

    encode: eqx.nn.Linear
    move: eqx.nn.MLP
    heads: eqx.nn.MLP
    actions: int = eqx.field(static=True)

    def __init__(self, actions: int = 2, *, key: Array):
        keys = jr.split(key, 3)
        self.encode = eqx.nn.Linear(4 + SIZE, 16, key=keys[0])
        self.move = eqx.nn.MLP(16 + actions, 17, 32, 1, key=keys[1])
        self.heads = eqx.nn.MLP(16, actions + 1, 32, 1, key=keys[2])
        self.actions = actions

    def represent(self, features):
        return jnp.tanh(self.encode(jnp.concatenate(features)))

    def step(self, hidden, action):
        out = self.move(jnp.concatenate([hidden, jax.nn.one_hot(action, self.actions)]))
        return jnp.tanh(hidden + out[1:]), out[0]

    def predict(self, hidden):
        out = self.heads(hidden)
        return out[:-1], out[-1]


class Recalling(eqx.Module):
    """The same with the memory itself, or with none, which says nothing."""

    told: Told
    memory: Cell | None

    def __init__(self, actions: int = 2, *, remembers: bool = True, key: Array):
        self.told = Told(actions, key=key)
        cell = eqx.nn.GRUCell(4, SIZE, key=jr.fold_in(key, 1))
        self.memory = Cell(cell) if remembers else None

    def represent(self, features):
        return self.told.represent(features if self.memory else (features, jnp.zeros(SIZE)))

    def step(self, hidden, action):
        return self.told.step(hidden, action)

    def predict(self, hidden):
        return self.told.predict(hidden)


def agent_of(network: Any = Recalling, **changes: Any) -> MuZero:
    fields: dict[str, Any] = dict(
        network=network,
        optimiser=optax.adam(5e-3),
        explorer=TreeSearch.gumbel(8),
        planner=TreeSearch.gumbel(8, gumbel_scale=0.0),
        gamma=1.0,
        num_unroll=2,
        n_steps=3,
        bootstrap="network",
        memory_steps=BEFORE,
    )
    return MuZero(**{**fields, **changes})


def remember(cell: Any, features: np.ndarray, memory: np.ndarray) -> np.ndarray:
    """A step of the cell in NumPy."""
    cell = jax.tree.map(np.asarray, cell)
    given = np.split(cell.weight_ih @ features + cell.bias, 3)
    held = np.split(cell.weight_hh @ memory, 3)
    reset, keep = (1 / (1 + np.exp(-given[i] - held[i])) for i in (0, 1))
    new = np.tanh(given[2] + reset * (held[2] + cell.bias_n))
    return new + keep * (memory - new)


def remembering_windows(seed: int) -> Batch:
    """Random windows, with random memories in them."""
    batch = windows(seed)
    memory = jr.normal(jr.key(seed), (*batch.items.last.shape, SIZE))
    record = dataclasses.replace(batch.items.record, memory=memory)
    return dataclasses.replace(batch, items=dataclasses.replace(batch.items, record=record))


def test_records_hold_the_memory_of_the_episode():
    """That before the row was observed, which is empty in the first row of an episode, and in a
    final one."""
    agent = agent_of(explorer=TreeSearch.gumbel(2))
    state = agent.init(key=jr.key(0))
    actor = agent.actor(state, explore=True)
    rows = rollout(Recall(), actor, num_steps=11, num_envs=4, key=jr.key(1))
    cell, empty = state.params.memory.cell, np.full(SIZE, 0.1)
    assert rows.last.sum() == 8
    for b in range(4):
        memory = empty
        for t in range(11):
            if rows.last[b, t] or (t and rows.last[b, t - 1]):
                memory = empty
            np.testing.assert_allclose(rows.record.memory[b, t], memory, rtol=1e-4, atol=1e-6)
            memory = remember(cell, np.asarray(rows.obs.features[b, t]), memory)


def test_windows_teach_what_their_later_rows_do_to_a_network_that_is_told():
    """The memory is read from that of the first row, and begins anew after an end: also where
    values are bootstrapped from."""
    fields: dict[str, Any] = dict(num_unroll=STEPS, n_steps=N, optimiser=optax.sgd(0.1))
    agent = agent_of(ft.partial(Recalling, ACTIONS), **fields)
    told = agent_of(ft.partial(Told, ACTIONS), memory_steps=0, **fields)
    state, batch = agent.init(key=jr.key(0)), remembering_windows(1)
    _, metrics, priorities = jax.jit(lambda b: agent.update(state, b, key=jr.key(2)))(batch)
    rows = batch.items
    said = np.zeros((*rows.last.shape, SIZE))
    for b in range(len(said)):
        memory = np.asarray(rows.record.memory[b, 0])
        for t in range(ROWS):
            if t and rows.last[b, t - 1]:
                memory = np.full(SIZE, 0.1)
            memory = remember(state.params.memory.cell, np.asarray(rows.obs.features[b, t]), memory)
            said[b, t] = memory
    pairs = Observation((rows.obs.features, jnp.asarray(said, jnp.float32)), rows.obs.legal)
    later = dataclasses.replace(batch, items=dataclasses.replace(rows, obs=pairs))
    later = jax.tree.map(lambda x: x[:, BEFORE:], later)
    assert rows.last[:, :BEFORE].any() and rows.last[:, BEFORE].any()
    start = told.init(key=jr.key(0))
    _, wanted, weights = jax.jit(lambda b: told.update(start, b, key=jr.key(2)))(later)
    np.testing.assert_allclose(priorities, weights, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(priorities == 0, rows.last[:, BEFORE])
    for name in wanted.keys() - {"gradient_norm"}:
        assert float(metrics[name]) == pytest.approx(float(wanted[name]), rel=1e-4), name


def test_the_gradient_goes_through_the_rows_before():
    """To those of the same episode, and from the first to the memory that is stored with it."""
    agent = agent_of(ft.partial(Recalling, ACTIONS), bootstrap="plan", n_steps=N)
    state, batch = agent.init(key=jr.key(0)), remembering_windows(2)

    @jax.jit
    def gradients(last):
        def loss(features, memory):
            found = lambda rows: (rows.obs.features, rows.record.memory, rows.last)
            ends = jnp.broadcast_to(last, batch.items.last.shape)
            rows = eqx.tree_at(found, batch.items, (features, memory, ends))
            return agent.update(state, Batch(rows, batch.weights, batch.indices), key=jr.key(2))[1][
                "loss"
            ]

        found = jax.grad(loss, (0, 1))(batch.items.obs.features, batch.items.record.memory)
        return jax.tree.map(lambda x: jnp.abs(x).max(axis=(0, 2)), found)

    for end, first in ((ROWS, 0), (1, 2)):
        features, memory = gradients(jnp.arange(ROWS) == end)
        assert np.all(features[first : BEFORE + 1] > 1e-5) and not features[:first].any()
        assert (memory[0] > 1e-5) == (first == 0) and not memory[1:].any()


def planned(actor: Any, memory: Array, seeds: Array) -> Any:
    """The records and what is remembered after them, in the middle of episodes."""
    rows = memory.shape[0]
    obs = Observation(jnp.ones((rows, 4)), jnp.ones((rows, 2), bool))
    carry = actor.init(obs).holding(memory)
    act = eqx.filter_jit(lambda actor, keys: actor.act(obs, obs, carry, key=keys))
    _, record, carry = act(actor, jax.vmap(jr.key)(seeds))
    return record, carry


def test_a_plan_depends_on_the_memory_of_its_row_alone():
    agent = agent_of()
    actor = agent.actor(agent.init(key=jr.key(0)), explore=True)
    memory, order = 3 * jr.normal(jr.key(1), (6, SIZE)), np.array([4, 0, 5, 3, 1, 2])
    seeds = jnp.zeros(6, jnp.int32)
    record, carry = planned(actor, memory, seeds)
    assert len(np.unique(record.value)) == 6
    turned = planned(actor, memory[order], seeds)
    for one, two in zip(*map(jax.tree.leaves, ((record, carry), turned)), strict=True):
        np.testing.assert_allclose(one[order], two, rtol=1e-4, atol=1e-6)


def test_without_a_planner_the_network_alone_plays():
    agent = agent_of()
    player: Any = agent.actor(agent.init(key=jr.key(0)), explore=False)
    alone = dataclasses.replace(player, planner=RememberingPlanner(None))
    memory = 3 * jr.normal(jr.key(1), (6, SIZE))
    record, carry = planned(alone, memory, jnp.zeros(6, jnp.int32))
    logits, value = jax.vmap(
        lambda memory: player.model.evaluate(Observation((jnp.ones(4), memory), jnp.ones(2, bool)))
    )(memory)
    np.testing.assert_allclose(record.weights, jax.nn.softmax(logits), rtol=1e-4)
    np.testing.assert_allclose(record.value, value, rtol=1e-4)
    _, searched = planned(player, memory, jnp.zeros(6, jnp.int32))
    np.testing.assert_allclose(carry.memory, searched.memory, rtol=1e-5)
    assert alone.planner.num_simulations == 0 and player.planner.num_simulations == 8


def test_positions_are_planned_anew_with_the_memory_that_is_stored():
    """Those of the unroll, and not the rows before it."""
    agent = agent_of(ft.partial(Recalling, ACTIONS))
    state, batch = agent.init(key=jr.key(0)), remembering_windows(3)
    keys = jr.split(jr.key(1), len(batch.items.last))
    anew = eqx.filter_jit(agent.reanalyser(state))
    with jax.debug_key_reuse(False):
        record = anew(batch.items, key=keys).record
        own = jax.vmap(lambda key: jr.split(key, 3)[1])(keys)
    old, end = batch.items.record, BEFORE + 3
    np.testing.assert_array_equal(record.memory, old.memory)
    for part in (slice(BEFORE), slice(end, None)):
        np.testing.assert_array_equal(record.value[:, part], old.value[:, part])
    obs = jax.tree.map(lambda x: x[:, BEFORE + 1], batch.items.obs)
    actor: Any = agent.actor(state, explore=True)
    memory = old.memory[:, BEFORE + 1]
    carry = actor.init(obs).holding(memory)
    act = eqx.filter_jit(lambda actor: actor.act(obs, obs, carry, key=own)[1])
    played = act(actor)
    np.testing.assert_allclose(record.value[:, BEFORE + 1], played.value, rtol=1e-4)
    np.testing.assert_allclose(record.weights[:, BEFORE + 1], played.weights, rtol=1e-3, atol=1e-6)


def test_what_does_not_fit_is_refused():
    forgetting = ft.partial(Recalling, remembers=False)
    for said, changes in {
        "memory_steps=0.* Recalling has a `memory`; give at least 1": {"memory_steps": 0},
        "memory_steps=3.* Recalling has no `memory`; give at least 1": {"network": forgetting},
        "num_players=2.* Recalling has a `memory`, but": {"num_players": 2},
    }.items():
        agent = agent_of(**changes)
        with pytest.raises(ValueError, match=said):
            agent.actor(agent.init(key=jr.key(0)), explore=True)
    with pytest.raises(ValueError, match="memory_steps=-1.*at least 0"):
        agent_of(memory_steps=-1)
    agent = agent_of(ft.partial(Recalling, ACTIONS), memory_steps=8)
    state = agent.init(key=jr.key(0))
    with pytest.raises(ValueError, match="windows of 10 rows; .* length of at least 11"):
        jax.eval_shape(lambda: agent.update(state, remembering_windows(4), key=jr.key(0)))
    model = LatentModel(Recalling(remembers=False, key=jr.key(0)))
    obs = Observation(jnp.ones((2, 4)), jnp.ones((2, 2), bool))
    actor = PlanningActor(RememberingPlanner(TreeSearch.gumbel(2)), model)
    with pytest.raises(ValueError, match="the network Recalling has no `memory`"):
        actor.init(obs)


def recall_loop(agent: MuZero, *, devices: int = 1, **changes: Any) -> Loop:
    length = agent.memory_steps + 6
    buffer = PrioritisedTrajectoryBuffer(
        capacity=64, num_envs=32, batch_size=64, length=length, alpha=0.0, num_shards=8
    )
    sizes: dict[str, Any] = dict(unroll_length=8, num_updates=8, mesh=data_mesh(devices))
    return Loop(env=Recall(), agent=agent, buffer=buffer, **{**sizes, **changes})


@pytest.mark.slow
def test_numbers_do_not_depend_on_how_many_devices_there_are():
    found = []
    for devices in (1, 8):
        agent = agent_of(explorer=TreeSearch.gumbel(2))
        loop = recall_loop(agent, devices=devices, num_updates=1, reanalyse=0.25)
        _, metrics = step(loop, fill(loop, init(loop, key=jr.key(0))))
        found.append(metrics)
    for name, metric in found[0].items():
        assert float(metric) == pytest.approx(float(found[1][name]), rel=1e-4, abs=1e-6), name


@pytest.mark.slow
@pytest.mark.parametrize("remembers", [True, False])
def test_only_memory_recalls(remembers):
    # Plays at random as well: a player that no longer tries one of the moves learns nothing of it.
    explorer = TreeSearch.muzero(8, noise=DirichletNoise(0.5), temperature=1.0)
    network = ft.partial(Recalling, remembers=remembers)
    agent = agent_of(network, explorer=explorer, memory_steps=BEFORE if remembers else 0)
    loop = recall_loop(agent)
    state = fill(loop, init(loop, key=jr.key(0)))
    for _ in range(40):
        state, _ = step(loop, state)
    player = agent.actor(state.agent, explore=False)
    # Two episodes in eight rows.
    rows = rollout(Recall(), player, num_steps=8, num_envs=64, key=jr.key(1))
    returned = float(rows.reward.sum()) / 128
    assert returned > 0.9 if remembers else returned < 0.7
