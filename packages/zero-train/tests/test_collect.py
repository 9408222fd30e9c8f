"""The returns and lengths of the episodes that end while acting."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import scipy.stats
from jaxtyping import Array

from zero_envs import AbstractDiscreteEnvironment, Observation, Transition
from zero_envs.testing import Nim
from zero_train import (
    collect,
    episode_metrics,
    evaluate,
    match,
    PolicyActor,
    RandomActor,
    rollout,
    start,
)
from zero_train._dispatch import dispatched


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


class Count(AbstractDiscreteEnvironment[Array]):
    """Counts its steps, and ends at a number of them."""

    ends: int
    num_actions: int = 2
    hidden: bool = False

    def init(self, *, key):
        return jnp.zeros((), jnp.int32)

    def step(self, state, action, *, key):
        last = state + 1 >= self.ends
        return state + 1, Transition(jnp.float32(0), jnp.where(last, 0.0, 1.0), last)

    def observe(self, state):
        return Observation(state, jnp.ones(2, bool))


@pytest.mark.parametrize("opening_plies", [0, 3])
def test_episodes_begin_after_each_number_of_random_moves_equally_often(opening_plies):
    env, actor, rows = Count(ends=5), RandomActor(), 64

    @jax.jit
    def run(keys):
        episodes = start(env, actor, keys=keys, opening_plies=opening_plies)
        own = {"indices": jnp.arange(rows, dtype=jnp.int32), "num_steps": 60}
        after, experience = collect(
            env, actor, episodes, key=jr.key(1), opening_plies=opening_plies, **own
        )
        return episodes.state, after.finished.lengths, experience

    state, lengths, experience = run(jr.split(jr.key(0), rows))
    last = np.asarray(experience.last)
    first = np.asarray(experience.obs.features)[:, 1:][last[:, :-1]]
    for begun in (np.asarray(state), first):
        counts = np.bincount(begun, minlength=opening_plies + 1)
        assert len(counts) == opening_plies + 1
        assert scipy.stats.chisquare(counts).pvalue > 0.01 or opening_plies == 0
    # The rows and the length of an episode are those of what follows its opening.
    ends = np.flatnonzero(last[0])
    assert np.array_equal(np.asarray(lengths)[0, ends[1:]], np.diff(ends) - 1)
    begun = np.asarray(experience.obs.features)[0, ends[:-1] + 1]
    assert np.array_equal(np.diff(ends) - 1, 5 - begun)


def test_an_opening_is_cut_short_before_the_move_that_ends_the_episode():
    state = start(Count(ends=2), RandomActor(), keys=jr.split(jr.key(0), 32), opening_plies=9).state
    assert set(np.asarray(state).tolist()) == {0, 1}


@pytest.mark.usefixtures("unhooked")
def test_numbers_of_numpy_are_pythons():
    """Equinox takes them for arrays, and would trace them."""
    two, four, seven, keys = _TWO, 2 * _TWO, 3 * _TWO + 1, jr.split(jr.key(0), 3)
    env, actor = Nim(seven), PolicyActor(_evenly, temperature=np.float64(1.0))
    rows = rollout(env, actor, num_steps=four, num_envs=two, key=keys[0])
    assert rows.action.shape == (2, 4)
    played = match(env, actor, actor, num_games=two, max_steps=four, key=keys[1], opening_plies=two)
    assert played.outcomes.shape == (2,)
    result = evaluate(env, actor, num_episodes=two, max_steps=four, key=keys[2])
    assert result.returns.shape == (2,)
    repeated = dispatched(lambda number, x: jnp.stack([x] * number))
    assert repeated(two + 1, jnp.zeros(())).shape == (3,)


_TWO: Any = np.int64(2)


def _evenly(obs):
    return jnp.zeros(3), jnp.zeros(())
