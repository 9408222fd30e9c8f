"""UCT on the host, of games whose boards are two words of 64 bits."""

import importlib
import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ._compiled import compiled, count_bits


_U = np.uint64
_ONE = _U(1)
_count = compiled(count_bits)


@compiled
def _nth(bits, n):
    """The place of a bit of a set, with so many below it."""
    for _ in range(n):
        bits &= bits - _ONE
    return _count((bits & (~bits + _ONE)) - _ONE)


@compiled
def _widen(node, legal, tree, points, size):
    """Adds a child for each action, in random order, and returns the new number of nodes."""
    visits, begin, number, action = tree[0], tree[1], tree[2], tree[3]
    first = size
    for i in range(_count(legal)):
        place = first + int(np.random.random() * (i + 1))
        action[size] = action[place]
        action[place] = _nth(legal, i)
        visits[size], begin[size], points[size] = 0, 0, 0
        size += 1
    begin[node], number[node] = first, size - first
    return size


@compiled
def _selected(node, tree, points):
    """The child to visit: UCB1 with `c = sqrt(2)` for win rates, unvisited ones first."""
    visits, begin, number = tree[0], tree[1], tree[2]
    best, chosen, total = -1.0, 0, 0
    for child in range(begin[node], begin[node] + number[node]):
        total += visits[child]
    for child in range(begin[node], begin[node] + number[node]):
        if visits[child] == 0:
            return child
        score = points[child] / visits[child] + math.sqrt(2 * math.log(total) / visits[child])
        if score > best:
            best, chosen = score, child
    return chosen


def host_uct(legal: Callable[..., Any], play: Callable[..., Any], score: Callable[..., Any]) -> Any:
    """UCT (Kocsis and Szepesvari, 2006) as that of [`zero_app.uct`][], by numba: a function of the
    discs of the player to move and those of the opponent, the number of playouts, a seed below
    `2**32`, and an array of 64 into which the visits of the actions are written. It is compiled
    when it is called first, in each process.

    **Arguments:** functions that are [`zero_app.compiled`][], of the discs of the player to move
    and those of the opponent,

    - `legal`: the set of legal actions, below 64; it is empty where the game is over.
    - `play`: takes an action, too, and returns both sets of discs as the next player sees them.
    - `score`: 1, 1/2 or 0 for the player to move, where the game is over.
    """

    def search(own, theirs, playouts, seed, found):
        np.random.seed(seed)
        # Of each node the visits, the first child, the number of children, the action before it.
        tree, points = np.empty((4, 64 * (playouts + 1)), np.int64), np.empty(64 * (playouts + 1))
        path, visits, begin = np.zeros(playouts + 2, np.int64), tree[0], tree[1]
        visits[0], begin[0], points[0], size = 0, 0, 0, 1
        for _ in range(playouts):
            node, depth, mine, others = 0, 0, own, theirs
            while visits[node] > 0 or node == 0:
                if begin[node] == 0:
                    size = _widen(node, legal(mine, others), tree, points, size)
                if tree[2, node] == 0:
                    break
                node, depth = _selected(node, tree, points), depth + 1
                path[depth] = node
                mine, others = play(mine, others, tree[3, node])
            turns, actions = 0, legal(mine, others)
            while actions:
                action = _nth(actions, int(np.random.random() * _count(actions)))
                mine, others = play(mine, others, action)
                turns, actions = turns + 1, legal(mine, others)
            result = score(mine, others)
            if turns % 2 == 0:  # as whoever has moved to the node sees it
                result = 1 - result
            for i in range(depth, -1, -1):
                visits[path[i]] += 1
                points[path[i]] += result
                result = 1 - result
        for child in range(begin[0], begin[0] + tree[2, 0]):
            found[tree[3, child]] = visits[child]

    numba: Any = importlib.import_module("numba")
    return numba.njit(inspect.unwrap(search))
