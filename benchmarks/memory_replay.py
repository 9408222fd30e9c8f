"""Do our buffers cost what they should, beside flashbax, a NumPy ring and a flat episode buffer?

A turn adds one block of rows to every environment, samples one batch and, with priorities, gives
it new ones; the state is donated. Buffers are full before anything is timed, and subjects take
turns in one process. One JSON line a question:

- `windows`: `TrajectoryBuffer` beside flashbax's trajectory buffer and a ring in NumPy.
- `priorities`: `PrioritisedTrajectoryBuffer` beside flashbax's.
- `episodes`: `EpisodeBuffer` beside the flat way: flags in every slot, rewritten at every step,
  and `jax.random.choice` without replacement over all slots.

`ms` are medians of a turn, `best_ms` the least of all; `times_as_fast` is the peer's time over
ours, the median over pairs of neighbouring runs, with their quartiles. On a machine with other work
to do, the least times are the ones to compare.

    uv run python benchmarks/memory_replay.py
    uv run python benchmarks/memory_replay.py windows --cells 1024x64x32 --runs 1001
"""

import argparse
import functools as ft
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import equinox as eqx
import flashbax
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array

from zero_memory import EpisodeBuffer, PrioritisedTrajectoryBuffer, TrajectoryBuffer


QUESTIONS = ("windows", "priorities", "episodes")
#: Environments, rows kept of each, and windows or moves in a batch.
CELLS = {
    "windows": ("1024x64x32", "64x1000x32", "1024x1000x32"),
    "priorities": ("1024x64x32", "64x1000x32"),
    "episodes": ("1024x1000x512", "1024x1000x4096"),
}
#: Rows in a window.
LENGTH = 32
#: How likely a move is to end its game, and any row to cut one off.
ENDS, CUTS = 1 / 60, 1 / 1000


class Move(eqx.Module):
    """A position with the size of Othello's."""

    board: Array
    policy: Array
    reward: Array
    discount: Array
    last: Array


class Flat(eqx.Module):
    """An episode buffer with flags in every slot."""

    items: Move
    reward: Array
    populated: Array
    has_reward: Array
    next_slot: Array
    first_slot: Array

    @classmethod
    def empty(cls, example: Move, envs: int, capacity: int) -> "Flat":
        slots = (envs, capacity)
        return cls(
            items=jax.tree.map(lambda x: jnp.zeros((*slots, *x.shape), x.dtype), example),
            reward=jnp.zeros((*slots, 2)),
            populated=jnp.zeros(slots, bool),
            has_reward=jnp.ones(slots, bool),
            next_slot=jnp.zeros(envs, jnp.int32),
            first_slot=jnp.zeros(envs, jnp.int32),
        )

    def add(self, item: Move) -> "Flat":
        """One move of every environment; a discount of 0 ends a game, `last` cuts it off."""
        env, capacity = jnp.arange(self.next_slot.shape[0]), self.populated.shape[1]
        at = env, self.next_slot
        next_slot = (self.next_slot + 1) % capacity
        waiting = ~self.has_reward.at[at].set(False)
        ended, cut = (item.discount == 0)[:, None], item.last[:, None]
        reward = jnp.stack([item.reward, -item.reward], axis=1)[:, None]
        return Flat(
            items=jax.tree.map(lambda ring, x: ring.at[at].set(x), self.items, item),
            reward=jnp.where((ended & waiting)[:, :, None], reward, self.reward),
            populated=self.populated.at[at].set(True) & ~(cut & ~ended & waiting),
            has_reward=ended | cut | ~waiting,
            next_slot=jnp.where(item.last & (item.discount != 0), self.first_slot, next_slot),
            first_slot=jnp.where(ended[:, 0], next_slot, self.first_slot),
        )

    def sample(self, key: Array, batch: int) -> tuple[Move, Array]:
        valid = (self.populated & self.has_reward).reshape(-1).astype(jnp.float32)
        flat = jr.choice(key, valid.size, (batch,), replace=False, p=valid / valid.sum())
        at = jnp.divmod(flat, self.populated.shape[1])
        return jax.tree.map(lambda x: x[at], self.items), self.reward[at]


