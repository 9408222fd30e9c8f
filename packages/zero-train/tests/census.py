"""An agent that learns nothing but what its blocks hold, for the tests of both kinds of loops."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from zero_envs.testing import Nim
from zero_memory import Batch, TrajectoryBuffer
from zero_train import (
    AbstractBlockAgent,
    data_mesh,
    Experience,
    fill,
    init,
    Loop,
    LoopState,
    RandomActor,
    step,
)


ENV = Nim(heap=7, most=3)
ENVS, UNROLL, STEPS = 16, 4, 2


class CensusState(eqx.Module):
    """Rows seen with each heap, blocks seen, and updates."""

    heaps: Float[Array, " heaps"]
    blocks: Int[Array, ""]
    updates: Int[Array, ""]


class Census(AbstractBlockAgent[CensusState]):
    """Plays at random, counts the heaps of all rows, and says how many there were at an update."""

    def init(self, *, key: PRNGKeyArray) -> CensusState:
        del key
        return CensusState(jnp.zeros(8), jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32))

    def actor(self, state: CensusState, *, explore: bool) -> RandomActor:
        del state, explore
        return RandomActor()

    def update(
        self, state: CensusState, batch: Batch, *, key: PRNGKeyArray
    ) -> tuple[CensusState, dict[str, Float[Array, ""]]]:
        del batch, key
        seen = jnp.sum(state.heaps)
        return CensusState(state.heaps, state.blocks, state.updates + 1), {"seen": seen}

    def digest(
        self, state: CensusState, rows: Experience
    ) -> tuple[CensusState, dict[str, Float[Array, ""]]]:
        heaps = state.heaps + jnp.sum(rows.obs.features, axis=(0, 1))
        ends = jnp.sum(rows.last, dtype=jnp.float32)
        return CensusState(heaps, state.blocks + 1, state.updates), {"ends": ends}


def census_loop(num_devices: int, actor_devices: int = 0) -> Loop:
    """A buffer that two blocks make ready, and that keeps all of this loop's rows."""
    buffer = TrajectoryBuffer(
        capacity=(2 + STEPS) * UNROLL, num_envs=ENVS, batch_size=16, length=2 * UNROLL, num_shards=8
    )
    mesh = data_mesh(num_devices)
    return Loop(
        env=ENV,
        agent=Census(),
        buffer=buffer,
        unroll_length=UNROLL,
        num_updates=3,
        mesh=mesh,
        actor_devices=actor_devices,
    )


def stored(state: LoopState, blocks: slice) -> Any:
    """The rows `[envs, time, ...]` of these blocks."""
    time = slice(blocks.start * UNROLL, blocks.stop * UNROLL)
    flat = lambda x: np.asarray(x).reshape(ENVS, -1, *x.shape[3:])[:, time]
    return jax.tree.map(flat, state.buffer.ring.experience)


def check_census(loop: Loop) -> list[np.ndarray]:
    """Every block that is stored is shown to the agent once, before the updates of its step: while
    the buffer fills and later, whole, and of the metrics the newest block's.

    **Returns:** the heaps counted after filling and after each step.
    """
    state = fill(loop, init(loop, key=jax.random.key(0)))
    counts = []
    for done in range(STEPS + 1):
        every = stored(state, slice(0, 2 + done))
        heaps = every.obs.features.sum(axis=(0, 1))
        assert heaps.sum() == ENVS * UNROLL * (2 + done) and heaps[0] == every.last.sum() > 0
        assert int(state.agent.blocks) == 2 + done and int(state.agent.updates) == 3 * done
        np.testing.assert_array_equal(state.agent.heaps, heaps)
        counts.append(np.asarray(state.agent.heaps))
        if done < STEPS:
            state, metrics = step(loop, state)
            assert float(metrics["seen"]) == ENVS * UNROLL * (3 + done)
            newest = stored(state, slice(2 + done, 3 + done))
            assert float(metrics["ends"]) == newest.last.sum() == float(metrics["games"])
    return counts
