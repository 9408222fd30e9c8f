"""The exact outcome of any position of Connect Four.

A board is two words of 64 bits: the stones of the player to move, and those of both. Bit
`7 * column + row` is a cell, with row 0 at the bottom, and the seventh bit of each column stays 0.
Scores are those of the field: a win with the stone `k` of the game, of 42, is worth `(44 - k) // 2`
to its player and as much less to the other one, so that early wins are worth more; a draw is worth
0.
"""

import functools as ft
from collections.abc import Iterable

import numpy as np
from jaxtyping import Bool

from zero_app import compiled, count_bits, host_uct, HostActor


_U = np.uint64
_ONE, _ZERO = _U(1), _U(0)
_count = compiled(count_bits)
_CELLS = 42
_BOTTOM = _U(sum(1 << 7 * column for column in range(7)))
_BOARD = _U(0b111111) * _BOTTOM
#: Cells in the middle belong to most lines.
_COLUMNS = np.array([_U(0b111111) << _U(7 * i) for i in (3, 2, 4, 1, 5, 0, 6)], np.uint64)
# An entry of the table has the position in 49 bits, and two bounds in 6 bits each.
_BOUND, _SHIFT = 32, 14


@compiled
def _line(stones, stride):
    """The cells that complete four in a row in a direction."""
    two, three = stride + stride, stride + stride + stride
    pair = (stones << stride) & (stones << two)
    cells = pair & ((stones << three) | (stones >> stride))
    pair = (stones >> stride) & (stones >> two)
    return cells | pair & ((stones >> three) | (stones << stride))


@compiled
def wins(stones, both):
    """The empty cells that complete four in a row of `stones`, within reach or not."""
    found = (stones << _U(1)) & (stones << _U(2)) & (stones << _U(3))
    found |= _line(stones, _U(6)) | _line(stones, _U(7)) | _line(stones, _U(8))
    return found & _BOARD & ~both


