"""Replay of windows, those with a high priority more often."""

import numbers
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from ._buffer import AbstractBuffer, Batch
from ._checks import as_array, check_kind, check_priorities, is_known, plain
from ._priorities import draw, no_priorities, Priorities, set_everywhere, set_some, totals
from ._trajectory import TrajectoryBuffer
from ._windows import oldest, TrajectoryState


class PrioritisedState(eqx.Module):
    """The contents of a [`zero_memory.PrioritisedTrajectoryBuffer`][].

    **Attributes:**

    - `rows`: as in a [`zero_memory.TrajectoryBuffer`][].
    - `priorities`: the priority of every window, to the power of `alpha`.
    - `updates`: the number of priority updates, which is the argument of a schedule of `beta`.
    """

    rows: TrajectoryState
    priorities: Priorities
    updates: Int[Array, " shards"]


class PrioritisedTrajectoryBuffer(AbstractBuffer[PrioritisedState]):
    r"""Keeps the latest rows, and samples windows of them in proportion to their priorities.

    This is the proportional prioritised experience replay of Schaul et al. 2016
    (https://arxiv.org/abs/1511.05952). Window i is drawn with probability
    `P(i) = p[i]**alpha / sum(p**alpha)` (eq. 1) and has the importance weight
    `w[i] = (N * P(i))**-beta / max(w)` (section 3.4). A new window gets the highest priority
    so far, at least 1 (algorithm 1).

    The rows lie in a [`zero_memory.TrajectoryBuffer`][]. The priorities are not flashbax's:
    flashbax 0.1.3 rounds the highest priority down to an integer, and its sums drift.

    **Attributes:**

    - `capacity`: a multiple of `period`.
    - `period`: a window starts at every `period`-th row that was ever added. Rows are not counted
        from the oldest one, because a window keeps its rows and its priority until it is
        overwritten.
    - `alpha`: the power of the priorities; 0 draws uniformly, 1 in proportion to them.
    - `beta`: the power of the importance weights: 0 does not correct for the priorities, 1 does
        so entirely. It may be a schedule, a function of the number of priority updates, such as
        `optax.linear_schedule(0.4, 1.0, 100_000)`.
    """

    capacity: int = eqx.field(static=True, converter=plain)
    num_envs: int = eqx.field(static=True, converter=plain)
    batch_size: int = eqx.field(static=True, converter=plain)
    length: int = eqx.field(static=True, converter=plain)
    period: int = eqx.field(static=True, converter=plain, default=1)
    alpha: float = eqx.field(static=True, converter=plain, default=0.6)
    beta: float | Callable[[Int[Array, " shards"]], Array] = eqx.field(static=True, default=0.4)
    num_shards: int = eqx.field(static=True, converter=plain, default=1)

    def __check_init__(self):
        self._buffer._check_sizes()
        if self.capacity % self.period:
            raise ValueError(
                f"capacity={self.capacity} with period={self.period}: give a multiple of period, "
                "so that windows start at the same rows round after round."
            )
        for name in ("alpha", "beta"):
            value = getattr(self, name)
            if name == "beta" and callable(value):
                continue
            if not (isinstance(value, numbers.Real) and 0 <= float(value) <= 1):
                raise ValueError(f"{name}={value!r}: give a number from 0 to 1.")

    def init(self, example: PyTree[Array]) -> PrioritisedState:
        envs_per_shard = self.num_envs // self.num_shards
        return PrioritisedState(
            rows=self._buffer.init(example),
            priorities=no_priorities(self.num_shards, envs_per_shard, self._num_windows),
            updates=jnp.zeros((self.num_shards,), jnp.int32),
        )

    def add(self, state: PrioritisedState, items: PyTree[Array]) -> PrioritisedState:
        """Appends `items[envs, time]`, at most `capacity` rows, over the oldest rows.

        New windows get the highest priority so far. Windows that lose a row are never drawn again.
        """
        check_kind(self, state, PrioritisedState)
        rows = self._buffer.add(state.rows, items)
        time = jax.tree.leaves(items)[0].shape[1]
        head, is_full = state.rows.ring.current_index, state.rows.ring.is_full
        # Rows are counted from the first new one. Windows that start before row `low` keep
        # theirs; those from it on are new or incomplete.
        low = max(1 - self.length, time - self.capacity)
        first = -(-(head + low) // self.period)
        span = -(-(time - low) // self.period)
        start = (first[:, None] + jnp.arange(span, dtype=jnp.int32)[None]) * self.period
        # Before row 0 of a ring that was not full lies nothing.
        exists = is_full[:, None] | (start >= 0)
        row = start - head[:, None]
        highest = state.priorities.highest[:, None]
        value = jnp.where(exists & (row + self.length <= time), highest, 0.0)
        priorities = set_everywhere(state.priorities, first, value, row < time, self._num_windows)
        return PrioritisedState(rows, priorities, state.updates)

    def sample(self, state: PrioritisedState, *, key: PRNGKeyArray) -> Batch:
        """Draws `batch_size` windows in proportion to their priorities, stratified by environment.

        P(i) is the probability within the shard; it differs from that over all shards as far as the
        shards' sums of priorities differ. The `weights` of each row are the importance weight of
        its window. The highest is 1 in every shard's part of the batch.
        """
        check_kind(self, state, PrioritisedState)
        self._buffer._check_complete(state.rows)
        total = jnp.sum(totals(state.priorities))
        if is_known(total) and not total > 0:
            raise ValueError("no window has a priority above 0: wait until `ready`.")
        keys = jax.vmap(lambda shard: jr.fold_in(key, shard))(state.rows.shard)
        num_draws = self.batch_size // self.num_shards
        env, window, probability = draw(state.priorities, num_draws, keys=keys)

        beta = self.beta(state.updates) if callable(self.beta) else self.beta
        beta = jnp.broadcast_to(jnp.asarray(beta, jnp.float32), state.updates.shape)[:, None]
        drawn = probability > 0
        # Weights relative to the highest one: N cancels.
        rarest = jnp.min(jnp.where(drawn, probability, jnp.inf), axis=1, keepdims=True)
        weights = jnp.where(drawn, (rarest / jnp.where(drawn, probability, 1.0)) ** beta, 0.0)
        return self._buffer._cut(state.rows, env, window * self.period, weights)

    def update_priorities(
        self,
        state: PrioritisedState,
        indices: Int[Array, "batch length"],
        priorities: Float[Array, " batch"],
    ) -> PrioritisedState:
        """Gives the windows of a batch new priorities.

        `indices` are the `Batch.indices` of a batch drawn since the last `add`. `priorities` are
        at least 0 and one for each window, such as the size of its TD error. A window of priority 0
        is never drawn again, unless `alpha` is 0.

        If a window occurs twice, the higher priority counts. The priorities of incomplete windows,
        and of windows in shards on other devices, do not change. An index that is out of range or
        where no window starts, and a priority that is negative or not finite, have no effect under
        jit and are refused outside of it.
        """
        num_slots = self.num_envs * self.capacity
        check_kind(self, state, PrioritisedState)
        indices, priorities = as_array("indices", indices), as_array("priorities", priorities)
        first, good = check_priorities(indices, priorities, num_slots, self.period)
        num_shards, envs_per_shard = self._buffer._shards(state.rows)
        everywhere, slot = jnp.divmod(first, self.capacity)
        shard = everywhere // envs_per_shard - state.rows.shard[0]
        is_here = (shard >= 0) & (shard < num_shards)
        age = (slot - oldest(state.rows)[0]) % self.capacity
        is_complete = age + self.length <= self._buffer._num_rows(state.rows)[0]
        shard = jnp.where(is_here & is_complete & good, shard, num_shards)
        return PrioritisedState(
            rows=state.rows,
            priorities=set_some(
                state.priorities,
                shard,
                everywhere % envs_per_shard,
                slot // self.period,
                jnp.where(good, priorities, 0.0).astype(jnp.float32) ** self.alpha,
            ),
            updates=state.updates + 1,
        )

    def ready(self, state: PrioritisedState) -> Bool[Array, ""]:
        """Returns whether every shard has a window whose priority is above 0."""
        check_kind(self, state, PrioritisedState)
        self._buffer._shards(state.rows)
        return jnp.all(totals(state.priorities) > 0)

    @property
    def _buffer(self) -> TrajectoryBuffer:
        """The buffer of the rows."""
        return TrajectoryBuffer(
            self.capacity, self.num_envs, self.batch_size, self.length, self.period, self.num_shards
        )

    @property
    def _num_windows(self) -> int:
        return self.capacity // self.period
