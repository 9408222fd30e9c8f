"""Replay of windows: consecutive rows, drawn uniformly."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Int, PRNGKeyArray

from ._buffer import Batch
from ._checks import check_sizes, plain
from ._windows import AbstractWindowBuffer, oldest, TrajectoryState


class TrajectoryBuffer(AbstractWindowBuffer):
    """Keeps the latest rows of every environment, and samples windows of consecutive rows.

    A window starts at every `period`-th row, counted from the oldest, so none joins the newest row
    to the oldest. A window may cross the end of an episode: the row with `last` marks it. `add`
    takes at most `capacity` rows at a time. The rings are flashbax's trajectory buffer, one for
    each shard.
    """

    capacity: int = eqx.field(static=True, converter=plain)
    num_envs: int = eqx.field(static=True, converter=plain)
    batch_size: int = eqx.field(static=True, converter=plain)
    length: int = eqx.field(static=True, converter=plain)
    period: int = eqx.field(static=True, converter=plain, default=1)
    num_shards: int = eqx.field(static=True, converter=plain, default=1)

    def __check_init__(self):
        self._check_sizes()
        check_sizes(self, "period")

    def sample(self, state: TrajectoryState, *, key: PRNGKeyArray) -> Batch:
        """Draws `batch_size` windows, each uniformly among all, independently of the others, with
        weight 1."""
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
