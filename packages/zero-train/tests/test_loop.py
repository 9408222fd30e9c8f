"""The loop: rows that follow the rules, the same on any number of devices."""

import contextlib
import dataclasses
import re
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

from zero_app import check_finite, Checkpoints, NonFiniteError
from zero_envs import Game2048, Pendulum
from zero_envs.testing import Corridor, Nim
from zero_memory import Batch, EpisodeBuffer, Latest, PrioritisedTrajectoryBuffer, TrajectoryBuffer
from zero_train import (
    AbstractAgent,
    data_mesh,
    fill,
    init,
    RandomActor,
    rollout,
    shardings,
    step,
    template,
)
from zero_train._step import _programs, collect_half, learn_half

from .census import census_loop, check_census
from .crossings import check_crossings, check_update
from .nim_agent import nim_agent, nim_loop


AGENT = nim_agent(
    Nim(heap=7, most=3), width=128, optimiser=optax.inject_hyperparams(optax.adam)(1e-2)
)


@pytest.fixture(scope="module")
def ran():
    """Loop, state after filling and three steps, and the metrics, on 1 and on 8 devices."""
    results = {}
    for devices in (1, 8):
        loop = nim_loop(devices, agent=AGENT, opening_plies=2)
        state = fill(loop, init(loop, key=jr.key(0)))
        metrics = []
        for _ in range(3):
            state, row = step(loop, state)
            metrics.append({name: float(x) for name, x in row.items()})
        results[devices] = (loop, state, metrics)
    return results


@pytest.fixture(scope="module")
def split():
    """A loop on 8 devices of which 4 each hold an agent together, and its compiled halves."""
    loop = nim_loop(8, agent=AGENT, opening_plies=2, mesh=data_mesh(8, fsdp=4))
    halves = collect_half, learn_half
    return loop, [half.lower(loop, None, template(loop)).compile() for half in halves]


def plain(tree):
    """Arrays on the host; keys as their data."""

    def convert(x):
        return np.asarray(jr.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x)

    return [convert(x) for x in jax.tree.leaves(tree)]


def test_devices_do_not_matter(ran):
    """The same rows, replay, parameters and metrics on 1 and on 8 devices."""
    (_, one, metrics_one), (_, eight, metrics_eight) = ran[1], ran[8]
    for x, y in zip(plain(one), plain(eight), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-6)
    for x, y in zip(metrics_one, metrics_eight, strict=True):
        assert x.keys() == y.keys()
        for name in x:
            assert x[name] == pytest.approx(y[name], rel=1e-4, abs=1e-6), name


@pytest.mark.parametrize("devices", [1, 8])
def test_seeds_and_learning_rates_train_side_by_side(ran, devices):
    """One program under vmap: each seed and rate as in a loop of its own."""
    loop, alone, metrics = ran[devices]
    keys = jr.wrap_key_data(jnp.asarray([[0, 0], [0, 1], [0, 0]], jnp.uint32))
    states = eqx.filter_jit(eqx.filter_vmap(lambda key: init(loop, key=key)))(keys)
    states = optax.tree.set(states, learning_rate=jnp.asarray([1e-2, 1e-2, 0.0]))
    first = np.asarray(jax.tree.leaves(states.agent.params)[0])
    states = eqx.filter_jit(eqx.filter_vmap(lambda state: fill(loop, state)))(states)
    together = eqx.filter_jit(eqx.filter_vmap(lambda state: step(loop, state)))
    for row in metrics:
        states, found = together(states)
        assert {name: float(x[0]) for name, x in found.items()} == pytest.approx(row, rel=1e-4)
    for x, y in zip(plain(states), plain(alone), strict=True):
        np.testing.assert_allclose(x[0], y, rtol=1e-4, atol=1e-5)
    last = np.asarray(jax.tree.leaves(states.agent.params)[0])
    np.testing.assert_array_equal(last[2], first[2])
    assert not np.allclose(last[1], last[0])


def test_state_is_laid_out_as_said(ran):
    loop, state, _ = ran[8]
    for leaf, where in zip(
        jax.tree.leaves(state), jax.tree.leaves(shardings(loop, state)), strict=True
    ):
        assert leaf.sharding.is_equivalent_to(where, leaf.ndim)
    assert len(state.buffer.start.sharding.device_set) == 8
    assert not state.buffer.start.sharding.is_fully_replicated
    assert state.agent.updates.sharding.is_fully_replicated


