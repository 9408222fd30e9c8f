"""Minibatches of what was just collected."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import scipy.stats

from zero_memory import Latest

from .helpers import add, assert_windows, init, method, sample, stream


ENVS = 4
epoch = method("epoch")


@pytest.fixture(scope="module")
def buffer():
    # Windows of 4 rows that share their ends: rows 0-3, 3-6 and 6-9.
    return Latest(capacity=10, num_envs=ENVS, batch_size=6, length=4, num_shards=2)


def _all(first):
    return {(env, first + row) for env in range(ENVS) for row in (0, 3, 6)}


def test_an_epoch_is_every_window_of_the_latest_rows_once(buffer):
    state, orders = init(buffer, stream(0, 0, ENVS)), set()
    for first in (0, 10, 19, 29):  # 19: the row that the last block ended with stays
        size = 9 if first == 10 else 10
        state = add(buffer, state, stream(first, size, ENVS))
        assert buffer.ready(state)
        batch = jax.device_get(epoch(buffer, state, key=jr.key(first)))
        assert batch.weights.shape == (2, 6, 4) and (batch.weights == 1).all()
        env, row = assert_windows(buffer, batch)
        oldest = first + size - 10
        windows = list(zip(env.tolist(), row.tolist(), strict=True))
        assert len(windows) == 12 and set(windows) == _all(oldest)
        # Each shard has its own half of every minibatch.
        assert (env.reshape(2, 2, 3) // 2 == np.arange(2)[None, :, None]).all()
        orders.add(tuple(sorted(windows[:6])[i][1] - oldest for i in range(6)) + tuple(env[:6]))
    assert len(orders) > 1


def test_a_minibatch_is_different_windows_all_equally_likely(buffer):
    state = add(buffer, init(buffer, stream(0, 0, ENVS)), stream(0, 10, ENVS))
    batches = jax.jit(jax.vmap(lambda key: buffer.sample(state, key=key)))(
        jr.split(jr.key(0), 2000)
    )
    starts = np.asarray(batches.indices)[:, :, 0]
    assert all(len(set(draw)) == 6 for draw in starts.tolist())
    assert_windows(buffer, batches)
    drawn, counts = np.unique(starts, return_counts=True)
    assert len(drawn) == 12
    # 3 of 6 without replacement in each shard: the statistic shrinks by (6 - 3) / (6 - 1).
    statistic = scipy.stats.chisquare(counts).statistic * 5 / 3
    assert scipy.stats.chi2.sf(statistic, df=10) > 1e-3


def test_minibatches_deal_every_epoch_anew(buffer):
    state = add(buffer, init(buffer, stream(0, 0, ENVS)), stream(0, 10, ENVS))
    draw = jax.jit(jax.vmap(lambda n: buffer.minibatch(state, n, key=jr.key(0))))
    assert buffer.num_minibatches == 2
    env, row = assert_windows(buffer, draw(np.arange(8, dtype=np.int32)))
    windows = np.asarray(env * 10 + row).reshape(4, 12)
    whole = sorted(10 * env + row for env, row in _all(0))
    assert all(sorted(epoch) == whole for epoch in windows.tolist())
    assert len({tuple(epoch) for epoch in windows.tolist()}) > 2


def test_until_it_is_full_the_windows_that_are_there_come_once(buffer):
    empty = init(buffer, stream(0, 0, ENVS))
    state = add(buffer, empty, stream(0, 5, ENVS))
    assert not buffer.ready(state)
    for draw, rows in ((sample, 6), (epoch, 12)):
        batch = draw(buffer, state, key=jr.key(0))
        counts = np.asarray(batch.weights).reshape(rows, 4)
        assert (counts == counts[:, :1]).all() and counts[:, 0].sum() == 4
        names = np.asarray(batch.items.name).reshape(rows, 4)[counts[:, 0] == 1]
        assert sorted(names.tolist()) == [[1000 * e + t for t in range(4)] for e in range(ENVS)]
        assert not np.asarray(draw(buffer, empty, key=jr.key(0)).weights).any()


@pytest.mark.parametrize("length, period, starts", [(1, None, 6), (2, 2, 3), (6, None, 1)])
def test_windows_may_be_rows_pairs_or_whole_sequences(length, period, starts):
    buffer = Latest(capacity=6, num_envs=1, batch_size=1, length=length, period=period)
    state = add(buffer, init(buffer, stream(0, 0, 1)), stream(0, 6, 1))
    batch = epoch(buffer, state, key=jr.key(0))
    _, first = assert_windows(buffer, batch)
    assert sorted(first.tolist()) == list(range(0, 6, 6 // starts))
    assert jnp.shape(batch.weights) == (starts, 1, length)
