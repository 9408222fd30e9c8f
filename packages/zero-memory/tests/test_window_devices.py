"""The buffers of windows on one device and on eight: the same draws, in place and apart."""

import functools as ft

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

from zero_memory import Latest, PrioritisedTrajectoryBuffer, TrajectoryBuffer

from .helpers import add, assert_in_place, assert_windows, COLLECTIVES, init, method, QUICK, stream


ENVS, SIZES = 16, {"capacity": 12, "num_envs": 16, "batch_size": 16, "length": 4, "num_shards": 8}
BUFFERS = [
    TrajectoryBuffer(**SIZES),
    PrioritisedTrajectoryBuffer(**SIZES, alpha=1.0),
    Latest(**SIZES, period=4),
]


def _turn(buffer, state, items, key):
    """Adds, samples and, where it applies, updates priorities: the state and the batch."""
    state = buffer.add(state, items)
    batch = buffer.sample(state, key=key)
    if isinstance(buffer, PrioritisedTrajectoryBuffer):
        new = (batch.items.name[:, 0] % 7 + 1).astype(jnp.float32)
        state = buffer.update_priorities(state, batch.indices, new)
    return state, batch


def _run(turn, state, place):
    """Three turns, in which rings wrap."""
    batches = []
    for i in range(3):
        items = jax.device_put(stream(5 * i, 5, ENVS), place)
        state, batch = turn(state, items, jr.key(i))
        batches.append(batch)
    return jax.device_get((state, batches))


@pytest.mark.parametrize("buffer", BUFFERS, ids=lambda buffer: type(buffer).__name__)
def test_eight_devices_draw_the_rows_that_one_draws(buffer):
    turn = ft.partial(_turn, buffer)
    empty = init(buffer, stream(0, 0, ENVS))
    lone = _run(jax.jit(turn, compiler_options=QUICK), empty, None)

    mesh = Mesh(np.array(jax.devices()), ("data",))
    data = NamedSharding(mesh, P("data"))
    specs = (P("data"), P("data"), P())
    split = jax.shard_map(turn, mesh=mesh, in_specs=specs, out_specs=P("data"), check_vma=False)
    state = jax.device_put(empty, data)
    jitted = jax.jit(split, donate_argnums=0)
    compiled = jitted.lower(state, jax.device_put(stream(0, 5, ENVS), data), jr.key(0))
    compiled = compiled.compile(QUICK)
    assert not COLLECTIVES.findall(compiled.as_text() or "all-reduce")
    jax.tree.map(np.testing.assert_array_equal, lone, _run(compiled, state, data))

    draws = []
    for batch in lone[1]:
        env, start = assert_windows(buffer, batch)
        assert (env // 2 == np.repeat(np.arange(8), 2)).all()
        draws.append(np.stack([env % 2, start], axis=1).reshape(8, -1))
    # Equal shards with one key would draw the same windows.
    assert len({tuple(draw) for draw in np.concatenate(draws, axis=1).tolist()}) > 4


def _part(state, shards):
    """A slice, cut by NumPy: JAX would compile one for each shape."""
    return jax.tree.map(lambda x: jnp.asarray(np.asarray(x)[shards]), state)


@pytest.mark.parametrize("buffer", BUFFERS, ids=lambda buffer: type(buffer).__name__)
def test_a_slice_has_to_hold_whole_shards(buffer):
    half = _part(init(buffer, stream(0, 0, ENVS)), slice(4))
    assert not buffer.ready(half)
    message = r"items\.name is int32\[16, 2\]: give int32\[8, 2\]"
    with pytest.raises(ValueError, match=message):
        buffer.add(half, stream(0, 2, ENVS))


def test_half_of_the_shards_leave_the_priorities_of_the_others_alone():
    buffer = BUFFERS[1]
    state = add(buffer, init(buffer, stream(0, 0, ENVS)), stream(0, 4, ENVS))
    upper = _part(state, slice(4, 8))
    # Environments 0, 7, 8 and 15.
    indices, new = np.array([[0], [84], [96], [180]], np.int32), np.arange(2, 6, dtype=np.float32)
    state = method("update_priorities")(buffer, upper, indices, new)
    leaves = np.asarray(state.priorities.leaves)[:, :, 0, 0]
    assert leaves.reshape(-1).tolist() == [4.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 5.0]


@pytest.mark.parametrize("kind", [TrajectoryBuffer, PrioritisedTrajectoryBuffer, Latest])
def test_a_donated_state_is_changed_in_place(kind):
    # Items as small as priorities, so that a copy of those would show.
    buffer = kind(capacity=20_000, num_envs=4, batch_size=4, length=4, period=4)
    state = buffer.init(jnp.zeros(()))
    items = jnp.zeros((4, 8))

    def turn(state, items, key):
        state = buffer.add(state, items)
        batch = buffer.sample(state, key=key)
        if isinstance(buffer, PrioritisedTrajectoryBuffer):
            state = buffer.update_priorities(state, batch.indices, batch.items[:, 0])
        return state, batch

    assert_in_place(turn, state, items, jr.key(0))
