"""The latest rows only, for learning on policy."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Int, PRNGKeyArray, PyTree

from ._buffer import Batch
from ._checks import check_length, check_sizes
from ._distinct import distinct_ranks
from ._windows import (
    AbstractWindowBuffer,
    check_complete,
    cut,
    empty_windows,
    num_rows,
    num_starts,
    oldest,
    TrajectoryState,
    write,
)


class Latest(AbstractWindowBuffer[TrajectoryState]):
    """Keeps the rows that were just collected, and hands them out in shuffled minibatches.

    For learning on policy: make `capacity` the number of rows that are collected at a time, and
    every `add` replaces all that was there. One more, and the last row, which was only
    bootstrapped from, is the first to learn from next time.

    The rows of an environment are cut into windows of `length`, one every `period`.

    **Attributes:**

    - `capacity`: rows kept of each environment: a window, and `period` more for each other.
    - `num_envs`: environments, over all shards.
    - `batch_size`: windows in a minibatch, over all shards; divides the number of all windows.
    - `length`: rows in a window.
    - `period`: by default `length - 1` (1, if that is 0): a window starts with the row that the
        one before it ended with, and bootstrapped from.
    - `num_shards`: parts that share nothing, for `jax.shard_map`.
    """

    capacity: int = eqx.field(static=True)
    num_envs: int = eqx.field(static=True)
    batch_size: int = eqx.field(static=True)
    length: int = eqx.field(static=True)
    period: int | None = eqx.field(static=True, default=None)
    num_shards: int = eqx.field(static=True, default=1)

    def __check_init__(self):
        check_sizes(self, "capacity", "num_envs", "batch_size", "length")
        check_length(self)
        if self._period < 1:
            raise ValueError(f"period={self.period}: give at least 1, or None.")
        if left := (self.capacity - self.length) % self._period:
            raise ValueError(
                f"capacity={self.capacity} with length={self.length} and period={self._period} "
                f"leaves the last {left} rows out: give capacity = length + a multiple of period."
            )
        if self._num_windows % self.batch_size:
            raise ValueError(
                f"batch_size={self.batch_size} does not divide the {self._num_windows} windows of "
                f"num_envs={self.num_envs}: give a divisor of them."
            )

    def init(self, example: PyTree[Array]) -> TrajectoryState:
        """An empty buffer for items like `example` (one item, no leading axes)."""
        return empty_windows(self, example)

    def add(self, state: TrajectoryState, items: PyTree[Array]) -> TrajectoryState:
        """Appends `items[envs, time]`, at most `capacity` rows, over the oldest ones."""
        return write(self, state, items)

    def sample(self, state: TrajectoryState, *, key: PRNGKeyArray) -> Batch:
        """Draws one minibatch: `batch_size` different windows, uniformly.

        Calls with different keys are independent of each other; [`zero_memory.Latest.epoch`][]
        is what shares all windows out.

        Each shard draws its equal part from its own environments, with a key folded from its
        number: the rows are the same however the shards lie on devices.

        **Returns:**

        A [`zero_memory.Batch`][] of `[batch, length]`. Until the buffer is full there may be
        too few windows: then all of them, and repeats of weight 0. `indices` are
        `env * capacity + slot`, environments counted over all shards.

        **Raises:** `ValueError` where no window is complete, outside of jit. Inside, all weights
        are 0.
        """
        check_complete(self, state)
        starts = num_starts(num_rows(self, state), self.length, self._period)

        def draw(shard: Int[Array, ""], starts: Int[Array, ""]):
            population = starts * (self.num_envs // self.num_shards)
            num_draws = self.batch_size // self.num_shards
            return distinct_ranks(population, num_draws, key=jr.fold_in(key, shard))

        rank, counts = jax.vmap(draw)(state.shard, starts)
        return self._cut(state, rank, starts, counts)

    def epoch(self, state: TrajectoryState, *, key: PRNGKeyArray) -> Batch:
        """Shares all windows out to minibatches, in random order: what to scan over.

        Each shard shuffles its own windows, as in `sample`, into its part of every minibatch.

        **Returns:**

        A [`zero_memory.Batch`][] of `[minibatches, batch, length]`, in which every window comes
        once. Until the buffer is full, windows that are not complete come with weight 0.

        **Raises:** `ValueError` where no window is complete, outside of jit. Inside, all weights
        are 0.
        """
        check_complete(self, state)
        starts = jnp.full(state.shard.shape, self._num_starts, jnp.int32)
        num_windows = self._num_windows // self.num_shards

        def shuffle(shard: Int[Array, ""]):
            return jr.permutation(jr.fold_in(key, shard), jnp.arange(num_windows, dtype=jnp.int32))

        rank = jax.vmap(shuffle)(state.shard)
        there = num_starts(num_rows(self, state), self.length, self._period)
        batch = self._cut(state, rank, starts, rank % self._num_starts < there[:, None])

        def by_minibatch(x: Array) -> Array:
            # [shards, minibatches, windows] -> [minibatches, shards, windows]
            parts = x.reshape(rank.shape[0], -1, self.batch_size // self.num_shards, *x.shape[1:])
            return jnp.swapaxes(parts, 0, 1).reshape(parts.shape[1], -1, *x.shape[1:])

        return jax.tree.map(by_minibatch, batch)

    def ready(self, state: TrajectoryState) -> Bool[Array, ""]:
        """Whether as many rows were added as the buffer keeps."""
        return jnp.all(state.ring.is_full)

    def _cut(
        self,
        state: TrajectoryState,
        rank: Int[Array, "shards draws"],
        starts: Int[Array, " shards"],
        counts: Bool[Array, "shards draws"],
    ) -> Batch:
        """The windows of these ranks, environment by environment."""
        env, window = jnp.divmod(rank, jnp.maximum(starts, 1)[:, None])
        start = oldest(state)[:, None] + window * self._period
        return cut(self, state, env, start, counts.astype(jnp.float32))

    @property
    def _period(self) -> int:
        return max(self.length - 1, 1) if self.period is None else self.period

    @property
    def _num_starts(self) -> int:
        """Windows of one environment."""
        return (self.capacity - self.length) // self._period + 1

    @property
    def _num_windows(self) -> int:
        """Windows of all environments."""
        return self.num_envs * self._num_starts
