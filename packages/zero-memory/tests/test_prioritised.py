"""Priorities against a table of all windows in plain Python."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import scipy.stats

from zero_memory import PrioritisedTrajectoryBuffer

from .helpers import add, assert_windows, init, method, sample, stream


ENVS = 2


class Table:
    """What should be the priority of every window: by environment and number of its first row."""

    def __init__(self, buffer):
        self.buffer, self.rows, self.highest = buffer, 0, 1.0
        self.windows: dict[tuple[int, int], float] = {}

    def add(self, size):
        buffer, old = self.buffer, self.windows
        self.rows += size
        first = max(0, self.rows - buffer.capacity)
        self.windows = {
            (env, row): old.get((env, row), self.highest)
            for env in range(ENVS)
            for row in range(first, self.rows - buffer.length + 1)
            if row % buffer.period == 0
        }

    def update(self, env, row, priority):
        for key, value in zip(zip(env, row, strict=True), priority.tolist(), strict=True):
            self.windows[key] = value**self.buffer.alpha
            self.highest = max(self.highest, self.windows[key])

    def leaves(self):
        """The table as the buffer lays it out: by environment and slot."""
        buffer = self.buffer
        leaves = np.zeros((ENVS, buffer.capacity // buffer.period))
        for (env, row), value in self.windows.items():
            leaves[env, row % buffer.capacity // buffer.period] = value
        return leaves


def _buffer(**changes: Any) -> PrioritisedTrajectoryBuffer:
    sizes: dict[str, Any] = {
        "capacity": 12, "num_envs": ENVS, "batch_size": 16, "length": 4
    }  # fmt: skip
    return PrioritisedTrajectoryBuffer(**(sizes | changes))


update = method("update_priorities")


def _filled(buffer, *sizes):
    """The state after blocks of these sizes."""
    state, row = init(buffer, stream(0, 0, buffer.num_envs)), 0
    for size in sizes:
        state, row = add(buffer, state, stream(row, size, buffer.num_envs)), row + size
    return state


def _leaves(state, windows):
    """The priorities of the first windows of each environment."""
    return np.asarray(state.priorities.leaves).reshape(ENVS, -1)[:, :windows].tolist()


# Rings whose blocks of priorities are full or not, windows that overlap, meet, leave gaps, or
# fill the ring; blocks of rows of all sizes in the first, and of two in the others.
@pytest.mark.parametrize(
    "sizes, odds",
    [
        ({}, [0.3, 0.6, 0.1]),
        ({"period": 2}, [0.8, 0.0, 0.2]),
        ({"capacity": 10, "length": 2, "period": 5}, [0.0, 0.9, 0.1]),
        ({"capacity": 7, "length": 7}, [0.0, 0.9, 0.1]),
        ({"capacity": 7, "length": 1}, [0.8, 0.0, 0.2]),
    ],
)
def test_priorities_equal_the_table(sizes, odds):
    buffer = _buffer(**sizes)
    table, state = Table(buffer), _filled(buffer)
    random = np.random.default_rng(0)
    for step in range(40):
        size = int(random.choice((1, 3, buffer.capacity), p=odds))
        state = add(buffer, state, stream(table.rows, size, ENVS))
        table.add(size)
        batch = jax.device_get(sample(buffer, state, key=jr.key(step)))
        assert bool(buffer.ready(state)) == bool(table.windows)
        if table.windows:
            env, row = (x.tolist() for x in assert_windows(buffer, batch))
            assert set(zip(env, row, strict=True)) <= set(table.windows)
            # One value for each window, so that repeats do not matter here.
            values = np.exp(random.normal(scale=2.0, size=(ENVS, 1000)))[env, row]
            state = update(buffer, state, batch.indices, values.astype(np.float32))
            table.update(env, row, values)
        tree = jax.device_get(state.priorities)
        leaves = tree.leaves[0].reshape(ENVS, -1)
        expected = table.leaves()
        np.testing.assert_allclose(leaves[:, : expected.shape[1]], expected, rtol=1e-5)
        assert not leaves[:, expected.shape[1] :].any()
        np.testing.assert_allclose(tree.sums, tree.leaves.sum(axis=3), rtol=1e-6)
        np.testing.assert_allclose(tree.highest, [table.highest], rtol=1e-5)
    assert table.highest > 3 and table.rows > 3 * buffer.capacity


@pytest.fixture(scope="module")
def uneven():
    """A wrapped ring with priorities 1, 2, 3, ... and one of 0; what each window has by slot."""
    buffer = _buffer(alpha=0.5, beta=0.7)
    state = _filled(buffer, 9, 9)
    starts = np.array([12 * env + row % 12 for env in range(ENVS) for row in range(6, 15)])
    indices = (starts[:, None] + np.zeros(4, int)).astype(np.int32)
    state = update(buffer, state, indices, np.arange(18, dtype=np.float32))
    return buffer, state, dict(zip(starts.tolist(), range(18), strict=True))


def test_windows_are_drawn_as_often_as_their_priority_says(uneven):
    buffer, state, priorities = uneven
    keys = jr.split(jr.key(1), 2000)
    draws = jax.jit(jax.vmap(lambda key: buffer.sample(state, key=key).indices[:, 0]))(keys)
    starts, counts = np.unique(np.asarray(draws), return_counts=True)
    # Never the one of priority 0.
    assert set(starts.tolist()) == {start for start, p in priorities.items() if p}
    powers = np.sqrt([priorities[start] for start in starts.tolist()])
    expected = counts.sum() * powers / powers.sum()
    # Strata make draws repel each other, so counts vary less than chi-squared allows for.
    assert scipy.stats.chisquare(counts, expected).pvalue > 1e-3


def test_weights_are_the_papers(uneven):
    buffer, state, priorities = uneven
    batch = jax.device_get(sample(buffer, state, key=jr.key(2)))
    powers = np.sqrt([priorities[start] for start in batch.indices[:, 0].tolist()])
    probability = powers / np.sqrt(list(priorities.values())).sum()
    weights = (len(priorities) * probability) ** -0.7
    np.testing.assert_allclose(batch.weights, (weights / weights.max())[:, None] * np.ones(4), 1e-5)


def test_strata_share_the_draws_out(uneven):
    """Each of 16 equal parts of the sum gets one draw, so an environment's count hardly varies."""
    buffer, state, _ = uneven
    share = 16 * np.sqrt(range(9)).sum() / np.sqrt(range(18)).sum()
    for seed in range(20):
        env = np.asarray(sample(buffer, state, key=jr.key(seed)).indices)[:, 0] // 12
        assert abs((env == 0).sum() - share) < 1