class NumPyRing:
    """A ring in place, in NumPy."""

    def __init__(self, example: Any, envs: int, capacity: int, batch: int):
        blank = lambda x: np.zeros((envs, capacity, *x.shape), x.dtype)
        self.rings = [blank(x) for x in jax.tree.leaves(example)]
        self.envs, self.capacity, self.batch, self.written = envs, capacity, batch, 0
        self.random = np.random.default_rng(0)

    def turn(self, leaves: list[np.ndarray]) -> list[np.ndarray]:
        time = leaves[0].shape[1]
        slots = (self.written + np.arange(time)) % self.capacity
        for ring, x in zip(self.rings, leaves, strict=True):
            ring[:, slots] = x
        self.written += time
        oldest, rows = max(0, self.written - self.capacity), min(self.written, self.capacity)
        env = self.random.integers(0, self.envs, self.batch)[:, None]
        first = oldest + self.random.integers(0, rows - LENGTH + 1, self.batch)
        slots = (first[:, None] + np.arange(LENGTH)) % self.capacity
        return [ring[env, slots] for ring in self.rings]


def step_example() -> dict[str, Array]:
    """A row of a small continuous task with its search results."""
    return {
        "observation": jnp.zeros(32),
        "actions": jnp.zeros((16, 8)),
        "weights": jnp.zeros(16),
        "reward": jnp.zeros(()),
        "discount": jnp.zeros(()),
        "last": jnp.zeros((), bool),
    }


def stacked(example: Any, *axes: int) -> Any:
    random = np.random.default_rng(1)
    draw = lambda x: jnp.asarray(random.random((*axes, *x.shape)) * 2, x.dtype)
    return jax.tree.map(draw, example)


def jitted(turn: Callable, state: Any, items: Any) -> Callable[[], Any]:
    """A function that takes one turn and keeps the state."""
    compiled = jax.jit(turn, donate_argnums=0).lower(state, items, 0).compile()

    def call():
        nonlocal state, count
        state, out = compiled(state, items, count)
        count += 1
        return state, out

    count = 0
    return call


def clock(call: Callable[[], Any], repeats: int) -> float:
    start, out = time.perf_counter(), None
    for _ in range(repeats):
        out = call()
    jax.block_until_ready(out)
    return (time.perf_counter() - start) / repeats


def compare(calls: dict[str, Callable[[], Any]], runs: int, fill: int) -> dict[str, Any]:
    """Times of a turn of every subject, the first one's beside each of the others'."""
    for call in calls.values():
        clock(call, fill)
    slowest = max(clock(call, 3) for call in calls.values())
    repeats = max(1, round(0.005 / slowest))
    times = {name: [] for name in calls}
    for run in range(runs):
        for name in list(calls)[:: 1 if run % 2 else -1]:
            times[name].append(clock(calls[name], repeats))
    ours, *others = times
    fast = {name: [round(x, 3) for x in quartiles(times[name], times[ours])] for name in others}
    return {
        "ms": {name: round(1e3 * statistics.median(x), 3) for name, x in times.items()},
        "best_ms": {name: round(1e3 * min(x), 3) for name, x in times.items()},
        "times_as_fast": {name: x[1] for name, x in fast.items()},
        "quartiles": {name: [x[0], x[2]] for name, x in fast.items()},
    }


def quartiles(theirs: list[float], ours: list[float]) -> list[float]:
    return statistics.quantiles([a / b for a, b in zip(theirs, ours, strict=True)], n=4)


def flashbax_buffer(make: Callable, envs: int, capacity: int, batch: int) -> Any:
    return make(
        add_batch_size=envs,
        sample_batch_size=batch,
        sample_sequence_length=LENGTH,
        period=1,
        min_length_time_axis=LENGTH,
        max_length_time_axis=capacity,
    )