def test_only_sums_cross_devices(ran, collectives):
    """The gradient and metrics, and of what is collected and stored the number of games."""
    loop, state, _ = ran[8]
    once = check_crossings(loop, state, collectives)
    assert re.findall(r"= (\S+) all-reduce\(", once) == ["s32[]"]


def test_an_update_waits_for_other_devices_twice(ran, collectives, sums_in_turn):
    loop, state, _ = ran[8]
    check_update(loop, state, collectives, sums_in_turn)


def test_a_state_moves_between_meshes(ran, tmp_path):
    """What 8 devices saved, 1 device restores, and goes on as 8 would have."""
    loop_one, _, _ = ran[1]
    loop, state, _ = ran[8]
    Checkpoints(tmp_path).save(3, state)
    restored = Checkpoints(tmp_path).restore(template(loop_one))
    for x, y in zip(plain(restored), plain(state), strict=True):
        np.testing.assert_array_equal(x, y)
    assert all(len(x.sharding.device_set) == 1 for x in jax.tree.leaves(restored))
    # `step` donates: give it a copy, other tests still need the state.
    _, here = step(loop_one, restored)
    _, there = step(loop, Checkpoints(tmp_path).restore(template(loop)))
    assert here.keys() == there.keys()
    for name in here:
        assert float(here[name]) == pytest.approx(float(there[name]), rel=1e-4, abs=1e-6), name


