"""2048 on the host: boards of 64 bits, and an n-tuple network that learns by self-play, and that
planners evaluate positions by.

A board is a word of 16 tiles of 4 bits, row by row, the first cell lowest: 0 is empty, `k` is the
tile `2^k`. The largest tile is `2^15`; two of them are not merged.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int8

from zero_app import compiled
from zero_envs import Game2048, Game2048Afterstate, Game2048State, Observation
from zero_train import EnvironmentModel


#: The cells of the four 6-tuples of Yeh et al. 2016, "Multistage temporal difference learning for
#: 2048-like games".
TUPLES = (0, 1, 2, 3, 4, 5), (4, 5, 6, 7, 8, 9), (0, 1, 2, 4, 5, 6), (4, 5, 6, 8, 9, 10)
#: The entries of the table of a tuple: one for each arrangement of tiles up to `2^15`.
ENTRIES = 16**6
_U = np.uint64
_TILE, _ROW, _TUPLE = _U(0xF), _U(0xFFFF), _U(0xFFFFFF)

#: The entries whose sum is the value of a board: one for each tuple and each of the 8 symmetries.
LOOKUPS = 8 * len(TUPLES)


class Rows(NamedTuple):
    """What becomes of each of the 65 536 rows: after sliding towards its first and towards its last
    tile, and the points, which are the same in both directions."""

    left: np.ndarray
    right: np.ndarray
    points: np.ndarray


class Learner(NamedTuple):
    """What is learned: `values` has the tables of all tuples, one after the other; `errors` has for
    each entry the sum of its errors and that of their absolute values, for the step sizes of
    temporal coherence."""

    values: np.ndarray
    errors: np.ndarray


class Played(NamedTuple):
    """Of games: the points, the exponent of the largest tile, and the number of moves of all."""

    points: np.ndarray
    largest: np.ndarray
    moves: int


def new_learner(first_value: float) -> Learner:
    """Tables that give every board the same value. A value above any that is reached makes the
    player try what it has not seen: Guei et al. 2021, "Optimistic temporal difference learning for
    2048", have 320 000."""
    size = len(TUPLES) * ENTRIES
    values = np.full(size, first_value / LOOKUPS, np.float32)
    return Learner(values, np.zeros((size, 2), np.float32))


def row_tables() -> Rows:
    rows = Rows(*(np.zeros(1 << 16, kind) for kind in (np.uint16, np.uint16, np.int32)))
    _fill(*rows)
    return rows


def learn(learner: Learner, rows: Rows, games: int, seed: int, *, rate: float = 1.0) -> Played:
    """Plays games greedily and learns from each move, in place: TD(0) on afterstates (Szubert and
    Jaskowski 2014) with the step sizes of temporal coherence (Jaskowski 2017). With `rate=0`
    nothing is learned."""
    points, largest = np.zeros(games, np.int64), np.zeros(games, np.int64)
    moves = _games(*learner, *rows, seed, rate, points, largest)
    return Played(points, largest, int(moves))


@compiled
def _slid(row):
    """A row after sliding towards its first tile, and the points."""
    slid, points, place, last = 0, 0, 0, 0
    for i in range(4):
        tile = (row >> (4 * i)) & 15
        if tile > 0 and tile == last and tile < 15:
            slid += 1 << (4 * place - 4)
            points += 2 << tile
            last = 0
        elif tile > 0:
            slid |= tile << (4 * place)
            place += 1
            last = tile
    return slid, points


@compiled
def _reversed(row):
    return (row >> 12) | ((row >> 4) & 0xF0) | ((row << 4) & 0xF00) | ((row & 15) << 12)


@compiled
def _fill(left, right, points):
    for row in range(1 << 16):
        left[row], points[row] = _slid(row)
        right[row] = _reversed(_slid(_reversed(row))[0])


@compiled
def _transposed(board):
    same = board & _U(0xF0F00F0FF0F00F0F)
    board = (
        same
        | ((board & _U(0xF0F00000F0F0)) << _U(12))
        | ((board & _U(0x0F0F00000F0F0000)) >> _U(12))
    )
    same = board & _U(0xFF00FF0000FF00FF)
    return (
        same | ((board & _U(0x00FF00FF00000000)) >> _U(24)) | ((board & _U(0xFF00FF00)) << _U(24))
    )


@compiled
def _mirrored(board):
    """With each row reversed."""
    board = ((board & _U(0x0F0F0F0F0F0F0F0F)) << _U(4)) | (
        (board >> _U(4)) & _U(0x0F0F0F0F0F0F0F0F)
    )
    return ((board & _U(0x00FF00FF00FF00FF)) << _U(8)) | ((board >> _U(8)) & _U(0x00FF00FF00FF00FF))


@compiled
def moved(board, action, left, right, points):
    """The board after a slide, before the new tile, and the points: the same board if the slide is
    illegal. Actions are those of `zero_envs.Game2048`: left, up, right, down."""
    across = action & 1
    table = left if action < 2 else right
    if across:
        board = _transposed(board)
    after, gained = _U(0), 0
    for shift in (_U(0), _U(16), _U(32), _U(48)):
        row = np.int64((board >> shift) & _ROW)
        after |= _U(table[row]) << shift
        gained += points[row]
    return _transposed(after) if across else after, gained