def windows(envs: int, capacity: int, batch: int, runs: int, block: int = 32) -> dict[str, Any]:
    buffer = TrajectoryBuffer(capacity, envs, batch, LENGTH)
    peer = flashbax_buffer(flashbax.make_trajectory_buffer, envs, capacity, batch)

    def turn(buffer, key_name, state, items, count):
        state = buffer.add(state, items)
        return state, buffer.sample(state, **{key_name: jr.fold_in(jr.key(0), count)})

    example = step_example()
    items = stacked(example, envs, block)
    ring = NumPyRing(example, envs, capacity, batch)
    in_numpy = [np.asarray(x) for x in jax.tree.leaves(items)]
    calls = {
        "zero": jitted(ft.partial(turn, buffer, "key"), buffer.init(example), items),
        "flashbax": jitted(ft.partial(turn, peer, "rng_key"), peer.init(example), items),
        "numpy": lambda: ring.turn(in_numpy),
    }
    return {"block": block, "length": LENGTH} | compare(calls, runs, -(-capacity // block))


def priorities(envs: int, capacity: int, batch: int, runs: int, block: int = 32) -> dict[str, Any]:
    buffer = PrioritisedTrajectoryBuffer(capacity, envs, batch, LENGTH)
    make = ft.partial(flashbax.make_prioritised_trajectory_buffer, device=jax.devices()[0].platform)
    peer = flashbax_buffer(make, envs, capacity, batch)

    def turn(buffer, key_name, update, state, items, count):
        state = buffer.add(state, items)
        key, pkey = jr.split(jr.fold_in(jr.key(0), count))
        drawn = buffer.sample(state, **{key_name: key})
        return update(state, drawn.indices, jr.uniform(pkey, (batch,))), drawn

    example = step_example()
    items = stacked(example, envs, block)
    ours = ft.partial(turn, buffer, "key", buffer.update_priorities)
    theirs = ft.partial(turn, peer, "rng_key", peer.set_priorities)
    calls = {
        "zero": jitted(ours, buffer.init(example), items),
        "flashbax": jitted(theirs, peer.init(example), items),
    }
    return {"block": block, "length": LENGTH} | compare(calls, runs, -(-capacity // block))


def episodes(envs: int, capacity: int, batch: int, runs: int, block: int = 4) -> dict[str, Any]:
    buffer = EpisodeBuffer(capacity, envs, batch)
    example = Move(
        board=jnp.zeros((8, 8, 2), jnp.int8),
        policy=jnp.zeros(65),
        reward=jnp.zeros(()),
        discount=jnp.zeros(()),
        last=jnp.zeros((), bool),
    )
    moves = stacked(example, envs, block)

    def with_ends(moves: Move, count: Array) -> Move:
        draw = jr.uniform(jr.fold_in(jr.key(1), count), (envs, block))
        where = lambda move: (move.discount, move.last)
        ends = jnp.where(draw < ENDS, 0.0, -1.0), draw > 1 - CUTS
        return eqx.tree_at(where, moves, ends)

    def ours(state, moves, count):
        state = buffer.add(state, with_ends(moves, count))
        drawn = buffer.sample(state, key=jr.fold_in(jr.key(0), count))
        return state, (drawn.items, drawn.weights)

    def theirs(state, moves, count):
        moves = with_ends(moves, count)
        for t in range(block):
            state = state.add(jax.tree.map(lambda x: x[:, t], moves))  # noqa: B023
        return state, state.sample(jr.fold_in(jr.key(0), count), batch)

    calls = {
        "zero": jitted(ours, buffer.init(example), moves),
        "flat": jitted(theirs, Flat.empty(example, envs, capacity), moves),
    }
    return {"block": block} | compare(calls, runs, -(-capacity // block))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("questions", nargs="*", help=" ".join(QUESTIONS))
    parser.add_argument("--cells", nargs="+", help="ENVIRONMENTSxROWSxBATCH")
    parser.add_argument("--runs", type=int, default=201)
    options = parser.parse_args()
    jax.config.update("jax_enable_compilation_cache", False)
    ask = {"windows": windows, "priorities": priorities, "episodes": episodes}
    for question in options.questions or QUESTIONS:
        for cell in options.cells or CELLS[question]:
            envs, capacity, batch = (int(x) for x in cell.split("x"))
            asked = {"question": question, "device": jax.devices()[0].device_kind}
            asked |= {"envs": envs, "capacity": capacity, "batch": batch}
            answer = ask[question](envs, capacity, batch, options.runs)
            print(json.dumps(asked | answer), flush=True)


if __name__ == "__main__":
    main()
