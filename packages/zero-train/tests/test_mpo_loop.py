"""MPO in the loop over several devices: what crosses them, and what its actors note."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import scipy.stats

from zero_memory import TrajectoryBuffer
from zero_train import data_mesh, init, Loop, step

from .actor_critics import Aim, aimer, each, mpo, rates
from .crossings import check_crossings, check_update


ENVS, UNROLL = 16, 4


@pytest.fixture(scope="module")
def ran():
    """Loop, and the states after one step, on the host, and after two."""
    buffer = TrajectoryBuffer(capacity=8, num_envs=ENVS, batch_size=16, length=4, num_shards=8)
    agent = aimer(mpo, **rates(1e-2, 1e-2))
    loop = Loop(
        env=Aim(),
        agent=agent,
        buffer=buffer,
        unroll_length=UNROLL,
        num_updates=2,
        mesh=data_mesh(8),
    )
    state = init(loop, key=jr.key(0))
    state, _ = step(loop, state)
    before = jax.tree.map(jnp.asarray, jax.device_get(state.agent))
    return loop, before, step(loop, state)[0]


def test_only_sums_cross_devices(ran, collectives):
    """Of sampling candidates too, which is done on every device for its own rows."""
    loop, _, state = ran
    check_crossings(loop, state, collectives)


def test_an_update_waits_for_other_devices_twice(ran, collectives, sums_in_turn):
    loop, _, state = ran
    check_update(loop, state, collectives, sums_in_turn)


def test_rows_say_how_likely_their_actions_were(ran):
    """Under the policy and the statistics that were there when the block was collected: those that
    learning has moved on to since are others."""
    loop, before, state = ran
    rows = jax.tree.map(
        lambda x: np.asarray(x).reshape(ENVS, -1, *x.shape[3:])[:, UNROLL:],
        state.buffer.ring.experience,
    )

    def log_prob(agent: Any) -> np.ndarray:
        normal = agent.online.statistics.normalise(jnp.asarray(rows.obs.features))
        policy = each(loop.agent.policy, agent.online.policy, normal)
        return scipy.stats.norm.logpdf(rows.action, policy.loc, policy.scale).sum(-1)

    np.testing.assert_allclose(rows.record.log_prob, log_prob(before), rtol=1e-3, atol=1e-3)
    after = jax.tree.map(jnp.asarray, jax.device_get(state.agent))
    assert np.max(np.abs(rows.record.log_prob - log_prob(after))) > 0.01
