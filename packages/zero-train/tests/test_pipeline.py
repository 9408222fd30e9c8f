"""Acting and learning on devices of their own: who holds what, what is learned from, and when."""

import functools as ft
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray, PyTree

from zero_app import CheckpointError, Checkpoints
from zero_envs import Observation, Transition
from zero_envs.testing import Nim
from zero_memory import Batch, EpisodeBuffer
from zero_train import (
    AbstractActor,
    AbstractAgent,
    bind,
    collect,
    data_mesh,
    FeatureEvaluator,
    fill,
    Handover,
    init,
    Loop,
    LoopState,
    parameters,
    PlanRecord,
    PolicyActor,
    shardings,
    step,
    template,
)
from zero_train._step import _actor_program, _learner_program

from .census import census_loop, check_census
from .nim_agent import TinyNet
from .test_loop import plain


ENV = Nim(heap=7, most=3)
NET = ft.partial(TinyNet, 8, 3, 128)
NUM_UPDATES = 2
WIDE = EpisodeBuffer(capacity=16, num_envs=24, batch_size=32, num_shards=8)
#: Grows when an update is traced.
TRACES = []


def toil(work: Int[Array, ""], begin: Array) -> Int[Array, ""]:
    """0, after so much work."""
    begin = 0.5 * jnp.abs(jnp.tanh(jnp.mean(begin)))
    end = jax.lax.fori_loop(0, work, lambda _, x: 0.5 * x + 0.1, begin)
    return end.astype(jnp.int32)


class SlowActor(AbstractActor[None]):
    """Takes its time. `work` is an array, so that all tests share one program."""

    inner: PolicyActor
    work: Int[Array, ""]

    def init(self, state: PyTree[Array]) -> None:
        return self.inner.init(state)

    def act(
        self, state: PyTree[Array], obs: Observation, carry: None, *, key: Key[Array, " batch"]
    ) -> tuple[Int[Array, " batch"], PlanRecord, None]:
        action, record, carry = self.inner.act(state, obs, carry, key=key)
        return action + toil(self.work, record.value), record, carry

    def advance(self, carry: None, action: Any, transition: Transition) -> None:
        return self.inner.advance(carry, action, transition)


class Learner(eqx.Module):
    """Parameters, and, as an optimiser would, something beside them that never acts."""

    params: PyTree[Array]
    momentum: PyTree[Array]


class Reinforce(AbstractAgent[Learner]):
    """Makes the moves of who won more likely, by gradient descent with momentum."""

    rate: Float[Array, ""]
    update_work: Int[Array, ""]

    def init(self, *, key: PRNGKeyArray) -> Learner:
        params = parameters(NET, key=key)
        return Learner(params, jax.tree.map(jnp.zeros_like, params))

    def _evaluator(self, params: PyTree[Array]) -> FeatureEvaluator:
        return FeatureEvaluator(bind(NET, params))

    def actor(self, state: Learner, *, explore: bool) -> AbstractActor:
        actor = PolicyActor(self._evaluator(state.params), temperature=1.0 if explore else 0.0)
        return SlowActor(actor, jnp.zeros((), jnp.int32))

    def update(
        self, state: Learner, batch: Batch, *, key: PRNGKeyArray
    ) -> tuple[Learner, dict[str, Float[Array, ""]]]:
        TRACES.append("update")

        def loss(params: PyTree[Array]) -> Float[Array, ""]:
            logits, value = jax.vmap(self._evaluator(params))(batch.items.obs)
            policy = jax.nn.softmax(jnp.where(batch.items.obs.legal, logits, -jnp.inf))
            played = jnp.sum(policy * jax.nn.one_hot(batch.items.action, 3), axis=1)
            outcome = batch.outcome
            assert outcome is not None
            return jnp.mean(batch.weights * (jnp.square(value - outcome) - outcome * played))

        now, gradient = jax.value_and_grad(loss)(state.params)
        rate = self.rate * (1 + 0.1 * jr.normal(key))  # the key must not be another's
        rate = rate + toil(self.update_work, now).astype(jnp.float32)
        momentum = jax.tree.map(lambda m, g: 0.5 * m + g, state.momentum, gradient)
        params = jax.tree.map(lambda p, m: p - rate * m, state.params, momentum)
        return Learner(params, momentum), {"loss": now}


