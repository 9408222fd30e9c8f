"""Replay of single moves, with the outcome of their episode."""

from collections.abc import Callable
from operator import attrgetter
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from ._buffer import AbstractBuffer, Batch
from ._checks import (
    as_array,
    check_accessor,
    check_discount,
    check_example,
    check_items,
    check_kind,
    check_mask,
    check_sizes,
    check_state,
    is_known,
    plain,
)
from ._distinct import distinct_ranks
from ._rings import EpisodeState, finish, forget, repeat, settle, store


class EpisodeBuffer(AbstractBuffer[EpisodeState]):
    """Keeps every move until its episode ends, and then samples moves with their outcomes.

    Every environment has a ring of entries. [`zero_memory.EpisodeBuffer.sample`][] draws none of
    an episode before it ends, and the entries of an episode that is cut off are dropped. The
    `outcome` of a sampled batch is the return from each move to the end of its episode, from the
    view of the player who moved. Where rewards come at the end only, this is AlphaZero's value
    target z (Silver et al. 2018, https://doi.org/10.1126/science.aar6404).

    There are two ways to fill the buffer:

    - `add` takes rows as a collector writes them, and reads rewards, discounts and ends from them.
    - `add_experience`, `assign_rewards` and `truncate` let the caller say when an episode ends and
      what each player gets.

    The cost of an operation does not depend on how much is stored. The end of an episode takes
    time in proportion to its length. A donated state is changed in place. Environments share no
    array, so every method runs under `jax.shard_map`, without a collective, on a slice of the
    environments that holds whole shards.

    **Attributes:**

    - `num_players`: the number of players among whom `assign_rewards` deals rewards.
    - `last`, `reward`, `discount`: functions that find these leaves in an item.
    """

    capacity: int = eqx.field(static=True, converter=plain)
    num_envs: int = eqx.field(static=True, converter=plain)
    batch_size: int = eqx.field(static=True, converter=plain)
    num_players: int = eqx.field(static=True, converter=plain, default=2)
    num_shards: int = eqx.field(static=True, converter=plain, default=1)
    last: Callable[[Any], Array] = eqx.field(static=True, default=attrgetter("last"))
    reward: Callable[[Any], Array] = eqx.field(static=True, default=attrgetter("reward"))
    discount: Callable[[Any], Array] = eqx.field(static=True, default=attrgetter("discount"))

    def __check_init__(self):
        check_sizes(self, "capacity", "num_envs", "batch_size", "num_players")
        if self.batch_size > (room := self.num_envs * self.capacity):
            raise ValueError(
                f"batch_size={self.batch_size} with num_envs={self.num_envs} of "
                f"capacity={self.capacity}: these never hold as many entries; give a batch_size of "
                f"at most {room}, and less as games in progress take room too, or more capacity."
            )
        for name in ("last", "reward", "discount"):
            if not callable(getattr(self, name)):
                raise ValueError(f"{name}={getattr(self, name)!r}: give a function of an item.")

    def init(self, example: PyTree[Array]) -> EpisodeState:
        check_example(example)
        rings, envs = (self.num_envs, self.capacity), (self.num_envs,)
        return EpisodeState(
            items=jax.tree.map(lambda x: repeat(x, rings), example),
            outcome=jnp.zeros(rings, jnp.float32),
            discount=jnp.zeros(rings, jnp.float32),
            seat=jnp.zeros(rings, jnp.int32),
            start=jnp.zeros(envs, jnp.int32),
            waiting=jnp.zeros(envs, jnp.int32),
            finished=jnp.zeros(envs, jnp.int32),
            turn=jnp.zeros(envs, jnp.int32),
            shard=jnp.arange(self.num_shards, dtype=jnp.int32),
        )

    def add(self, state: EpisodeState, items: PyTree[Array]) -> EpisodeState:
        """Adds `items[envs, time]`, in the order in which they happened.

        `items[envs, time, copies]` adds several entries of every move, such as a position and its
        images under the symmetries of the board. The reward, discount and last of the first copy
        are those of the move. All copies get its outcome.

        Each row is one move. Its `reward` belongs to the player who made it. Its `discount` is
        negative if the other side moves next, positive if the same side does, and 0 if nothing
        follows. The outcome of row t is G[t] = reward[t] + discount[t] G[t+1]. This holds for
        players who alternate, pass or move twice, for one player, and for rewards along the way.
        The rows of an episode get their outcomes when a discount is 0.

        A row with `last` is the observation after the end, and is not stored. If the discount
        before it was not 0 the episode was cut off, and its entries are dropped. A traced discount
        beyond -1 or 1 makes the outcomes before it NaN.
        """
        self._shards(state)
        axes = check_items(state.items, items, 2, copies=True)
        if not axes[1]:
            raise ValueError("items of 0 rows an environment: give at least 1.")
        for name in ("last", "reward", "discount"):
            check_accessor(name, getattr(self, name), items, axes)
        items = self._with_copies(items, axes, 2)
        discounts = jnp.where(self.last(items), 0, self.discount(items))[:, :, 0]
        factors = check_discount(discounts)

        def row(
            carry: tuple[EpisodeState, Array], t: Int[Array, ""]
        ) -> tuple[tuple[EpisodeState, Array], None]:
            state, new = carry
            item = jax.tree.map(lambda x: x[:, t], items)
            move = jax.tree.map(lambda x: x[:, 0], item)
            last, discount = self.last(move), factors[:, t]
            reward = self.reward(move).astype(jnp.float32)
            state = store(state, item, mask=~last, reward=reward, discount=discount)
            turn = jnp.where(discount < 0, (state.turn + 1) % self.num_players, state.turn)
            state = eqx.tree_at(lambda s: s.turn, state, turn)
            ended = ~last & (discount == 0)
            new = new + jnp.where(ended, state.waiting, 0)
            return (forget(finish(state, ended), last), new), None

        start = state, jnp.zeros_like(state.finished)
        (state, new), _ = jax.lax.scan(row, start, jnp.arange(axes[1], dtype=jnp.int32))
        return settle(state, jnp.minimum(new, state.finished))

    def add_experience(self, state: EpisodeState, items: PyTree[Array]) -> EpisodeState:
        """Adds one move, `items[envs]`, to the running episode of every environment.

        `items[envs, copies]` adds several entries that count as one move, such as a position and
        its images under the symmetries of the board. Their rewards are not read.
        """
        self._shards(state)
        axes = check_items(state.items, items, 1, copies=True)
        state = store(
            state,
            self._with_copies(items, axes, 1),
            mask=jnp.ones(state.turn.shape, bool),
            reward=jnp.zeros(state.turn.shape, jnp.float32),
            discount=jnp.full(state.turn.shape, 1 if self.num_players == 1 else -1, jnp.float32),
        )
        return eqx.tree_at(lambda s: s.turn, state, (state.turn + 1) % self.num_players)

    def assign_rewards(
        self,
        state: EpisodeState,
        rewards: Float[Array, "envs players"] | Float[Array, " envs"],
        mask: Bool[Array, " envs"],
    ) -> EpisodeState:
        """Ends the running episode of the environments in `mask`, and gives its entries outcomes.

        `rewards` has one column for each player, in the order in which they move. The first move
        of the episode gets the first column, the next move the next column, and so on in turn:
        players have to alternate strictly. Use `add` where they do not. With one player,
        `rewards[envs]` is allowed. Nothing changes where the running episode is empty. Rewards
        that `add` wrote in this episode are not used.
        """
        rewards, mask = as_array("rewards", rewards).astype(jnp.float32), as_array("mask", mask)
        self._shards(state)
        if rewards.ndim == 1:
            rewards = rewards[:, None]
        if rewards.shape != (state.turn.shape[0], self.num_players):
            raise ValueError(
                f"rewards of shape {list(rewards.shape)} for {state.turn.shape[0]} environments "
                f"and num_players={self.num_players}: give [envs, num_players]."
            )
        check_mask(mask, state.turn.shape[0])
        count = jnp.where(mask, jnp.minimum(state.waiting, self.capacity), 0)
        return settle(finish(state, mask), count, rewards)

    def truncate(self, state: EpisodeState, mask: Bool[Array, " envs"]) -> EpisodeState:
        """Drops the running episode of the environments in `mask`.

        Finished episodes stay, except for the entries that the running one has overwritten.
        """
        self._shards(state)
        mask = as_array("mask", mask)
        check_mask(mask, state.turn.shape[0])
        return forget(state, mask)

    def sample(self, state: EpisodeState, *, key: PRNGKeyArray) -> Batch:
        """Draws `batch_size` items, uniformly without replacement among the finished entries, with
        the `outcome` of each.

        A shard with fewer finished entries than its part returns each of them once; the rest are
        repeats of weight 0.
        """
        num_shards, envs_per_shard = self._shards(state)
        if is_known(state.finished) and not any(state.finished.tolist()):
            raise ValueError(
                f"no episode has ended in the {self.num_envs} environments of the buffer: add "
                "until it is `ready`."
            )
        num_draws = self.batch_size // self.num_shards

        def draw(shard: Int[Array, ""], start: Int[Array, " envs"], finished: Int[Array, " envs"]):
            ends = jnp.cumsum(finished, dtype=jnp.int32)
            ranks, counts = distinct_ranks(ends[-1], num_draws, key=jr.fold_in(key, shard))
            env = jnp.searchsorted(ends, ranks, side="right").astype(jnp.int32)
            env = jnp.minimum(env, envs_per_shard - 1)  # changes nothing unless all are empty
            slot = (start[env] + ranks - ends[env]) % self.capacity
            return env, slot, counts

        by_shard = (num_shards, envs_per_shard)
        env, slot, counts = jax.vmap(draw)(
            state.shard, state.start.reshape(by_shard), state.finished.reshape(by_shard)
        )
        first_env = jnp.arange(num_shards, dtype=jnp.int32) * envs_per_shard
        here = (env + first_env[:, None]).reshape(-1)
        everywhere = (env + (state.shard * envs_per_shard)[:, None]).reshape(-1)
        slot = slot.reshape(-1)

        return Batch(
            items=jax.tree.map(lambda x: x[here, slot], state.items),
            weights=counts.reshape(-1).astype(jnp.float32),
            indices=everywhere * self.capacity + slot,
            outcome=state.outcome[here, slot],
        )

    def ready(self, state: EpisodeState) -> Bool[Array, ""]:
        """Returns whether every shard can draw its part of a batch without repeats."""
        by_shard = self._shards(state)
        finished = jnp.sum(state.finished.reshape(by_shard), axis=1)
        return jnp.all(finished >= self.batch_size // self.num_shards)

    def _shards(self, state: EpisodeState) -> tuple[int, int]:
        """The number of shards on this device, and of environments in each."""
        check_kind(self, state, EpisodeState)
        num_shards, num_envs = state.shard.shape[0], state.turn.shape[0]
        check_state(self, num_envs, num_shards, state.outcome.shape[1])
        return num_shards, num_envs // num_shards

    def _with_copies(
        self, items: PyTree[Array], axes: tuple[int, ...], num_axes: int
    ) -> PyTree[Array]:
        """Items with an axis of copies behind the `num_axes` others, if there is none yet."""
        if len(axes) == num_axes:
            return jax.tree.map(lambda x: jnp.expand_dims(x, num_axes), items)
        if not 1 <= axes[-1] <= self.capacity:
            raise ValueError(
                f"{axes[-1]} copies of a move with capacity={self.capacity}: give 1 to capacity."
            )
        return jax.tree.map(jnp.asarray, items)  # a traced index would be refused by NumPy
