"""Worlds that are stepped on the host, between two compiled programs."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from zero_memory import TrajectoryBuffer
from zero_train import (
    collect,
    data_mesh,
    episode_metrics,
    evaluate,
    fill,
    init,
    Loop,
    RandomActor,
    rollout,
    start,
    step,
    template,
)

from .hosted_worlds import Idle, sums


ENVS, UNROLL, STEPS = 8, 6, 5


def _loop(env, **options):
    # As many rows as a step collects, so that the buffer holds those, in the order of time.
    buffer = TrajectoryBuffer(
        capacity=UNROLL, num_envs=ENVS, batch_size=16, length=3, num_shards=ENVS
    )
    return Loop(env=env, agent=Idle(), buffer=buffer, unroll_length=UNROLL, **options)


def _played(loop, state, steps=STEPS):
    """The state after so many steps, the rows `[envs, time]` that they collected, and the totals
    that were logged of the episodes that ended."""
    rows, ended = [], []
    for _ in range(steps):
        state, _ = step(loop, state)
        rows.append(jax.tree.map(lambda x: x[:, 0], jax.device_get(state.buffer.ring.experience)))
        finished = jax.device_get(state.episodes.finished)
        ended.append((finished.returns, finished.lengths))
    join = lambda *x: np.concatenate(x, axis=1)
    return state, jax.tree.map(join, *rows), jax.tree.map(join, *ended)


@pytest.fixture(scope="module")
def loop():
    return _loop(sums())


@pytest.fixture(scope="module")
def played(loop):
    state = init(loop, key=jr.key(0))
    return _played(loop, state)


def _check(rows, ended, *, cut=()):
    """Follows the rows by hand. At the times `cut` the running episode is cut short."""
    returns, lengths = ended
    number = {"terminated": 0, "truncated": 0}
    for env in range(ENVS):
        time, total, gained = 0, 0, 0.0
        over = False
        for t in range(rows.last.shape[1]):
            seen = rows.obs.features
            assert (seen["time"][env, t], *seen["sum"][env, t]) == (time, total, total)
            assert rows.last[env, t] == (over or t in cut)
            if rows.last[env, t]:
                counts = (gained, time) if over else (0.0, 0)
                assert (returns[env, t], lengths[env, t]) == counts
                assert rows.reward[env, t] == rows.discount[env, t] == 0
                time, total, gained, over = 0, 0, 0.0, False
                continue
            assert lengths[env, t] == 0
            time, total = time + 1, total + int(rows.action[env, t])
            gained += total
            assert rows.reward[env, t] == total
            assert rows.discount[env, t] == (total < 4)
            over = total >= 4 or time >= 5
            number["terminated"] += total >= 4
            number["truncated"] += over and total < 4
    return number


def test_rows_are_those_of_a_loop_in_python(played):
    _, rows, ended = played
    number = _check(rows, ended)
    assert number["terminated"] > 10 and number["truncated"] > 5


def test_the_log_counts_what_ended(loop, played):
    state, rows, (returns, lengths) = played
    said = episode_metrics(state.episodes)
    ends = lengths[:, -UNROLL:] > 0
    assert said["episode_count"] == rows.last[:, -UNROLL:].sum() == ends.sum()
    assert said["episode_return_mean"] == returns[:, -UNROLL:][ends].mean()


def test_a_saved_state_goes_on_in_fresh_worlds(loop, played):
    """Every running episode is cut short, once, and no window joins two episodes."""
    state, _, _ = played
    saved = jax.device_get(state)
    other = _loop(sums())
    like = template(other)
    restored = jax.tree.map(lambda x, y: jax.device_put(x, y.sharding), saved, like)
    before = np.asarray(restored.episodes.ended)
    after, rows, ended = _played(other, restored, 3)
    assert rows.last[:, 0].all() and not before.all()
    # An episode that had ended is counted, one that was cut is not.
    assert ((ended[1][:, 0] > 0) == before).all()
    _check(jax.tree.map(lambda x: x[:, 1:], rows), jax.tree.map(lambda x: x[:, 1:], ended))
    # The state that goes on is that of the new worlds: nothing is cut again.
    assert int(after.step) == int(state.step) + 3


def test_several_devices_collect_the_same_rows(played):
    """The toy draws nothing, and the actions of an environment follow from its index."""
    loop = _loop(sums(), mesh=data_mesh(4))
    _, rows, ended = _played(loop, init(loop, key=jr.key(0)), 2)
    expected = jax.tree.map(lambda x: x[:, : 2 * UNROLL], played[1:])
    jax.tree.map(np.testing.assert_array_equal, (rows, ended), expected)
    _check(rows, ended)


def test_loops_that_share_an_environment_keep_their_episodes(loop):
    states = [init(loop, key=jr.key(i)) for i in range(2)]
    found = [[], []]
    for _ in range(3):
        for i in range(2):
            states[i], rows, ended = _played(loop, states[i], 1)
            found[i].append((rows, ended))
    for blocks in found:
        _check(*jax.tree.map(lambda *x: np.concatenate(x, axis=1), *blocks))


def test_the_oldest_worlds_are_closed():
    env = sums()
    loop = _loop(env)
    for i in range(6):
        init(loop, key=jr.key(i))
    assert len(env.live) == env.live.most == 4


def test_worlds_are_closed_where_a_step_fails(monkeypatch):
    env = sums()
    loop = _loop(env)
    state = init(loop, key=jr.key(0))
    (worlds,) = env.live.values()
    monkeypatch.setattr(worlds, "step", lambda action: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        step(loop, state)
    assert not env.live
    # The state is as good as one that was saved.
    _, rows, _ = _played(loop, state, 1)
    assert rows.last[:, 0].all() and not rows.last[:, 1].any()


def test_an_evaluation_plays_whole_episodes(loop):
    run = lambda most: evaluate(
        loop.env, RandomActor(), num_episodes=32, max_steps=most, key=jr.key(3)
    )
    whole, short, again = run(9), run(2), run(9)
    lengths, returns = np.asarray(whole.lengths), np.asarray(whole.returns)
    assert lengths.max() == 5 and lengths.min() >= 2
    assert (returns[np.asarray(whole.terminated)] >= 4).all()
    assert not np.asarray(whole.terminated).all()
    np.testing.assert_array_equal(whole.returns, again.returns)
    assert (np.asarray(short.lengths) == 2).all()
    first = np.asarray(short.terminated)
    np.testing.assert_array_equal(np.asarray(short.returns)[first], returns[first])


def test_it_is_learned_from(loop):
    state = fill(loop, init(loop, key=jr.key(0)))
    state, metrics = step(loop, state)
    assert int(state.step) == 2 and float(state.agent) == 16 * 3
    assert metrics["positions"] + metrics["games"] == ENVS * UNROLL


def test_what_it_cannot_do_is_refused(loop):
    env, actor = loop.env, RandomActor()
    why = "gymnasium/Sums-v0: its simulator runs on the host and can be neither copied nor"
    with pytest.raises(ValueError, match=why):
        rollout(env, actor, num_steps=2, num_envs=2, key=jr.key(0))
    episodes = start(env, actor, keys=jr.split(jr.key(0), 2))
    indices = jnp.arange(2, dtype=jnp.int32)
    with pytest.raises(ValueError, match=why):
        collect(env, actor, episodes, indices=indices, key=jr.key(0), num_steps=2)
    state = init(loop, key=jr.key(0))
    with pytest.raises(ValueError, match="call it outside of jax.jit and jax.vmap"):
        jax.jit(lambda state: step(loop, state))(state)
    with pytest.raises(ValueError, match="actor_devices=1 .* in turns with what learns; give 0"):
        _loop(env, mesh=data_mesh(2), actor_devices=1)
