"""Collect, store, learn: one jitted step over a mesh."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from jaxtyping import Array, Int, PRNGKeyArray, PyTree

from zero_envs import AbstractEnvironment
from zero_memory import AbstractBuffer, Batch

from ._agent import AbstractAgent, Metrics
from ._collect import Actors, collect, start
from ._mesh import global_rows, on_every_device
from ._rows import row_keys


#: `fill` gives up after so many collections: no game is that long.
_MAX_FILLS = 1_000


class LoopState(eqx.Module):
    """Everything that evolves: saved whole, a run resumes exactly where it was.

    **Attributes:**

    - `agent`: parameters and optimiser state, the same on every device.
    - `actors`: the environments and what the actor keeps between moves, split over the mesh.
    - `buffer`: replay, split over the mesh.
    - `key`: never consumed, only folded with `step`.
    - `step`: how often [`zero_train.step`][] and `fill` have collected.
    """

    agent: PyTree[Array]
    actors: Actors
    buffer: PyTree[Array]
    key: PRNGKeyArray
    step: Int[Array, ""]


class Loop(eqx.Module):
    """What is trained, on what, and how much of each.

    **Attributes:**

    - `env`, `agent`, `buffer`: the parts.
    - `augment`: `(row, *, key) -> row` for one sampled row of `Batch.items`, or `None`.
    - `num_envs`: environments acted in at once, over all devices.
    - `unroll_length`: rows collected from each environment per step.
    - `num_updates`: batches sampled and learned from per step.
    - `mesh`: see [`zero_train.data_mesh`][].
    """

    env: AbstractEnvironment
    agent: AbstractAgent
    buffer: AbstractBuffer
    augment: Callable[..., PyTree[Array]] | None
    num_envs: int
    unroll_length: int
    num_updates: int
    mesh: Mesh

    def __check_init__(self) -> None:
        for name in ("num_envs", "unroll_length", "num_updates"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} was given; it must be at least 1.")
        devices = self.mesh.shape["data"]
        if self.num_envs % devices:
            raise ValueError(
                f"num_envs={self.num_envs} does not divide over {devices} devices; "
                f"use a multiple of {devices}."
            )


def shardings(loop: Loop, state: LoopState) -> LoopState:
    """Where every leaf of `state` lives: a pytree of `NamedSharding`s in its structure."""
    split = NamedSharding(loop.mesh, P("data"))
    whole = NamedSharding(loop.mesh, P())
    return eqx.tree_at(
        lambda s: (s.actors, s.buffer),
        jax.tree.map(lambda _: whole, state),
        jax.tree.map(lambda _: split, (state.actors, state.buffer)),
    )


def init(loop: Loop, *, key: PRNGKeyArray) -> LoopState:
    """Fresh parameters, environments and an empty buffer, laid out over the mesh."""

    return jax.jit(_build(loop), out_shardings=shardings(loop, _shape(loop)))(key)


def template(loop: Loop) -> LoopState:
    """Shapes, dtypes and places of a state, without one: what a checkpoint is restored into."""
    shape = _shape(loop)
    place = lambda x, where: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=where)
    return jax.tree.map(place, shape, shardings(loop, shape))


def fill(loop: Loop, state: LoopState) -> LoopState:
    """Collects and stores, without learning, until the buffer is ready.

    **Raises:** `ValueError` where the buffer is not ready even after every environment could have
    filled it many times over: it never will be.
    """
    for _ in range(_MAX_FILLS):
        if bool(loop.buffer.ready(state.buffer)):
            return state
        state = _collect(loop, state)
    raise ValueError(
        f"the buffer {loop.buffer} is not ready after {_MAX_FILLS * loop.unroll_length} rows of "
        f"{loop.num_envs} environments; give it more room or a smaller batch."
    )


@eqx.filter_jit(donate="all-except-first")
def step(loop: Loop, state: LoopState) -> tuple[LoopState, Metrics]:
    """Collects, stores, then `num_updates` times samples, augments and updates.

    One jitted call; `state` is donated. Where the agent's metrics hold `priorities`, the buffer is
    given them before the next batch is drawn.

    **Returns:** the state, and metrics: means over the updates, with `positions` (ordinary rows
    collected) and `games` (episodes finished) of this step.
    """
    actors, buffer, counts = collect_and_store(loop, state)
    key = jr.fold_in(state.key, 2 * state.step + 1)

    def update(carry: tuple[PyTree, PyTree], index: Array) -> tuple[tuple, Metrics]:
        agent, buffer = carry
        dkey, ukey = jr.split(jr.fold_in(key, index))
        batch = draw(loop, buffer, key=dkey)
        agent, metrics = loop.agent.update(agent, batch, key=ukey)
        if "priorities" in metrics:
            buffer = _prioritise(loop, buffer, batch, metrics["priorities"])
        return (agent, buffer), {k: x for k, x in metrics.items() if k != "priorities"}

    indices = jnp.arange(loop.num_updates, dtype=jnp.int32)
    # XLA's CPU backend only makes the gradient of a convolution fast outside of control flow:
    # in a loop it takes 30 times as long. Elsewhere a loop keeps compilation short.
    on_cpu = loop.mesh.devices.flat[0].platform == "cpu"
    unroll = loop.num_updates if on_cpu else 1
    carry = state.agent, buffer
    (agent, buffer), metrics = jax.lax.scan(update, carry, indices, unroll=unroll)
    positions, games = jnp.sum(counts, axis=0)
    metrics = jax.tree.map(jnp.mean, metrics) | {"positions": positions, "games": games}
    return _placed(
        loop, LoopState(agent, actors, buffer, jr.clone(state.key), state.step + 1)
    ), metrics


def collect_and_store(loop: Loop, state: LoopState) -> tuple[Actors, PyTree[Array], Array]:
    """The part of a step that runs on every device by itself, without communication.

    **Returns:** the actors, the buffer, and `[envs, 2]` counts of positions and finished games.
    """

    def local(agent: PyTree, actors: Actors, buffer: PyTree, key: PRNGKeyArray) -> Any:
        num_rows = actors.ended.shape[0]
        actor = loop.agent.actor(agent, explore=True)
        actors, rows = collect(
            loop.env,
            actor,
            actors,
            rows=global_rows(num_rows),
            key=key,
            num_steps=loop.unroll_length,
        )
        games = jnp.sum(rows.last, axis=1, dtype=jnp.int32)
        counts = jnp.stack([loop.unroll_length - games, games], axis=1)
        return actors, loop.buffer.add(buffer, rows), counts

    key = jr.fold_in(state.key, 2 * state.step)
    run = on_every_device(loop.mesh, local, (P(), P("data"), P("data"), P()))
    return run(state.agent, state.actors, state.buffer, key)


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

    return on_every_device(loop.mesh, local, (P("data"), P()))(buffer, key)


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
    run = on_every_device(loop.mesh, update, (P("data"), P("data"), P("data")))
    return run(buffer, batch.indices, priorities)


@eqx.filter_jit(donate="all-except-first")
def _collect(loop: Loop, state: LoopState) -> LoopState:
    actors, buffer, _ = collect_and_store(loop, state)
    return _placed(
        loop, LoopState(state.agent, actors, buffer, jr.clone(state.key), state.step + 1)
    )


def _placed(loop: Loop, state: LoopState) -> LoopState:
    return jax.lax.with_sharding_constraint(state, shardings(loop, state))


def _shape(loop: Loop) -> LoopState:
    return jax.eval_shape(_build(loop), jr.key(0))


def _build(loop: Loop) -> Callable[[PRNGKeyArray], LoopState]:
    def build(key: PRNGKeyArray) -> LoopState:
        akey, ekey, lkey = jr.split(key, 3)
        agent = loop.agent.init(key=akey)
        rows = jnp.arange(loop.num_envs, dtype=jnp.int32)
        actor = loop.agent.actor(agent, explore=True)
        actors = start(loop.env, actor, keys=row_keys(ekey, rows))
        one_row = jax.eval_shape(
            lambda: collect(loop.env, actor, actors, rows=rows, key=lkey, num_steps=1)[1]
        )
        example = jax.tree.map(lambda x: jnp.zeros(x.shape[2:], x.dtype), one_row)
        buffer = loop.buffer.init(example)
        return LoopState(agent, actors, buffer, lkey, jnp.zeros((), jnp.int32))

    return build
