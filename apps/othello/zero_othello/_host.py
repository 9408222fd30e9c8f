"""Opponents that search sets of bits on the host: alpha-beta, and UCT with random playouts.

A board is what it is in `_solver.py`.
"""

import numpy as np
from jaxtyping import Bool, Int

from zero_app import compiled, count_bits, host_uct

from ._board import PASS, SOLVED
from ._engines import SQUARE_WEIGHTS
from ._solver import _final, _first, flips, moves, Solver


_U = np.uint64
_ONE = _U(1)
_count = compiled(count_bits)
_WEIGHTS = np.unique(SQUARE_WEIGHTS)[::-1].astype(np.int64)
#: The squares of each weight, the best first, as moves are tried.
_SQUARES = np.array(
    [sum(1 << int(i) for i in np.flatnonzero(SQUARE_WEIGHTS == w)) for w in _WEIGHTS], np.uint64
)
# What a disc more at the end is worth: more than any sum of weights.
_DECIDED = 1000
_INFINITE = 10**6


@compiled
def _weigh(own, theirs):
    """The sum of the square weights of `own` minus those of `theirs`."""
    total = 0
    for i in range(len(_SQUARES)):
        total += _WEIGHTS[i] * (_count(own & _SQUARES[i]) - _count(theirs & _SQUARES[i]))
    return total


@compiled
def _play(own, theirs, square):
    """What both have after a move, the next player first. A pass is to play where a disc is."""
    bit = _ONE << _U(square)
    if (own | theirs) & bit:
        return theirs, own
    flipped = flips(square, own, theirs)
    return theirs ^ flipped, own | flipped | bit


@compiled
def alpha_beta(own, theirs, depth, alpha, beta):
    """What a position is worth to the player to move after `depth` plies, passes among them, if it
    is between `alpha` and `beta`, else a bound of it (Knuth and Moore, 1975): the sum of the square
    weights, or `_DECIDED` for each disc more than the opponent's where the game is over."""
    if depth == 0:
        return _weigh(own, theirs)
    empty = ~(own | theirs)
    legal = moves(own, theirs, empty)
    if not legal:
        if not moves(theirs, own, empty):
            return _DECIDED * _final(own, theirs, empty)
        return -alpha_beta(theirs, own, depth - 1, -beta, -alpha)
    best = -_INFINITE
    for i in range(len(_SQUARES)):
        part = legal & _SQUARES[i]
        while part:
            mine, others = _play(own, theirs, _first(part))
            part &= part - _ONE
            score = -alpha_beta(mine, others, depth - 1, -beta, -alpha)
            if score > best:
                best = score
                if best > alpha:
                    alpha = best
                    if alpha >= beta:
                        return best
    return best


@compiled
def values(own, theirs, depth, found):
    """Writes what `alpha_beta` says of each legal move into `found`, `[64]`: exactly for the best
    moves, and less than that for all others."""
    legal, best = moves(own, theirs, ~(own | theirs)), -_INFINITE
    for i in range(len(_SQUARES)):
        part = legal & _SQUARES[i]
        while part:
            square = _first(part)
            part &= part - _ONE
            mine, others = _play(own, theirs, square)
            # As good as the best so far is exact, too.
            found[square] = -alpha_beta(mine, others, depth - 1, -_INFINITE, 1 - best)
            best = max(best, found[square])


@compiled
def _legal(own, theirs):
    empty = ~(own | theirs)
    legal = moves(own, theirs, empty)
    if not legal and moves(theirs, own, empty):
        return own & (~own + _ONE)
    return legal


@compiled
def _score(own, theirs):
    return (np.sign(_count(own) - _count(theirs)) + 1) / 2


uct = host_uct(_legal, _play, _score)


def play_uct(playouts: int, features: Bool[np.ndarray, "8 8 2"], seed: int) -> int:
    """The most visited action."""
    own, theirs = _words(features)
    if not moves(own, theirs, ~(own | theirs)):
        return PASS
    found = np.zeros(64, np.int64)
    uct(own, theirs, playouts, seed, found)
    return _one_of(np.flatnonzero(found == found.max()), seed)


class AlphaBeta:
    """Plays one of the best moves by `alpha_beta`, and one of those with the best score from 12
    empty squares on.

    **Arguments:**

    - `depth`: how many plies it looks ahead, 1 or more.
    """

    def __init__(self, depth: int):
        self._depth, self._solver = depth, Solver(16)

    def __call__(self, features: Bool[np.ndarray, "8 8 2"], seed: int) -> int:
        own, theirs = _words(features)
        empty = ~(own | theirs)
        if int(empty).bit_count() <= SOLVED:
            scores = self._solver.scores(int(own), int(theirs), int(empty))
            best = [action for action, score in scores.items() if score == max(scores.values())]
            return _one_of(np.asarray(best), seed)
        if not moves(own, theirs, empty):
            return PASS
        found = np.full(64, -_INFINITE, np.int64)
        values(own, theirs, self._depth, found)
        return _one_of(np.flatnonzero(found == found.max()), seed)


def _one_of(actions: Int[np.ndarray, " best"], seed: int) -> int:
    return int(actions[seed % len(actions)])


def _words(features: Bool[np.ndarray, "8 8 2"]) -> tuple[np.uint64, np.uint64]:
    """The discs of the player to move and those of the opponent."""
    own, theirs = np.packbits(features.reshape(64, 2), axis=0, bitorder="little").T.copy().view(_U)
    return own[0], theirs[0]
