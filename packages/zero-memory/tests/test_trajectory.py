"""Windows: consecutive in time, all equally likely, whatever was overwritten."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import scipy.stats

from zero_memory import TrajectoryBuffer

from .helpers import add, assert_windows, init, rows, sample, stream


ENVS, CAPACITY, LENGTH = 3, 10, 4


@pytest.mark.parametrize("period", (1, 3, 6))
def test_windows_are_consecutive_in_time_and_none_crosses_the_write_head(period):
    buffer = TrajectoryBuffer(CAPACITY, ENVS, batch_size=64, length=LENGTH, period=period)
    state, total = init(buffer, stream(0, 0, ENVS)), 0
    # Before, at and after each of three turns of the ring; blocks as long as the ring, too.
    for step, size in enumerate((1, 3, 3, 3, 1, 3, 3, 3, 10, 3, 1, 3, 10, 10, 3)):
        state = add(buffer, state, stream(total, size, ENVS))
        total += size
        oldest = max(0, total - CAPACITY)
        starts = set(range(oldest, total - LENGTH + 1, period))
        assert bool(buffer.ready(state)) == (total >= LENGTH)
        batch = jax.device_get(sample(buffer, state, key=jr.key(step)))
        if not starts:
            assert not batch.weights.any()
            continue
        assert (batch.weights == 1).all()
        env, start = assert_windows(buffer, batch)
        assert set(start.tolist()) == starts
        assert set(env.tolist()) == set(range(ENVS))


def test_every_window_is_equally_likely():
    buffer = TrajectoryBuffer(CAPACITY, ENVS, batch_size=8, length=LENGTH)
    state = add(buffer, init(buffer, stream(0, 0, ENVS)), stream(0, 7, ENVS))
    state = add(buffer, state, stream(7, 7, ENVS))
    keys = jr.split(jr.key(0), 1000)
    batches = jax.jit(jax.vmap(lambda key: buffer.sample(state, key=key)))(keys)
    starts, counts = np.unique(np.asarray(batches.indices)[:, :, 0], return_counts=True)
    assert len(starts) == ENVS * (CAPACITY - LENGTH + 1)
    assert scipy.stats.chisquare(counts).pvalue > 1e-3


def test_a_window_as_long_as_the_ring_is_the_whole_ring():
    buffer = TrajectoryBuffer(4, 1, batch_size=2, length=4)
    state = init(buffer, stream(0, 0, 1))
    for row in (0, 3, 6):
        state = add(buffer, state, stream(row, 3, 1))
    batch = sample(buffer, state, key=jr.key(0))
    assert batch.items.name.tolist() == [[5, 6, 7, 8]] * 2


def test_a_buffer_without_a_window_hands_out_items_that_do_no_harm():
    buffer = TrajectoryBuffer(CAPACITY, ENVS, batch_size=2, length=LENGTH)
    example = rows(1000)
    batch = sample(buffer, init(buffer, example), key=jr.key(0))
    assert batch.weights.tolist() == [[0.0] * LENGTH] * 2
    # An item of zeros could be a position without a legal move, and a loss of 0 * nan.
    assert (np.asarray(batch.items.name) == 1000).all()


def test_the_loop_that_carries_the_state_is_traced_once():
    buffer = TrajectoryBuffer(CAPACITY, ENVS, batch_size=2, length=LENGTH)
    traces = 0

    @jax.jit
    def step(state, items):
        nonlocal traces
        traces += 1
        return buffer.add(state, items)

    state = buffer.init(jnp.asarray(0.0))  # weakly typed, which the ring must not take over
    for _ in range(3):
        state = step(state, jnp.zeros((ENVS, 2)))
    assert traces == 1
