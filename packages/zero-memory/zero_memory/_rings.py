"""The rings that episodes are written into, and what their slots stand for."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree


class EpisodeState(eqx.Module):
    """The contents of an [`zero_memory.EpisodeBuffer`][].

    Each environment writes its own ring. Going back from the next slot to write lie first the
    entries of the running episode, then the finished ones, then nothing: so three integers an
    environment say what every slot is, and no slot carries a flag.

    **Attributes:**

    - `items`: the rings, as they were added.
    - `episode`: which row of `returns` an entry's outcome is read from.
    - `seat`: which column of it: the player who moved.
    - `before`: what that player had already won when the entry was written.
    - `returns`: what every player won in each episode that still has entries, in a ring.
    - `start`: slot of the running episode's first entry.
    - `waiting`: entries written since then (more than `capacity` if it has eaten its own head).
    - `finished`: entries with an outcome; they end just before `start`.
    - `running`: row of `returns` that the running episode will fill.
    - `turn`: the seat of who moves next; the episode's first mover has seat 0.
    - `gain`: rewards of the running episode so far, for that first mover.
    - `shard`: the number of each shard among all of them.
    """

    items: PyTree[Array]
    episode: Int[Array, "envs capacity"]
    seat: Int[Array, "envs capacity"]
    before: Float[Array, "envs capacity"]
    returns: Float[Array, "envs capacity players"]
    start: Int[Array, " envs"]
    waiting: Int[Array, " envs"]
    finished: Int[Array, " envs"]
    running: Int[Array, " envs"]
    turn: Int[Array, " envs"]
    gain: Float[Array, " envs"]
    shard: Int[Array, " shards"]


def empty_rings(
    example: PyTree[Array], *, num_envs: int, capacity: int, num_players: int, num_shards: int
) -> EpisodeState:
    """Rings in which nothing is finished or running; their slots hold copies of `example`."""
    rings, envs = (num_envs, capacity), (num_envs,)
    return EpisodeState(
        items=jax.tree.map(lambda x: repeat(x, rings), example),
        episode=jnp.zeros(rings, jnp.int32),
        seat=jnp.zeros(rings, jnp.int32),
        before=jnp.zeros(rings, jnp.float32),
        returns=jnp.zeros((*rings, num_players), jnp.float32),
        start=jnp.zeros(envs, jnp.int32),
        waiting=jnp.zeros(envs, jnp.int32),
        finished=jnp.zeros(envs, jnp.int32),
        running=jnp.zeros(envs, jnp.int32),
        turn=jnp.zeros(envs, jnp.int32),
        gain=jnp.zeros(envs, jnp.float32),
        shard=jnp.arange(num_shards, dtype=jnp.int32),
    )


def store(
    state: EpisodeState,
    items: PyTree[Array],
    *,
    mask: Bool[Array, " envs"],
    before: Float[Array, " envs"],
) -> EpisodeState:
    """Writes `items[envs, copies]` in the environments of `mask`: entries of one move.

    They lie one behind the other, and share the seat of who moves (`turn`) and `before`.
    """
    num_envs, capacity = state.before.shape
    copies = jax.tree.leaves(items)[0].shape[1]
    env = jnp.arange(num_envs, dtype=jnp.int32)[:, None]
    slot = (state.start + state.waiting)[:, None] + jnp.arange(copies, dtype=jnp.int32)[None]
    # Environments that write nothing write past the end, where it is dropped: nothing is read
    # back, so the rings are changed in place.
    slot = jnp.where(mask[:, None], slot % capacity, capacity)

    def write(ring: Array, value: Array) -> Array:
        return ring.at[env, slot].set(value, mode="drop", unique_indices=True)

    waiting = state.waiting + copies * mask.astype(jnp.int32)
    room = capacity - jnp.minimum(waiting, capacity)
    return eqx.tree_at(
        lambda s: (s.items, s.episode, s.seat, s.before, s.waiting, s.finished),
        state,
        (
            jax.tree.map(write, state.items, items),
            write(state.episode, state.running[:, None]),
            write(state.seat, state.turn[:, None]),
            write(state.before, before[:, None]),
            waiting,
            jnp.minimum(state.finished, room),
        ),
    )


def finish(
    state: EpisodeState, returns: Float[Array, "envs players"], mask: Bool[Array, " envs"]
) -> EpisodeState:
    """Ends the running episode of the environments in `mask`, if it has entries."""
    num_envs, capacity = state.before.shape
    env = jnp.arange(num_envs, dtype=jnp.int32)
    mask = mask & (state.waiting > 0)
    # Episodes take the rows of `returns` in turn, and each has a slot at least: of `capacity`
    # rows, none is taken again while an entry still reads it.
    row = jnp.where(mask, state.running, capacity)
    done = mask.astype(jnp.int32)
    state = eqx.tree_at(
        lambda s: (s.returns, s.start, s.finished, s.running),
        state,
        (
            state.returns.at[env, row].set(returns, mode="drop", unique_indices=True),
            (state.start + done * state.waiting) % capacity,
            state.finished + done * jnp.minimum(state.waiting, capacity),
            (state.running + done) % capacity,
        ),
    )
    return forget(state, mask)


def forget(state: EpisodeState, mask: Bool[Array, " envs"]) -> EpisodeState:
    """Starts the running episode afresh, where the last one started, in `mask`."""
    return eqx.tree_at(
        lambda s: (s.waiting, s.turn, s.gain),
        state,
        (
            jnp.where(mask, 0, state.waiting),
            jnp.where(mask, 0, state.turn),
            jnp.where(mask, 0.0, state.gain),
        ),
    )


def repeat(x: Array, axes: tuple[int, ...]) -> Array:
    """`x` over and over, along the leading `axes`."""
    # A dtype named outright also strips a weak one, which would retrace the caller's loop.
    x = jnp.asarray(x, dtype=jnp.asarray(x).dtype)
    return jnp.broadcast_to(x, (*axes, *x.shape))
