"""MuZero with memory: what is stored, what windows are read with, and that it recalls."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
import pytest
from jaxtyping import Array

from zero_memory import PrioritisedTrajectoryBuffer
from zero_search import TreeSearch
from zero_train import data_mesh, Loop, MuZero

from .test_ppo_memory import Recall, returns_of


SIZE = 8


class Cell(eqx.Module):
    """A recurrent cell, whose result is its new memory."""

    cell: eqx.nn.GRUCell

    def init(self):
        return jnp.zeros(SIZE)

    def __call__(self, features, memory):
        memory = self.cell(features, memory)
        return memory, memory

    def scan(self, features, resets, memory):
        def body(memory, row):
            memory = self.cell(row[0], jnp.where(row[1], self.init(), memory))
            return memory, memory

        memory, said = jax.lax.scan(body, memory, (features, resets))
        return said, memory


class Told(eqx.Module):
    """A model of the pair of features and what a memory says of them."""

    encode: eqx.nn.Linear
    move: eqx.nn.MLP
    heads: eqx.nn.MLP

    def __init__(self, *, key: Array):
        keys = jr.split(key, 3)
        self.encode = eqx.nn.Linear(4 + SIZE, 16, key=keys[0])
        self.move = eqx.nn.MLP(16 + 2, 17, 32, 1, key=keys[1])
        self.heads = eqx.nn.MLP(16, 3, 32, 1, key=keys[2])

    def represent(self, seen):
        return jnp.tanh(self.encode(jnp.concatenate(seen)))

    def step(self, hidden, action):
        out = self.move(jnp.concatenate([hidden, jax.nn.one_hot(action, 2)]))
        return jnp.tanh(hidden + out[1:]), out[0]

    def predict(self, hidden):
        out = self.heads(hidden)
        return out[:2], out[2]


class Recalling(eqx.Module):
    """The same with the memory."""

    memory: Cell
    told: Told

    def __init__(self, *, key: Array):
        self.memory = Cell(eqx.nn.GRUCell(4, SIZE, key=jr.fold_in(key, 1)))
        self.told = Told(key=key)

    def represent(self, seen):
        return self.told.represent(seen)

    def step(self, hidden, action):
        return self.told.step(hidden, action)

    def predict(self, hidden):
        return self.told.predict(hidden)


class Forgetting(Told):
    """The same without memory."""

    def represent(self, seen):
        return super().represent((seen, jnp.zeros(SIZE)))


def agent_of(network: Any = Recalling, **changes: Any) -> MuZero:
    fields: dict[str, Any] = dict(
        network=network,
        optimiser=optax.adam(5e-3),
        explorer=TreeSearch.gumbel(8),
        planner=TreeSearch.gumbel(8, gumbel_scale=0.0),
        gamma=1.0,
        num_unroll=2,
        n_steps=3,
        bootstrap="network",
        memory_steps=3,
    )
    return MuZero(**{**fields, **changes})


def recall_loop(agent: MuZero, *, devices: int = 1) -> Loop:
    buffer = PrioritisedTrajectoryBuffer(
        capacity=64, num_envs=32, batch_size=64, length=9, alpha=0.0, num_shards=devices
    )
    sizes: dict[str, Any] = dict(unroll_length=8, num_updates=8, mesh=data_mesh(devices))
    return Loop(env=Recall(), agent=agent, buffer=buffer, **sizes)


@pytest.mark.slow
def test_only_memory_recalls():
    assert returns_of(recall_loop(agent_of()), steps=60) > 0.9
    forgetting = agent_of(Forgetting, memory_steps=0)
    assert returns_of(recall_loop(forgetting), steps=60) < 0.7
