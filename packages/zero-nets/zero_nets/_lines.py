"""Tables of the lines of a board."""

import functools as ft
import itertools
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Shaped

from ._checks import as_cells, check_board, check_shape, check_sizes
from ._precision import widen


#: A diagonal of fewer cells has no table.
_SHORTEST = 3
#: The most numbers in the table of one line. Float32 can index that many.
_MOST_NUMBERS = 2**23


class LineTables(eqx.Module):
    """A vector for every cell of a small board, from learned tables of the lines through it.

    Every row, every column and every diagonal of at least three cells is looked up as a whole. For
    every way to fill a line, its table has one vector for each cell of the line, and the result of
    a cell is the sum over the lines that it is on. These are the patterns of Buro 1997,
    "Experiments with Multi-ProbCut and a new high-quality evaluation function for Othello", as the
    first layer of a network.

    Diagonals of the same length share a table. On a square board rows and columns at the same
    distance from an edge share one too, as suits a game that turns and reflections of the board do
    not change; on other boards each row and each column has its own. All numbers begin at 0.
    """

    table: Float[Array, "entries cells width"]
    board_shape: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, board_shape: tuple[int, ...], width: int):
        """**Arguments:**

        - `board_shape`: rows, columns and planes. The state of a cell is the number of its last
            plane that is not 0, counted from 1, and 0 where all planes are.
        - `width`: the length of a cell's vector.
        """
        check_board("board_shape", board_shape)
        check_sizes(width=width)
        self.board_shape = tuple(map(int, board_shape))  # of NumPy's eight bits they would overflow
        *sides, planes = self.board_shape
        longest = max(sides)
        numbers = (planes + 1) ** longest * longest * int(width)
        if numbers > _MOST_NUMBERS:
            raise ValueError(
                f"`board_shape` is {self.board_shape} and `width` {width}, so the longest line has "
                f"a table of {numbers} numbers; there may be at most {_MOST_NUMBERS}. Give a "
                "smaller board, or fewer planes."
            )
        entries = _plan(*self.board_shape).entries
        self.table = jnp.zeros((entries, longest, width), jnp.float32)

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
        # Its gradient is a sum over many boards, for which bfloat16 has too few digits.
        table = widen(self.table)
        found = table.at[entry].get(mode="promise_in_bounds").reshape(-1, width)
        found = jnp.concatenate([found, jnp.zeros((1, width), found.dtype)])
        found = found.at[plan.places].get(mode="promise_in_bounds")
        return jnp.sum(found, axis=1).reshape(rows, columns, width).astype(self.table.dtype)


class _Plan(NamedTuple):
    """Where lines are.

    **Attributes:**

    - `powers`: what a cell's state is multiplied with in the number of a line's entry.
    - `first`: the first entry of each line's table.
    - `places`: of each cell the lines that it is on, and where, numbered `line * longest + place`,
        filled up to four with the number after the last, at which there are zeros.
    - `entries`: of all tables.
    """

    powers: Float[np.ndarray, "cells lines"]
    first: Int[np.ndarray, " lines"]
    places: Int[np.ndarray, "cells 4"]
    entries: int


@ft.cache
def _plan(rows: int, columns: int, planes: int) -> _Plan:
    number = np.arange(rows * columns).reshape(rows, columns)
    longest, base = max(rows, columns), planes + 1
    # On a square board sides at the same distance from an edge are of one kind.
    of_side = lambda side, i: ("side", min(i, rows - 1 - i)) if rows == columns else (side, i)
    sides = (("row", number), ("column", number.T))
    lines = [(of_side(side, i), line) for side, board in sides for i, line in enumerate(board)]
    for board in (number, number[::-1]):
        diagonals = map(board.diagonal, range(1 - rows, columns))
        lines += [(("diagonal", len(x)), x) for x in diagonals if len(x) >= _SHORTEST]
    sizes = {kind: base ** len(line) for kind, line in lines}
    *starts, entries = itertools.accumulate(sizes.values(), initial=0)
    first = dict(zip(sizes, starts, strict=True))
    powers = np.zeros((rows * columns, len(lines)), np.float32)
    places: list[list[int]] = [[] for _ in range(rows * columns)]
    for i, (_, line) in enumerate(lines):
        powers[line, i] = np.float32(base) ** np.arange(len(line))
        for place, cell in enumerate(line):
            places[cell].append(i * longest + place)
    nowhere = len(lines) * longest
    each = [found + [nowhere] * (4 - len(found)) for found in places]
    entry = np.array([first[kind] for kind, _ in lines], np.int32)
    return _Plan(powers, entry, np.array(each, np.int32), entries)