def reinforce(rate: float = 0.3, update_work: int = 0) -> Reinforce:
    return Reinforce(jnp.float32(rate), jnp.int32(update_work))


def nim_loop(num_devices: int, actor_devices: int, **changes: Any) -> Loop:
    fields = dict(
        env=ENV,
        agent=reinforce(),
        buffer=EpisodeBuffer(capacity=16, num_envs=16, batch_size=32, num_shards=8),
        augment=None,
        unroll_length=4,
        num_updates=NUM_UPDATES,
        mesh=changes.get("mesh") or data_mesh(num_devices, fsdp=FSDP.get(num_devices, 1)),
        actor_devices=actor_devices,
    )
    return Loop(**{**fields, **changes})


def handover(state: LoopState) -> Handover:
    assert state.handover is not None
    return state.handover


def assert_close(one: Any, other: Any) -> None:
    for x, y in zip(plain(one), plain(other), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-6)


# (all devices, those that act): as many learn, fewer.
SIZES = ((2, 1), (6, 4))
#: Of six devices, the two that learn have half of the agent each.
FSDP = {6: 2}


def begun(sizes: tuple[int, int]) -> LoopState:
    """What every test begins with, and donates."""
    return init(nim_loop(*sizes), key=jr.key(0))


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """By sizes: the state in the end, the rows on their way before and after each of four steps,
    the metrics of each, and the checkpoint after two."""
    results = {}
    for sizes in SIZES:
        loop = nim_loop(*sizes)
        saved = Checkpoints(tmp_path_factory.mktemp("checkpoints"))
        state = fill(loop, begun(sizes))
        collections, metrics = [plain(handover(state).rows)], []
        for done in range(1, 5):
            state, row = step(loop, state)
            collections.append(plain(handover(state).rows))
            metrics.append({name: float(x) for name, x in row.items()})
            if done == 2:
                saved.save(done, state)
        results[sizes] = state, collections, metrics, saved
    return results


@pytest.fixture(scope="module")
def reference():
    """The order of the pipeline in a plain Python loop on one device: agent and buffer in the end,
    collections, losses and staleness."""
    loop, state = nim_loop(1, 0), begun((1, 0))
    agent, buffer, episodes, collected = state.agent, state.buffer, state.episodes, 0

    @jax.jit
    def act(agent, episodes, key):
        indices = jnp.arange(16, dtype=jnp.int32)
        actor = loop.agent.actor(agent, explore=True)
        return collect(ENV, actor, episodes, indices=indices, key=key, num_steps=4)

    @jax.jit
    def update(agent, buffer, key):
        dkey, ukey = jr.split(key)
        batch = loop.buffer.sample(buffer, key=jr.split(dkey)[0])
        return loop.agent.update(agent, batch, key=ukey)

    add = jax.jit(loop.buffer.add)
    key = state.key
    episodes, rows = act(agent, episodes, jr.fold_in(key, 0))
    while not loop.buffer.ready(buffer):
        collected += 1
        episodes, later = act(agent, episodes, jr.fold_in(key, 2 * collected))
        buffer, rows = add(buffer, rows), later
    collections, losses, staleness, versions = [plain(rows)], [], [], {collected: 0}
    for done in range(0, 4 * NUM_UPDATES, NUM_UPDATES):
        episodes, later = act(agent, episodes, jr.fold_in(key, 2 * (collected + 1)))
        versions[collected + 1] = done
        buffer = add(buffer, rows)
        staleness.append(done - versions[collected])
        ukey = jr.fold_in(key, 2 * collected + 1)
        means = []
        for i in range(NUM_UPDATES):
            agent, metrics = update(agent, buffer, jr.fold_in(ukey, i))
            means.append(float(metrics["loss"]))
        losses.append(np.mean(means))
        collected, rows = collected + 1, later
        collections.append(plain(rows))
    return agent, buffer, collections, losses, staleness