def test_beta_may_follow_a_schedule(uneven):
    buffer, state, _ = uneven
    asked = _buffer(alpha=0.5, beta=lambda updates: jnp.where(updates < 2, 0.0, 1.0))
    batch = jax.device_get(sample(asked, state, key=jr.key(3)))
    assert (batch.weights == 1).all()  # one update so far
    indices = np.concatenate([batch.indices, batch.indices[:2]])
    state = update(buffer, state, indices, np.arange(1, 19, dtype=np.float32))
    assert np.asarray(sample(asked, state, key=jr.key(3)).weights).min() < 1


def _padded(starts, priorities):
    """Indices and priorities of the windows that start there: 6, of which others are of none."""
    indices, new = np.full((6, 1), -1, np.int32), np.full(6, 9, np.float32)
    indices[: len(starts), 0], new[: len(starts)] = starts, priorities
    return indices, new


def test_a_new_window_gets_the_highest_priority_and_not_its_floor():
    # flashbax 0.1.3 gives 2.
    buffer = _buffer(alpha=1.0)
    state = _filled(buffer, 4)
    state = update(buffer, state, *_padded([0], [2.75]))
    state = add(buffer, state, stream(4, 1, ENVS))
    assert _leaves(state, 3) == [[2.75, 2.75, 0.0], [1.0, 2.75, 0.0]]


def test_sums_do_not_drift():
    """flashbax 0.1.3's sum falls below 0 here, and one window gets every draw."""
    buffer = _buffer(num_envs=1, alpha=1.0)
    state = _filled(buffer, 12)
    random = np.random.default_rng(0)
    windows = random.integers(0, 9, (500, 4))
    priorities = np.exp(6 * random.normal(size=(500, 4)))

    @jax.jit
    def all_updates(state, windows, priorities):
        def one(state, given):
            window, priority = given
            return buffer.update_priorities(state, window[:, None], priority), None

        return jax.lax.scan(one, state, (windows, priorities))[0]

    state = all_updates(state, windows.astype(np.int32), priorities.astype(np.float32))
    every = np.arange(9, dtype=np.int32)[:, None]
    state = update(buffer, state, every, np.full(9, 1e-3, np.float32))
    np.testing.assert_allclose(np.asarray(state.priorities.sums).sum(), 9e-3, rtol=1e-6)
    draws = [np.asarray(sample(buffer, state, key=jr.key(seed)).indices) for seed in range(20)]
    assert set(np.stack(draws)[..., 0].flat) == set(range(9))


