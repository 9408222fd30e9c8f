"""SPO in the loop: what it is shown of every block, that devices do not matter, that it learns."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from zero_envs import Observation
from zero_memory import TrajectoryBuffer
from zero_train import (
    bind,
    data_mesh,
    fill,
    init,
    Loop,
    LoopState,
    RandomActor,
    shardings,
    SPO,
    step,
)

from .actor_critics import (
    Aim,
    aimer,
    aiming_error,
    apart,
    assert_same,
    FEATURES,
    Moments,
    mpo,
    particle_search,
    rates,
    spo,
)
from .crossings import check_crossings, check_update
from .test_loop import plain


ENVS, UNROLL, STEPS, DEPTH, PARTICLES = 16, 4, 3, 2, 8
#: Truncated after 3 steps, so that every fourth row is a final one.
ENV = Aim(max_steps=3)


def aiming_spo() -> SPO:
    search = particle_search(num_particles=PARTICLES, depth=DEPTH)
    return aimer(spo, explorer=search, planner=search, **rates(1e-2, 1e-2))


def aiming_loop(devices: int, actor_devices: int = 0) -> Loop:
    """Replay has room for all rows that the tests look at."""
    buffer = TrajectoryBuffer(capacity=32, num_envs=ENVS, batch_size=16, length=4, num_shards=8)
    mesh = data_mesh(devices)
    return Loop(
        env=ENV,
        agent=aiming_spo(),
        buffer=buffer,
        unroll_length=UNROLL,
        num_updates=8,
        mesh=mesh,
        actor_devices=actor_devices,
    )


def rows_of(state: LoopState, blocks: slice) -> Any:
    """Rows `[envs, time, ...]` of these blocks, of a buffer that nothing has left yet."""
    time = slice(blocks.start * UNROLL, blocks.stop * UNROLL)
    flat = lambda x: np.asarray(x).reshape(ENVS, -1, *x.shape[3:])[:, time]
    return jax.tree.map(flat, state.buffer.ring.experience)


def numbers(metrics: dict) -> dict[str, float]:
    return {name: float(x) for name, x in metrics.items()}


@pytest.fixture(scope="module")
def ran():
    """By devices: the loop, the agent after each step on the host, the state
    in the end where it is, and the metrics of each step. (One block is enough to learn from.)"""
    results = {}
    for devices in (1, 8):
        loop = aiming_loop(devices)
        state = init(loop, key=jr.key(0))
        agents, metrics = [], []
        for _ in range(STEPS):
            state, row = step(loop, state)
            agents.append(jax.device_get(state.agent))
            metrics.append(numbers(row))
        results[devices] = loop, agents, state, metrics
    return results


def assert_moments(statistics: Any, features: np.ndarray) -> None:
    """Count, mean and deviation of all rows."""
    rows = features.reshape(-1, features.shape[-1]).astype(np.float64)
    assert float(statistics.count) == len(rows)
    mean = statistics.total / statistics.count
    stddev = np.sqrt(statistics.squares / statistics.count - mean**2)
    np.testing.assert_allclose(mean, rows.mean(axis=0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(stddev, rows.std(axis=0), rtol=1e-4)


@pytest.mark.parametrize("devices", [1, 8])
def test_statistics_are_of_every_row_once(ran, devices):
    """After every step: mean and deviation of all rows collected until then, final ones included.
    The updates of a step do not touch them."""
    _, agents, last, _ = ran[devices]
    every = rows_of(last, slice(0, STEPS))
    assert every.last.sum() > ENVS
    for block, agent in enumerate(agents, start=1):
        assert int(agent.updates) == 8 * block
        assert_moments(agent.online.statistics, every.obs.features[:, : block * UNROLL])


def test_metrics_are_means_over_ordinary_rows(ran):
    """Of the searches of the newest block, a number a step of the particles."""
    _, _, last, metrics = ran[8]
    assert rows_of(last, slice(1, 2)).last.any()
    for block, row in enumerate(metrics):
        rows = rows_of(last, slice(block, block + 1))
        ordinary = ~rows.last
        stats = {name: x[ordinary].astype(np.float64) for name, x in rows.record.stats.items()}
        stats["kl_search"] = (np.log(PARTICLES) - stats["entropy"]) / 0.3
        named = {name: x.mean() for name, x in stats.items() if x.ndim == 1}
        for name, x in stats.items():
            if x.ndim == 2:
                assert x.shape[1] == DEPTH
                named |= {f"{name}_{i + 1}": x[:, i].mean() for i in range(DEPTH)}
        assert {"ess_fraction_2", "kl_search_1", "resampled_2", "improvement"} <= named.keys()
        assert {name: row[name] for name in named} == pytest.approx(named, rel=1e-4, abs=1e-6)
        assert row["positions"] == ordinary.sum()


def test_devices_do_not_matter(ran):
    """The same rows, replay, parameters, statistics and metrics on 1 and on 8 devices."""
    one, eight = ran[1], ran[8]
    for x, y in zip(plain(one[2]), plain(eight[2]), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-5)
    for x, y in zip(one[3], eight[3], strict=True):
        assert x == pytest.approx(y, rel=1e-3, abs=1e-5)


def test_only_sums_cross_devices(ran, collectives):
    """The statistics of new rows, gradients and metrics."""
    loop, _, state, _ = ran[8]
    check_crossings(loop, state, collectives)


def test_an_update_waits_for_other_devices_twice(ran, collectives, sums_in_turn):
    loop, _, state, _ = ran[8]
    check_update(loop, state, collectives, sums_in_turn)


def test_state_is_laid_out_as_said(ran):
    loop, _, state, _ = ran[8]
    for leaf, where in zip(
        jax.tree.leaves(state), jax.tree.leaves(shardings(loop, state)), strict=True
    ):
        assert leaf.sharding.is_equivalent_to(where, leaf.ndim)
    assert state.agent.online.statistics.total.sharding.is_fully_replicated


def test_actors_see_normalised_observations(ran):
    """Policy and values of the model that is planned over are those of the networks, of
    observations normalised by the statistics of the state."""
    agent: Any = aiming_spo()
    state = ran[1][1][-1]
    rows = rows_of(ran[1][2], slice(0, 1))
    features = jnp.asarray(rows.obs.features[0, 0])
    moments = state.online.statistics
    mean = np.asarray(moments.total / moments.count, np.float64)
    stddev = np.sqrt(np.asarray(moments.squares / moments.count, np.float64) - mean**2)
    normal = jnp.asarray((np.asarray(features) - mean) / stddev, jnp.float32)

    @eqx.filter_jit
    def heard(state, features, normal):
        evaluate = agent.actor(state, explore=True).model.evaluate
        policy, critic = state.online.policy, state.online.critic
        policy, critic = bind(agent.policy, policy), bind(agent.critic, critic)
        found = evaluate(Observation(features, None))
        return found, (policy(normal), critic(normal)), critic(features)

    found, wanted, raw = heard(state, features, normal)
    assert_same(found, wanted, rtol=1e-4, atol=1e-5)
    assert not np.allclose(found[1], raw, rtol=1e-2)


def test_it_hits_what_it_is_shown(ran):
    """The network itself, without a search. Observations are far from 0, and are only learned
    from because they are normalised."""
    loop, agents, state, _ = ran[1]
    error = lambda agent: aiming_error(loop.agent, agent)
    state = jax.jit(lambda state: jax.tree.map(jnp.copy, state))(state)  # `step` donates
    for _ in range(60):
        state, _ = step(loop, state)
    assert error(agents[0]) > 0.3 and error(state.agent) < 0.1


@pytest.mark.slow
def test_statistics_with_acting_devices():
    """The learner follows the rows that it stores, and sends what it knows to the actors."""
    loop = aiming_loop(2, 1)
    state: Any = fill(loop, init(loop, key=jr.key(0)))
    counts = lambda x: x.model.evaluate.statistics.count
    assert float(counts(state.handover.actor)) == ENVS * UNROLL
    for done in range(1, STEPS + 1):
        state, metrics = step(loop, state)
        agent = jax.device_get(state.agent)
        rows = rows_of(state, slice(0, done + 1))
        assert_moments(agent.online.statistics, rows.obs.features)
        assert state.handover is not None
        released = jax.device_get(state.handover.actor)
        assert_same(released.model.evaluate.statistics, agent.online.statistics)
        rho = np.float64(agent.online.duals["temperature"].rho)
        np.testing.assert_allclose(released.planner.temperature, np.logaddexp(0, rho), rtol=1e-5)
        newest = rows_of(state, slice(done, done + 1))
        wanted = newest.record.stats["improvement"][~newest.last].mean()
        assert float(metrics["improvement"]) == pytest.approx(wanted, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("make", [spo, mpo])
def test_an_actor_critic_begins_with_the_networks_that_its_player_has(make):
    """And their targets with the same; MPO's player has no critic. The duals are fresh."""
    agent = make(statistics=Moments.zeros(FEATURES))
    seen = jnp.arange(2 * FEATURES, dtype=jnp.float32).reshape(2, FEATURES)
    state = eqx.tree_at(lambda s: s.online.statistics, apart(agent), agent.statistics.update(seen))
    player = agent.actor(state, explore=False)
    begun, plain = agent.init(key=jr.key(7), actor=player), agent.init(key=jr.key(7))
    assert_same(begun.online.policy, state.online.policy)
    assert_same(begun.target_policy, state.online.policy)
    critic = state.online.critic if make is spo else plain.online.critic
    assert_same(begun.online.critic, critic)
    assert_same(begun.target_critic, critic)
    assert_same(begun.online.statistics, state.online.statistics)
    assert_same((begun.online.duals, begun.optimiser), (plain.online.duals, plain.optimiser))
    with pytest.raises(ValueError, match="does not fit: it has .count .* is expected"):
        make().init(key=jr.key(0), actor=player)
    said = rf"`{make.__name__.upper()}.init\(actor=RandomActor.*must be an actor of this agent"
    with pytest.raises(ValueError, match=said):
        make().init(key=jr.key(0), actor=RandomActor())
