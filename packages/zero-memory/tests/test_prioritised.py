"""Priorities against a table of all windows in plain Python."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import scipy.stats

from zero_memory import PrioritisedTrajectoryBuffer

from .helpers import assert_windows, QUICK, stream


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


def _jitted(buffer):
    jit = lambda method: jax.jit(method, compiler_options=QUICK)
    return jit(buffer.add), jit(buffer.sample), jit(buffer.update_priorities)


# Rings whose blocks of priorities are full or not, windows that overlap, meet, leave gaps, or
# fill the ring.
@pytest.mark.parametrize(
    "sizes",
    [
        {},
        {"period": 2},
        {"capacity": 10, "length": 2, "period": 5},
        {"capacity": 7, "length": 7},
        {"capacity": 7, "length": 1},
    ],
)
def test_priorities_equal_the_table(sizes):
    buffer = _buffer(**sizes)
    (add, sample, update), table = _jitted(buffer), Table(buffer)
    state = buffer.init(stream(0, 0, ENVS))
    random = np.random.default_rng(0)
    blocks = (1, 3, buffer.capacity)
    for step in range(40):
        size = int(random.choice(blocks, p=[0.3, 0.6, 0.1]))
        state = add(state, stream(table.rows, size, ENVS))
        table.add(size)
        batch = sample(state, key=jr.key(step))
        assert bool(buffer.ready(state)) == bool(table.windows)
        if table.windows:
            env, row = (x.tolist() for x in assert_windows(buffer, batch))
            assert set(zip(env, row, strict=True)) <= set(table.windows)
            # One value for each window, so that repeats do not matter here.
            values = np.exp(random.normal(scale=2.0, size=(ENVS, 1000)))[env, row]
            state = update(state, batch.indices, jnp.asarray(values, jnp.float32))
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
    add, sample, update = _jitted(buffer)
    state = add(buffer.init(stream(0, 0, ENVS)), stream(0, 9, ENVS))
    state = add(state, stream(9, 9, ENVS))
    starts = np.array([12 * env + row % 12 for env in range(ENVS) for row in range(6, 15)])
    indices = jnp.asarray(starts[:, None] + np.zeros(4, int), jnp.int32)
    state = update(state, indices, jnp.arange(18, dtype=jnp.float32))
    return buffer, sample, state, dict(zip(starts.tolist(), range(18), strict=True))


def test_windows_are_drawn_as_often_as_their_priority_says(uneven):
    buffer, _, state, priorities = uneven
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
    buffer, sample, state, priorities = uneven
    batch = sample(state, key=jr.key(2))
    powers = np.sqrt([priorities[start] for start in batch.indices[:, 0].tolist()])
    probability = powers / np.sqrt(list(priorities.values())).sum()
    weights = (len(priorities) * probability) ** -0.7
    np.testing.assert_allclose(batch.weights, (weights / weights.max())[:, None] * np.ones(4), 1e-5)


def test_strata_share_the_draws_out(uneven):
    """Each of 16 equal parts of the sum gets one draw, so an environment's count hardly varies."""
    buffer, sample, state, priorities = uneven
    share = 16 * np.sqrt(range(9)).sum() / np.sqrt(range(18)).sum()
    for seed in range(20):
        env = np.asarray(sample(state, key=jr.key(seed)).indices[:, 0]) // 12
        assert abs((env == 0).sum() - share) < 1


def test_beta_may_follow_a_schedule(uneven):
    _, _, state, _ = uneven
    asked = _buffer(alpha=0.5, beta=lambda updates: jnp.where(updates < 2, 0.0, 1.0))
    _, sample, update = _jitted(asked)
    batch = sample(state, key=jr.key(3))
    assert (batch.weights == 1).all()  # one update so far
    state = update(state, batch.indices, jnp.arange(1.0, 17.0))
    assert sample(state, key=jr.key(3)).weights.min() < 1


def test_a_new_window_gets_the_highest_priority_and_not_its_floor():
    # flashbax 0.1.3 gives 2.
    buffer = _buffer(alpha=1.0)
    add, _, update = _jitted(buffer)
    state = add(buffer.init(stream(0, 0, ENVS)), stream(0, 4, ENVS))
    state = update(state, jnp.arange(4, dtype=jnp.int32)[None], jnp.asarray([2.75]))
    state = add(state, stream(4, 1, ENVS))
    leaves = np.asarray(state.priorities.leaves).reshape(ENVS, -1)[:, :3]
    assert leaves.tolist() == [[2.75, 2.75, 0.0], [1.0, 2.75, 0.0]]


def test_sums_do_not_drift():
    """flashbax 0.1.3's sum falls below 0 here, and one window gets every draw."""
    buffer = _buffer(num_envs=1, alpha=1.0)
    add, sample, update = _jitted(buffer)
    state = add(buffer.init(stream(0, 0, 1)), stream(0, 12, 1))
    random = np.random.default_rng(0)
    windows = random.integers(0, 9, (500, 4))
    priorities = np.exp(6 * random.normal(size=(500, 4)))

    @jax.jit
    def all_updates(state):
        def one(state, given):
            window, priority = given
            return buffer.update_priorities(state, window[:, None], priority), None

        given = jnp.asarray(windows, jnp.int32), jnp.asarray(priorities, jnp.float32)
        return jax.lax.scan(one, state, given)[0]

    state = all_updates(state)
    every = jnp.arange(9, dtype=jnp.int32)[:, None]
    state = update(state, every, jnp.full(9, 1e-3))
    np.testing.assert_allclose(state.priorities.sums.sum(), 9e-3, rtol=1e-6)
    draws = [sample(state, key=jr.key(seed)).indices[:, 0].tolist() for seed in range(20)]
    assert {start for draw in draws for start in draw} == set(range(9))