@compiled
def _places(board, places):
    """Writes the entries whose sum is the value of a board: the `TUPLES` as shifts and masks."""
    k = 0
    for turn in range(8):
        lower = board >> _U(16)
        places[k] = board & _TUPLE
        places[k + 1] = (lower & _TUPLE) | _U(1 << 24)
        places[k + 2] = (board & _U(0xFFF)) | ((board >> _U(4)) & _U(0xFFF000)) | _U(2 << 24)
        places[k + 3] = (lower & _U(0xFFF)) | ((lower >> _U(4)) & _U(0xFFF000)) | _U(3 << 24)
        k += 4
        # A mirror and a transposition in turn go through all 8 symmetries.
        board = _transposed(board) if turn & 1 else _mirrored(board)


@compiled
def value(board, values, places):
    """The value of an afterstate: the sum of its entries, which are written to `places`."""
    _places(board, places)
    total = np.float32(0)
    for place in places:
        total += values[place]
    return total


@compiled
def best(board, values, left, right, points, places):
    """The legal action of the highest points and value of the afterstate, the first one of equals;
    -1 if none is legal. Also the afterstate, its points and its value."""
    chosen, after, gained, worth = -1, board, 0, np.float32(0)
    for action in range(4):
        found, more = moved(board, action, left, right, points)
        if found == board:
            continue
        own = value(found, values, places)
        if chosen < 0 or more + own > gained + worth:
            chosen, after, gained, worth = action, found, more, own
    return chosen, after, gained, worth


@compiled
def update(board, target, rate, values, errors, places):
    """Moves the value of an afterstate towards a target. The step size of an entry is the sum of
    its errors over that of their absolute values (1 at first), over the number of entries."""
    error = target - value(board, values, places)
    for place in places:
        total, size = errors[place, 0], errors[place, 1]
        step = abs(total) / size if size > 0 else np.float32(1)
        values[place] += np.float32(rate * step * error / len(places))
        errors[place, 0] += error
        errors[place, 1] += abs(error)


@compiled
def _with_tile(board):
    """The board with a new tile on an empty cell: a 2, or with probability 0.1 a 4."""
    empty = 0
    for i in range(16):
        if (board >> _U(4 * i)) & _TILE == 0:
            empty += 1
    nth = int(np.random.random() * empty)
    tile = _U(2) if np.random.random() < 0.1 else _U(1)
    for i in range(16):
        if (board >> _U(4 * i)) & _TILE == 0:
            if nth == 0:
                return board | (tile << _U(4 * i))
            nth -= 1
    return board


@compiled
def _games(values, errors, left, right, points, seed, rate, scores, largest):
    np.random.seed(seed)
    places, moves = np.zeros(LOOKUPS, np.int64), 0
    for game in range(len(scores)):
        board, before, score = _with_tile(_with_tile(_U(0))), _U(0), 0
        while True:
            chosen, after, gained, worth = best(board, values, left, right, points, places)
            # The empty board is no afterstate: there is nothing before the first move.
            if rate > 0 and before != 0:
                target = np.float32(gained + worth) if chosen >= 0 else np.float32(0)
                update(before, target, rate, values, errors, places)
            if chosen < 0:
                break
            score, moves = score + gained, moves + 1
            before, board = after, _with_tile(after)
        scores[game] = score
        for i in range(16):
            largest[game] = max(largest[game], np.int64((board >> _U(4 * i)) & _TILE))
    return moves


class NTupleNetwork(eqx.Module):
    """The sum of a table's entry for each of four tuples of cells and each of the 8 symmetries of
    the board. Tiles above `2^15` count as `2^15`.

    **Attributes:**

    - `tables`: by tuple; the first cell of a tuple is the lowest of the 6 digits, to base 16, of
        the number of an entry.
    """

    tables: Float[Array, "tuples entries"]

    def __call__(self, board: Int8[Array, " 16"]) -> Float[Array, ""]:
        """The points still to come after a slide, where `board` is what it left."""
        tiles = jnp.minimum(board.astype(jnp.int32), 15)[jnp.asarray(_cells())]
        entry = tiles @ jnp.asarray(16 ** np.arange(6), jnp.int32)
        tuples = jnp.arange(len(TUPLES), dtype=jnp.int32)[:, None]
        return jnp.sum(self.tables[tuples, entry])


class AfterstateEvaluator(eqx.Module):
    """An evaluator of 2048 of values of afterstates.

    A position is worth the most that a slide brings, its points and the value of what it leaves; it
    prefers no action.
    """

    network: NTupleNetwork

    def __call__(self, obs: Observation) -> tuple[Float[Array, " 4"], Float[Array, ""]]:
        board = jnp.argmax(obs.features, axis=-1).reshape(16).astype(jnp.int8)
        state = Game2048State(board, jnp.zeros((), jnp.bool_))
        slide = lambda action: Game2048().afterstate(state, action)
        after = jax.vmap(slide)(jnp.arange(4, dtype=jnp.int32))
        worth = jnp.where(after.illegal, -jnp.inf, jax.vmap(self.afterstate)(after))
        value = jnp.where(jnp.all(after.illegal), 0.0, jnp.max(worth))
        return jnp.zeros(4, jnp.float32), value

    def afterstate(self, after: Game2048Afterstate) -> Float[Array, ""]:
        """The points of the slide and all that are still to come."""
        return after.points + self.network(after.board)


def model_of(network: NTupleNetwork) -> EnvironmentModel:
    """The game with its odds, for planners, its leaves evaluated by the network."""
    evaluator = AfterstateEvaluator(network)
    return EnvironmentModel(Game2048(), evaluator, evaluate_afterstate=evaluator.afterstate)


def _cells() -> np.ndarray:
    """By tuple and symmetry, its cells."""
    board = np.arange(16).reshape(4, 4)
    turned = [np.rot90(x, k).ravel() for x in (board, board.T) for k in range(4)]
    return np.asarray(turned)[:, np.asarray(TUPLES)].swapaxes(0, 1)
