"""Adding, dealing rewards and truncating by hand, against a model with a flag on every slot."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from zero_memory import EpisodeBuffer

from .helpers import expected, init, method, reader, Ring, rows


add, assign, truncate = (method(x) for x in ("add_experience", "assign_rewards", "truncate"))


def _next(state, capacity):
    return ((state.start + state.waiting) % capacity).tolist()


# The rings are shorter than some episodes, and not multiples of the number of players.
@pytest.mark.parametrize("num_envs, capacity, num_players", [(3, 7, 2), (2, 6, 4), (2, 1, 1)])
def test_random_operations_equal_the_model_with_flags(num_envs, capacity, num_players):
    buffer = EpisodeBuffer(
        capacity=capacity, num_envs=num_envs, batch_size=1, num_players=num_players
    )
    read, state = reader(buffer), init(buffer, rows(0))
    rings = [Ring(capacity) for _ in range(num_envs)]
    random = np.random.default_rng(num_players)
    longest = 0
    for name in range(0, 120 * num_envs, num_envs):
        match random.choice(["add", "assign", "truncate"], p=[0.8, 0.12, 0.08]):
            case "add":
                names = name + np.arange(num_envs)
                state = add(buffer, state, rows(names))
                for ring, one in zip(rings, names.tolist(), strict=True):
                    ring.add(one)
            case "assign":
                mask = random.random(num_envs) < 0.5
                rewards = random.normal(size=(num_envs, num_players)).astype(np.float32)
                state = assign(buffer, state, jnp.asarray(rewards), jnp.asarray(mask))
                for ring, dealt in zip(np.array(rings)[mask], rewards[mask].tolist(), strict=True):
                    ring.assign(lambda ply, dealt=dealt: dealt[ply % num_players])
            case "truncate":
                mask = random.random(num_envs) < 0.5
                state = truncate(buffer, state, jnp.asarray(mask))
                for ring in np.array(rings)[mask]:
                    ring.truncate()
        assert read(state) == expected(rings)
        assert _next(state, capacity) == [ring.next for ring in rings]
        longest = max(longest, *(ring.ply for ring in rings))
    assert longest > 2 * capacity


def test_the_walk_through_slot_by_slot(walked):
    _, state, read = walked
    assert state.start.tolist() == _next(state, 30) == [22, 11, 22, 22]
    table = {}
    for env, outcomes in enumerate(
        (
            [1.0, 0.0] * 5 + [1.0] + [1.0, 0.0] * 5 + [1.0],
            [0.5] * 11,
            [1.0, 0.0] * 11,
            [0.5] * 11 + [1.0, 0.0] * 5 + [1.0],
        )
    ):
        table |= {30 * env + slot: (4 * slot + env, x) for slot, x in enumerate(outcomes)}
    assert len(table) == 77
    assert read(state) == table


@pytest.fixture(scope="module")
def pair():
    buffer = EpisodeBuffer(capacity=6, num_envs=2, batch_size=1, num_players=1)
    return buffer, reader(buffer)


def test_diverged_cursors_write_and_mark_only_their_own_slot(pair):
    # Flags written at all environments' cursors for all environments would put an entry at
    # slot 4 of environment 0.
    buffer, read = pair
    both = np.ones(2, bool)
    state = init(buffer, rows(0))
    for name in (1, 3):
        state = add(buffer, state, rows([name, name + 1]))
    state = assign(buffer, state, jnp.asarray([[1.0], [2.0]]), both)
    for name in (5, 7):
        state = add(buffer, state, rows([name, name + 1]))
    state = truncate(buffer, state, jnp.asarray([True, False]))
    finished = {0: (1, 1.0), 1: (3, 1.0), 6: (2, 2.0), 7: (4, 2.0)}
    assert _next(state, 6) == [2, 4] and read(state) == finished
    state = add(buffer, state, rows([9, 10]))
    assert _next(state, 6) == [3, 5] and read(state) == finished
    state = assign(buffer, state, jnp.asarray([[3.0], [4.0]]), both)
    new = {2: (9, 3.0), 8: (6, 4.0), 9: (8, 4.0), 10: (10, 4.0)}
    assert read(state) == finished | new


def test_one_players_rewards_stay_with_their_environment(pair):
    # Rewards tiled along the slots would give every environment 10, 20, 10, 20.
    buffer, read = pair
    rewards = np.asarray([10.0, 20.0], np.float32)
    for dealt in (rewards, rewards[:, None]):
        state = init(buffer, rows(0))
        for _ in range(4):
            state = add(buffer, state, rows([0, 0]))
        state = assign(buffer, state, jnp.asarray(dealt), np.ones(2, bool))
        outcomes = [x for _, x in sorted(read(state).items())]
        assert [x for _, x in outcomes] == [10.0] * 4 + [20.0] * 4


@pytest.fixture(scope="module")
def small():
    buffer = EpisodeBuffer(capacity=4, num_envs=1, batch_size=1)
    return buffer, reader(buffer)


def _play(buffer, state, names):
    for name in names:
        state = add(buffer, state, rows([name]))
    return state


YES = np.ones(1, bool)


def test_with_nothing_waiting_assign_and_truncate_change_nothing(small):
    buffer, read = small
    state = _play(buffer, init(buffer, rows(0)), [1, 2])
    state = assign(buffer, state, jnp.asarray([[1.0, 0.0]]), YES)
    before = jax.device_get(state)
    state = truncate(buffer, assign(buffer, state, jnp.asarray([[5.0, 6.0]]), YES), YES)
    jax.tree.map(np.testing.assert_array_equal, before, jax.device_get(state))
    assert read(state) == {0: (1, 1.0), 1: (2, 0.0)}


def test_assigned_then_truncated_counts_as_ended(small):
    buffer, read = small
    state = _play(buffer, init(buffer, rows(0)), [1])
    state = truncate(buffer, assign(buffer, state, jnp.asarray([[1.0, 0.0]]), YES), YES)
    assert read(state) == {0: (1, 1.0)}


def test_a_ring_full_of_one_move_episodes_keeps_every_outcome(small):
    buffer, read = small
    state = init(buffer, rows(0))
    for name in range(7):
        state = assign(buffer, _play(buffer, state, [name]), jnp.asarray([[10.0 + name, 0.0]]), YES)
    whole = {3: (3, 13.0), 0: (4, 14.0), 1: (5, 15.0), 2: (6, 16.0)}
    assert read(state) == whole
    del whole[3]
    assert read(_play(buffer, state, [7])) == whole


def test_an_episode_longer_than_the_ring_keeps_its_tail_in_phase(small):
    buffer, read = small
    state = _play(buffer, init(buffer, rows(0)), range(7))
    assert read(state) == {}
    state = assign(buffer, state, jnp.asarray([[1.0, 0.0]]), YES)
    assert read(state) == {3: (3, 0.0), 0: (4, 1.0), 1: (5, 0.0), 2: (6, 1.0)}


def test_truncating_after_the_wrap_loses_only_what_was_overwritten(small):
    buffer, read = small
    state = _play(buffer, init(buffer, rows(0)), range(4))
    state = assign(buffer, state, jnp.asarray([[1.0, 0.0]]), YES)
    state = truncate(buffer, _play(buffer, state, [4, 5]), YES)
    assert read(state) == {2: (2, 1.0), 3: (3, 0.0)}
    state = assign(buffer, _play(buffer, state, [6]), jnp.asarray([[8.0, 9.0]]), YES)
    assert read(state) == {0: (6, 8.0), 2: (2, 1.0), 3: (3, 0.0)}


@pytest.mark.parametrize("num_envs, capacity", [(4, 30), (2, 6)])
def test_copies_of_a_position_share_its_ply_and_outcome(num_envs, capacity):
    """Three images of every position, and three players who take turns: 5 plies, then 2."""
    buffer = EpisodeBuffer(capacity=capacity, num_envs=num_envs, batch_size=1, num_players=3)
    read, state, expected = reader(buffer), init(buffer, rows(0)), {}
    every, rewards = np.ones(num_envs, bool), np.arange(1.0, 1 + 3 * num_envs).reshape(-1, 3)
    written = 0
    for length in (5, 2):
        for ply in range(length):
            names = 1000 * np.arange(num_envs)[:, None] + written + np.arange(3)
            state = add(buffer, state, rows(names))
            for env in range(num_envs):
                for name in names[env].tolist():
                    slot = env * capacity + name % 1000 % capacity
                    expected[slot] = name, rewards[env, ply % 3]
            written += 3
        state = assign(buffer, state, jnp.asarray(rewards.astype(np.float32)), every)
        assert read(state) == expected
    # Cut off after copies and single entries, all of them go.
    state = add(buffer, state, rows(np.zeros((num_envs, 3))))
    state = truncate(buffer, add(buffer, state, rows(np.zeros(num_envs))), every)
    lost = {(written + i) % capacity for i in range(4)} if capacity == 6 else set()
    assert read(state) == {at: x for at, x in expected.items() if at % capacity not in lost}
