"""How much more of Minesweeper's games could any player win than the best rule?

The rule is `tiebreak`: of the cells of the lowest risk, one with the fewest hidden neighbours. By
the performance difference lemma (Kakade and Langford 2002, "Approximately optimal approximate
reinforcement learning", lemma 6.1) another player wins as many games more as the sum of the
advantages of its moves over the rule, on the boards that it meets. Moves that are safe have none.
So on a sample of the boards on which the rule guesses, other cells are opened first and the games
are played to their end by the rule, on the same layouts of the posterior for all cells. A game
counts 1 minus the sum of its risks. Cells of equal risk with as many hidden neighbours, and with as
many of these beside a number, are of one kind, and one of each kind is tried. The rule's own value
is the mean over the cells among which it draws.

JSON lines, one for each number of open cells: `guesses` a game, and what all of them would add to
the wins of a game, if each opened the best cell of its board. `gain` is an estimate of that on
fresh layouts, so it is too small where the best was not found; `largest` is the largest mean of the
layouts from which the best was chosen, so it is too large on the mean. Boards are those of the
rule, and not of the better player.

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
    """One cell of each kind, those of the rule first, and then those of the lowest risks; and how
    often the rule opens each kind."""
    hidden = board < 0
    risk = np.asarray(mine_posterior(board, MINES).probability).reshape(-1)
    around = np.asarray(near(jnp.asarray(hidden))).reshape(-1)
    edge = hidden & (np.asarray(near(jnp.asarray(~hidden))) > 0)
    informs = np.asarray(near(jnp.asarray(edge))).reshape(-1)
    kind = collections.defaultdict(list)
    for cell in np.flatnonzero(hidden):
        kind[round(float(risk[cell]), 5), around[cell], informs[cell]].append(cell)
    names = [k for k in sorted(kind) if k[0] < 1][:most]
    share = np.array([len(kind[k]) * (k[:2] == names[0][:2]) for k in names], np.float64)
    return np.array([kind[k][0] for k in names], np.int32), share / share.sum()


@jax.jit
def layouts(board, key):
    """A thousand layouts of the posterior."""
    return sample_mines(board, MINES, 1024, key=key)[0]


def advantages(board, number, most, seed):
    """The largest advantage of a first cell, on the layouts from which it was chosen and on as many
    fresh ones, each with the standard error."""
    cells, share = kinds(board, most)
    draws = -(-2 * number // 1024)
    keys = jr.split(jr.key(seed), draws)
    mines = np.concatenate([layouts(board, k) for k in keys])[: 2 * number]

    def play(cells, mines, seed):
        n = len(mines)
        boards = np.repeat(board[None], n * len(cells), axis=0)
        value = finish(boards, np.tile(mines, (len(cells), 1, 1)), np.repeat(cells, n), seed)
        return value.reshape(len(cells), n)

    found = play(cells, mines[:number], seed)
    best = int(np.argmax(found.mean(axis=1)))
    if share[best] == 1:
        return 0.0, 0.0, 0.0, 0.0
    tried = np.flatnonzero((share > 0) | (np.arange(len(cells)) == best))
    fresh = play(cells[tried], mines[number:], seed + 1)
    more = found[best] - share @ found, fresh[tried == best][0] - share[tried] @ fresh
    return *(float(x.mean()) for x in more), *(float(x.std(ddof=1)) / number**0.5 for x in more)


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
        rows, weights = [], []
        for i, same in enumerate(equal.values()):
            number = given.layouts * len(same)
            rows.append(advantages(same[0], number, given.cells, given.seed + 2 * i))
            weights.append(len(same) / len(sample))
        each, weight, rate = np.array(rows), np.array(weights), len(among) / given.games
        mean = weight @ each[:, :2]
        # Of the guesses that were sampled, and of the layouts, which equal boards share.
        between = weight @ np.square(each[:, :2] - mean) / (len(sample) - 1)
        errors = np.sqrt(between + np.square(weight) @ np.square(each[:, 2:]))
        row = {
            "open": [least, most],
            "guesses": rate,
            "boards": len(equal),
            "gain": rate * mean[1],
            "gain_se": rate * errors[1],
            "largest": rate * mean[0],
            "largest_se": rate * errors[0],
            "seconds": time.perf_counter() - began,
        }
        small = lambda x: round(float(x), 6) if isinstance(x, float) else x
        print(json.dumps({k: small(x) for k, x in row.items()}), flush=True)


if __name__ == "__main__":
    main()
