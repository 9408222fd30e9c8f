"""The exact outcome of Othello's last moves.

A board is three sets of squares, words of 64 bits: the discs of the player to move, those of the
opponent, and the empty squares. Squares outside of all three do not exist, so that smaller boards
are solved in the middle of the large one. A score is the difference of the discs at the end as the
player to move sees it, where the winner gets the squares that stay empty, as in tournaments.
"""

from collections.abc import Iterable

import numpy as np

from zero_app import compiled, count_bits


_U = np.uint64
_ONE, _ZERO = _U(1), _U(0)
_count = compiled(count_bits)
#: No score is as large.
_INFINITE = 65
# Squares between two others of their row, as all but the last of a line to the side or a diagonal.
_INNER = _U(0x7E7E7E7E7E7E7E7E)
_CORNERS = _U(0x8100000000000081)
# With at most so many empty squares moves are tried in a fixed order and nothing is remembered.
_FEW = 5


def _rays() -> np.ndarray:
    """The squares from each one on in eight directions, of which four go to larger numbers."""
    rays = np.zeros((64, 8), np.uint64)
    steps = (0, 1), (1, -1), (1, 0), (1, 1), (0, -1), (-1, 1), (-1, 0), (-1, -1)
    for square in range(64):
        for i, (down, right) in enumerate(steps):
            row, column = square // 8 + down, square % 8 + right
            while 0 <= row < 8 and 0 <= column < 8:
                rays[square, i] |= _ONE << _U(8 * row + column)
                row, column = row + down, column + right
    return rays


_RAYS = _rays()
_QUADRANTS = np.array(
    [0x000000000F0F0F0F, 0x00000000F0F0F0F0, 0x0F0F0F0F00000000, 0xF0F0F0F000000000], np.uint64
)


@compiled
def _first(x):
    """The smallest square of a set that has one."""
    return _count((x & (~x + _ONE)) - _ONE)


@compiled
def _up(own, through, stride):
    double = stride + stride
    line = through & (own << stride)
    line |= through & (line << stride)
    through &= through << stride
    line |= through & (line << double)
    line |= through & (line << double)
    return line << stride


@compiled
def _down(own, through, stride):
    double = stride + stride
    line = through & (own >> stride)
    line |= through & (line >> stride)
    through &= through >> stride
    line |= through & (line >> double)
    line |= through & (line >> double)
    return line >> stride


@compiled
def moves(own, theirs, empty):
    """The empty squares where a disc of `own` flips some of `theirs`."""
    inner = theirs & _INNER
    found = _up(own, inner, _U(1)) | _down(own, inner, _U(1))
    found |= _up(own, inner, _U(7)) | _down(own, inner, _U(7))
    found |= _up(own, inner, _U(9)) | _down(own, inner, _U(9))
    found |= _up(own, theirs, _U(8)) | _down(own, theirs, _U(8))
    return found & empty


@compiled
def flips(square, own, theirs):
    """Those of `theirs` in a line between a square and one of `own`."""
    found = _ZERO
    for i in range(4):
        ray = _RAYS[square, i]
        # The carry runs through what is not of the ray, or theirs, and stops at what follows.
        end = ((theirs | ~ray) + _ONE) & ray & own
        if end:
            found |= (end - _ONE) & ray
    for i in range(4, 8):
        ray = _RAYS[square, i]
        rest = ray & ~theirs
        rest |= rest >> _U(1)
        rest |= rest >> _U(2)
        rest |= rest >> _U(4)
        rest |= rest >> _U(8)
        rest |= rest >> _U(16)
        rest |= rest >> _U(32)
        end = rest ^ (rest >> _U(1))
        if end & own:
            found |= ray & ~rest
    return found


@compiled
def _final(own, theirs, empty):
    """The score of a board where nobody can move."""
    ours, others = _count(own), _count(theirs)
    rest = _count(empty)
    if ours > others:
        return ours - others + rest
    return ours - others - rest if ours < others else 0


