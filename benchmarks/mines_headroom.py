"""How much more of Minesweeper's games could any player win than the best rule?

The rule is `tiebreak`: of the cells of the lowest risk, one with the fewest hidden neighbours. By
the performance difference lemma (Kakade and Langford 2002, "Approximately optimal approximate
reinforcement learning", lemma 6.1) another player wins as many games more as the sum of the
advantages of its moves over the rule, on the boards that it meets. Moves that are safe have none.
So on a sample of the boards on which the rule guesses, other cells are opened first and the games
are played to their end by the rule, on the same layouts of the posterior for all cells. A game
counts 1 minus the sum of its risks. Cells of equal risk with as many hidden neighbours, and with as
many of these beside a number, are of one kind, and one of each kind is tried.

JSON lines, one for each number of open cells: `guesses` a game, and what all of them would add to
the wins of a game, if each opened the best cell of its board. `gain` is an estimate of that on
fresh layouts, so it is too small where the best was not found; `largest` is the largest mean of the
layouts from which the best was chosen, so it is too large. Boards are those of the rule, and not of
the better player, which differ in few guesses.

    taskset -c 0 uv run python benchmarks/mines_headroom.py
"""

import argparse
import collections
import json
import time

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from zero_envs import mine_posterior, Minesweeper, sample_mines


SIDE, MINES, CHUNK = 10, 10, 128
#: Boards by the number of their open cells.
STAGES = ((0, 0), (1, 1), (2, 8), (9, 79), (80, 90))


def near(cells):
    """The number of neighbours of each cell that are in `cells`, `[..., rows, columns]`."""
    padded = jnp.pad(cells.astype(jnp.int8), [(0, 0)] * (cells.ndim - 2) + [(1, 1)] * 2)
    views = [padded[..., i : i + SIDE, j : j + SIDE] for i in range(3) for j in range(3)]
    return sum(views) - cells.astype(jnp.int8)


@jax.jit
def turn(board, mines, first, key):
    """Opens `first`, or else all safe cells, or else the rule's; `first` is -1 for none.

    **Returns:** the boards, whether the games are over, and the risks that were taken.
    """
    flat = lambda x: x.reshape(x.shape[0], -1)
    hidden = board < 0
    p = jax.vmap(lambda b: mine_posterior(b, MINES).probability)(board)
    safe = hidden & (p == 0)
    risk = jnp.where(flat(hidden), flat(p), jnp.inf)
    least = risk <= jnp.min(risk, axis=1, keepdims=True) * (1 + 1e-5)
    score = -flat(near(hidden)) + jr.uniform(key, least.shape)
    cell = jnp.argmax(jnp.where(least, score, -jnp.inf), axis=1)
    cell = jnp.where(first < 0, cell, first)
    guesses = (first >= 0) | ~jnp.any(safe, axis=(1, 2))
    one = (jnp.arange(SIDE * SIDE) == cell[:, None]).reshape(board.shape)
    opened = jnp.where(guesses[:, None, None], one, safe)
    dead = jnp.any(opened & mines, axis=(1, 2))
    board = jnp.where(opened, near(mines), board)
    over = dead | jnp.all((board < 0) == mines, axis=(1, 2))
    taken = jnp.take_along_axis(flat(p), cell[:, None], axis=1)[:, 0]
    return board, over, jnp.where(guesses, taken, 0.0)


def finish(board, mines, first, seed, guessed=None):
    """Plays games to their end, and returns 1 minus the sum of the risks of each.

    The boards of guesses are appended to `guessed`.
    """
    board, first, value = board.copy(), first.copy(), np.ones(len(board))
    key, left = jr.key(seed), np.arange(len(board))
    while left.size:
        rows = np.resize(left[:CHUNK], CHUNK)
        key, now = jr.split(key)
        after, over, risk = map(np.asarray, turn(board[rows], mines[rows], first[rows], now))
        rows = rows[: left.size]
        if guessed is not None:
            guessed.extend(board[i].copy() for i, r in zip(rows, risk, strict=False) if r > 0)
        board[rows], first[rows] = after[: rows.size], -1
        value[rows] -= risk[: rows.size]
        left = np.concatenate([rows[~over[: rows.size]], left[CHUNK:]])
    return value


