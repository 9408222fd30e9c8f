"""The returns and lengths of the episodes that end while acting."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

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
