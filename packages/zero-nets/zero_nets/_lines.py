"""Tables of the lines of a board."""

import functools as ft
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Shaped

from ._checks import as_cells, check_board, check_shape, check_sizes


#: A diagonal of fewer cells has no table.
_SHORTEST = 3
#: Ways to fill a line that a table may have.
_MOST_ENTRIES = 2**18


class LineTables(eqx.Module):
    """A vector for every cell of a small board, from learned tables of the lines through it.

    Every row, every column and every diagonal of at least three cells is looked up as a whole. A
    table has a vector of each of its cells for every way to fill the line, and a cell gets the sum
    of its lines' vectors. On a CPU that costs a small part of a convolution, and a rule that looks
    along lines, as that of Othello does, is learned from it at once. It is the table of patterns of
    Buro 1997, "Experiments with Multi-ProbCut and a new high-quality evaluation function for
    Othello", for a network's first layer.

    On a square board lines share a table if they are as far from the edge, and diagonals if they
    are as long, as suits a game that a turn or a reflection of its board does not change. Otherwise
    each row and each column has its own. All entries begin at 0.
    """

    table: Float[Array, "entries cells width"]
    board_shape: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, board_shape: tuple[int, ...], width: int):
        """**Arguments:**

        - `board_shape`: rows, columns and planes. A cell is empty where all its planes are 0, and
            otherwise has the number of the last one that is not.
        - `width`: the length of a cell's vector.
        """
        check_board("board_shape", board_shape)
        check_sizes(width=width)
        *sides, planes = board_shape
        entries = (planes + 1) ** max(sides)
        if entries > _MOST_ENTRIES:
            raise ValueError(
                f"`board_shape` is {board_shape}, so a line may be filled in {entries} ways; there "
                f"may be at most {_MOST_ENTRIES}. Give a smaller board, or fewer planes."
            )
        plan = _plan(*board_shape)
        self.table = jnp.zeros((plan.entries, max(sides), width), jnp.float32)
        self.board_shape = tuple(board_shape)

    def __call__(
        self, x: Shaped[Array, "rows columns planes"]
    ) -> Float[Array, "rows columns width"]:
        rows, columns, planes = self.board_shape
        check_shape("x", x, self.board_shape)
        plan = _plan(*self.board_shape)
        cells = as_cells(x, planes).reshape(rows * columns, planes)
        number = np.arange(1, planes + 1, dtype=np.float32)[None]
        state = jnp.max(jnp.where(cells != 0, number, np.float32(0)), axis=1)
        # Exact in float32, and with all of its digits on accelerators too.
        entry = jnp.dot(state, plan.powers, precision=jax.lax.Precision.HIGHEST)
        entry = jnp.rint(entry).astype(jnp.int32) + plan.first
        width = self.table.shape[2]
        found = self.table.at[entry].get(mode="promise_in_bounds").reshape(-1, width)
        found = jnp.concatenate([found, jnp.zeros((1, width), found.dtype)])
        found = found.at[plan.places].get(mode="promise_in_bounds")
        return jnp.sum(found, axis=1).reshape(rows, columns, width)


class _Plan(NamedTuple):
    """Where lines are.

    **Attributes:**

    - `powers`: what a cell's state is multiplied with in the number of a line's entry.
    - `first`: the first entry of each line's table.
    - `places`: of each cell the lines that it is on, and where, numbered `line * longest + place`;
        behind the last number where it is on fewer than four.
    - `entries`: of all tables.
    """

    powers: Float[np.ndarray, "cells lines"]
    first: Int[np.ndarray, " lines"]
    places: Int[np.ndarray, "cells 4"]
    entries: int


@ft.cache
def _plan(rows: int, columns: int, planes: int) -> _Plan:
    number = np.arange(rows * columns).reshape(rows, columns)
    square = rows == columns
    lines, kinds = [], []

    def add(line: np.ndarray, *kind: object) -> None:
        lines.append(line)
        kinds.append(kind)

    for board, side in ((number, "row"), (number.T, "column")):
        for i, line in enumerate(board):
            add(line, "side", min(i, rows - 1 - i)) if square else add(line, side, i)
    for board in (number, number[::-1]):
        for offset in range(-rows + 1, columns):
            line = board.diagonal(offset)
            if len(line) >= _SHORTEST:
                add(line, "diagonal", len(line))
    longest, base = max(rows, columns), planes + 1
    powers = np.zeros((rows * columns, len(lines)), np.float32)
    places: list[list[int]] = [[] for _ in range(rows * columns)]
    first: dict[tuple[object, ...], int] = {}
    entries = 0
    for i, (line, kind) in enumerate(zip(lines, kinds, strict=True)):
        powers[line, i] = np.float32(base) ** np.arange(len(line))
        for place, cell in enumerate(line):
            places[cell].append(i * longest + place)
        if kind not in first:
            first[kind], entries = entries, entries + base ** len(line)
    nowhere = len(lines) * longest
    each = [found + [nowhere] * (4 - len(found)) for found in places]
    starts = np.array([first[kind] for kind in kinds], np.int32)
    return _Plan(powers, starts, np.array(each, np.int32), entries)
