"""A batch of boards, each with as long a list of states as it needs."""

import functools as ft
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float32, Int32

from ._backward import close, layouts, marginals
from ._sweep import forward
from ._tables import tables, WALL


# Lists grow by this factor, from the first. Few boards of real games need more than the first.
_FIRST, _FACTOR = 32, 4
_SOLVED = 1 << 20


class Solution(NamedTuple):
    """There are `mantissa * 2 ** exponent` layouts, NaN where the lists were too short.

    Marginals are NaN, and drawn layouts all mines, where no layout is known.
    """

    mantissa: Float32[Array, " boards"]
    exponent: Int32[Array, " boards"]
    probability: Float32[Array, "boards rows columns"]
    layouts: Bool[Array, "boards layouts rows columns"]


@ft.cache
def solver(max_states: int) -> Callable[[Array, Array, Array], Solution]:
    """The function of `(board[boards, rows, columns], num_mines[boards], uniforms[boards, layouts,
    cells + 1])`.

    Under `jax.vmap` more boards are more rows of the batch, and more numbers for the same boards
    are more layouts. So whatever is mapped, the loops run as often as the largest frontier asks
    for; mapped loops of different lengths would copy all that they carry in every step.
    """

    @jax.custom_batching.custom_vmap
    def solve(board: Array, num_mines: Array, uniforms: Array) -> Solution:
        return _solve(board, num_mines, uniforms, max_states)

    @solve.def_vmap
    def _(axis_size: int, batched: list[bool], *args: Array) -> tuple[Solution, Solution]:
        board, num_mines, uniforms = args
        if not (batched[0] or batched[1]):
            several, boards, number = uniforms.shape[:3]
            flat = jnp.moveaxis(uniforms, 0, 1).reshape(boards, several * number, -1)
            found = solve(board, num_mines, flat)
            split = found.layouts.reshape(boards, several, number, *board.shape[1:])
            found = found._replace(layouts=jnp.moveaxis(split, 1, 0))
            return found, Solution(False, False, False, True)  # pyright: ignore[reportArgumentType]
        full = [
            x if is_batched else jnp.broadcast_to(x[None], (axis_size, *x.shape))
            for x, is_batched in zip(args, batched, strict=True)
        ]
        found = solve(*(x.reshape(-1, *x.shape[2:]) for x in full))
        split = jax.tree.map(lambda x: x.reshape(axis_size, -1, *x.shape[1:]), found)
        return split, Solution(True, True, True, True)  # pyright: ignore[reportArgumentType]

    return solve


def _solve(board: Array, num_mines: Array, uniforms: Array, max_states: int) -> Solution:
    """Each board row by row, if that overflows column by column, then with a longer list."""
    boards, rows, columns = board.shape
    side = max(rows, columns)
    square = jnp.pad(
        board,
        ((0, 0), (0, side - rows), (0, side - columns)),
        constant_values=WALL,
    )
    vary = jnp.zeros((boards,), jnp.int32) + (num_mines - num_mines)
    nothing = vary.astype(jnp.float32) + jnp.nan
    found = Solution(
        mantissa=nothing,
        exponent=vary,
        probability=jnp.broadcast_to(nothing[:, None, None], board.shape),
        layouts=jnp.broadcast_to(
            (vary == 0)[:, None, None, None], (*uniforms.shape[:2], rows, columns)
        ),
    )
    attempts = vary
    for stage, size in enumerate(_sizes(max_states)):
        # The longer the list the fewer boards at once, which keeps memory and waste low.
        chunk = max(1, boards * _FIRST // (size * (2 if stage else 1)))
        some = ft.partial(_some, square, num_mines, uniforms, size, chunk, 2 * stage + 2)
        unsolved = lambda carry, limit=2 * stage + 2: jnp.any(carry[0] < limit)
        attempts, found = jax.lax.while_loop(unsolved, some, (attempts, found))
    known = (found.mantissa > 0)[:, None, None]
    bad = jnp.any(board > 8, axis=(1, 2))
    return Solution(
        mantissa=jnp.where(bad, 0.0, found.mantissa),
        exponent=found.exponent,
        probability=jnp.where(known & ~bad[:, None, None], found.probability, jnp.nan),
        layouts=found.layouts | ~known[:, None] | bad[:, None, None, None],
    )


def _sizes(max_states: int) -> list[int]:
    sizes = [min(_FIRST, max_states)]
    while sizes[-1] < max_states:
        sizes.append(min(_FACTOR * sizes[-1], max_states))
    return sizes


def _some(
    board: Array,
    num_mines: Array,
    uniforms: Array,
    size: int,
    chunk: int,
    limit: int,
    carry: tuple[Int32[Array, " boards"], Solution],
) -> tuple[Int32[Array, " boards"], Solution]:
    """Tries up to `chunk` unsolved boards once more."""
    attempts, found = carry
    rows, columns = found.probability.shape[1:]
    index = jnp.argsort(attempts >= limit, stable=True)[:chunk]
    attempt = attempts[index]
    turned = (attempt % 2 == 1)[:, None, None]
    turn: Callable[[Any], Any] = lambda x: jnp.where(
        turned.reshape(-1, *(1 for _ in x.shape[1:])), jnp.swapaxes(x, -1, -2), x
    )
    now, mines = turn(board[index]), num_mines[index]
    known = tables(now, rows * columns)
    states, history = forward(known, mines, size)
    ends = close(known, mines, states)
    risk = jnp.where(now < 0, marginals(known, history, ends), 0.0)
    drawn = layouts(known, history, ends, uniforms[index]) & (now < 0)[:, None]
    new = Solution(
        mantissa=ends.mantissa,
        exponent=ends.exponent,
        probability=turn(risk)[:, :rows, :columns],
        layouts=turn(drawn)[:, :, :rows, :columns],
    )
    mine = attempt < limit
    solved = mine & ~states.lost
    target = jnp.where(solved, index, len(board))
    found = jax.tree.map(lambda x, y: x.at[target].set(y, mode="drop"), found, new)
    # Neither a solved board nor one that is only here to fill the chunk is tried again.
    after = jnp.where(solved, _SOLVED, attempt + 1)
    return attempts.at[jnp.where(mine, index, len(board))].set(after, mode="drop"), found
