"""Worlds that are stepped on the host, between two compiled programs."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from zero_memory import TrajectoryBuffer
from zero_train import (
    _step,
    close,
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

from .hosted_worlds import Idle, sums, Written, WrittenWorlds


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
            assert seen["time"][env, t].argmax() == time
            assert (seen["sum"][env, t] == total).all()
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
    close(state)
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


def test_many_loops_that_share_an_environment_keep_their_episodes(loop):
    states = [init(loop, key=jr.key(i)) for i in range(6)]
    found = [[] for _ in states]
    for _ in range(3):
        for i in range(6):
            states[i], rows, ended = _played(loop, states[i], 1)
            found[i].append((rows, ended))
    for blocks in found:
        _check(*jax.tree.map(lambda *x: np.concatenate(x, axis=1), *blocks))


@pytest.fixture
def opened(monkeypatch):
    """The worlds that a test opens."""
    monkeypatch.setattr(WrittenWorlds, "opened", [])
    return WrittenWorlds.opened


def test_what_worlds_write_again_is_not_seen(opened):
    loop = _loop(Written())
    first = init(loop, key=jr.key(0))
    opened[0].step(np.zeros(ENVS, np.int32))
    assert (first.episodes.state == 0).all()
    opened.clear()
    _, rows, ended = _played(loop, init(loop, key=jr.key(0)))
    times = np.arange(STEPS * UNROLL) % 6
    assert (rows.obs.features == times[:, None]).all()
    assert (rows.last == (times == 5)).all()
    assert (rows.reward == np.where(times == 5, 0, times + 1)).all()
    assert (ended[0] == 15 * (times == 5)).all() and len(opened) == 1
    found = evaluate(Written(), RandomActor(), num_episodes=4, max_steps=9, key=jr.key(0))
    assert (np.asarray(found.returns) == 15).all()


def test_worlds_are_closed_once_and_said_to_be_missing(opened):
    loop = _loop(Written())
    state, first = step(loop, init(loop, key=jr.key(0)))
    saved = jax.device_get(state)
    assert first["cut"] == 0 and [x.closed for x in opened] == [0]
    close(state)
    close(state)
    assert [x.closed for x in opened] == [1]
    state, second = step(loop, state)
    # All episodes ran, and all are cut in their first row.
    assert second["cut"] == ENVS == second["games"] and len(opened) == 2
    state, third = step(loop, state)
    assert third["cut"] == 0
    # Of a copy that was left behind no worlds are closed, and it gets others.
    close(saved)
    assert step(loop, jax.device_put(saved))[1]["cut"] == ENVS
    close(state)
    assert [x.closed for x in opened] == [1, 1, 0]


def test_worlds_are_closed_where_the_buffer_is_never_full(opened, monkeypatch):
    monkeypatch.setattr(TrajectoryBuffer, "ready", lambda self, state: False)
    monkeypatch.setattr(_step, "_MAX_FILLS", 2)
    loop = _loop(Written())
    with pytest.raises(ValueError, match="cannot be sampled"):
        fill(loop, init(loop, key=jr.key(0)))
    assert [x.closed for x in opened] == [1]


def test_worlds_of_another_environment_are_not_gone_on_in(opened):
    loop, other = _loop(Written()), _loop(Written(name="other"))
    _, numbers = step(other, init(loop, key=jr.key(0)))
    assert numbers["cut"] == ENVS and [x.closed for x in opened] == [1, 0]


@pytest.mark.parametrize("method", ["reset", "step"])
def test_worlds_are_closed_where_they_fail(method, opened, monkeypatch):
    loop = _loop(Written())
    before = init(loop, key=jr.key(0))
    monkeypatch.setattr(WrittenWorlds, method, lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        step(loop, init(loop, key=jr.key(0)))
    assert [x.closed for x in opened] == [0, 1]
    close(before)


def test_an_environment_with_a_nan_keeps_its_worlds(opened):
    loop = _loop(Written(unused=float("nan")))
    state, _ = step(loop, init(loop, key=jr.key(0)))
    assert step(loop, state)[1]["cut"] == 0 and len(opened) == 1


def test_rewards_of_a_wrong_shape_are_named(opened, monkeypatch):
    right = WrittenWorlds.step
    wrong = lambda *given: (move := right(*given))._replace(reward=move.reward[:, None])
    monkeypatch.setattr(WrittenWorlds, "step", wrong)
    loop = _loop(Written())
    message = rf"reward, discount and last of the shapes \({ENVS}, 1\), \({ENVS},\) and"
    with pytest.raises(ValueError, match=message):
        step(loop, init(loop, key=jr.key(0)))
    with pytest.raises(ValueError, match="one number for each simulator"):
        evaluate(Written(), RandomActor(), num_episodes=4, max_steps=9, key=jr.key(0))
    assert [x.closed for x in opened] == [1, 1]


class Failing(Written):
    def failed(self, state):
        return jnp.isnan(state[0])


def test_an_environment_that_may_fail_is_not_stepped_on_the_host(opened):
    refused = pytest.raises(ValueError, match="Failing is stepped on the host, where `failed`")
    with refused:
        init(_loop(Failing()), key=jr.key(0))
    with refused:
        evaluate(Failing(), RandomActor(), num_episodes=4, max_steps=9, key=jr.key(0))
    assert not opened


def test_an_environment_that_is_made_again_compiles_nothing(loop, played, monkeypatch):
    del played
    traced, actor = [], Idle.actor
    count = lambda self, state, **options: traced.append(1) or actor(self, state, **options)
    monkeypatch.setattr(Idle, "actor", count)
    again = _loop(sums())
    state, _ = step(again, init(again, key=jr.key(1)))
    assert not traced and int(state.step) == 1


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
    parts: Any = {"num_episodes": 2, "max_steps": 2}
    for traced in (
        lambda: init(loop, key=jr.key(0)),
        lambda: step(loop, state),
        lambda: evaluate(env, actor, **parts, key=jr.key(0)),
    ):
        with pytest.raises(ValueError, match="call them outside of jax.jit") as caught:
            jax.jit(traced)()
        assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="actor_devices=1 .* in turns with what learns; give 0"):
        _loop(env, mesh=data_mesh(2), actor_devices=1)
    with pytest.raises(ValueError, match="opening_plies=2 .* environment in JAX, so give 0"):
        _loop(env, opening_plies=2)
