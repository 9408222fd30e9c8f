"""Simulations that break down: the step is none, the episode restarts, and somebody counts."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array, Bool, Int

from zero_envs import AbstractDiscreteEnvironment, Fallible, Observation, Transition
from zero_train import collect, episode_metrics, evaluate, RandomActor, start


class Walk(eqx.Module):
    steps: Int[Array, ""]
    fragile: Bool[Array, ""]
    failed: Bool[Array, ""]


class Fragile(AbstractDiscreteEnvironment[Walk]):
    """Five steps that pay 1 each, but half of the episodes break down in the third."""

    num_actions: int = 2
    hidden: bool = False

    def init(self, *, key):
        no = jnp.zeros((), jnp.bool_)
        return Walk(jnp.zeros((), jnp.int32), jr.bernoulli(key), no)

    def step(self, state, action, *, key):
        del action, key
        breaks = state.fragile & (state.steps == 2)
        steps = jnp.where(breaks, state.steps, state.steps + 1)
        reward = jnp.where(breaks, 0.0, 1.0)
        end = steps == 5
        transition = Transition(reward, jnp.where(end, 0.0, 1.0), breaks | end)
        return Walk(steps, state.fragile, breaks), transition

    def observe(self, state):
        return Observation((state.steps, state.fragile), jnp.ones(2, jnp.bool_))

    def failed(self, state):
        return state.failed


ENVS = 8


@pytest.fixture(scope="module")
def collected():
    env, rows = Fragile(), jnp.arange(ENVS, dtype=jnp.int32)

    @jax.jit
    def run(key):
        skey, ckey = jr.split(key)
        episodes = start(env, RandomActor(), keys=jr.split(skey, ENVS))
        return collect(env, RandomActor(), episodes, indices=rows, key=ckey, num_steps=40)

    return jax.device_get(run(jr.key(0)))


def test_it_is_known_to_be_fallible():
    assert isinstance(Fragile(), Fallible)


def test_the_row_before_a_breakdown_is_the_last_one(collected):
    """The broken step pays nothing, leads nowhere and leaves no second row of its state."""
    actors, rows = collected
    broken = 0
    for env in range(ENVS):
        expected = 0
        for time in range(40):
            steps, fragile = (x[env, time] for x in rows.obs.features)
            assert steps == expected
            over = steps == 5 or (fragile and steps == 2)
            broken += int(over and steps == 2)
            assert rows.last[env, time] == over
            assert rows.reward[env, time] == (0.0 if over else 1.0)
            assert rows.discount[env, time] == (0.0 if over or steps == 4 else 1.0)
            expected = 0 if over else expected + 1
    assert broken > 10
    assert np.sum(actors.failures) == broken


def test_broken_episodes_are_left_out_of_the_log(collected):
    episodes, rows = collected
    metrics = episode_metrics(episodes)
    assert metrics["episode_return_min"] == metrics["episode_return_max"] == 5.0
    assert np.sum(rows.last) > np.sum(episodes.finished.lengths > 0) > 8


def test_broken_episodes_are_left_out_of_evaluations():
    result = evaluate(Fragile(), RandomActor(), num_episodes=64, max_steps=9, key=jr.key(1))
    summary = result.summary(solved_at=5.0)
    assert 20 < summary.failed < 44
    assert summary.episodes == 64 - summary.failed
    assert (summary.mean, summary.mean_length, summary.truncated) == (5.0, 5.0, 0)
    assert summary.solved == 1.0


def test_nothing_to_tell_of_is_said_to_be_so():
    result = evaluate(Fragile(), RandomActor(), num_episodes=4, max_steps=9, key=jr.key(1))
    result = eqx.tree_at(lambda r: r.failed, result, jnp.ones(4, jnp.bool_))
    with pytest.raises(ValueError, match="broke down in all of 4 episodes"):
        result.summary()
