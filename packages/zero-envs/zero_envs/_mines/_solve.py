"""A batch of boards, each with as long a list of states as it needs."""

import functools as ft
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float32, Int32

from ._backward import close, Ends, marginals
from ._sweep import forward, History
from ._tables import Tables, tables, WALL


# Lists grow by this factor, from the first. Few boards of real games need more than the first.
_FIRST, _FACTOR = 32, 4
_SOLVED = 1 << 20


class Solution(NamedTuple):
    """There are `mantissa * 2 ** exponent` layouts, NaN where the lists were too short.

    Marginals are NaN, and layouts all mines, where no layout is known.
    """

    mantissa: Float32[Array, " boards"]
    exponent: Int32[Array, " boards"]
    probability: Float32[Array, "boards rows columns"]
    layouts: Bool[Array, "boards layouts rows columns"]


#: Makes layouts of a sweep and numbers `[boards, layouts, n]`.
Walk = Callable[[Tables, History, Ends, Array], Array]


@ft.cache
def solver(max_states: int, walk: Walk) -> Callable[[Array, Array, Array], Solution]:
    """The function of `(board[boards, rows, columns], num_mines[boards], numbers[boards, layouts,
    n])`, the numbers being those that `walk` makes layouts of.

    Under `jax.vmap` more boards are more rows of the batch, and more numbers for the same boards
    are more layouts. So whatever is mapped, the loops run as often as the largest frontier asks
    for; mapped loops of different lengths would copy all that they carry in every step.
    """

    @jax.custom_batching.custom_vmap
    def solve(board: Array, num_mines: Array, numbers: Array) -> Solution:
        return _solve(board, num_mines, numbers, max_states, walk)

    @solve.def_vmap
    def _(axis_size: int, batched: list[bool], *args: Array) -> tuple[Solution, Solution]:
        board, num_mines, numbers = args
        if not (batched[0] or batched[1]):
            several, boards, number = numbers.shape[:3]
            flat = jnp.moveaxis(numbers, 0, 1).reshape(boards, several * number, numbers.shape[3])
            found = solve(board, num_mines, flat)
            split = found.layouts.reshape(boards, several, number, *board.shape[1:])
            found = found._replace(layouts=jnp.moveaxis(split, 1, 0))
            return found, Solution(False, False, False, True)  # pyright: ignore[reportArgumentType]
        full = [
            x if is_batched else jnp.broadcast_to(x[None], (axis_size, *x.shape))
            for x, is_batched in zip(args, batched, strict=True)
        ]
        boards = full[0].shape[1]
        found = solve(*(x.reshape(axis_size * boards, *x.shape[2:]) for x in full))
        split = jax.tree.map(lambda x: x.reshape(axis_size, boards, *x.shape[1:]), found)
        return split, Solution(True, True, True, True)  # pyright: ignore[reportArgumentType]

    return solve


def _solve(board: Array, num_mines: Array, numbers: Array, max_states: int, walk: Walk) -> Solution:
    """Each board row by row, if that overflows column by column, then with a longer list."""
    boards, rows, columns = board.shape
    side = max(rows, columns)
    margin = ((0, 0), (0, side - rows), (0, side - columns))
    square = jnp.pad(board, margin, constant_values=WALL)
    # Zeros that vary over devices as the arguments do, which loops under `shard_map` ask for.
    zero = 0 * (board[:, 0, 0] + num_mines)
    zero += jnp.sum(numbers[..., 0] < 0, axis=1, dtype=jnp.int32)
    problem = _Problem(
        by_row=tables(square, rows * columns),
        by_column=tables(jnp.swapaxes(square, 1, 2), rows * columns),
        num_mines=num_mines + zero,
        numbers=numbers,
    )
    nothing = zero.astype(jnp.float32) + jnp.nan
    found = Solution(
        mantissa=nothing,
        exponent=zero,
        probability=jnp.broadcast_to(nothing[:, None, None], board.shape),
        layouts=jnp.broadcast_to(
            (zero == 0)[:, None, None, None], (*numbers.shape[:2], rows, columns)
        ),
    )
    attempts = zero
    for stage, size in enumerate(_sizes(max_states)):
        limit = 2 * stage + 2
        # The longer the list the fewer boards at once, which keeps memory and waste low.
        chunk = boards if stage == 0 else max(1, boards * _FIRST // (2 * size))
        attempts, found = jax.lax.while_loop(
            lambda carry, limit=limit: jnp.any(carry[0] < limit),
            ft.partial(_try, problem, walk, size, chunk, limit),
            (attempts, found),
        )
    valid = jnp.all((board >= -1) & (board <= 8), axis=(1, 2))
    mantissa = jnp.where(valid, found.mantissa, 0.0)
    known = (mantissa > 0)[:, None, None]
    hidden = jnp.where(board < 0, found.probability, 0.0)
    return Solution(
        mantissa=mantissa,
        exponent=found.exponent,
        probability=jnp.where(known, hidden, jnp.nan),
        layouts=(found.layouts & (board < 0)[:, None]) | ~known[:, None],
    )


def _sizes(max_states: int) -> list[int]:
    sizes = [min(_FIRST, max_states)]
    while sizes[-1] < max_states:
        sizes.append(min(_FACTOR * sizes[-1], max_states))
    return sizes


class _Problem(NamedTuple):
    """What is known of all boards."""

    by_row: Tables
    by_column: Tables
    num_mines: Int32[Array, " boards"]
    numbers: Float32[Array, "boards layouts n"]


def _try(
    problem: _Problem,
    walk: Walk,
    size: int,
    chunk: int,
    limit: int,
    carry: tuple[Int32[Array, " boards"], Solution],
) -> tuple[Int32[Array, " boards"], Solution]:
    """Tries `chunk` boards once more, with lists of `size`, every second time by columns."""
    attempts, found = carry
    boards, rows, columns = found.probability.shape
    index = jnp.argsort(attempts >= limit, stable=True)[:chunk]
    attempt, num_mines = attempts[index], problem.num_mines[index]
    turned = attempt % 2 == 1
    by_row, by_column = problem.by_row.pick(index), problem.by_column.pick(index)
    known = by_row.where(~turned, by_column)
    states, history = forward(known, num_mines, size)
    ends = close(known, num_mines, states)

    def back(x: Array) -> Array:
        across = turned.reshape(-1, *(1 for _ in x.shape[1:]))
        return jnp.where(across, jnp.swapaxes(x, -1, -2), x)[..., :rows, :columns]

    new = Solution(
        mantissa=ends.mantissa,
        exponent=ends.exponent,
        probability=back(marginals(known, history, ends)),
        layouts=back(walk(known, history, ends, problem.numbers[index])),
    )
    # Boards that are done fill the chunk up.
    due = attempt < limit
    solved = due & ~states.lost
    target = jnp.where(solved, index, boards)
    found = jax.tree.map(lambda x, y: x.at[target].set(y, mode="drop"), found, new)
    after = jnp.where(solved, _SOLVED, attempt + 1)
    return attempts.at[jnp.where(due, index, boards)].set(after, mode="drop"), found