def canonical(board):
    """The least of the eight symmetrical boards, as bytes."""
    turned = [np.rot90(b, k) for b in (board, board.T) for k in range(4)]
    return min(b.tobytes() for b in turned)


def kinds(board, most):
    """One cell of each kind, that of the rule first, and then those of the lowest risks."""
    hidden = board < 0
    risk = np.asarray(mine_posterior(board, MINES).probability).reshape(-1)
    around = np.asarray(near(jnp.asarray(hidden))).reshape(-1)
    edge = hidden & (np.asarray(near(jnp.asarray(~hidden))) > 0)
    informs = np.asarray(near(jnp.asarray(edge))).reshape(-1)
    kind = {}
    for cell in np.flatnonzero(hidden):
        kind.setdefault((round(float(risk[cell]), 5), around[cell], informs[cell]), cell)
    return np.array([kind[k] for k in sorted(kind) if k[0] < 1][:most], np.int32)


@jax.jit
def layouts(board, key):
    """A thousand layouts of the posterior."""
    return sample_mines(board, MINES, 1024, key=key)[0]


def advantages(board, number, most, seed):
    """The largest advantage of another first cell, on the layouts from which it was chosen and on
    as many fresh ones, and the standard error of that."""
    cells = kinds(board, most)
    draws = -(-2 * number // 1024)
    keys = jr.split(jr.key(seed), draws)
    mines = np.concatenate([layouts(board, k) for k in keys])[: 2 * number]

    def play(cells, mines, seed):
        n = len(mines)
        boards = np.repeat(board[None], n * len(cells), axis=0)
        value = finish(boards, np.tile(mines, (len(cells), 1, 1)), np.repeat(cells, n), seed)
        return value.reshape(len(cells), n)

    mean = play(cells, mines[:number], seed).mean(axis=1)
    best = int(np.argmax(mean))
    if not best:
        return 0.0, 0.0, 0.0
    rule, other = play(cells[[0, best]], mines[number:], seed + 1)
    error = float(np.std(other - rule, ddof=1)) / number**0.5
    return float(mean[best] - mean[0]), float(np.mean(other - rule)), error


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--games", type=int, default=4000, help="whose guesses are sampled from")
    parser.add_argument("--guesses", type=int, default=60, help="of each number of open cells")
    parser.add_argument("--layouts", type=int, default=200, help="for each cell and guess")
    parser.add_argument("--cells", type=int, default=12, help="tried on a board, at the most")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    env = Minesweeper(SIDE, SIDE, MINES)
    keys = jr.split(jr.key(given.seed), given.games)
    mines = np.asarray(jax.jit(jax.vmap(lambda k: env.init(key=k).mines))(keys))
    boards = np.full(mines.shape, -1, np.int8)
    guessed = []
    value = finish(boards, mines, np.full(given.games, -1, np.int32), given.seed, guessed)
    said = {"wins": value.mean(), "se": value.std(ddof=1) / given.games**0.5}
    print(json.dumps({k: round(float(x), 5) for k, x in said.items()}), flush=True)
    rng = np.random.default_rng(given.seed)
    for least, most in STAGES:
        began = time.perf_counter()
        among = [b for b in guessed if least <= np.sum(b >= 0) <= most]
        sample = rng.permutation(len(among))[: given.guesses]
        # Equal boards are one, with the layouts of all of them.
        equal = collections.defaultdict(list)
        for i in sample:
            equal[canonical(among[i])].append(among[i])
        rows = []
        for i, same in enumerate(equal.values()):
            number = given.layouts * len(same)
            rows += [advantages(same[0], number, given.cells, given.seed + 2 * i)] * len(same)
        each, rate = np.array(rows), len(among) / given.games
        # Of the guesses that were sampled, and of the layouts; equal boards share the latter.
        errors = np.std(each, axis=0, ddof=1) / len(each) ** 0.5
        row = {
            "open": [least, most],
            "guesses": rate,
            "boards": len(equal),
            "gain": rate * each[:, 1].mean(),
            "gain_se": rate * (errors[1] if len(equal) > 1 else each[0, 2]),
            "largest": rate * each[:, 0].mean(),
            "largest_se": rate * errors[0],
            "seconds": time.perf_counter() - began,
        }
        small = lambda x: round(float(x), 6) if isinstance(x, float) else x
        print(json.dumps({k: small(x) for k, x in row.items()}), flush=True)


if __name__ == "__main__":
    main()
