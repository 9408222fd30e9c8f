"""That SPO learns: in worlds of a few steps whose best play is known."""

import functools as ft
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from zero_envs import TimeLimit
from zero_envs.testing import Corridor
from zero_train import bind, EnvironmentModel
from zero_train.losses import Dual

from .actor_critics import (
    discrete_region,
    learned,
    LogitsNet,
    particle_search,
    rates,
    spo,
    ValueNet,
)


def test_it_walks_the_shortest_way():
    """From a policy that wanders: the network goes right everywhere, and knows what that pays."""
    env = TimeLimit(Corridor(5), 12)
    agent: Any = spo(
        True,
        policy=ft.partial(LogitsNet, 5, 2),
        critic=ft.partial(ValueNet, 5),
        model=ft.partial(EnvironmentModel, env),
        explorer=particle_search(num_particles=16),
        planner=particle_search(num_particles=16, readout="argmax"),
        region=discrete_region(epsilon=0.5, temperature=Dual.from_value(0.5)),
        gamma=0.9,
        **rates(1e-2, 1e-2),
    )
    before, after = learned(env, agent, blocks=30)

    @jax.jit
    def networks(state: Any) -> tuple[Array, Array]:
        policy = bind(agent.policy, state.online.policy)
        critic = bind(agent.critic, state.online.critic)
        cells = jnp.eye(5)[:4]
        right = jax.nn.softmax(jax.vmap(policy)(cells).logits)[:, 1]
        return right, jax.vmap(critic)(cells)

    assert np.all(networks(before)[0] < 0.6)
    right, value = networks(after)
    assert np.all(right > 0.9)
    np.testing.assert_allclose(value, 0.9 ** np.arange(3, -1, -1), atol=0.1)