@compiled
def _search(own, both, number, alpha, beta, table, plies, nodes):
    """The score of a board on which no move wins at once, if it is between `alpha` and `beta`, else
    a bound of it.

    **Arguments:**

    - `number`: how many stones are on the board.
    - `table`: `[size]`, what is known of positions.
    - `plies`: room for the moves with every number of stones, `[43, 7, 2]`.
    - `nodes`: counts the positions.
    """
    nodes[0] += 1
    theirs = own ^ both
    cells = (both + _BOTTOM) & _BOARD
    threats = wins(theirs, both)
    forced = cells & threats
    if forced:
        cells = forced & ~(threats >> _ONE)
        if forced & (forced - _ONE):
            cells = _ZERO
    else:
        cells &= ~(threats >> _ONE)
    if not cells:  # whatever is played, the opponent wins with the next stone
        return -((_CELLS - number) // 2)
    if number >= _CELLS - 2:
        return 0
    low, high = -((_CELLS - 2 - number) // 2), (_CELLS - 1 - number) // 2
    key = own + both + _BOTTOM  # never 0, which is an entry that was not written
    slot = np.int64(((key * _U(0x9E3779B97F4A7C15)) >> _U(20)) % _U(len(table)))
    entry = table[slot]
    if entry >> _U(_SHIFT) == key:
        low = max(low, np.int64(entry >> _U(6) & _U(63)) - _BOUND)
        high = min(high, np.int64(entry & _U(63)) - _BOUND)
    if low >= beta or low == high:
        return low
    if high <= alpha:
        return high
    alpha, beta = max(alpha, low), min(beta, high)
    mine, count = plies[number], 0
    for i in range(7):
        cell = cells & _COLUMNS[i]
        if cell:
            rank = _U(_count(wins(own | cell, both | cell)))
            place = count
            while place > 0 and mine[place - 1, 1] < rank:
                mine[place, 0], mine[place, 1] = mine[place - 1, 0], mine[place - 1, 1]
                place -= 1
            mine[place, 0], mine[place, 1] = cell, rank
            count += 1
    best, lower = -_CELLS, alpha
    for i in range(count):
        cell = mine[i, 0]
        score = -_search(theirs, both | cell, number + 1, -beta, -lower, table, plies, nodes)
        if score > best:
            best = score
            lower = max(lower, best)
            if lower >= beta:
                break
    if best < beta:
        high = min(high, best)
    if best > alpha:
        low = max(low, best)
    table[slot] = key << _U(_SHIFT) | _U((low + _BOUND) << 6 | (high + _BOUND))
    return best


class Solver:
    """Solves positions one after the other, and remembers what it found of each.

    **Arguments:**

    - `bits`: it remembers up to 2 to the power of `bits` positions, 8 bytes each.
    """

    def __init__(self, bits: int = 24):
        self._table = np.zeros(2**bits - 3, np.uint64)
        self._plies = np.zeros((_CELLS + 1, 7, 2), np.uint64)
        self._nodes = np.zeros(1, np.int64)

    @property
    def nodes(self) -> int:
        """How many positions it has looked at."""
        return int(self._nodes[0])

    def score(self, own: int, both: int) -> int:
        """The score of a board that is not over."""
        number = both.bit_count()
        if int(wins(_U(own), _U(both))) & (both + int(_BOTTOM)):
            return (_CELLS + 1 - number) // 2
        low, high = -((_CELLS - number) // 2), (_CELLS - 1 - number) // 2
        while low < high:
            middle = low + (high - low) // 2
            if middle <= 0 and low // 2 < middle:
                middle = -(-low // 2)
            elif middle >= 0 and high // 2 > middle:
                middle = high // 2
            found = self._bound(own, both, middle)
            if found <= middle:
                high = found
            else:
                low = found
        return low

    def ends_within(self, own: int, both: int, plies: int) -> bool:
        """Whether a board, which is not over, is won or full after at most so many stones more if
        both play perfectly. It costs less than the score."""
        number = both.bit_count()
        now = int(wins(_U(own), _U(both))) & both + int(_BOTTOM)
        if plies < 1 or now or number + plies >= _CELLS:
            return plies > 0
        # The last stones with which the player to move wins, and the opponent.
        last, other = number + plies - (plies % 2 == 0), number + plies - plies % 2
        win, loss = (44 - last) // 2, -((44 - other) // 2)
        return self._bound(own, both, win - 1) >= win or self._bound(own, both, loss) <= loss

    def _bound(self, own: int, both: int, score: int) -> int:
        """A bound of the score, which says whether it is more than a number."""
        board = _U(own), _U(both), both.bit_count(), score, score + 1
        return int(_search(*board, self._table, self._plies, self._nodes))

    def scores(self, own: int, both: int) -> dict[int, int]:
        """The score of every legal move by its column, of a board that is not over."""
        number, found = both.bit_count(), {}
        cells = both + int(_BOTTOM) & int(_BOARD)
        now = int(wins(_U(own), _U(both)))
        for column in range(7):
            cell = cells & 0b111111 << 7 * column
            if not cell:
                continue
            if cell & now:
                found[column] = (_CELLS + 1 - number) // 2
            elif number == _CELLS - 1:
                found[column] = 0
            else:
                found[column] = -self.score(own ^ both, both | cell)
        return found


def position(actions: Iterable[int]) -> tuple[int, int]:
    """The board after these columns from the start: the stones of the player to move, and those of
    both."""
    own, both = 0, 0
    for column in actions:
        own, both = own ^ both, both | (both + (1 << 7 * column))
    return own, both


def player(solver: Solver) -> HostActor:
    """Draws one of the best moves of each position of pgx's Connect Four: of those that win the
    soonest, or draw, or lose the latest. Before 8 plies a move takes long."""
    return HostActor(ft.partial(_best, solver), fewest_plies=8)


def _best(solver: Solver, features: Bool[np.ndarray, "6 7 2"], seed: int) -> int:
    own, theirs = (_stones(features[::-1, :, i]) for i in range(2))
    if _is_won(_U(theirs)) or own | theirs == int(_BOARD):
        return 0  # the game is over
    scores = solver.scores(own, own | theirs)
    best = [column for column, score in scores.items() if score == max(scores.values())]
    return best[seed % len(best)]


@compiled
def _is_won(stones):
    """Whether there are four in a row."""
    for stride in (_U(1), _U(6), _U(7), _U(8)):
        pairs = stones & stones >> stride
        if pairs & pairs >> stride + stride:
            return True
    return False


@compiled
def _legal(own, theirs):
    return _ZERO if _is_won(theirs) else ((own | theirs) + _BOTTOM) & _BOARD


@compiled
def _play(own, theirs, cell):
    return theirs, own | _ONE << _U(cell)


@compiled
def _score(own, theirs):
    return 0.0 if _is_won(theirs) else 0.5


_uct = host_uct(_legal, _play, _score)


def uct(playouts: int) -> HostActor:
    """UCT with so many random playouts a move."""
    return HostActor(ft.partial(_most_visited, playouts))


def _most_visited(playouts: int, features: Bool[np.ndarray, "6 7 2"], seed: int) -> int:
    own, theirs = (_U(_stones(features[::-1, :, i])) for i in range(2))
    found = np.zeros(64, np.int64)
    _uct(own, theirs, playouts, seed, found)
    best = np.flatnonzero(found == found.max())
    return int(best[seed % len(best)]) // 7


def _stones(cells: Bool[np.ndarray, "6 7"]) -> int:
    """A set of cells, whose first row is at the bottom."""
    return sum(1 << 7 * int(column) + int(row) for row, column in np.argwhere(cells))
