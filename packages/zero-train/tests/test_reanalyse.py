"""Reanalysis: which rows are planned anew, with what, and that it learns without new rows."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from zero_memory import TrajectoryBuffer
from zero_search import TreeSearch
from zero_train import (
    AbstractReanalysingAgent,
    collect_half,
    data_mesh,
    draw,
    fill,
    init,
    learn_half,
    Loop,
)

from .test_loop import Tally
from .test_muzero import agent_of, N, regret, RING, ring_loop, ROWS, STEPS, windows


@pytest.mark.parametrize("bootstrap", ["plan", "network"])
def test_reanalysis_with_the_same_keys_and_parameters_changes_nothing(bootstrap):
    """It makes the records that the explorer would: of what an unroll reads, and no others."""
    agent = agent_of(explorer=TreeSearch.gumbel(4), bootstrap=bootstrap)
    state, batch = agent.init(key=jr.key(0)), windows(7, batch=6)
    keys = jr.split(jr.key(1), 6)
    anew = eqx.filter_jit(agent.reanalyser(state))
    with jax.debug_key_reuse(False):
        first = anew(batch.items, key=keys)
        again = anew(first, key=keys)
        part = anew(jax.tree.map(lambda x: x[3:5], batch.items), key=keys[3:5])
        # What is played at the second position of each window.
        obs = jax.tree.map(lambda x: x[:, 1], batch.items.obs)
        actor, positions = agent.actor(state, explore=True), STEPS + 1
        positions += N if bootstrap == "plan" else 0
        own = jax.vmap(lambda key: jr.split(key, positions)[1])(keys)
        act = eqx.filter_jit(lambda actor: actor.act(obs, obs, actor.init(obs), key=own)[1])
        played = act(actor)
    for new, old, same, few, one in zip(
        *map(jax.tree.leaves, (first, batch.items, again, part)),
        jax.tree.leaves(dataclasses.replace(batch.items, record=played)),
        strict=True,
    ):
        np.testing.assert_array_equal(new, same)
        np.testing.assert_allclose(new[3:5], few, rtol=1e-5)
        np.testing.assert_array_equal(new[:, positions:], old[:, positions:])
        if one.shape != old.shape:
            assert not np.allclose(new[:, :positions], old[:, :positions])
            # Two programs, with matrix products of other sizes: 1.25e-5 apart on one machine.
            np.testing.assert_allclose(new[:, 1], one, rtol=1e-4)


class Marks(Tally, AbstractReanalysingAgent):
    """Its reanalysis marks what it was given."""

    def reanalyser(self, state):
        del state
        marked = lambda rows: jnp.ones_like(rows.record.value)
        return lambda rows, key: eqx.tree_at(lambda r: r.record.value, rows, marked(rows))


def test_a_share_of_every_shard_is_planned_anew():
    """The same rows on any number of devices, and all of them equally often."""
    buffer = TrajectoryBuffer(capacity=16, num_envs=16, batch_size=64, length=ROWS, num_shards=8)
    items = jax.tree.map(lambda x: jnp.concatenate([x] * 2, axis=1)[:16, :16], windows(8).items)
    items = eqx.tree_at(lambda rows: rows.record.value, items, jnp.zeros((16, 16)))
    stored = buffer.add(buffer.init(jax.tree.map(lambda x: x[0, 0], items)), items)

    def marked(devices: int) -> np.ndarray:
        sizes: dict[str, Any] = dict(unroll_length=8, reanalyse=0.3, mesh=data_mesh(devices))
        loop = Loop(env=RING, agent=Marks(), buffer=buffer, **sizes)
        run = lambda key: draw(loop, (), stored, key=key).items.record.value
        return np.asarray(jax.jit(lambda keys: jax.lax.map(run, keys))(jr.split(jr.key(0), 300)))

    one, eight = marked(1), marked(8)
    np.testing.assert_array_equal(one, eight)
    assert np.all(one[..., 0] == one[..., -1])
    assert np.all(one[..., 0].reshape(300, 8, 8).sum(-1) == 2)
    np.testing.assert_allclose(one[..., 0].mean(0), 2 / 8, atol=0.1)


def test_what_cannot_plan_anew_is_refused():
    loop = ring_loop(1)
    with pytest.raises(ValueError, match="reanalyse=1.5.*0 to 1"):
        dataclasses.replace(loop, reanalyse=1.5)
    with pytest.raises(ValueError, match="cannot plan stored positions anew; give 0"):
        Loop(env=RING, agent=Tally(), buffer=loop.buffer, unroll_length=8, reanalyse=0.5)


@pytest.mark.slow
def test_it_learns_the_ring_from_the_rows_of_a_beginner():
    """MuZero Unplugged: everything is planned anew, and no row is added."""
    loop = dataclasses.replace(ring_loop(1), reanalyse=1.0)
    # A return would be that of the beginner's moves.
    loop = dataclasses.replace(loop, agent=dataclasses.replace(loop.agent, n_steps=0))
    state = fill(loop, init(loop, key=jr.key(0)))
    for _ in range(4):
        state, _ = collect_half(loop, None, state)
    assert regret(loop, state) > 0.5
    for _ in range(300):
        state = dataclasses.replace(state, step=state.step + 1)
        state, _ = learn_half(loop, None, state)
    assert regret(loop, state) < 0.3
