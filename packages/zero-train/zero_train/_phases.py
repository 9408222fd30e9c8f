"""The parts of a step: act, store, draw, learn. Each runs on the devices it belongs to."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Int, PRNGKeyArray, PyTree

from zero_memory import Batch

from ._actor import AbstractActor
from ._agent import AbstractBlockAgent, Metrics
from ._collect import Actors, collect
from ._experience import Experience
from ._loop_state import Loop
from ._mesh import global_rows, on_every_device
from ._rows import row_keys


def act(
    loop: Loop, actor: AbstractActor, actors: Actors, *, key: PRNGKeyArray
) -> tuple[Actors, Experience]:
    """Collects on every acting device by itself, the same rows however many there are.

    **Returns:** the actors, and rows of `[envs, time]`.
    """
    arrays, static = eqx.partition(actor, eqx.is_array)

    def local(arrays: PyTree, actors: Actors, key: PRNGKeyArray) -> tuple[Actors, Experience]:
        return collect(
            loop.env,
            eqx.combine(arrays, static),
            actors,
            rows=global_rows(actors.ended.shape[0]),
            key=key,
            num_steps=loop.unroll_length,
        )

    run = on_every_device(loop.actor_mesh, local, (P(), P("data"), P()))
    return run(arrays, actors, key)


def store(loop: Loop, buffer: PyTree[Array], rows: Experience) -> PyTree[Array]:
    """Adds rows of `[envs, time]`, on every learning device to its own part of the buffer."""
    return on_every_device(loop.learner_mesh, loop.buffer.add, (P("data"), P("data")))(buffer, rows)


def count(rows: Experience) -> Int[Array, "envs two"]:
    """How many positions and finished games there are in each environment's rows."""
    games = jnp.sum(rows.last, axis=1, dtype=jnp.int32)
    return jnp.stack([rows.last.shape[1] - games, games], axis=1)


def totals(counts: Int[Array, "envs two"]) -> dict[str, Int[Array, ""]]:
    """What [`zero_train.step`][] says of `count`'s."""
    positions, games = jnp.sum(counts, axis=0)
    return {"positions": positions, "games": games}


def failures(actors: Actors) -> dict[str, Int[Array, ""]]:
    """How many episodes have broken down since the run began, where any can."""
    if actors.failures is None:
        return {}
    return {"failures": jnp.sum(actors.failures)}


def digest(loop: Loop, agent: PyTree[Array], rows: Experience) -> tuple[PyTree[Array], Metrics]:
    """Shows new rows to an agent that wants to see them.

    **Returns:** the agent's state and what it says of the rows.
    """
    if isinstance(loop.agent, AbstractBlockAgent):
        return loop.agent.digest(agent, rows)
    return agent, {}


def draw(loop: Loop, buffer: PyTree[Array], *, key: PRNGKeyArray) -> Batch:
    """Samples and augments one global batch, every device from its own part of the buffer."""

    def local(buffer: PyTree, key: PRNGKeyArray) -> Batch:
        skey, akey = jr.split(key)
        batch = loop.buffer.sample(buffer, key=skey)
        if loop.augment is None:
            return batch
        augment = loop.augment
        keys = row_keys(akey, global_rows(batch.weights.shape[0]))
        items = jax.vmap(lambda row, key: augment(row, key=key))(batch.items, keys)
        return Batch(items, batch.weights, batch.indices)

    return on_every_device(loop.learner_mesh, local, (P("data"), P()))(buffer, key)


def learn(
    loop: Loop, agent: PyTree[Array], buffer: PyTree[Array], *, key: PRNGKeyArray
) -> tuple[PyTree[Array], PyTree[Array], Metrics]:
    """`num_updates` times draws a batch, updates, and gives the buffer its priorities.

    **Returns:** the agent's state, the buffer, and metrics: means over the updates.
    """

    def update(carry: tuple[PyTree, PyTree], index: Array) -> tuple[tuple, Metrics]:
        agent, buffer = carry
        dkey, ukey = jr.split(jr.fold_in(key, index))
        batch = draw(loop, buffer, key=dkey)
        agent, metrics, *priorities = loop.agent.update(agent, batch, key=ukey)
        if priorities:
            buffer = _prioritise(loop, buffer, batch, priorities[0])
        return (agent, buffer), metrics

    indices = jnp.arange(loop.num_updates, dtype=jnp.int32)
    carry = agent, buffer
    # XLA's CPU backend only makes the gradient of a convolution fast outside of control flow:
    # in a loop it takes 30 times as long. Otherwise a loop keeps compilation short.
    on_cpu = loop.mesh.devices.flat[0].platform == "cpu"
    unroll = loop.num_updates if on_cpu and _convolves(update, carry, indices[0]) else 1
    (agent, buffer), metrics = jax.lax.scan(update, carry, indices, unroll=unroll)
    return agent, buffer, jax.tree.map(jnp.mean, metrics)


def _convolves(function: Callable[..., Any], *args: PyTree) -> bool:
    return "conv_general_dilated" in str(jax.make_jaxpr(function)(*args))


def _prioritise(
    loop: Loop, buffer: PyTree[Array], batch: Batch, priorities: Array
) -> PyTree[Array]:
    update = getattr(loop.buffer, "update_priorities", None)
    if update is None:
        raise ValueError(
            f"{type(loop.agent).__name__}.update gives priorities, and "
            f"{type(loop.buffer).__name__} keeps none: use a buffer with `update_priorities`, such "
            "as zero_memory.PrioritisedTrajectoryBuffer, or leave them out."
        )
    run = on_every_device(loop.learner_mesh, update, (P("data"), P("data"), P("data")))
    return run(buffer, batch.indices, priorities)