def test_the_sum_of_priorities_as_high_as_a_float_is_finite():
    # The sum of two would be infinite, and every weight 0; the reciprocal of one would be 0.
    buffer = _buffer(alpha=1.0, num_envs=1)
    state = _filled(buffer, 12)
    every = np.arange(9, dtype=np.int32)[:, None]
    for low, least, most in (3e38, 5, 9), (1.0, 1, 1):
        priorities = np.where(every[:, 0] == 4, 3e38, low).astype(np.float32)
        batch = sample(buffer, update(buffer, state, every, priorities), key=jr.key(0))
        batch = jax.device_get(batch)
        assert (batch.weights == 1).all()
        assert least <= len(set(batch.indices[:, 0].tolist())) <= most


def test_of_a_window_that_comes_twice_the_higher_priority_counts():
    buffer = _buffer(alpha=1.0)
    state = _filled(buffer, 4, 1, 1)
    state = update(buffer, state, *_padded([1, 1, 1, 13], [0.5, 0.75, 0.25, 4.0]))
    assert _leaves(state, 4) == [[1.0, 0.75, 1.0, 0.0], [1.0, 4.0, 1.0, 0.0]]


def test_what_is_no_window_or_no_priority_is_left_alone():
    buffer = _buffer(alpha=1.0)
    state = _filled(buffer, 4, 4, 4, 1, 1)
    before = jax.device_get(state.priorities)
    # Rows 11 to 13 start no complete window: 11, 0 and 1 by slot. Then bad numbers.
    bad = _padded([11, 0, 1, 4, 5, 6], [9.0, 9.0, 9.0, np.nan, -1.0, np.inf])
    after = jax.device_get(update(buffer, state, *bad).priorities)
    jax.tree.map(np.testing.assert_array_equal, before, after)


# Places before the first and behind the last of 2 x 12, and one between the starts of windows.
@pytest.mark.parametrize("place", [-1, -13, 24, 25, 2**31 - 1, -(2**31), 3])
def test_an_index_of_no_window_changes_no_priority(place):
    buffer = _buffer(alpha=1.0, period=2)
    state = _filled(buffer, 12)
    indices = jnp.asarray(np.array([[2], [place]], np.int32))
    after = update(buffer, state, indices, np.array([5.0, 9.0], np.float32))
    assert _leaves(after, 5) == [[1.0, 5.0, 1.0, 1.0, 1.0], [1.0] * 5]
    assert after.priorities.highest.tolist() == [5.0]
    message = rf"an index of {place}: give `Batch.indices`, .* from 0 to 23.* period=2"
    with pytest.raises(ValueError, match=message):
        buffer.update_priorities(state, indices, jnp.ones(2))


def test_with_an_alpha_of_0_all_windows_stay_alike():
    buffer = _buffer(alpha=0.0)
    state = update(buffer, _filled(buffer, 6), *_padded([0, 1], [0.0, 9.0]))
    assert _leaves(state, 3) == [[1.0] * 3] * 2 and state.priorities.highest.tolist() == [1.0]


def test_without_a_window_or_a_priority_all_weights_are_0():
    buffer = _buffer()
    state = _filled(buffer, 3)
    assert not np.asarray(sample(buffer, state, key=jr.key(0)).weights).any()
    state = add(buffer, state, stream(3, 1, ENVS))
    # As many as the first test updates.
    indices = np.resize(np.array([[0], [12]], np.int32), (16, 1)) + np.zeros(4, np.int32)
    state = update(buffer, state, indices, np.zeros(16, np.float32))
    assert not np.asarray(sample(buffer, state, key=jr.key(0)).weights).any()
    assert not buffer.ready(state)
    with pytest.raises(ValueError, match="no window has a priority above 0: wait until `ready`"):
        buffer.sample(state, key=jr.key(0))


def test_a_weight_of_0_is_never_picked():
    """Sums of prefixes are rounded each in its own way: they also rise where a weight is 0."""
    from zero_memory._priorities import _pick

    random = np.random.default_rng(0)
    weights = np.exp(random.normal(scale=4, size=(200, 1000))).astype(np.float32)
    weights[random.random(weights.shape) < 0.5] = 0.0
    prefix = np.asarray(jax.jit(jax.vmap(jnp.cumsum))(weights))
    # Numbers just below such a rise, and both ends.
    row, at = np.nonzero((weights[:, 1:] == 0) & (np.diff(prefix, axis=1) > 0))
    assert len(row) > 100
    uniform = np.concatenate([prefix[row, at] / prefix[row, -1], np.zeros(200), np.ones(200)])
    row = np.concatenate([row, np.arange(200), np.arange(200)])
    picked = jax.jit(jax.vmap(_pick))(weights[row], uniform.astype(np.float32))
    assert (weights[row, np.asarray(picked)] > 0).all()
