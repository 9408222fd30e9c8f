import jax
import jax.numpy as jnp
import numpy as np
import pytest


@pytest.fixture(scope="package")
def walked():
    """The worked example: 4 environments, 30 slots, names `4 * ply + env`, batches of 10."""
    from zero_memory import EpisodeBuffer

    from .helpers import reader, rows

    buffer = EpisodeBuffer(capacity=30, num_envs=4, batch_size=10)
    add = jax.jit(buffer.add_experience, donate_argnums=0)
    state = buffer.init(rows(0))
    for ply in range(11):
        state = add(state, rows(4 * ply + np.arange(4)))
    first = [[1.0, 0.0], [0.5, 0.5], [7.0, 7.0], [0.5, 0.5]]
    state = buffer.assign_rewards(state, jnp.asarray(first), jnp.asarray([True, True, False, True]))
    for ply in range(11, 22):
        state = add(state, rows(4 * ply + np.arange(4)))
    second = jnp.asarray([[1.0, 0.0]] * 4)
    state = buffer.assign_rewards(state, second, jnp.asarray([True, False, True, True]))
    state = buffer.truncate(state, jnp.asarray([False, True, True, False]))
    return buffer, state, reader(buffer)
