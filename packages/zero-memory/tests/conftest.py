import jax.numpy as jnp
import numpy as np
import pytest


@pytest.fixture(scope="package")
def walked():
    """The worked example: 4 environments, 30 slots, names `4 * ply + env`, batches of 10."""
    from zero_memory import EpisodeBuffer

    from .helpers import init, method, reader, rows

    buffer = EpisodeBuffer(capacity=30, num_envs=4, batch_size=10)
    add, assign = method("add_experience"), method("assign_rewards")
    state = init(buffer, rows(0))
    for ply in range(11):
        state = add(buffer, state, rows(4 * ply + np.arange(4)))
    first = jnp.asarray([[1.0, 0.0], [0.5, 0.5], [7.0, 7.0], [0.5, 0.5]])
    state = assign(buffer, state, first, np.array([True, True, False, True]))
    for ply in range(11, 22):
        state = add(buffer, state, rows(4 * ply + np.arange(4)))
    second = jnp.asarray([[1.0, 0.0]] * 4)
    state = assign(buffer, state, second, np.array([True, False, True, True]))
    state = method("truncate")(buffer, state, np.array([False, True, True, False]))
    return buffer, state, reader(buffer)
