"""Rings of rows, and the windows that can be cut out of them."""

from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from flashbax.buffers import trajectory_buffer as flashbax
from jaxtyping import Array, Float, Int, PyTree

from ._buffer import AbstractBuffer, Batch
from ._checks import check_example, check_items, check_shards, is_known
from ._rings import repeat


State = TypeVar("State")

# chex dataclasses hide their constructors from type checkers.
_RingState: Any = flashbax.TrajectoryBufferState


class TrajectoryState(eqx.Module):
    """The contents of a [`zero_memory.TrajectoryBuffer`][] or [`zero_memory.Latest`][].

    **Attributes:**

    - `ring`: the state of one flashbax trajectory buffer a shard, along a leading axis: its
        `experience[shards, envs, capacity, ...]`, the `current_index[shards]` that is written
        next, and whether it `is_full[shards]`. All environments are written at once.
    - `shard`: the number of each shard among all of them.
    """

    ring: flashbax.TrajectoryBufferState
    shard: Int[Array, " shards"]


class AbstractWindowBuffer(AbstractBuffer[State]):
    """What the buffers of windows have in common; their attributes say what it means."""

    capacity: eqx.AbstractVar[int]
    num_envs: eqx.AbstractVar[int]
    batch_size: eqx.AbstractVar[int]
    length: eqx.AbstractVar[int]
    num_shards: eqx.AbstractVar[int]


def empty_windows(buffer: AbstractWindowBuffer, example: PyTree[Array]) -> TrajectoryState:
    """Rings in which nothing was written; their slots hold copies of `example`."""
    check_example(example)
    shards = (buffer.num_shards,)
    axes = (*shards, buffer.num_envs // buffer.num_shards, buffer.capacity)
    ring = _RingState(
        experience=jax.tree.map(lambda x: repeat(x, axes), example),
        current_index=jnp.zeros(shards, jnp.int32),
        is_full=jnp.zeros(shards, bool),
    )
    return TrajectoryState(ring=ring, shard=jnp.arange(buffer.num_shards, dtype=jnp.int32))


def write(
    buffer: AbstractWindowBuffer, state: TrajectoryState, items: PyTree[Array]
) -> TrajectoryState:
    """Appends `items[envs, time]`; what is oldest makes room."""
    num_shards, envs_per_shard = shards_of(buffer, state)

    def flat(x: Array) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((num_shards * envs_per_shard, *x.shape[2:]), x.dtype)

    _, time = check_items(jax.tree.map(flat, state.ring.experience), items, 2)
    if not 1 <= time <= buffer.capacity:
        raise ValueError(
            f"items of {time} rows an environment with capacity={buffer.capacity}: give 1 to "
            "capacity at a time."
        )
    items = jax.tree.map(lambda x: x.reshape(num_shards, envs_per_shard, *x.shape[1:]), items)
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        ring = jax.vmap(flashbax.add)(state.ring, items)
    return TrajectoryState(ring=ring, shard=state.shard)


def shards_of(buffer: AbstractWindowBuffer, state: TrajectoryState) -> tuple[int, int]:
    """How many shards there are here, and environments in each."""
    num_shards, envs_per_shard = jax.tree.leaves(state.ring.experience)[0].shape[:2]
    check_shards(buffer, num_shards * envs_per_shard, state.shard.shape[0])
    return num_shards, envs_per_shard


def num_rows(buffer: AbstractWindowBuffer, state: TrajectoryState) -> Int[Array, " shards"]:
    """How many rows an environment holds."""
    return jnp.where(state.ring.is_full, buffer.capacity, state.ring.current_index)


def check_complete(buffer: AbstractWindowBuffer, state: TrajectoryState) -> None:
    """Refuses to sample where no window is complete, if that is known."""
    rows = num_rows(buffer, state)
    if is_known(rows) and max(rows.tolist()) < buffer.length:
        raise ValueError(
            f"{max(rows.tolist())} rows an environment and windows of "
            f"length={buffer.length}: add until the buffer is `ready`."
        )


def oldest(state: TrajectoryState) -> Int[Array, " shards"]:
    """The slot of the oldest row."""
    return jnp.where(state.ring.is_full, state.ring.current_index, 0)


def num_starts(rows: Int[Array, "*axes"], length: int, period: int) -> Int[Array, "*axes"]:
    """How many windows of `length` lie in so many rows, one every `period` from the oldest on."""
    return jnp.maximum((rows - length) // period + 1, 0)


def cut(
    buffer: AbstractWindowBuffer,
    state: TrajectoryState,
    env: Int[Array, "shards draws"],
    start: Int[Array, "shards draws"],
    weights: Float[Array, "shards draws"],
) -> Batch:
    """The windows of environment `env` in each shard that begin at slot `start`.

    The slots of a window follow each other round the ring: whether it is a window in time as
    well, not across the place that is written next, is the caller's affair.
    """
    num_shards, envs_per_shard = shards_of(buffer, state)
    time = jnp.arange(buffer.length, dtype=jnp.int32)
    slot = (start[:, :, None] + time[None, None]) % buffer.capacity
    here = jnp.arange(num_shards, dtype=jnp.int32)[:, None, None]
    everywhere = (state.shard * envs_per_shard)[:, None] + env
    rows = (num_shards * env.shape[1], buffer.length)

    def gather(x: Array) -> Array:
        return x[here, env[:, :, None], slot].reshape(*rows, *x.shape[3:])

    return Batch(
        items=jax.tree.map(gather, state.ring.experience),
        weights=jnp.broadcast_to(weights.reshape(-1, 1), rows),
        indices=(everywhere[:, :, None] * buffer.capacity + slot).reshape(rows),
    )
