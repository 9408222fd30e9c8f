"""PPO with memory: windows are read with the memory that acted, and it recalls what was seen."""

import functools as ft
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from zero_envs import AbstractDiscreteEnvironment, Observation, Transition
from zero_memory import Batch, Latest
from zero_train import fill, init, Loop, PPO, rollout, step

from .test_ppo import Both


class RecallState(eqx.Module):
    sign: Int[Array, ""]
    steps: Int[Array, ""]


class Recall(AbstractDiscreteEnvironment[RecallState]):
    """Shows a sign once, and pays for playing it two steps later."""

    num_actions: int = eqx.field(init=False, default=2)
    hidden: bool = eqx.field(init=False, default=False)

    def init(self, *, key: PRNGKeyArray) -> RecallState:
        return RecallState(jr.bernoulli(key).astype(jnp.int32), jnp.zeros((), jnp.int32))

    def step(
        self, state: RecallState, action: Int[Array, ""], *, key: PRNGKeyArray
    ) -> tuple[RecallState, Transition]:
        del key
        over = state.steps >= 3
        right = (state.steps == 2) & (action == state.sign)
        after = RecallState(state.sign, jnp.minimum(state.steps + 1, 3))
        last = after.steps >= 3
        return after, Transition(
            right.astype(jnp.float32), (~last).astype(jnp.float32), last | over
        )

    def observe(self, state: RecallState) -> Observation:
        shown = jnp.where(state.steps == 0, 2 * state.sign - 1, 0).astype(jnp.float32)
        time = jax.nn.one_hot(state.steps, 3, dtype=jnp.float32)
        return Observation(jnp.append(time, shown), jnp.ones(2, bool))


class Remembering(eqx.Module):
    """A policy and a value of a recurrent cell."""

    cell: eqx.nn.GRUCell
    both: Both

    def __init__(self, *, key: PRNGKeyArray):
        ckey, bkey = jr.split(key)
        self.cell = eqx.nn.GRUCell(4, 8, key=ckey)
        self.both = Both(8, 2, key=bkey)

    def init(self) -> Float[Array, " size"]:
        return jnp.zeros(8)

    def __call__(self, features: Array, memory: Array) -> tuple[Any, Array]:
        memory = self.cell(features, memory)
        return self.both(memory), memory

    def scan(
        self, features: Array, resets: Bool[Array, " time"], memory: Array
    ) -> tuple[Any, Array]:
        def body(memory: Array, row: tuple[Array, Array]) -> tuple[Array, Any]:
            out, memory = self(row[0], jnp.where(row[1], self.init(), memory))
            return memory, out

        memory, out = jax.lax.scan(body, memory, (features, resets))
        return out, memory


def recall_loop(network: Any) -> Loop:
    agent = PPO(network, optax.adam(2e-2), gamma=1.0, entropy_bonus=1e-2)
    buffer = Latest(capacity=17, num_envs=32, batch_size=32, length=9)
    return Loop(env=Recall(), agent=agent, buffer=buffer, unroll_length=16, num_updates=4)


def test_windows_are_read_with_the_memory_that_acted():
    """A window that begins within an episode is read as it was acted in, so before the first
    gradient step no probability has changed; with another memory they have."""
    loop = recall_loop(Remembering)
    agent: Any = loop.agent
    state = agent.init(key=jr.key(0))
    rows = rollout(
        loop.env, agent.actor(state, explore=True), num_steps=12, num_envs=8, key=jr.key(1)
    )
    rows = jax.tree.map(lambda x: x[:, 2:], rows)  # the first rows are the last of an episode
    assert rows.last.any() and not rows.last[:, :1].any()
    batch = Batch(rows, jnp.ones(rows.last.shape), jnp.zeros(rows.last.shape, jnp.int32))
    update = eqx.filter_jit(agent.update)
    _, metrics = update(state, batch, key=jr.key(2))
    assert float(metrics["kl"]) == pytest.approx(0, abs=1e-6) and not metrics["clipped"]
    forgotten = eqx.tree_at(lambda b: b.items.record.memory, batch, replace_fn=jnp.zeros_like)
    _, metrics = update(state, forgotten, key=jr.key(2))
    assert float(metrics["kl"]) > 1e-6


def returns_of(loop: Loop, *, steps: int) -> float:
    """The mean return of episodes after so many steps of the loop."""
    state = fill(loop, init(loop, key=jr.key(0)))
    for _ in range(steps):
        state, metrics = step(loop, state)
        assert np.isfinite(metrics["gradient_norm"])
    ended = np.asarray(state.episodes.finished.lengths) > 0
    return float(np.asarray(state.episodes.finished.returns)[ended].mean())


def test_only_memory_recalls():
    assert returns_of(recall_loop(Remembering), steps=60) > 0.9
    assert returns_of(recall_loop(ft.partial(Both, 4, 2)), steps=60) < 0.7
