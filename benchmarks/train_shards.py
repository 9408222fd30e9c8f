"""How unevenly long do the shards of a step search, and how long do all wait for the last one?

Devices collect without talking, and meet once a step: it is as long as the longest collection.
Every shard of a real run is collected alone, from the games of the run and with the keys of its
next step. One JSON line for the time, and one for each number of games of a shard for the turns of
the search's loops, which is what differs on an accelerator:

- `mean_ms`, `deviation`: of a shard's collection, and of that over the mean of its step.
- `straggler`: the expected longest of so many shards over the mean one. Shards are drawn with
    replacement from all that were measured, each over the mean of its step: as if they were
    independent, and no shard longer than those that were seen.
- `noise`: what of the deviation two measurements of one shard differ by. Times are the least of
    several, in CPU seconds of the process, which other processes disturb less.
- `turns`: of the loops down, up and over the scores, in the mean simulation of a shard. They are
    counted from the depths of all walks, so games can be dealt into shards of any size.

    uv run python benchmarks/train_shards.py --train 45 --steps 15 --every 1 --games 4 16 128
"""

import argparse
import contextlib
import dataclasses
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.random as jr
import numpy as np
from train_devices import configured

from zero_app import Launch, start_jax
from zero_app._run._app import built
from zero_search import _engine as engine_module
from zero_search._walk import LEVELS, VISITS
from zero_train import collect, fill, init, Loop, LoopState, step
from zero_train._loop import step_keys


# It has no other name for type checkers, which see that `walk_down` belongs to another module.
_engine: Any = engine_module


SHARDS = (8, 64, 256)
_DRAWS = 4_000


def stragglers(parts: np.ndarray, seed: int = 0) -> dict[str, float]:
    """The expected longest of so many shards over the mean one.

    **Arguments:**

    - `parts`: what was measured, of `[steps, shards]`.
    """
    pool = (parts / parts.mean(axis=1, keepdims=True)).reshape(-1)
    rng = np.random.default_rng(seed)
    longest = {n: rng.choice(pool, (_DRAWS, n)).max(axis=1).mean() for n in SHARDS}
    return {str(n): round(float(value), 3) for n, value in longest.items()}


def deviation(parts: np.ndarray) -> float:
    """The standard deviation over the mean of a step."""
    return round(float((parts / parts.mean(axis=1, keepdims=True)).std()), 4)


