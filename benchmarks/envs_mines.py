"""What Minesweeper's exact posterior costs, and how many states it needs.

JSON lines, of one `--question`; boards of three kinds: `play`, safe cells opened in any order as
long as there are some, then the least likely mine; `random`, any number of safe cells in any order;
`scattered`, 5 to 40 of them.

- `time`: milliseconds a board for marginals alone, and with `--layouts` layouts, all boards in one
  call; the least of `--runs`, compilation apart. `cpu_ms` is the process's CPU time, which says
  something on a busy machine too.
- `states`: the share of `--boards` boards that need more than 32, 128 and 512 states, and how many
  are refused.

    taskset -c 0 uv run python benchmarks/envs_mines.py --question time
    uv run python benchmarks/envs_mines.py --question states --boards 20000
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from zero_envs import mine_posterior, Minesweeper, sample_mines


KINDS = ("play", "random", "scattered")
CHUNK = 64


def boards(env: Minesweeper, kind: str, number: int, seed: int) -> jax.Array:
    """`int8[number, rows, columns]`."""
    if kind == "play":
        return played(env, number, seed)
    rng = np.random.default_rng(seed)
    cells, safe = env.num_actions, env.num_actions - env.num_mines
    low, high = (0, safe + 1) if kind == "random" else (5, min(41, safe + 1))
    order = np.argsort(rng.uniform(size=(number, cells)), axis=1)
    mines, opened = np.zeros((2, number, cells), bool)
    np.put_along_axis(mines, order[:, : env.num_mines], True, axis=1)
    count = rng.integers(low, high, size=(number, 1))
    np.put_along_axis(opened, order[:, env.num_mines :], np.arange(safe) < count, axis=1)
    mines, opened = (x.reshape(number, env.rows, env.columns) for x in (mines, opened))
    padded = np.pad(mines, ((0, 0), (1, 1), (1, 1)))
    views = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))
    return jnp.asarray(np.where(opened, views.sum(axis=(3, 4)), -1), jnp.int8)


def played(env: Minesweeper, number: int, seed: int) -> jax.Array:
    """Boards out of games, every eighth move, until there are enough."""

    @jax.jit
    def move(state, key):
        akey, ikey = jr.split(key)
        board = jnp.where(state.over[:, None, None], jnp.int8(-1), state.board)
        solve = lambda x: mine_posterior(x, env.num_mines, max_states=env.max_states)
        risk = jax.vmap(solve)(board).probability
        risk = jnp.where(board < 0, risk, 2.0) + 1e-4 * jr.uniform(akey, board.shape)
        action = jnp.argmin(risk.reshape(CHUNK, -1), axis=1).astype(jnp.int32)
        after = jax.vmap(lambda s, a: env.step(s, a, key=ikey)[0])(state, action)
        fresh = jax.vmap(lambda k: env.init(key=k))(jr.split(ikey, CHUNK))
        over = after.over
        pick = lambda x, y: jnp.where(over.reshape(-1, *(1 for _ in x.shape[1:])), x, y)
        return jax.tree.map(pick, fresh, after)

    state = jax.vmap(lambda k: env.init(key=k))(jr.split(jr.key(seed), CHUNK))
    found, i = [], 0
    while CHUNK * len(found) < number:
        state = move(state, jr.fold_in(jr.key(seed), i))
        i += 1
        if i % 8 == 0:
            found.append(state.board)
    return jnp.concatenate(found)[:number]


def times(env: Minesweeper, board: jax.Array, options: Any) -> dict[str, float]:
    """The least milliseconds of a board."""
    keys = jr.split(jr.key(1), len(board))

    def marginals(board: jax.Array, key: jax.Array) -> jax.Array:
        return mine_posterior(board, env.num_mines, max_states=env.max_states).probability

    def layouts(board: jax.Array, key: jax.Array) -> Any:
        number = options.layouts
        return sample_mines(board, env.num_mines, number, key=key, max_states=env.max_states)

    both = {"marginals": marginals, "layouts": layouts}
    return {
        f"{name}_{unit}": spent
        for name, function in both.items()
        for unit, spent in least(jax.jit(jax.vmap(function)), board, keys, options.runs).items()
    }


def least(
    solve: Callable[..., Any], board: jax.Array, keys: jax.Array, runs: int
) -> dict[str, float]:
    jax.block_until_ready(solve(board, keys))
    spent = []
    for _ in range(runs):
        start, cpu = time.perf_counter(), time.process_time()
        jax.block_until_ready(solve(board, keys))
        spent.append((time.perf_counter() - start, time.process_time() - cpu))
    wall, cpu = (1e3 * min(x) / len(board) for x in zip(*spent, strict=True))
    return {"ms": round(wall, 3), "cpu_ms": round(cpu, 3)}


def states(env: Minesweeper, board: jax.Array) -> dict[str, float]:
    """How many boards need longer lists."""
    found = {}
    for size in (32, 128, 512):
        if size <= env.max_states:
            one = lambda x, size=size: mine_posterior(x, env.num_mines, max_states=size).overflowed
            solve = jax.jit(jax.vmap(one))
            more = [np.asarray(solve(x)) for x in board.reshape(-1, CHUNK, *board.shape[1:])]
            found[f"above_{size}"] = float(np.mean(more))
    return found


def lines(options: Any) -> Iterator[dict[str, Any]]:
    sizes = {"rows": options.rows, "columns": options.columns, "num_mines": options.mines}
    env = Minesweeper(**sizes, max_states=options.max_states)
    about = {"device": jax.devices()[0].device_kind, "jax": jax.__version__}
    for kind in options.kinds:
        number = options.boards // CHUNK * CHUNK
        board = boards(env, kind, number, options.seed)
        line = {"kind": kind, "boards": number} | sizes
        if options.question == "states":
            yield line | states(env, board) | about
        else:
            yield line | {"layouts": options.layouts} | times(env, board, options) | about


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--question", choices=["time", "states"], required=True)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--boards", type=int, default=CHUNK, help="a multiple of 64")
    parser.add_argument("--layouts", type=int, default=64)
    parser.add_argument("--rows", type=int, default=10)
    parser.add_argument("--columns", type=int, default=10)
    parser.add_argument("--mines", type=int, default=10)
    parser.add_argument("--max-states", type=int, default=512)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for line in lines(options):
        print(json.dumps({"question": options.question} | line), flush=True)


if __name__ == "__main__":
    main()
