"""The rings of an episode buffer."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree


class EpisodeState(eqx.Module):
    """The contents of an [`zero_memory.EpisodeBuffer`][].

    Each environment has a ring of its own. Behind the slot that is written next lie the entries of
    the running episode, behind them the finished entries, and behind those the empty slots. The
    integers `start`, `waiting` and `finished` say which slot is which, so no slot needs a flag.

    **Attributes:**

    - `items`: the items, as they were added.
    - `outcome`: the outcome of a finished entry, or the reward of the move of a waiting one.
    - `discount`: the factor of the next entry's outcome in the outcome of this one.
    - `seat`: the number of the player who moved, counted from the first mover of the episode.
    - `start`: the slot of the running episode's first entry.
    - `waiting`: the number of entries of the running episode, overwritten ones included.
    - `finished`: the number of entries with an outcome; the newest lies just before `start`.
    - `turn`: the number of the player who moves next.
    - `shard`: the number of each shard among all of them.
    """

    items: PyTree[Array]
    outcome: Float[Array, "envs capacity"]
    discount: Float[Array, "envs capacity"]
    seat: Int[Array, "envs capacity"]
    start: Int[Array, " envs"]
    waiting: Int[Array, " envs"]
    finished: Int[Array, " envs"]
    turn: Int[Array, " envs"]
    shard: Int[Array, " shards"]


def store(
    state: EpisodeState,
    items: PyTree[Array],
    *,
    mask: Bool[Array, " envs"],
    reward: Float[Array, " envs"],
    discount: Float[Array, " envs"],
) -> EpisodeState:
    """Writes `items[envs, copies]`, the entries of one move, in the environments of `mask`."""
    num_envs, capacity = state.outcome.shape
    copies = jax.tree.leaves(items)[0].shape[1]
    env = jnp.arange(num_envs, dtype=jnp.int32)[:, None]
    copy = jnp.arange(copies, dtype=jnp.int32)[None]
    slot = (state.start + state.waiting)[:, None] + copy
    # Environments that write nothing write past the end, where it is dropped: nothing is read
    # back, so the rings are changed in place.
    slot = jnp.where(mask[:, None], slot % capacity, capacity)
    # The last copy has the reward and discount of the move. The others have reward 0 and
    # discount 1, so that they get the outcome of the copy that follows them.
    newest = copy == copies - 1
    write = lambda ring, x: ring.at[env, slot].set(x, mode="drop", unique_indices=True)
    waiting = state.waiting + copies * mask.astype(jnp.int32)
    room = capacity - jnp.minimum(waiting, capacity)
    return dataclasses.replace(
        state,
        items=jax.tree.map(write, state.items, items),
        outcome=write(state.outcome, jnp.where(newest, reward[:, None], 0.0)),
        discount=write(state.discount, jnp.where(newest, discount[:, None], 1.0)),
        seat=write(state.seat, state.turn[:, None]),
        waiting=waiting,
        finished=jnp.minimum(state.finished, room),
    )


def finish(state: EpisodeState, mask: Bool[Array, " envs"]) -> EpisodeState:
    """Ends the running episode of the environments in `mask`. `settle` gives the outcomes."""
    capacity = state.outcome.shape[1]
    ended = jnp.where(mask, state.waiting, 0)
    start = (state.start + ended) % capacity
    finished = state.finished + jnp.minimum(ended, capacity)
    state = dataclasses.replace(state, start=start, finished=finished)
    return forget(state, mask & (ended > 0))


def settle(
    state: EpisodeState,
    count: Int[Array, " envs"],
    rewards: Float[Array, "envs players"] | None = None,
) -> EpisodeState:
    """Gives the newest `count` finished entries their outcomes, from the newest one back.

    The outcome is the player's column of `rewards`. Without `rewards` it is the entry's reward
    plus its discount times the outcome of the entry that follows it.
    """
    num_envs, capacity = state.outcome.shape
    env = jnp.arange(num_envs, dtype=jnp.int32)

    def back(i: Int[Array, ""], carry: tuple[Array, Array]) -> tuple[Array, Array]:
        ring, after = carry
        slot = (state.start - 1 - i) % capacity
        if rewards is None:
            discount = state.discount[env, slot]
            # Not a product with 0: `after` may belong to a later episode, and be NaN.
            outcome = ring[env, slot] + jnp.where(discount == 0, 0.0, discount * after)
        else:
            outcome = rewards[env, state.seat[env, slot]]
        slot = jnp.where(i < count, slot, capacity)
        return ring.at[env, slot].set(outcome, mode="drop", unique_indices=True), outcome

    start = state.outcome, jnp.zeros((num_envs,), jnp.float32)
    ring, _ = jax.lax.fori_loop(0, jnp.max(count), back, start)
    return dataclasses.replace(state, outcome=ring)


def forget(state: EpisodeState, mask: Bool[Array, " envs"]) -> EpisodeState:
    """Empties the running episode of the environments in `mask`."""
    waiting, turn = (jnp.where(mask, 0, x) for x in (state.waiting, state.turn))
    return dataclasses.replace(state, waiting=waiting, turn=turn)


def repeat(x: Array, axes: tuple[int, ...]) -> Array:
    """`x`, repeated along the leading `axes`."""
    # The explicit dtype makes a weakly typed array strong. A weak one would retrace the loop.
    x = jnp.asarray(x, dtype=jnp.asarray(x).dtype)
    return jnp.broadcast_to(x, (*axes, *x.shape))