@compiled
def _last(own, theirs, empty):
    """The score with one empty square."""
    square = _first(empty)
    flipped = flips(square, own, theirs)
    if flipped:
        return 2 * (_count(own | flipped) + 1) - _count(own | theirs | empty)
    flipped = flips(square, theirs, own)
    if flipped:
        return _count(own | theirs | empty) - 2 * (_count(theirs | flipped) + 1)
    return _final(own, theirs, empty)


@compiled
def _odd(empty):
    """The empty squares of quarters of the board that have an odd number of them: who plays there
    probably also moves last there."""
    odd = _ZERO
    for i in range(4):
        region = empty & _QUADRANTS[i]
        if _count(region) & 1:
            odd |= region
    return odd


@compiled
def _few(own, theirs, empty, alpha, beta, nodes):
    """The score with few empty squares, as `_search` gives it."""
    nodes[0] += 1
    number = _count(empty)
    if number == 1:
        return _last(own, theirs, empty)
    odd = _odd(empty)
    best = -_INFINITE
    for part in (odd, empty & ~odd):
        while part:
            square = _first(part)
            bit = _ONE << _U(square)
            part ^= bit
            flipped = flips(square, own, theirs)
            if flipped:
                after = theirs ^ flipped, own ^ flipped ^ bit, empty ^ bit
                score = -_few(after[0], after[1], after[2], -beta, -alpha, nodes)
                if score > best:
                    best = score
                    if best > alpha:
                        alpha = best
                        if alpha >= beta:
                            return best
    if best > -_INFINITE:
        return best
    if moves(theirs, own, empty):
        return -_few(theirs, own, empty, -beta, -alpha, nodes)
    return _final(own, theirs, empty)


@compiled
def _slot(own, theirs, table):
    mixed = own * _U(0x9E3779B97F4A7C15) ^ theirs * _U(0xC2B2AE3D27D4EB4F)
    mixed ^= mixed >> _U(29)
    mixed *= _U(0xBF58476D1CE4E5B9)
    return np.int64((mixed >> _U(32)) & _U(len(table) - 1))


@compiled
def _order(mine, legal, own, theirs, empty, known):
    """Writes the legal moves, with what they flip, into `mine`, those first that probably make the
    tree smallest, and returns their number."""
    odd = _odd(empty)
    count = 0
    while legal:
        square = _first(legal)
        bit = _ONE << _U(square)
        legal ^= bit
        flipped = flips(square, own, theirs)
        replies = moves(theirs ^ flipped, own ^ flipped ^ bit, empty ^ bit)
        # The fewer replies, the smaller the tree.
        rank = 4 * (_count(replies) + _count(replies & _CORNERS))
        if bit & _CORNERS:
            rank -= 8
        if bit & odd:
            rank -= 2
        if square == known:
            rank = -1000
        place = count
        while place > 0 and np.int64(mine[place - 1, 2]) > rank + 2000:
            for j in range(3):
                mine[place, j] = mine[place - 1, j]
            place -= 1
        mine[place, 0], mine[place, 1], mine[place, 2] = _U(square), flipped, _U(rank + 2000)
        count += 1
    return count


