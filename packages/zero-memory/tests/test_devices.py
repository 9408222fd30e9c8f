"""The same contents and the same draws on one device and on eight, in place and apart."""

import functools as ft

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

from zero_memory import EpisodeBuffer

from .helpers import add, assert_in_place, COLLECTIVES, init, QUICK, rows, sample


ENVS, CAPACITY, TIME = 16, 30, 24


@pytest.fixture(scope="module")
def buffer():
    return EpisodeBuffer(capacity=CAPACITY, num_envs=ENVS, batch_size=24, num_shards=8)


@pytest.fixture(scope="module")
def items():
    random = np.random.default_rng(0)
    discount = random.choice([-1.0, 0.0, 1.0], (ENVS, TIME), p=[0.6, 0.2, 0.2])
    # The first shard has too few entries for its part of the batch.
    discount[:2] = -1.0
    discount[0, 1] = 0.0
    last = np.roll(discount == 0, 1, axis=1)
    reward = random.integers(-2, 3, (ENVS, TIME))
    return rows(np.arange(ENVS * TIME).reshape(ENVS, TIME), reward, discount, last)


@pytest.fixture(scope="module")
def lone(buffer, items):
    """Contents and draw on one device."""
    state = add(buffer, init(buffer, rows(0)), items)
    return state, sample(buffer, state, key=jr.key(5))


def test_many_devices_draw_the_rows_that_one_draws(buffer, items, lone):
    """Two shards on each of four."""
    mesh = Mesh(np.array(jax.devices()[:4]), ("data",))
    split = ft.partial(jax.shard_map, mesh=mesh, out_specs=P("data"), check_vma=False)
    fill = jax.jit(split(buffer.add, in_specs=(P("data"), P("data"))), donate_argnums=0)
    draw = jax.jit(split(lambda s, key: buffer.sample(s, key=key), in_specs=(P("data"), P())))

    data = NamedSharding(mesh, P("data"))
    state = jax.device_put(init(buffer, rows(0)), data)
    spread = jax.device_put(items, data)
    fill = fill.lower(state, spread).compile(QUICK)
    draw = draw.lower(state, jr.key(5)).compile(QUICK)
    for compiled in (fill, draw):
        assert not COLLECTIVES.findall(compiled.as_text() or "all-reduce")
    state = fill(state, spread)
    jax.tree.map(np.testing.assert_array_equal, lone, (state, draw(state, jr.key(5))))
    assert not buffer.ready(state)

    one = lone[1]
    env = np.asarray(one.indices) // CAPACITY
    assert (env // 2).tolist() == np.repeat(np.arange(8), 3).tolist()
    assert one.weights.tolist() == [1.0, 1.0, 0.0] + [1.0] * 21


def test_shards_draw_apart_from_each_other():
    # Equal shards with one key would draw the same ranks.
    buffer = EpisodeBuffer(capacity=20, num_envs=8, batch_size=32, num_shards=8)
    discount = np.where(np.arange(20) == 19, 0.0, -1.0) * np.ones((8, 1))
    state = add(buffer, init(buffer, rows(0)), rows(np.zeros((8, 20)), 0.0, discount))
    slots = np.asarray(sample(buffer, state, key=jr.key(0)).indices).reshape(8, 4) % 20
    assert len({tuple(draw) for draw in slots.tolist()}) == 8


def test_a_slice_has_to_hold_whole_shards(buffer):
    state = jax.device_get(init(buffer, rows(0)))
    half = jax.tree.map(lambda x: jnp.asarray(x[: x.shape[0] // 2]), state)
    assert buffer.ready(half).shape == ()
    odd = jax.tree.map(lambda x: jnp.asarray(x[:3]), state)
    with pytest.raises(ValueError, match=r"3 environments and 3 shards.*num_shards=8"):
        buffer.sample(odd, key=jr.key(0))


def test_a_donated_state_is_changed_in_place():
    buffer = EpisodeBuffer(capacity=500, num_envs=8, batch_size=8)
    state = init(buffer, rows(0))
    window = rows(np.zeros((8, 4)))
    mask = jnp.zeros(8, bool)
    for method, *given in (
        (buffer.add, window),
        (buffer.add, rows(np.zeros((8, 4, 3)))),
        (buffer.add_experience, rows(np.zeros(8))),
        (buffer.assign_rewards, jnp.zeros((8, 2)), mask),
        (buffer.truncate, mask),
        (lambda state, items: _add_and_sample(buffer, state, items), window),
    ):
        assert_in_place(method, state, *given)


def _add_and_sample(buffer, state, items):
    """Part of a training step."""
    state = buffer.add(state, items)
    return state, buffer.sample(state, key=jr.key(0))
