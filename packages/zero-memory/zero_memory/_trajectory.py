"""Replay of windows: consecutive rows, drawn uniformly."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Int, PRNGKeyArray, PyTree

from ._buffer import Batch
from ._checks import check_length, check_sizes
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


class TrajectoryBuffer(AbstractWindowBuffer[TrajectoryState]):
    """Keeps the latest rows of every environment, and hands out windows of consecutive ones.

    The rings are flashbax's trajectory buffer, one a shard, and windows are counted from the
    oldest row on: none ever joins the newest row to the oldest. They may cross the end of an
    episode: the row with `last` says so.

    **Attributes:**

    - `capacity`: rows kept of each environment.
    - `num_envs`: environments, over all shards.
    - `batch_size`: windows in a batch, over all shards.
    - `length`: rows in a window.
    - `period`: windows start at every `period`-th row, counted from the oldest.
    - `num_shards`: parts that share nothing, for `jax.shard_map`.
    """

    capacity: int = eqx.field(static=True)
    num_envs: int = eqx.field(static=True)
    batch_size: int = eqx.field(static=True)
    length: int = eqx.field(static=True)
    period: int = eqx.field(static=True, default=1)
    num_shards: int = eqx.field(static=True, default=1)

    def __check_init__(self):
        check_sizes(self, "capacity", "num_envs", "batch_size", "length", "period")
        check_length(self)

    def init(self, example: PyTree[Array]) -> TrajectoryState:
        """An empty buffer for items like `example` (one item, no leading axes).

        Slots start as copies of it, so that even the rows of weight 0 that an empty buffer hands
        out are items that can be computed with.
        """
        return empty_windows(self, example)

    def add(self, state: TrajectoryState, items: PyTree[Array]) -> TrajectoryState:
        """Appends `items[envs, time]`, at most `capacity` rows, over the oldest ones."""
        return write(self, state, items)

    def sample(self, state: TrajectoryState, *, key: PRNGKeyArray) -> Batch:
        """Draws `batch_size` windows, each uniformly among all, independently of the others.

        Each shard draws its equal part from its own environments, with a key folded from its
        number: the rows are the same however the shards lie on devices.

        **Returns:**

        A [`zero_memory.Batch`][] of `[batch, length]`, with weight 1. `indices` are
        `env * capacity + slot`, environments counted over all shards.

        **Raises:** `ValueError` where no window is complete, outside of jit. Inside, all weights
        are 0.
        """
        check_complete(self, state)
        starts = num_starts(num_rows(self, state), self.length, self.period)
        num_draws = self.batch_size // self.num_shards
        envs_per_shard = self.num_envs // self.num_shards

        def draw(shard: Int[Array, ""], starts: Int[Array, ""]):
            ekey, wkey = jr.split(jr.fold_in(key, shard))
            env = jr.randint(ekey, (num_draws,), 0, envs_per_shard, jnp.int32)
            return env, jr.randint(wkey, (num_draws,), 0, jnp.maximum(starts, 1), jnp.int32)

        env, window = jax.vmap(draw)(state.shard, starts)
        weights = jnp.broadcast_to(starts[:, None] > 0, env.shape).astype(jnp.float32)
        return cut(self, state, env, oldest(state)[:, None] + window * self.period, weights)

    def ready(self, state: TrajectoryState) -> Bool[Array, ""]:
        """Whether a window is complete: every environment has `length` rows."""
        return jnp.all(num_rows(self, state) >= self.length)