class Walks:
    """The depths of all walks down while a search runs. Order does not matter: they are summed."""

    def __init__(self) -> None:
        self.depths: list[np.ndarray] = []
        self.skip = 0

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Every search that is traced meanwhile tells its depths whenever it runs."""
        plain = _engine.walk_down

        def told(fixed: Any, *args: Any) -> Any:
            # Where a rule of its own chooses at the root, its visits are scored beside the loop.
            self.skip = 0 if fixed.choose_root is None else 1
            notes, walk = plain(fixed, *args)
            jax.debug.callback(lambda x: self.depths.append(np.asarray(x)), walk.depth)
            return notes, walk

        _engine.walk_down = told
        try:
            yield
        finally:
            _engine.walk_down = plain

    def turns(self, games: int) -> np.ndarray:
        """The turns of the loops down, up and over the scores, `[shards, 3]`, means of all
        simulations, in shards of so many games."""
        depth = np.stack(self.depths).reshape(len(self.depths), -1, games)
        deepest = -(-depth.max(axis=2) // LEVELS)
        visits = np.maximum(depth - self.skip, 0).sum(axis=2)
        scores = -(-visits // max(games, VISITS))
        return np.stack([x.mean(axis=0) for x in (deepest, deepest, scores)], axis=1)


def collecting(loop: Loop) -> Callable[..., Any]:
    """`(state, rows, key)`: collects these environments alone, as a device does that has them."""

    def run(agent: Any, episodes: Any, rows: Any, key: Any) -> Any:
        actor, unroll = loop.agent.actor(agent, explore=True), loop.unroll_length
        return collect(loop.env, actor, episodes, indices=rows, key=key, num_steps=unroll)[1]

    jitted = jax.jit(run)

    def alone(state: LoopState, rows: np.ndarray) -> Any:
        episodes = jax.tree.map(lambda x: x[rows], state.episodes)
        given = state.agent, episodes, rows, step_keys(state.key, state.step)[0]
        return jitted, jax.block_until_ready(given)

    return alone


def measured(given: argparse.Namespace) -> tuple[np.ndarray, dict[int, np.ndarray]]:
    """The CPU seconds `[steps, shards, repeats]`, and by the games of a shard the turns
    `[steps, shards, 3]`."""
    app, config = configured(given.case, None)
    loop, walks = built(app, dataclasses.replace(config, **changed(given)), 1), Walks()
    state = fill(loop, init(loop, key=jr.key(config.seed)))
    for _ in range(given.train):
        state, _ = step(loop, state)
    everything = np.arange(loop.num_envs, dtype=np.int32)
    shards = everything.reshape(given.shards, -1)
    alone, telling = collecting(loop), collecting(loop)
    run, first = alone(state, shards[0])
    jax.block_until_ready(run(*first))
    with walks.listening():
        run, first = telling(state, everything)
        told = run.lower(*first).compile()
    seconds, turns = [], {size: [] for size in given.games}
    for _ in range(given.steps):
        seconds.append([_seconds(given.repeats, *alone(state, rows)) for rows in shards])
        jax.block_until_ready(told(*telling(state, everything)[1]))
        jax.effects_barrier()
        for size in given.games:
            turns[size].append(walks.turns(size))
        walks.depths.clear()
        for _ in range(given.every):
            state, _ = step(loop, state)
    return np.asarray(seconds), {size: np.asarray(found) for size, found in turns.items()}


def _seconds(repeats: int, run: Callable[..., Any], arguments: Any) -> list[float]:
    found = []
    for _ in range(repeats):
        began = time.process_time()
        jax.block_until_ready(run(*arguments))
        found.append(time.process_time() - began)
    return found


def changed(given: argparse.Namespace) -> dict[str, int]:
    """The fields of the configuration that are not the preset's."""
    names = "envs", "unroll", "simulations", "considered"
    return {name: getattr(given, name) for name in names if getattr(given, name) is not None}


def lines(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    seconds, turns = measured(given)
    about = {"question": "train_shards", "case": given.case, **changed(given)}
    about |= {"trained": given.train, "steps": given.steps}
    least, half = seconds.min(axis=2), given.repeats // 2
    twice = seconds[..., :half].min(axis=2) / seconds[..., half:].min(axis=2)
    yield about | {
        "of": "CPU seconds",
        "shards": given.shards,
        "mean_ms": round(1e3 * float(least.mean()), 2),
        "deviation": deviation(least),
        "noise": round(float(twice.std() / np.sqrt(2)), 4),
        "straggler": stragglers(least),
    }
    for size, found in turns.items():
        each = found.mean(axis=(0, 1)).round(2).tolist()
        yield about | {
            "of": "turns",
            "games": size,
            "turns": dict(zip(("down", "up", "scores"), each, strict=True)),
            "deviation": deviation(found.sum(axis=2)),
            "straggler": stragglers(found.sum(axis=2)) if found.shape[1] > 1 else None,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--case", default="othello/quick", help="APP/PRESET")
    parser.add_argument("--train", type=int, default=60, help="steps before the first measured one")
    parser.add_argument("--steps", type=int, default=40, help="measured steps")
    parser.add_argument("--every", type=int, default=2, help="of so many steps one is measured")
    parser.add_argument("--shards", type=int, default=8, help="whose time is measured")
    parser.add_argument("--repeats", type=int, default=6, help="of the measurement of a time")
    parser.add_argument("--games", type=int, nargs="*", default=[4, 16], help="of a shard's turns")
    for name in ("envs", "unroll", "simulations", "considered"):
        parser.add_argument(f"--{name}", type=int, help="in place of the preset's")
    given = parser.parse_args()
    start_jax(Launch(devices=1))
    for line in lines(given):
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