def test_a_nan_observation_is_named_and_not_learned_from(ran):
    loop, _, _ = ran[1]
    state = fill(loop, init(loop, key=jr.key(1)))
    before = plain(state.agent.params)

    def poison(row, *, key):
        del key
        # The first position of every game: every batch has some.
        full = row.obs.features[7] == 1
        features = jnp.where(full, jnp.nan, row.obs.features)
        return eqx.tree_at(lambda r: r.obs.features, row, features)

    loop = eqx.tree_at(lambda l: l.augment, loop, poison, is_leaf=lambda x: x is None)
    state, metrics = learn_half(loop, None, state)
    with pytest.raises(NonFiniteError, match="observation_error"):
        check_finite(1, jax.device_get(metrics))
    for x, y in zip(plain(state.agent.params), before, strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("env", [Corridor(), Game2048()])
def test_the_agent_of_another_game_is_refused(env):
    with pytest.raises(ValueError, match=r"Loop\(env=\w+, agent=...\)`: the agent plans over Nim"):
        init(dataclasses.replace(nim_loop(1, agent=AGENT), env=env), key=jr.key(0))


def test_an_agent_that_wants_to_is_shown_every_block():
    one, eight = (check_census(census_loop(devices)) for devices in (1, 8))
    np.testing.assert_array_equal(one, eight)


class Tally(AbstractAgent):
    """Learns nothing but how often each window was drawn. With a shape of three axes its state may
    be the kernel of a convolution."""

    shape: tuple[int, ...] = (16 * 9,)

    def init(self, *, key):
        return jnp.zeros(self.shape, jnp.int32)

    def actor(self, state, *, explore):
        return RandomActor()

    def update(self, state, batch, *, key):
        first = batch.indices[:, 0]
        drawn = jnp.ravel(state).at[first].add(1).reshape(self.shape)
        return drawn, {"drawn": jnp.float32(first.size), "most": jnp.max(drawn).astype(jnp.float32)}


def test_a_buffer_that_is_never_ready_is_named(monkeypatch):
    monkeypatch.setattr("zero_train._step._MAX_FILLS", 5)
    small = EpisodeBuffer(capacity=4, num_envs=16, batch_size=64, num_players=2, num_shards=8)
    loop = nim_loop(1, agent=Tally(), buffer=small)
    said = r"EpisodeBuffer \(num_envs=16, capacity=4, .*cannot be sampled after .* rows"
    with pytest.raises(ValueError, match=said):
        fill(loop, init(loop, key=jr.key(1)))


def test_a_buffer_that_takes_long_to_be_full_is_filled(monkeypatch):
    """It is ready after the last collection that is waited for."""
    monkeypatch.setattr("zero_train._step._MAX_FILLS", 2)
    monkeypatch.setattr("zero_train._step._MAX_TIMES", 1)
    buffer = TrajectoryBuffer(capacity=9, num_envs=16, batch_size=16, length=9)
    loop = nim_loop(1, agent=Tally(), buffer=buffer, unroll_length=1)
    state = init(loop, key=jr.PRNGKey(1))  # a key of the old kind will do
    assert int(fill(loop, state).step) == 9


def test_a_state_is_made_within_jit_of_a_known_key():
    loop, key = nim_loop(1, agent=Tally()), jr.key(1)
    traced = jax.eval_shape(lambda: init(loop, key=key))
    assert eqx.tree_equal(traced, jax.eval_shape(lambda k: init(loop, key=k), key))


WHERE: dict[str, Any] = {
    "last": lambda x: x.items["last"],
    "reward": lambda x: x.weights,
    "discount": lambda x: x.outcome,
}


@pytest.mark.parametrize(
    "buffer, taken",
    [
        (TrajectoryBuffer(capacity=4, num_envs=8, batch_size=8, length=3), False),
        (PrioritisedTrajectoryBuffer(capacity=4, num_envs=8, batch_size=8, length=3), False),
        (Latest(capacity=4, num_envs=8, batch_size=8, length=4), False),
        (EpisodeBuffer(capacity=4, num_envs=8, batch_size=8, **WHERE), True),
    ],
    ids=lambda given: type(given).__name__,
)
def test_more_rows_at_a_time_than_a_buffer_takes_are_refused_at_once(buffer, taken):
    """Exactly where its `add` would refuse them, when the step is compiled."""
    last, number = jnp.zeros((), bool), jnp.zeros(())
    example = Batch({"last": last}, number, jnp.int32(0), number)
    for unroll in (4, 5):
        rows = jax.tree.map(lambda x, n=unroll: jnp.zeros((8, n), x.dtype), example)
        fits = taken or unroll == 4
        with contextlib.nullcontext() if fits else pytest.raises(ValueError, match="capacity=4"):
            jax.eval_shape(buffer.add, buffer.init(example), rows)
        refused = pytest.raises(ValueError, match=rf"unroll_length={unroll} .* of capacity=4")
        with contextlib.nullcontext() if fits else refused:
            nim_loop(1, agent=Tally(), buffer=buffer, unroll_length=unroll)


@pytest.mark.parametrize("shape", [(16 * 9,), (16, 3, 3)])
def test_a_buffer_of_the_latest_rows_is_learned_from_in_epochs(shape, caplog):
    """Three epochs of four minibatches: each of the two windows of an environment comes thrice.
    What may convolve is updated by a program of four updates, for it cannot be in a loop; the
    metrics are means of all the same, and it is compiled ahead."""
    buffer = Latest(capacity=9, num_envs=16, batch_size=8, length=5, num_shards=8)
    loop = nim_loop(8, agent=Tally(shape), buffer=buffer, unroll_length=9, num_updates=12)
    like = template(loop)
    assert len(_programs(loop, like.agent)) == (1 if len(shape) == 1 else 3)
    learn_half.lower(loop, None, like).compile()
    with jax.log_compiles():
        state, metrics = step(loop, fill(loop, init(loop, key=jr.key(0))))
    assert "Finished XLA compilation of jit(updates)" not in caplog.text
    drawn = np.asarray(state.agent).reshape(16, 9)
    assert float(metrics["drawn"]) == 8 and (np.sort(drawn, axis=1)[:, -2:] == 3).all()
    assert drawn.sum() == 12 * 8
    assert float(metrics["most"]) == 2


def test_a_split_agent_learns_the_same(ran, split, caplog, tmp_path):
    """As one that each device has whole. What was compiled ahead, from shapes alone, is all that is
    compiled; and the state restores into a loop of the other kind, both ways."""
    (loop, _), (other, wanted, expected) = split, ran[8]
    with jax.log_compiles():
        state, metrics = fill(loop, init(loop, key=jr.key(0))), []
        for _ in range(3):
            state, row = step(loop, state)
            metrics.append({name: float(x) for name, x in row.items()})
    compiled = re.findall(r"Finished XLA compilation of jit\((\w+)\)", caplog.text)
    assert compiled and not {"collect_half", "updates"} & set(compiled)
    for x, y in zip(plain(state), plain(wanted), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-6)
    for x, y in zip(metrics, expected, strict=True):
        assert x == pytest.approx(y, rel=1e-4, abs=1e-6)
    agent, moments = state.agent, state.agent.optimiser.inner_state[0]
    for x in (agent.params, agent.target, moments.mu, moments.nu):
        assert [s.data.shape for s in x.hidden.weight.addressable_shards] == 8 * [(32, 8)]
        assert x.hidden.bias.sharding.is_fully_replicated
    held = lambda tree: sum(x.addressable_shards[0].data.nbytes for x in jax.tree.leaves(tree))
    assert held(wanted.agent) - held(agent) == 4 * 128 * 8 * 4 * 3 // 4
    for number, (found, into) in enumerate(((state, other), (wanted, loop))):
        Checkpoints(tmp_path).save(number, found)
        restored = Checkpoints(tmp_path).restore(template(into), step=number)
        assert held(restored.agent) == held(wanted.agent if into is other else agent)
        for x, y in zip(plain(restored), plain(found), strict=True):
            np.testing.assert_array_equal(x, y)


def test_a_split_agent_is_gathered_to_act_and_to_learn(split, collectives):
    """Before collecting once, and not in its loops; in an update once, and nothing of the
    optimiser's state. XLA for CPUs writes no reduce-scatter, but a sum of which each device cuts
    its part: benchmarks/accelerators looks for it in programs of TPUs."""
    collect, learn = (program.as_text() for program in split[1])
    loops, once = collect.split("\nENTRY ")
    assert collectives(loops) == set()
    assert collectives(once) == {"all-gather", "all-reduce"} and once.count(" all-gather(") == 1
    assert collectives(learn) == {"all-gather", "all-reduce"} and learn.count(" all-gather(") == 1
    # The devices with the same part of the gradient sum no more than that.
    assert re.search(r"= .*f32\[32,8\].* all-reduce\(", learn)


def test_metrics_count_positions_and_games(ran):
    loop, _, metrics = ran[1]
    for row in metrics:
        # Every row is a position or the final row of a game.
        assert row["positions"] + row["games"] == loop.num_envs * loop.unroll_length
        assert row["games"] > 0


@pytest.fixture(scope="module")
def rows():
    """Random games."""
    env = Nim(heap=7, most=3)
    return jax.device_get(rollout(env, RandomActor(), num_steps=64, num_envs=8, key=jr.key(2)))


def test_rows_replay_the_game(rows):
    """Every row's observation, reward, discount and end follow from the rows before it."""
    heaps = np.argmax(rows.obs.features, axis=-1)
    for i in range(8):
        heap, ended = 7, False
        for t in range(64):
            assert heaps[i, t] == heap
            assert rows.last[i, t] == ended
            if ended:
                assert rows.reward[i, t] == 0 and rows.discount[i, t] == 0
                heap, ended = 7, False
                continue
            heap -= rows.action[i, t] + 1
            ended = heap == 0
            assert rows.reward[i, t] == (1.0 if ended else 0.0)
            assert rows.discount[i, t] == (0.0 if ended else -1.0)
    assert rows.last.sum() > 10


def test_games_differ_between_rows_and_after_a_reset(rows):
    """No environment replays another's randomness, or its own after a reset."""
    assert len({tuple(actions) for actions in rows.action}) == 8
    first, ends = rows.action[0], np.flatnonzero(rows.last[0])
    played = {tuple(first[a + 1 : b]) for a, b in zip(ends[:-1], ends[1:], strict=True)}
    assert len(played) > 3


@pytest.mark.parametrize(
    "devices, changes, message",
    [
        (8, {"buffer": EpisodeBuffer(32, 12, 32)}, "num_envs=12 does not divide over 8 devices"),
        (
            8,
            {"mesh": data_mesh(8, fsdp=4), "actor_devices": 6},
            "fsdp=4, which does not divide the 2 that learn; leave a multiple of 4",
        ),
        (
            1,
            {"env": Pendulum(), "opening_plies": 3},
            "opening_plies=3 was given for Pendulum; random openings need discrete actions .* 0",
        ),
        (1, {"unroll_length": 0}, r"unroll_length=0\)`: must be an integer, at least 1"),
    ],
)
def test_bad_loops_are_refused(devices, changes, message):
    with pytest.raises(ValueError, match=message):
        nim_loop(devices, **changes)


@pytest.mark.parametrize("count", [0, 99])
def test_devices_that_are_not_there_are_refused(count):
    with pytest.raises(ValueError, match=f"^{count} devices were .* 8 cpu .* ask for 1 to 8"):
        data_mesh(count)


@pytest.mark.parametrize("fsdp", [0, 3, 16])
def test_parts_that_do_not_divide_the_devices_are_refused(fsdp):
    with pytest.raises(ValueError, match=rf"^fsdp={fsdp} was given for 8 .* one of 1, 2, 4, 8\.$"):
        data_mesh(8, fsdp=fsdp)
