"""Rings of rows, and the windows that can be cut out of them."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from flashbax.buffers import trajectory_buffer as flashbax
from jaxtyping import Array, Float, Int, PyTree

from ._buffer import AbstractBuffer, Batch
from ._checks import check_example, check_items, check_kind, check_sizes, check_state, is_known
from ._rings import repeat


# chex dataclasses hide their constructors from type checkers.
_RingState: Any = flashbax.TrajectoryBufferState


class TrajectoryState(eqx.Module):
    """The contents of a [`zero_memory.TrajectoryBuffer`][] or [`zero_memory.Latest`][].

    **Attributes:**

    - `ring`: the states of flashbax trajectory buffers, one for each shard, along a leading axis:
        the rows `experience[shards, envs, capacity, ...]`, the slot `current_index[shards]` that
        is written next, and whether the ring `is_full[shards]`.
    - `shard`: the number of each shard among all of them.
    """

    ring: flashbax.TrajectoryBufferState
    shard: Int[Array, " shards"]


class AbstractWindowBuffer(AbstractBuffer[TrajectoryState]):
    """A buffer that keeps the latest rows of every environment, and samples windows of them."""

    capacity: eqx.AbstractVar[int]
    batch_size: eqx.AbstractVar[int]
    length: eqx.AbstractVar[int]
    num_shards: eqx.AbstractVar[int]

    def init(self, example: PyTree[Array]) -> TrajectoryState:
        check_example(example)
        shards = (self.num_shards,)
        axes = (*shards, self.num_envs // self.num_shards, self.capacity)
        ring = _RingState(
            experience=jax.tree.map(lambda x: repeat(x, axes), example),
            current_index=jnp.zeros(shards, jnp.int32),
            is_full=jnp.zeros(shards, bool),
        )
        return TrajectoryState(ring=ring, shard=jnp.arange(self.num_shards, dtype=jnp.int32))

    def add(self, state: TrajectoryState, items: PyTree[Array]) -> TrajectoryState:
        """Appends `items[envs, time]`, at most `capacity` rows, over the oldest rows."""
        num_shards, envs_per_shard = self._shards(state)
        flat = lambda x: jax.ShapeDtypeStruct((num_shards * envs_per_shard, *x.shape[2:]), x.dtype)
        _, time = check_items(jax.tree.map(flat, state.ring.experience), items, 2)
        if not 1 <= time <= self.capacity:
            raise ValueError(
                f"items of {time} rows an environment with capacity={self.capacity}: give 1 to "
                "capacity at a time."
            )
        items = jax.tree.map(lambda x: x.reshape(num_shards, envs_per_shard, *x.shape[1:]), items)
        with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
            ring = jax.vmap(flashbax.add)(state.ring, items)
        return TrajectoryState(ring=ring, shard=state.shard)

    def _check_sizes(self) -> None:
        """Refuses sizes below 1, and windows that the ring cannot hold."""
        check_sizes(self, "capacity", "num_envs", "batch_size", "length")
        if self.length > self.capacity:
            raise ValueError(
                f"length={self.length} with capacity={self.capacity}: give windows no longer than "
                "the ring."
            )

    def _shards(self, state: TrajectoryState) -> tuple[int, int]:
        """The number of shards on this device, and of environments in each."""
        check_kind(self, state, TrajectoryState)
        num_shards, envs_per_shard, capacity = jax.tree.leaves(state.ring.experience)[0].shape[:3]
        check_state(self, num_shards * envs_per_shard, state.shard.shape[0], capacity)
        return num_shards, envs_per_shard

    def _num_rows(self, state: TrajectoryState) -> Int[Array, " shards"]:
        """The number of rows that an environment holds."""
        self._shards(state)
        return jnp.where(state.ring.is_full, self.capacity, state.ring.current_index)

    def _num_starts(self, state: TrajectoryState, period: int) -> Int[Array, " shards"]:
        """The number of windows of an environment, one every `period` rows from the oldest on."""
        return jnp.maximum((self._num_rows(state) - self.length) // period + 1, 0)

    def _check_complete(self, state: TrajectoryState) -> None:
        """Refuses to sample if it is known that no window is complete."""
        rows = self._num_rows(state)
        if is_known(rows) and max(rows.tolist()) < self.length:
            raise ValueError(
                f"{max(rows.tolist())} rows an environment and windows of "
                f"length={self.length}: add until the buffer is `ready`."
            )

    def _cut(
        self,
        state: TrajectoryState,
        env: Int[Array, "shards draws"],
        start: Int[Array, "shards draws"],
        weights: Float[Array, "shards draws"],
    ) -> Batch:
        """Reads the windows of environment `env` in each shard that begin at slot `start`.

        The slots of a window follow each other round the ring. The caller ensures that no window
        crosses the slot that is written next.
        """
        num_shards, envs_per_shard = self._shards(state)
        time = jnp.arange(self.length, dtype=jnp.int32)
        slot = (start[:, :, None] + time[None, None]) % self.capacity
        here = jnp.arange(num_shards, dtype=jnp.int32)[:, None, None]
        everywhere = (state.shard * envs_per_shard)[:, None] + env
        rows = (num_shards * env.shape[1], self.length)
        gather = lambda x: x[here, env[:, :, None], slot].reshape(*rows, *x.shape[3:])
        return Batch(
            items=jax.tree.map(gather, state.ring.experience),
            weights=jnp.broadcast_to(weights.reshape(-1, 1), rows),
            indices=(everywhere[:, :, None] * self.capacity + slot).reshape(rows),
        )


def oldest(state: TrajectoryState) -> Int[Array, " shards"]:
    """The slot of the oldest row."""
    return jnp.where(state.ring.is_full, state.ring.current_index, 0)
