"""What a sweep over a Minesweeper board has to know of it, cell by cell."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int32, UInt32


#: A cell beyond the edge of the board, in boards that were made square.
WALL = 9

_AROUND = [(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1) if (i, j) != (0, 0)]


class Tables(eqx.Module):
    """A batch of boards as their sweeps meet them.

    Hidden cells stand in the order of the sweep: first the frontier, which is next to a number,
    row by row, then all others. A number that the sweep has met but not yet left is *open* and
    has a nibble of its own, in which stands how many mines it still lacks. The cells between the
    first and the last neighbour of a number span `2 side + 3` cells row by row, so the position
    modulo that many is a nibble that nobody else uses.

    **Attributes:**

    - `enter`: what to add at a cell: the numbers that the sweep meets there.
    - `mine`: 1 in the nibble of each number next to the cell.
    - `limit`: 8 plus how many cells each of those will have left after this one; 15 elsewhere.
    - `frontier`, `hidden`: how many cells those are.
    - `place`: the place of each cell in the order; of a cell that is not hidden, any.
    - `possible`: no number without hidden neighbours is above 0.
    """

    enter: UInt32[Array, "cells words boards"]
    mine: UInt32[Array, "cells words boards"]
    limit: UInt32[Array, "cells words boards"]
    frontier: Int32[Array, " boards"]
    hidden: Int32[Array, " boards"]
    place: Int32[Array, "side side boards"]
    possible: Bool[Array, " boards"]

    def pick(self, index: Int32[Array, " chosen"]) -> "Tables":
        """Of some of the boards."""
        return jax.tree.map(lambda x: x[..., index], self)

    def where(self, mask: Bool[Array, " boards"], other: "Tables") -> "Tables":
        """These where `mask` is set, the others elsewhere."""
        full = lambda x: mask.reshape(*(1 for _ in x.shape[1:]), -1)
        return jax.tree.map(lambda x, y: jnp.where(full(x), x, y), self, other)


def tables(board: Int32[Array, "boards side side"], steps: int) -> Tables:
    """Of square boards, in which at most `steps` cells are hidden."""
    hidden = board < 0
    shown = ~hidden & (board < WALL)
    shown_around, number_around = _around(shown), _around(jnp.where(shown, board, 0))
    frontier = hidden & (sum(x.astype(jnp.int32) for x in shown_around.values()) > 0)
    left = _left(frontier)
    lacking = sum((x.astype(jnp.int32) for x in _around(frontier).values()), 0 * board)
    total_around = _around(lacking)
    enter = mine = spent = jnp.zeros((), jnp.uint32)
    for offset in _AROUND:
        nibble = _nibble(board.shape[-1], offset)[None]
        here = (shown_around[offset] & frontier)[..., None]
        first = here & (left[offset] + 1 == total_around[offset])[..., None]
        mine = mine + jnp.where(here, nibble, jnp.uint32(0))
        number = number_around[offset].astype(jnp.uint32)[..., None]
        enter = enter + jnp.where(first, number, jnp.uint32(0)) * nibble
        after = (7 - left[offset]).astype(jnp.uint32)[..., None]
        spent = spent + jnp.where(here, after, jnp.uint32(0)) * nibble
    place, count = _place(frontier, hidden)
    cells = jnp.argsort(jnp.where(hidden, place, steps).reshape(len(board), -1), axis=-1)

    def in_order(x: Array) -> Array:
        x = x.reshape(len(board), -1, x.shape[-1])
        return jnp.take_along_axis(x, cells[:, :steps, None], axis=1).transpose(1, 2, 0)

    return Tables(
        enter=in_order(enter),
        mine=in_order(mine),
        limit=in_order(~spent),
        frontier=count,
        hidden=jnp.sum(hidden, axis=(1, 2), dtype=jnp.int32),
        place=place.transpose(1, 2, 0),
        possible=~jnp.any(shown & (lacking == 0) & (board > 0), axis=(1, 2)),
    )


def _around(x: Array) -> dict[tuple[int, int], Array]:
    """What stands in each direction, 0 beyond the edge."""
    return {offset: _shifted(x, offset) for offset in _AROUND}


def _shifted(x: Array, offset: tuple[int, int]) -> Array:
    (rows, columns), (i, j) = x.shape[1:], offset
    padded = jnp.pad(x, ((0, 0), (2, 2), (2, 2)))
    return padded[:, 2 + i : 2 + i + rows, 2 + j : 2 + j + columns]


def _left(frontier: Bool[Array, "boards side side"]) -> dict[tuple[int, int], Array]:
    """Of the neighbour in each direction: how many of its cells come after this one."""
    cells = frontier.astype(jnp.int32)
    left = {}
    for i, j in _AROUND:
        later = [(i + k, j + m) for k, m in _AROUND if (i + k, j + m) > (0, 0)]
        left[i, j] = sum((_shifted(cells, x) for x in later), jnp.zeros_like(cells))
    return left


def _nibble(side: int, offset: tuple[int, int]) -> np.ndarray:
    """A 1 in the nibble of the neighbour in that direction, `[side, side, words]`."""
    position = np.arange(side * side).reshape(side, side) + side * offset[0] + offset[1]
    slot = position % (2 * side + 3)
    words = np.arange(-(-(2 * side + 3) // 8))
    one = np.uint32(1) << (4 * (slot % 8)).astype(np.uint32)
    return np.where(slot[..., None] // 8 == words, one[..., None], np.uint32(0))


def _place(
    frontier: Bool[Array, "boards side side"], hidden: Bool[Array, "boards side side"]
) -> tuple[Int32[Array, "boards side side"], Int32[Array, " boards"]]:
    """The frontier row by row, then the other hidden cells; and the size of the frontier."""

    def rank(x: Array) -> Array:
        flat = x.reshape(len(x), -1).astype(jnp.int32)
        return (jnp.cumsum(flat, axis=1) - flat).reshape(x.shape)

    count = jnp.sum(frontier, axis=(1, 2), dtype=jnp.int32)
    others = count[:, None, None] + rank(hidden & ~frontier)
    return jnp.where(frontier, rank(frontier), others), count
