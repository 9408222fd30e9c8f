"""The returns and lengths of the episodes that end while acting."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import scipy.stats
from jaxtyping import Array

from zero_envs import AbstractDiscreteEnvironment, Observation, Transition
from zero_envs.testing import Nim
from zero_train import collect, episode_metrics, RandomActor, start


ENVS, STEPS, BLOCKS = 6, 5, 5


@pytest.fixture(scope="module")
def blocks():
    """Collections one after another, so that games go on from one to the next."""
    env, actor = Nim(), RandomActor()
    indices = jnp.arange(ENVS, dtype=jnp.int32)
    run = jax.jit(
        lambda episodes, key: collect(
            env, actor, episodes, indices=indices, key=key, num_steps=STEPS
        )
    )
    episodes = start(env, actor, keys=jr.split(jr.key(0), ENVS), num_steps=STEPS)
    assert episode_metrics(episodes) == {}
    found = []
    for key in jr.split(jr.key(1), BLOCKS):
        episodes, rows = run(episodes, key)
        found.append((episodes, rows))
    return found


def test_totals_are_those_of_the_rows(blocks):
    returns, lengths = (
        np.concatenate([getattr(e.finished, name) for e, _ in blocks], axis=1)
        for name in ("returns", "lengths")
    )
    reward, discount, last = (
        np.concatenate([getattr(rows, name) for _, rows in blocks], axis=1)
        for name in ("reward", "discount", "last")
    )
    assert np.sum(last) > 20
    for env in range(ENVS):
        total, sign, length = 0.0, 1.0, 0
        for t in range(STEPS * BLOCKS):
            if last[env, t]:
                assert (returns[env, t], lengths[env, t]) == (total, length)
                total, sign, length = 0.0, 1.0, 0
            else:
                assert returns[env, t] == 0 and lengths[env, t] == 0
                total += sign * reward[env, t]
                sign *= -1 if discount[env, t] < 0 else 1
                length += 1


def test_metrics_summarise_what_ended(blocks):
    for episodes, rows in blocks:
        returns = np.asarray(episodes.finished.returns)[np.asarray(rows.last)]
        lengths = np.asarray(episodes.finished.lengths)[np.asarray(rows.last)]
        assert episode_metrics(episodes) == pytest.approx(
            {
                "episode_count": returns.size,
                "episode_return_mean": returns.mean(),
                "episode_return_min": returns.min(),
                "episode_return_median": np.median(returns),
                "episode_return_max": returns.max(),
                "episode_length_mean": lengths.mean(),
                "episode_length_min": lengths.min(),
                "episode_length_median": np.median(lengths),
                "episode_length_max": lengths.max(),
            }
        )


class Turns(AbstractDiscreteEnvironment[Array]):
    """Two players move in turns; whoever makes the last of a number of moves has won."""

    ends: int
    num_actions: int = 2
    hidden: bool = False

    def init(self, *, key):
        return jnp.zeros((), jnp.int32)

    def step(self, state, action, *, key):
        last = state + 1 >= self.ends
        return state + 1, Transition(jnp.where(last, 1.0, 0.0), jnp.where(last, 0.0, -1.0), last)

    def observe(self, state):
        return Observation(state, jnp.ones(2, bool))


class Zeros(RandomActor):
    """Takes action 0."""

    def act(self, state, obs, carry, *, key):
        action, record, carry = super().act(state, obs, carry, key=key)
        return jnp.zeros_like(action), record, carry


@pytest.mark.parametrize("opening_plies", [0, 3, 9])
def test_openings_of_each_length_are_as_frequent_and_not_learned_from(opening_plies):
    """What follows an opening begins an episode; one that ends the episode is followed by none."""
    env, actor, rows = Turns(ends=6), Zeros(), 64

    @jax.jit
    def run(keys):
        episodes = start(env, actor, keys=keys, opening_plies=opening_plies)
        own = {"indices": jnp.arange(rows, dtype=jnp.int32), "num_steps": 200}
        after, experience = collect(
            env, actor, episodes, key=jr.key(1), opening_plies=opening_plies, **own
        )
        return after.finished, experience

    finished, rows = run(jr.split(jr.key(0), rows))
    moves, last = np.asarray(rows.obs.features), np.asarray(rows.last)
    first = ~last[:, 1:] & last[:, :-1]
    counts = np.bincount(moves[:, 1:][first])
    assert len(counts) == min(opening_plies, 5) + 1
    assert scipy.stats.chisquare(counts).pvalue > 0.01 or opening_plies == 0
    # The rows of openings are final, and pay nothing; an episode is what lies between two of them.
    assert np.all(np.asarray(rows.reward)[last] == 0)
    ends = last[:, 1:] & ~last[:, :-1]
    lengths, returns = np.asarray(finished.lengths)[:, 1:], np.asarray(finished.returns)[:, 1:]
    assert np.all(lengths[ends] > 0) and np.all(lengths[~ends] == 0)
    complete = ends & (np.cumsum(first, axis=1) > 0)
    assert np.all(lengths[complete] <= 6)
    # The reward is that of whoever makes the sixth move.
    assert np.array_equal(returns[complete], np.where(lengths[complete] % 2 == 1, 1, -1))


def test_one_side_or_both_move_at_random_in_an_opening():
    """`Zeros` plays the side that does not."""
    run = jax.jit(
        lambda episodes: collect(
            Turns(ends=6),
            Zeros(),
            episodes,
            indices=jnp.arange(900, dtype=jnp.int32),
            key=jr.key(1),
            num_steps=4,
            opening_plies=9,
        )[1]
    )
    rows = run(start(Turns(ends=6), Zeros(), keys=jr.split(jr.key(0), 900), opening_plies=9))
    action = np.asarray(rows.action)[np.all(np.asarray(rows.last), axis=1)]
    assert np.max(action[:, 0]) == np.max(action[:, 1]) == 1
    ones = np.stack([action[:, ::2].any(axis=1), action[:, 1::2].any(axis=1)], axis=1)
    counts = [np.sum(np.all(ones == kind, axis=1)) for kind in ([1, 0], [0, 1], [1, 1], [0, 0])]
    # Each side alone in a third of the openings, where two moves are 0 in a quarter of the cases.
    expected = np.array([1 / 4 + 1 / 16, 1 / 4 + 1 / 16, 3 / 16, 1 / 6 + 1 / 48]) * len(action)
    assert scipy.stats.chisquare(counts, expected).pvalue > 0.01