@pytest.mark.parametrize("sizes", SIZES)
def test_it_is_the_plain_loop_that_learns_a_step_later(ran, reference, sizes):
    """The same rows, replay, parameters, losses and staleness on any number of acting devices."""
    state, collections, metrics, _ = ran[sizes]
    agent, buffer, expected, losses, staleness = reference
    assert_close(collections, expected)
    assert_close((state.agent, state.buffer), (agent, buffer))
    np.testing.assert_allclose([row["loss"] for row in metrics], losses, rtol=1e-4)
    assert [row["staleness"] for row in metrics] == staleness == [0, 2, 2, 2]
    for row in metrics:
        assert row["positions"] + row["games"] == 16 * 4


@pytest.mark.parametrize("sizes", SIZES)
def test_nothing_lies_on_both_kinds_of_devices(ran, sizes):
    count, acting = sizes
    state = ran[sizes][0]
    devices = jax.devices()
    sent = handover(state)
    for tree, home in (
        ((state.episodes, state.key, state.step, sent.actor), devices[:acting]),
        ((state.agent, state.buffer, sent.rows, sent.key, sent.staleness), devices[acting:count]),
    ):
        for leaf in jax.tree.leaves(tree):
            assert leaf.sharding.device_set == set(home)
    momentum = state.agent.momentum.hidden.weight.addressable_shards[0].data
    assert len(momentum) == 128 // FSDP.get(count, 1)
    for tree in (state.episodes, state.buffer, sent.rows):
        for leaf in jax.tree.leaves(tree):
            assert len(leaf.addressable_shards[0].data) * len(leaf.sharding.device_set) == len(leaf)
    # The learner's momentum stays at home.
    actor = sent.actor.inner
    assert len(jax.tree.leaves(actor)) == len(jax.tree.leaves(state.agent.params))
    assert_close(actor, state.agent.params)


def test_state_is_laid_out_as_said(ran):
    loop, state = nim_loop(6, 4), ran[6, 4][0]
    shape = template(loop)
    assert jax.tree.structure(shape) == jax.tree.structure(state)
    for leaf, where, like in zip(
        jax.tree.leaves(state),
        jax.tree.leaves(shardings(loop, state)),
        jax.tree.leaves(shape),
        strict=True,
    ):
        assert leaf.sharding.is_equivalent_to(where, leaf.ndim)
        assert (leaf.shape, leaf.dtype, where) == (like.shape, like.dtype, like.sharding)


@pytest.mark.parametrize("sizes", SIZES)
def test_a_run_goes_on_from_the_rows_on_their_way(ran, sizes):
    """Interrupted, saved, restored, also with other devices acting: as if nothing had been."""
    whole, _, _, saved = ran[6, 4]
    loop = nim_loop(*sizes)
    state = saved.restore(template(loop))
    for _ in range(2):
        state, _ = step(loop, state)
    if sizes == (6, 4):
        for x, y in zip(plain(state), plain(whole), strict=True):
            np.testing.assert_array_equal(x, y)
    assert_close(state, whole)


def test_without_learning_it_is_the_loop_of_devices_that_do_both():
    """Where the actor never changes, it does not matter how old it is."""
    sizes = (1, 0), (2, 1)
    loops = [nim_loop(*x, agent=reinforce(rate=0.0)) for x in sizes]
    states = [fill(loop, begun(x)) for loop, x in zip(loops, sizes, strict=True)]
    for _ in range(2):
        results = [step(loop, state) for loop, state in zip(loops, states, strict=True)]
        (one, here), (two, there) = results
        states = [one, two]
        assert_close((one.agent, one.buffer), (two.agent, two.buffer))
        there.pop("staleness")
        assert_close(here, there)


