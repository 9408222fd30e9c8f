"""What `add` makes of a collector's rows, against returns computed by a Python loop."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from zero_memory import EpisodeBuffer

from .helpers import add, expected, init, reader, Ring, rows


ENVS, CAPACITY, TIME = 3, 9, 60
GAMES = ("alternating", "any turn order", "one player", "result only")


def _episode(random, game):
    """Rewards and signed discounts of one episode, up to past the ring's capacity."""
    length = random.integers(1, 14)
    # Quarters, so that sums in any order are exact.
    rewards = random.integers(-8, 9, length) / 4
    discounts = -np.ones(length)
    if game == "any turn order":
        discounts = random.choice([-1.0, 1.0], length)
    elif game == "one player":
        discounts = np.ones(length)
    elif game == "result only":
        rewards[:-1], rewards[-1] = 0.0, random.choice([-1.0, 0.0, 1.0])
    if terminated := random.random() < 0.7:
        discounts[-1] = 0.0
    return rewards.tolist(), discounts.tolist(), terminated


def _returns(rewards, discounts):
    outcomes, value = [], 0.0
    for reward, discount in zip(reversed(rewards), reversed(discounts), strict=True):
        value = reward + discount * value
        outcomes.append(value)
    return outcomes[::-1]


def _stream(random, game, env):
    """One environment's rows (reward, discount, last), and its ring after each of them."""
    ring, stream = Ring(CAPACITY), []

    def entry(reward, discount):
        ring.add(1000 * env + len(stream))
        stream.append((reward, discount, False))

    while len(stream) < TIME:
        rewards, discounts, terminated = _episode(random, game)
        fits = len(rewards) <= TIME - len(stream)
        for reward, discount in list(zip(rewards, discounts, strict=True))[: TIME - len(stream)]:
            entry(reward, discount)
        if fits and terminated:
            ring.assign(_returns(rewards, discounts).__getitem__)
        if fits and len(stream) < TIME:
            # The filler of a final row must not count, whatever is in it.
            stream.append((100.0, random.choice([-1.0, 0.0, 1.0]), True))
            ring.truncate()
    return stream, ring


@pytest.fixture(scope="module")
def buffer():
    return EpisodeBuffer(capacity=CAPACITY, num_envs=ENVS, batch_size=1)


@pytest.fixture(scope="module")
def read(buffer):
    return reader(buffer)


def _added(buffer, size, names, reward, discount, last=None):
    """The state after all rows, in windows of a size."""
    state = init(buffer, rows(0))
    for start in range(0, TIME, size):
        window = slice(start, start + size)
        parts = [None if x is None else x[:, window] for x in (names, reward, discount, last)]
        state = add(buffer, state, rows(*parts))
    return state


@pytest.mark.parametrize("game", GAMES)
@pytest.mark.parametrize("seed", range(3))
def test_outcomes_are_the_signed_returns(buffer, read, game, seed):
    random = np.random.default_rng([seed, GAMES.index(game)])
    streams, rings = zip(*(_stream(random, game, env) for env in range(ENVS)), strict=True)
    reward, discount, last = np.moveaxis(np.array(streams), 2, 0)
    names = 1000 * np.arange(ENVS)[:, None] + np.arange(TIME)
    by_window = {
        size: _added(buffer, size, names, reward, discount, last) for size in (1, 12, TIME)
    }
    assert read(by_window[TIME]) == expected(list(rings)) != {}
    for size in (1, 12):  # a window's length is a matter of speed only
        jax.tree.map(np.testing.assert_array_equal, by_window[size], by_window[TIME])


def _outcomes(buffer, read, reward, discount, last):
    streams = (np.broadcast_to(x, (ENVS, TIME)) for x in (reward, discount, last))
    state = _added(buffer, TIME, np.zeros((ENVS, TIME)), *streams)
    return [outcome for _, (_, outcome) in sorted(read(state).items())]


