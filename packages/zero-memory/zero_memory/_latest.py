"""The latest rows only, for learning on policy."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Int, PRNGKeyArray

from ._buffer import Batch
from ._checks import as_array, check_sizes, plain
from ._distinct import distinct_ranks
from ._windows import AbstractWindowBuffer, oldest, TrajectoryState


class Latest(AbstractWindowBuffer):
    """Keeps the rows that were just collected, and samples shuffled minibatches of them.

    This buffer is for learning on policy. If `capacity` is the number of rows collected at a time,
    every `add` replaces all rows. If it is one more, the last row of a block, which is only
    bootstrapped from, is the first row of the next window.

    The rows of an environment are cut into windows of `length`, one every `period` rows. `add`
    takes at most `capacity` rows at a time.

    **Attributes:**

    - `capacity`: `length`, plus a multiple of `period`.
    - `batch_size`: the number of windows in a minibatch, which divides that of all windows.
    - `period`: the number of rows from the start of a window to that of the next. By default it
        is `length - 1`, but at least 1: a window starts with the last row of the one before it.
    """

    capacity: int = eqx.field(static=True, converter=plain)
    num_envs: int = eqx.field(static=True, converter=plain)
    batch_size: int = eqx.field(static=True, converter=plain)
    length: int = eqx.field(static=True, converter=plain)
    period: int | None = eqx.field(static=True, converter=plain, default=None)
    num_shards: int = eqx.field(static=True, converter=plain, default=1)

    def __check_init__(self):
        self._check_sizes()
        if self.period is not None:
            check_sizes(self, "period")
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

    def sample(self, state: TrajectoryState, *, key: PRNGKeyArray) -> Batch:
        """Draws one minibatch: `batch_size` different windows, uniformly.

        Calls with different keys are independent of each other. To learn from every window once,
        use [`zero_memory.Latest.minibatch`][], as a `zero_train.Loop` does. Until the buffer is
        full there may be fewer windows than that: the rest are repeats of weight 0.
        """
        self._check_complete(state)
        starts = self._num_starts(state, self._period)

        def draw(shard: Int[Array, ""], starts: Int[Array, ""]):
            population = starts * (self.num_envs // self.num_shards)
            num_draws = self.batch_size // self.num_shards
            return distinct_ranks(population, num_draws, key=jr.fold_in(key, shard))

        rank, counts = jax.vmap(draw)(state.shard, starts)
        return self._cut_ranks(state, rank, starts, counts)

    def minibatch(
        self, state: TrajectoryState, number: Int[Array, ""] | int, *, key: PRNGKeyArray
    ) -> Batch:
        """One minibatch of epochs that follow each other: with the same key, the minibatches from
        0 to `num_minibatches - 1` hold every window once, the next as many again, and so on.

        Each shard deals out its own windows, in an order of each epoch's own. Until the buffer is
        full, windows that are not complete come with weight 0.
        """
        self._check_complete(state)
        number = as_array("number", number)
        if number.shape or not jnp.issubdtype(number.dtype, jnp.integer):
            raise ValueError(f"number is {number.dtype}{list(number.shape)}: give one integer.")
        epoch, part = jnp.divmod(jnp.asarray(number, jnp.int32), self.num_minibatches)
        starts = jnp.full(state.shard.shape, self._windows_per_env, jnp.int32)
        num_windows = self._num_windows // self.num_shards
        size = self.batch_size // self.num_shards

        def deal(shard: Int[Array, ""]):
            order = jr.fold_in(jr.fold_in(key, epoch), shard)
            rank = jr.permutation(order, jnp.arange(num_windows, dtype=jnp.int32))
            return jax.lax.dynamic_slice_in_dim(rank, part * size, size)

        rank = jax.vmap(deal)(state.shard)
        there = self._num_starts(state, self._period)
        counts = rank % self._windows_per_env < there[:, None]
        return self._cut_ranks(state, rank, starts, counts)

    def epoch(self, state: TrajectoryState, *, key: PRNGKeyArray) -> Batch:
        """All minibatches of one epoch, `[minibatches, batch, length]`; see
        [`zero_memory.Latest.minibatch`][]."""
        numbers = jnp.arange(self.num_minibatches, dtype=jnp.int32)
        return jax.vmap(lambda number: self.minibatch(state, number, key=key))(numbers)

    @property
    def num_minibatches(self) -> int:
        """The number of minibatches in an epoch."""
        return self._num_windows // self.batch_size

    def ready(self, state: TrajectoryState) -> Bool[Array, ""]:
        """Returns whether as many rows were added as the buffer keeps."""
        self._shards(state)
        return jnp.all(state.ring.is_full)

    def _cut_ranks(
        self,
        state: TrajectoryState,
        rank: Int[Array, "shards draws"],
        starts: Int[Array, " shards"],
        counts: Bool[Array, "shards draws"],
    ) -> Batch:
        """Reads the windows of these ranks, counted environment by environment."""
        env, window = jnp.divmod(rank, jnp.maximum(starts, 1)[:, None])
        start = oldest(state)[:, None] + window * self._period
        return self._cut(state, env, start, counts.astype(jnp.float32))

    @property
    def _period(self) -> int:
        return max(self.length - 1, 1) if self.period is None else self.period

    @property
    def _windows_per_env(self) -> int:
        """The number of windows of one environment in a full buffer."""
        return (self.capacity - self.length) // self._period + 1

    @property
    def _num_windows(self) -> int:
        """The number of windows of all environments in a full buffer."""
        return self.num_envs * self._windows_per_env