def test_only_the_gradient_crosses_devices(ran, collectives):
    """Neither collecting nor storing has a collective; learning has all-reduces only, beside the
    gathers of what is split."""
    loop, state = nim_loop(6, 4), ran[6, 4][0]
    sent = handover(state)
    found = lambda program, *args: collectives(program.lower(*args).compile().as_text())
    assert found(_actor_program, loop, sent.actor, state.episodes, state.key, state.step) == set()
    given = sent.rows, sent.key, sent.staleness
    learning = lambda learns: found(
        _learner_program, (loop, learns), given, state.agent, state.buffer
    )
    # The actor is gathered for the acting devices, and the parameters to learn.
    assert learning(False) == {"all-gather"}
    assert learning(True) == {"all-gather", "all-reduce"}


@pytest.mark.parametrize("sizes", SIZES)
def test_an_agent_that_wants_to_is_shown_every_block(sizes):
    """When it is stored, a step after it was collected."""
    check_census(census_loop(*sizes))


@pytest.mark.parametrize("slow", ["acting", "learning"])
def test_neither_waits_for_the_other(ran, slow):
    """What is quick ends while what is slow still runs, and nothing is traced again. (On a CPU, XLA
    runs no two programs of several devices at once, so each has one.)"""
    del ran  # It has compiled everything.
    traced = len(TRACES)
    agent = reinforce(update_work=20_000_000 if slow == "learning" else 0)
    loop = nim_loop(2, 1, agent=agent)
    state = fill(loop, begun((2, 1)))
    if slow == "acting":
        work = lambda s: s.handover.actor.work
        much = jax.device_put(jnp.int32(10_000_000), work(state).sharding)
        state = eqx.tree_at(work, state, much)
    jax.block_until_ready(state)
    state, metrics = step(loop, state)
    acted, learned = handover(state).rows.last, metrics["loss"]
    quick: Any
    busy: Any
    quick, busy = (learned, acted) if slow == "acting" else (acted, learned)
    jax.block_until_ready(quick)
    assert not busy.is_ready()
    assert len(TRACES) == traced > 0


@pytest.mark.parametrize(
    "devices, acting, changes, message",
    [
        (8, 8, {}, r"actor_devices=8 of 8 device\(s\) .* one must be left to learn"),
        (8, -1, {}, r"actor_devices=-1 of 8"),
        (1, 1, {}, r"actor_devices=1 of 1 device\(s\) .* give fewer, or more devices"),
        (8, 3, {}, "num_envs=16 does not divide over 3 devices that act; use a multiple of 3"),
        (5, 2, {}, "num_envs=16 does not divide over 3 devices that learn"),
        (7, 1, {"buffer": WIDE}, "num_shards=8 does not divide over 6 devices that learn"),
        (3, 0, {"buffer": WIDE}, "num_shards=8 does not divide over 3 devices; use a multiple"),
    ],
)
def test_bad_splits_are_refused(devices, acting, changes, message):
    with pytest.raises(ValueError, match=message):
        nim_loop(devices, acting, **changes)


def test_several_processes_are_refused(monkeypatch):
    mesh = data_mesh(2)
    monkeypatch.setattr("jax.process_count", lambda: 2)
    nim_loop(2, 0, mesh=mesh)
    with pytest.raises(ValueError, match="actor_devices=1 was given with 2 processes"):
        nim_loop(2, 1, mesh=mesh)


def test_a_state_of_another_kind_is_refused(ran):
    with pytest.raises(ValueError, match="a loop without actor_devices"):
        step(nim_loop(2, 1), begun((1, 0)))
    with pytest.raises(ValueError, match="a loop with actor_devices"):
        step(nim_loop(1, 0), begun((2, 1)))
    saved = ran[2, 1][3]
    with pytest.raises(CheckpointError, match=r"another configuration: it has \.handover\..*"):
        saved.restore(template(nim_loop(1, 0)))
