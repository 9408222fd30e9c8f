"""The rings that episodes are written into, and what their slots stand for."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree


class EpisodeState(eqx.Module):
    """The contents of an [`zero_memory.EpisodeBuffer`][].

    Each environment writes its own ring. Going back from the next slot to write lie first the
    entries of the running episode, then the finished ones, then nothing. Three integers of an
    environment therefore say what every slot is, and no slot carries a flag.

    **Attributes:**

    - `items`: the rings, as they were added.
    - `outcome`: of a finished entry its outcome, of a waiting one the reward of its move.
    - `discount`: what the outcome of the entry behind this one is multiplied by.
    - `seat`: the seat of the player who moved; the episode's first mover has seat 0.
    - `start`: slot of the running episode's first entry.
    - `waiting`: entries written since then (more than `capacity` if they overwrote the first).
    - `finished`: entries with an outcome; they end just before `start`.
    - `turn`: the seat of the player who moves next.
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


def empty_rings(
    example: PyTree[Array], *, num_envs: int, capacity: int, num_shards: int
) -> EpisodeState:
    """Rings in which nothing is finished or running; their slots hold copies of `example`."""
    rings, envs = (num_envs, capacity), (num_envs,)
    return EpisodeState(
        items=jax.tree.map(lambda x: repeat(x, rings), example),
        outcome=jnp.zeros(rings, jnp.float32),
        discount=jnp.zeros(rings, jnp.float32),
        seat=jnp.zeros(rings, jnp.int32),
        start=jnp.zeros(envs, jnp.int32),
        waiting=jnp.zeros(envs, jnp.int32),
        finished=jnp.zeros(envs, jnp.int32),
        turn=jnp.zeros(envs, jnp.int32),
        shard=jnp.arange(num_shards, dtype=jnp.int32),
    )


def store(
    state: EpisodeState,
    items: PyTree[Array],
    *,
    mask: Bool[Array, " envs"],
    reward: Float[Array, " envs"],
    discount: Float[Array, " envs"],
) -> EpisodeState:
    """Writes `items[envs, copies]` in the environments of `mask`: entries of one move."""
    num_envs, capacity = state.outcome.shape
    copies = jax.tree.leaves(items)[0].shape[1]
    env = jnp.arange(num_envs, dtype=jnp.int32)[:, None]
    copy = jnp.arange(copies, dtype=jnp.int32)[None]
    slot = (state.start + state.waiting)[:, None] + copy
    # Environments that write nothing write past the end, where it is dropped: nothing is read
    # back, so the rings are changed in place.
    slot = jnp.where(mask[:, None], slot % capacity, capacity)
    # The last copy has the reward and discount of the move. The others repeat its outcome: they
    # add nothing to that of the entry behind them.
    newest = copy == copies - 1

    def write(ring: Array, value: Array) -> Array:
        return ring.at[env, slot].set(value, mode="drop", unique_indices=True)

    waiting = state.waiting + copies * mask.astype(jnp.int32)
    room = capacity - jnp.minimum(waiting, capacity)
    return eqx.tree_at(
        lambda s: (s.items, s.outcome, s.discount, s.seat, s.waiting, s.finished),
        state,
        (
            jax.tree.map(write, state.items, items),
            write(state.outcome, jnp.where(newest, reward[:, None], 0.0)),
            write(state.discount, jnp.where(newest, discount[:, None], 1.0)),
            write(state.seat, state.turn[:, None]),
            waiting,
            jnp.minimum(state.finished, room),
        ),
    )


def finish(state: EpisodeState, mask: Bool[Array, " envs"]) -> EpisodeState:
    """Ends the running episode of the environments in `mask`; `settle` has to follow."""
    capacity = state.outcome.shape[1]
    ended = jnp.where(mask, state.waiting, 0)
    state = eqx.tree_at(
        lambda s: (s.start, s.finished),
        state,
        ((state.start + ended) % capacity, state.finished + jnp.minimum(ended, capacity)),
    )
    return forget(state, mask & (ended > 0))


def settle(
    state: EpisodeState,
    count: Int[Array, " envs"],
    rewards: Float[Array, "envs players"] | None = None,
) -> EpisodeState:
    """Gives the newest `count` finished entries their outcome, going back from the newest one.

    It is the entry's column of `rewards`, or else its own reward and its discount times the
    outcome of the entry behind it.
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
    return eqx.tree_at(lambda s: s.outcome, state, ring)


def forget(state: EpisodeState, mask: Bool[Array, " envs"]) -> EpisodeState:
    """Starts the running episode afresh, where the last one started, in `mask`."""
    return eqx.tree_at(
        lambda s: (s.waiting, s.turn),
        state,
        (jnp.where(mask, 0, state.waiting), jnp.where(mask, 0, state.turn)),
    )


def repeat(x: Array, axes: tuple[int, ...]) -> Array:
    """`x` over and over, along the leading `axes`."""
    # A dtype named outright also strips a weak one, which would retrace the caller's loop.
    x = jnp.asarray(x, dtype=jnp.asarray(x).dtype)
    return jnp.broadcast_to(x, (*axes, *x.shape))