def _padded(*values):
    """One episode's values, and nothing but final rows after it."""
    return np.array([*values] + [0.0] * (TIME - len(values)))


def test_a_win_counts_for_every_move_of_the_winner(buffer, read):
    # The first mover moves twice, the second passes back at once; the first mover wins.
    discount = _padded(1, -1, -1, 1, 0)
    last = np.arange(TIME) >= 5
    outcomes = _outcomes(buffer, read, _padded(0, 0, 0, 0, 1), discount, last)
    assert outcomes == [1.0, 1.0, -1.0, 1.0, 1.0] * ENVS


def test_a_discount_of_0_on_the_way_ends_the_return_and_not_the_episode(buffer, read):
    # The return of rows 0 and 1 is known; the cut at row 4 leaves that of 2 and 3 unknown.
    reward, discount = _padded(1, 2, 4, 8), _padded(1, 0, 1, 1)
    last = np.arange(TIME) >= 4
    outcomes = _outcomes(buffer, read, reward, discount, last)
    assert outcomes == [3.0, 2.0] * ENVS


def test_copies_of_a_move_get_its_outcome(buffer, read):
    # Only the first copy's reward, discount and last count, whatever the others say.
    reward = np.array([[[0.0, 9.0], [2.0, 9.0], [-1.0, 9.0], [9.0, 9.0]]] * ENVS)
    discount = np.array([[[-1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]] * ENVS)
    last = np.array([[[False, True]] * 3 + [[True, False]]] * ENVS)
    names = 1000 * np.arange(ENVS)[:, None, None] + np.arange(8).reshape(4, 2)
    state = add(buffer, init(buffer, rows(0)), rows(names, reward, discount, last))
    outcomes = [-3.0, -3.0, 3.0, 3.0, -1.0, -1.0]
    assert read(state) == {
        CAPACITY * env + slot: (1000 * env + slot, outcomes[slot])
        for env in range(ENVS)
        for slot in range(6)
    }


def test_the_loop_that_carries_the_state_is_traced_once(buffer):
    traces = 0

    @jax.jit
    def step(state, items):
        nonlocal traces
        traces += 1
        return buffer.add(state, items)

    # Python's numbers are weakly typed, which the rings must not take over.
    weak = eqx.tree_at(lambda row: (row.reward, row.discount), rows(0), (jnp.asarray(0.0),) * 2)
    state = buffer.init(weak)
    for _ in range(3):
        state = step(state, rows(np.zeros((ENVS, 1)), 0.0, 0.0))
    assert traces == 1


def test_discounts_between_the_signs_give_the_stated_return(buffer, read):
    reward, discount = _padded(1, 2, 4), _padded(0.5, 0.5, 0)
    assert _outcomes(buffer, read, reward, discount, np.arange(TIME) >= 3) == [3, 4, 4] * ENVS


@pytest.mark.parametrize("size", [1, 12, TIME])
def test_outcomes_are_the_returns_of_any_signed_discounts(buffer, read, size):
    """Rows of several episodes, whose players pass, move twice and look less far than the end."""
    random = np.random.default_rng(size)
    reward = random.normal(size=(ENVS, TIME)).astype(np.float32)
    discount = random.uniform(-1, 1, (ENVS, TIME)).astype(np.float32)
    discount[random.random((ENVS, TIME)) < 0.2] = 0.0
    discount[:, -1] = 0.0
    names = 1000 * np.arange(ENVS)[:, None] + np.arange(TIME)
    found = dict(read(_added(buffer, size, names, reward, discount)).values())
    assert len(found) == ENVS * CAPACITY
    for env in range(ENVS):
        wanted = _returns(reward[env].tolist(), discount[env].tolist())
        for name, outcome in found.items():
            if name // 1000 == env:
                np.testing.assert_allclose(outcome, wanted[name % 1000], rtol=1e-5, atol=1e-6)
