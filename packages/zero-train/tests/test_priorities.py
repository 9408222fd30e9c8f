"""What an agent says of a batch reaches the buffer that it was drawn from."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array, Float, PRNGKeyArray

from zero_memory import Batch, PrioritisedTrajectoryBuffer, TrajectoryBuffer
from zero_train import AbstractAgent, fill, init, Loop, Metrics, RandomActor, step

from .nim_agent import nim_loop


WINDOWS = dict(capacity=16, num_envs=16, batch_size=16, length=3, num_shards=8)


class Marker(AbstractAgent[Float[Array, ""]]):
    """Learns nothing; the priority of a window is where it lies, plus 100."""

    def init(self, *, key: PRNGKeyArray) -> Float[Array, ""]:
        del key
        return jnp.zeros((), jnp.float32)

    def actor(self, state: Float[Array, ""], *, explore: bool) -> RandomActor:
        del state, explore
        return RandomActor()

    def update(
        self, state: Float[Array, ""], batch: Batch, *, key: PRNGKeyArray
    ) -> tuple[Float[Array, ""], Metrics, Float[Array, " batch"]]:
        del key
        place = batch.indices[:, 0].astype(jnp.float32)
        return state, {"loss": jnp.mean(place)}, place + 100


def marker_loop(num_devices: int) -> Loop:
    buffer = PrioritisedTrajectoryBuffer(**WINDOWS, alpha=1.0)
    return nim_loop(num_devices, agent=Marker(), buffer=buffer)


@pytest.mark.parametrize("num_devices", [1, 8])
def test_drawn_windows_get_the_priorities_that_the_agent_gave_them(num_devices):
    loop = marker_loop(num_devices)
    state = fill(loop, init(loop, key=jr.key(0)))
    state, metrics = step(loop, state)
    assert set(metrics) == {"loss", "positions", "games"}
    tree = state.buffer.priorities
    place = 100 + np.arange(16 * 16).reshape(16, 16)
    leaves = np.asarray(tree.leaves).reshape(16, -1)[:, :16]
    marked = leaves > 1
    assert marked.sum(axis=1).max() > 0
    assert np.all(leaves[marked] == place[marked])
    # Two updates of 16 windows; two of each shard.
    assert 16 <= marked.sum() <= 32
    assert np.all(np.asarray(state.buffer.updates) == loop.num_updates)


def test_the_number_of_devices_changes_no_priority():
    states = []
    for num_devices in (1, 8):
        loop = marker_loop(num_devices)
        state = fill(loop, init(loop, key=jr.key(0)))
        for _ in range(2):
            state, _ = step(loop, state)
        states.append(jax.tree.map(np.asarray, state.buffer.priorities))
    jax.tree.map(np.testing.assert_array_equal, *states)


def test_a_buffer_without_priorities_is_refused():
    loop = nim_loop(1, agent=Marker(), buffer=TrajectoryBuffer(**WINDOWS))
    state = fill(loop, init(loop, key=jr.key(0)))
    with pytest.raises(ValueError, match="Marker.update gives priorities, and TrajectoryBuffer"):
        step(loop, state)
