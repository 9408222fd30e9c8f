"""Replay of windows: consecutive rows, drawn uniformly."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Int, PRNGKeyArray

from ._buffer import Batch
from ._checks import check_sizes
from ._windows import AbstractWindowBuffer, oldest, TrajectoryState


class TrajectoryBuffer(AbstractWindowBuffer):
    """Keeps the latest rows of every environment, and samples windows of consecutive rows.

    `init(example)` and `add(state, items[envs, time])` are those of every
    [`zero_memory.AbstractBuffer`][]; `add` takes at most `capacity` rows at a time.

    The rings are flashbax's trajectory buffer, one for each shard. Windows are counted from the
    oldest row on, so none joins the newest row to the oldest. A window may cross the end of an
    episode: the row with `last` marks it.

    **Attributes:**

    - `capacity`: the number of rows kept of each environment.
    - `num_envs`: the number of environments, over all shards.
    - `batch_size`: the number of windows in a batch, over all shards.
    - `length`: the number of rows in a window.
    - `period`: a window starts at every `period`-th row, counted from the oldest.
    - `num_shards`: the number of parts that share nothing, for `jax.shard_map`.
    """

    capacity: int = eqx.field(static=True)
    num_envs: int = eqx.field(static=True)
    batch_size: int = eqx.field(static=True)
    length: int = eqx.field(static=True)
    period: int = eqx.field(static=True, default=1)
    num_shards: int = eqx.field(static=True, default=1)

    def __check_init__(self):
        self._check_sizes()
        check_sizes(self, "period")

    def sample(self, state: TrajectoryState, *, key: PRNGKeyArray) -> Batch:
        """Draws `batch_size` windows, each uniformly among all, independently of the others.

        Each shard draws an equal part of the batch from its own environments, with a key folded
        from its number. The rows are therefore the same however the shards lie on devices.

        **Returns:**

        A [`zero_memory.Batch`][] of `[batch, length]`, with weight 1. `indices` are
        `env * capacity + slot`, environments counted over all shards.
        """
        self._check_complete(state)
        starts = self._num_starts(state, self.period)
        num_draws = self.batch_size // self.num_shards
        envs_per_shard = self.num_envs // self.num_shards

        def draw(shard: Int[Array, ""], starts: Int[Array, ""]):
            ekey, wkey = jr.split(jr.fold_in(key, shard))
            env = jr.randint(ekey, (num_draws,), 0, envs_per_shard, jnp.int32)
            return env, jr.randint(wkey, (num_draws,), 0, jnp.maximum(starts, 1), jnp.int32)

        env, window = jax.vmap(draw)(state.shard, starts)
        weights = jnp.broadcast_to(starts[:, None] > 0, env.shape).astype(jnp.float32)
        return self._cut(state, env, oldest(state)[:, None] + window * self.period, weights)

    def ready(self, state: TrajectoryState) -> Bool[Array, ""]:
        """Returns whether a window is complete: every environment has `length` rows."""
        return jnp.all(self._num_rows(state) >= self.length)
