"""A small AlphaZero on Nim that the tests of zero-train and zero-app share."""

import functools as ft

import equinox as eqx
import jax
import jax.random as jr
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from zero_envs.testing import Nim
from zero_memory import EpisodeBuffer
from zero_search import DirichletNoise, TreeSearch
from zero_train import data_mesh, EnvironmentModel, ExpertIteration, Loop


class TinyNet(eqx.Module):
    """One hidden layer over the one-hot heap."""

    hidden: eqx.nn.Linear
    policy: eqx.nn.Linear
    value: eqx.nn.Linear

    def __init__(self, size: int, actions: int, width: int = 16, *, key: PRNGKeyArray):
        hkey, pkey, vkey = jr.split(key, 3)
        self.hidden = eqx.nn.Linear(size, width, key=hkey)
        self.policy = eqx.nn.Linear(width, actions, key=pkey)
        self.value = eqx.nn.Linear(width, "scalar", key=vkey)

    def __call__(
        self, features: Float[Array, " size"]
    ) -> tuple[Float[Array, " actions"], Float[Array, ""]]:
        hidden = jax.nn.relu(self.hidden(features))
        return self.policy(hidden), jax.numpy.tanh(self.value(hidden))


@ft.cache
def tiny_net(size: int, actions: int, width: int):
    """Makes a network. As one program, which is traced once: every player is made from its shapes
    anew."""
    return eqx.filter_jit(ft.partial(TinyNet, size, actions, width))


def nim_agent(env: Nim, width: int = 16, **changes) -> ExpertIteration:
    network = tiny_net(env.heap + 1, env.num_actions, width)
    search = ft.partial(TreeSearch.alphazero, 8, max_nodes=17, reuse=True)
    fields = dict(
        network=network,
        optimiser=optax.adam(1e-2),
        model=ft.partial(EnvironmentModel, env),
        explorer=search(noise=DirichletNoise(0.25, 3.0), temperature=1.0),
        planner=search(),
    )
    return ExpertIteration.alphazero(**{**fields, **changes})


def nim_loop(num_devices: int, **changes) -> Loop:
    env = Nim(heap=7, most=3)
    fields = dict(
        env=env,
        agent=nim_agent(env),
        buffer=EpisodeBuffer(capacity=32, num_envs=16, batch_size=32, num_players=2, num_shards=8),
        augment=None,
        unroll_length=4,
        num_updates=2,
        mesh=data_mesh(num_devices),
    )
    return Loop(**{**fields, **changes})