@compiled
def _search(own, theirs, empty, alpha, beta, table, plies, nodes):
    """The score if it is between `alpha` and `beta`; below them an upper bound of it, above them a
    lower one: principal variation search, fail soft (Reinefeld, 1983).

    **Arguments:**

    - `table`: what is known of positions, `[2**k, 4]`: the board, then 65 + the lower and 65 + the
        upper bound, and the best move + 1, a byte each.
    - `plies`: room for the moves of every number of empty squares, `[65, 34, 3]`.
    - `nodes`: counts the positions.
    """
    number = _count(empty)
    if number <= _FEW:
        if number == 0:
            return _final(own, theirs, empty)
        return _few(own, theirs, empty, alpha, beta, nodes)
    nodes[0] += 1
    legal = moves(own, theirs, empty)
    if not legal:
        if not moves(theirs, own, empty):
            return _final(own, theirs, empty)
        return -_search(theirs, own, empty, -beta, -alpha, table, plies, nodes)
    slot = _slot(own, theirs, table)
    low, high, known = -_INFINITE, _INFINITE, -1
    entry = table[slot]
    if entry[0] == own and entry[1] == theirs and entry[2] == empty:
        data = np.int64(entry[3])
        low, high, known = (data & 255) - 65, (data >> 8 & 255) - 65, (data >> 16) - 1
        if low >= beta or low == high:
            return low
        if high <= alpha:
            return high
        alpha, beta = max(alpha, low), min(beta, high)
    mine = plies[number]
    count = _order(mine, legal, own, theirs, empty, known)
    best, choice, lower = -_INFINITE, -1, alpha
    for k in range(count):
        square, flipped = np.int64(mine[k, 0]), mine[k, 1]
        bit = _ONE << _U(square)
        next_own, next_theirs, next_empty = theirs ^ flipped, own ^ flipped ^ bit, empty ^ bit
        if k == 0:
            score = -_search(next_own, next_theirs, next_empty, -beta, -lower, table, plies, nodes)
        else:
            score = -_search(
                next_own, next_theirs, next_empty, -lower - 1, -lower, table, plies, nodes
            )
            if lower < score < beta:
                score = -_search(
                    next_own, next_theirs, next_empty, -beta, -score, table, plies, nodes
                )
        if score > best:
            best, choice = score, square
            if best > lower:
                lower = best
                if lower >= beta:
                    break
    if best < beta:
        high = min(high, best)
    if best > alpha:
        low = max(low, best)
    entry[0], entry[1], entry[2] = own, theirs, empty
    entry[3] = _U((low + 65) | (high + 65) << 8 | (choice + 1) << 16)
    return best


def position(actions: Iterable[int]) -> tuple[int, int, int]:
    """The board after these actions of [`zero_envs.Othello`][] from the start: the discs of the
    player to move, those of the opponent, and the empty squares."""
    own, theirs = 1 << 28 | 1 << 35, 1 << 27 | 1 << 36
    for action in actions:
        if action < 64:
            flipped = int(flips(action, _U(own), _U(theirs)))
            own, theirs = own | flipped | 1 << action, theirs ^ flipped
        own, theirs = theirs, own
    return own, theirs, ~(own | theirs) & (1 << 64) - 1


class Solver:
    """Solves positions one after the other, and remembers what it found of each.

    **Arguments:**

    - `bits`: it remembers up to 2 to the power of `bits` positions, 32 bytes each.
    """

    def __init__(self, bits: int = 22):
        self._table = np.zeros((2**bits, 4), np.uint64)
        self._plies = np.zeros((65, 34, 3), np.uint64)
        self._nodes = np.zeros(1, np.int64)

    @property
    def nodes(self) -> int:
        """How many positions it has looked at."""
        return int(self._nodes[0])

    def score(self, own: int, theirs: int, empty: int, low: int = -64, high: int = 64) -> int:
        """The score of a board if it is between `low` and `high`; below them an upper bound of it,
        above them a lower one."""
        board = _U(own), _U(theirs), _U(empty)
        return int(_search(*board, low, high, self._table, self._plies, self._nodes))

    def scores(self, own: int, theirs: int, empty: int) -> dict[int, int]:
        """The score of every legal move by its square. Without one there is the pass, 64, whose
        score is that of the board."""
        legal = int(moves(_U(own), _U(theirs), _U(empty)))
        if not legal:
            return {64: -self.score(theirs, own, empty)}
        found = {}
        for square in (i for i in range(64) if legal >> i & 1):
            bit, flipped = 1 << square, int(flips(square, _U(own), _U(theirs)))
            found[square] = -self.score(theirs ^ flipped, own ^ flipped ^ bit, empty ^ bit)
        return found