def test_the_sum_of_priorities_as_high_as_a_float_is_finite():
    # The sum of two would be infinite, and every weight 0; the reciprocal of one would be 0.
    buffer = _buffer(alpha=1.0, num_envs=1)
    add, sample, update = _jitted(buffer)
    state = add(buffer.init(stream(0, 0, 1)), stream(0, 12, 1))
    every = jnp.arange(9, dtype=jnp.int32)[:, None]
    for priorities, least, most in (jnp.full(9, 3e38), 5, 9), (jnp.ones(9).at[4].set(3e38), 1, 1):
        batch = sample(update(state, every, priorities), key=jr.key(0))
        assert (batch.weights == 1).all()
        assert least <= len(set(batch.indices[:, 0].tolist())) <= most


def test_of_a_window_that_comes_twice_the_higher_priority_counts():
    buffer = _buffer(alpha=1.0)
    add, _, update = _jitted(buffer)
    state = add(buffer.init(stream(0, 0, ENVS)), stream(0, 6, ENVS))
    indices = jnp.asarray([[1], [1], [1], [13]], jnp.int32)
    state = update(state, indices, jnp.asarray([0.5, 0.75, 0.25, 4.0]))
    assert state.priorities.leaves.reshape(ENVS, -1)[:, :4].tolist() == [
        [1.0, 0.75, 1.0, 0.0],
        [1.0, 4.0, 1.0, 0.0],
    ]


def test_what_is_no_window_or_no_priority_is_left_alone():
    buffer = _buffer(alpha=1.0)
    add, _, update = _jitted(buffer)
    state = add(buffer.init(stream(0, 0, ENVS)), stream(0, 12, ENVS))
    state = add(state, stream(12, 2, ENVS))
    before = jax.device_get(state.priorities)
    # Rows 11 to 13 start no complete window: 11, 0 and 1 by slot. Then bad numbers.
    indices = jnp.asarray([[11], [0], [1], [4], [5], [6]], jnp.int32)
    bad = jnp.asarray([9.0, 9.0, 9.0, jnp.nan, -1.0, jnp.inf])
    after = jax.device_get(update(state, indices, bad).priorities)
    jax.tree.map(np.testing.assert_array_equal, before, after)


# Places before the first and behind the last of 2 x 12, and one between the starts of windows.
@pytest.mark.parametrize("place", [-1, -13, 24, 25, 2**31 - 1, -(2**31), 3])
def test_an_index_of_no_window_changes_no_priority(place):
    buffer = _buffer(alpha=1.0, period=2)
    add, _, update = _jitted(buffer)
    state = add(buffer.init(stream(0, 0, ENVS)), stream(0, 12, ENVS))
    indices = jnp.asarray([[2], [place]], jnp.int32)
    after = update(state, indices, jnp.asarray([5.0, 9.0]))
    leaves = np.asarray(after.priorities.leaves).reshape(ENVS, -1)[:, :5]
    assert leaves.tolist() == [[1.0, 5.0, 1.0, 1.0, 1.0], [1.0] * 5]
    assert after.priorities.highest.tolist() == [5.0]
    message = rf"an index of {place}: give `Batch.indices`, .* from 0 to 23.* period=2"
    with pytest.raises(ValueError, match=message):
        buffer.update_priorities(state, indices, jnp.ones(2))


def test_with_an_alpha_of_0_all_windows_stay_alike():
    buffer = _buffer(alpha=0.0)
    add, _, update = _jitted(buffer)
    state = add(buffer.init(stream(0, 0, ENVS)), stream(0, 6, ENVS))
    state = update(state, jnp.asarray([[0], [1]], jnp.int32), jnp.asarray([0.0, 9.0]))
    leaves = state.priorities.leaves.reshape(ENVS, -1)
    assert leaves[:, :3].tolist() == [[1.0] * 3] * 2 and state.priorities.highest.tolist() == [1.0]


def test_without_a_window_or_a_priority_all_weights_are_0():
    buffer = _buffer()
    add, sample, update = _jitted(buffer)
    state = add(buffer.init(stream(0, 0, ENVS)), stream(0, 3, ENVS))
    assert not sample(state, key=jr.key(0)).weights.any()
    state = add(state, stream(3, 1, ENVS))
    state = update(state, jnp.asarray([[0], [12]], jnp.int32), jnp.zeros(2))
    assert not sample(state, key=jr.key(0)).weights.any() and not buffer.ready(state)


def test_a_weight_of_0_is_never_picked():
    """Sums of prefixes are rounded each in its own way: they also rise where a weight is 0."""
    from zero_memory._priorities import _pick

    random = np.random.default_rng(0)
    weights = np.exp(random.normal(scale=4, size=(200, 1000))).astype(np.float32)
    weights[random.random(weights.shape) < 0.5] = 0.0
    prefix = np.asarray(jax.vmap(jnp.cumsum)(jnp.asarray(weights)))
    # Numbers just below such a rise, and both ends.
    row, at = np.nonzero((weights[:, 1:] == 0) & (np.diff(prefix, axis=1) > 0))
    assert len(row) > 100
    uniform = np.concatenate([prefix[row, at] / prefix[row, -1], np.zeros(200), np.ones(200)])
    row = np.concatenate([row, np.arange(200), np.arange(200)])
    picked = jax.jit(jax.vmap(_pick))(jnp.asarray(weights[row]), jnp.asarray(uniform, jnp.float32))
    assert (weights[row, np.asarray(picked)] > 0).all()
