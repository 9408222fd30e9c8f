"""The exact posterior of Minesweeper: the number of layouts, the marginals, and the layouts."""

import functools as ft
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Float32, Int, Int32, PRNGKeyArray

from ._mine_sweep import (
    drawn_layouts,
    Ends,
    finish,
    forward,
    History,
    listed_layouts,
    marginals,
    Tables,
    tables,
    WALL,
)


_MOST_STATES = 32768
_MOST_LISTED = 65536
# The length of the first list of states, which suffices for most boards of real games, and the
# factor by which lists grow.
_FIRST, _FACTOR = 32, 4
# The number of attempts of a solved board.
_SOLVED = 1 << 20


class _Solution(NamedTuple):
    """There are `mantissa * 2 ** exponent` layouts; the mantissa is NaN if the board overflowed.

    If there is no layout or the board overflowed, marginals are NaN and layouts are all mines.
    """

    mantissa: Float32[Array, " boards"]
    exponent: Int32[Array, " boards"]
    probability: Float32[Array, "boards rows columns"]
    layouts: Bool[Array, "boards layouts rows columns"]


#: Makes layouts from a sweep and numbers `[boards, layouts, n]`.
_Walk = Callable[[Tables, History, Ends, Array], Array]


class MinePosterior(eqx.Module):
    """The posterior of the mines of a Minesweeper board under a uniform prior over layouts.

    **Attributes:**

    - `count`: the number of layouts that are consistent with the board. It is 0 for a contradictory
        board, NaN if `overflowed`, and infinite above 10^38, the largest float32.
    - `log_count`: the natural logarithm of the count, which is finite for every positive count.
    - `probability`: the probability of a mine in each cell, 0 in open cells; NaN if there is no
        layout or if `overflowed`.
    - `overflowed`: whether the board needs more than `max_states` states, or its counts differ by
        more than float32 can represent.
    """

    count: Float[Array, "*axes"]
    log_count: Float[Array, "*axes"]
    probability: Float[Array, "*axes rows columns"]
    overflowed: Bool[Array, "*axes"]


def mine_posterior(
    board: Int[Array, "rows columns"], num_mines: int | Int[Array, ""], *, max_states: int = 512
) -> MinePosterior:
    """The number of layouts that are consistent with `board`, and the probability of each mine.

    The result is exact up to float32 rounding. It is computed by dynamic programming over the
    hidden cells that are next to a number. A state is the number of missing mines of each open
    number and the number of mines so far; equal states are merged. The cells that are not next to a
    number contribute a binomial coefficient. The list of states has a fixed length: first 32, and
    for the few boards that need more, four times as much each time, up to `max_states`.

    The function works under `jax.jit`, `jax.vmap` and `jax.shard_map`. A batch takes as long as its
    slowest board, so batches of similar boards are faster.

    **Arguments:**

    - `board`: the number of mines around each open cell, 0 to 8, and -1 for hidden cells. An open
        cell never holds a mine, so a board on which a mine was opened has no posterior.
    - `num_mines`: the number of mines on the whole board.
    - `max_states`: a power of two up to 32768. Boards with more mines need more states; boards of
        16 x 16 with 40 mines were not measured. Time grows with the square of it.

    A board with which no layout is consistent, or that overflows, is refused if its values are
    concrete. If they are traced, `count` is 0 or NaN in these cases and `probability` is NaN.
    """
    none = jnp.zeros((0, np.size(board) + 1), jnp.float32)
    return _posterior("mine_posterior", board, num_mines, drawn_layouts, none, max_states)[0]


def sample_mines(
    board: Int[Array, "rows columns"],
    num_mines: int | Int[Array, ""],
    num: int,
    *,
    key: PRNGKeyArray,
    max_states: int = 512,
) -> tuple[Bool[Array, "num rows columns"], MinePosterior]:
    """Draws `num` independent layouts from the posterior.

    This takes little longer than [`zero_envs.mine_posterior`][], whose arguments it takes. If
    `jax.vmap` maps over keys only, the board is solved once.

    **Returns:** the layouts, and the posterior. If there is no layout or the board overflows, and
    the values are traced, all cells of all layouts are mines, also the open ones.
    """
    if not isinstance(num, int | np.integer) or num < 0:
        raise ValueError(f"sample_mines(num={num!r}): must be an integer of at least 0.")
    draws, walk = jr.uniform(key, (num, np.size(board) + 1), jnp.float32), drawn_layouts
    posterior, layouts = _posterior("sample_mines", board, num_mines, walk, draws, max_states)
    return layouts, posterior


def list_mines(
    board: Int[Array, "rows columns"],
    num_mines: int | Int[Array, ""],
    num: int,
    *,
    max_states: int = 512,
) -> tuple[Bool[Array, "num rows columns"], Bool[Array, " num"], MinePosterior]:
    """Lists all layouts that are consistent with a board, if there are at most `num`.

    This takes as long as [`zero_envs.sample_mines`][].

    The arguments are those of [`zero_envs.mine_posterior`][]; `num` is from 1 to 65536, because
    float32 cannot distinguish more layouts.

    **Returns:** the layouts, followed by rows in which all cells are mines; a mask of the rows that
    are layouts; and the posterior. A board of more than `num` layouts is refused if its values are
    concrete. If they are traced, no row is a layout.
    """
    if not isinstance(num, int | np.integer) or not 1 <= num <= _MOST_LISTED:
        raise ValueError(f"list_mines(num={num!r}): must be an integer from 1 to {_MOST_LISTED}.")
    ranks, walk = jnp.arange(num, dtype=jnp.float32), listed_layouts
    posterior, layouts = _posterior(
        "list_mines", board, num_mines, walk, ranks[:, None], max_states
    )
    # The rounding error of such a small count is far below a half.
    many = posterior.count > num + 0.5
    if not isinstance(many, Tracer) and many:
        raise ValueError(
            f"list_mines(num={num}): the board has {posterior.count:.6g} layouts; increase num to "
            f"that, up to {_MOST_LISTED}, or draw some layouts by sample_mines."
        )
    found = ~many & (ranks < posterior.count - 0.5)
    return layouts | ~found[:, None, None], found, posterior


def _posterior(
    call: str, board: Array, num_mines: int | Array, walk: _Walk, numbers: Array, max_states: int
) -> tuple[MinePosterior, Array]:
    """The posterior, and the layouts that `walk` makes from the numbers."""
    _check_kinds(call, board, num_mines, max_states)
    # What 32 bits cannot hold would wrap to numbers that are allowed.
    kept = lambda x, least, most: x if isinstance(x, Tracer) else np.clip(x, least, most)
    args = kept(board, -2, 9), kept(num_mines, -1, np.size(board) + 1)
    args = [jnp.asarray(x, jnp.int32) for x in args]
    posterior, layouts = _compiled(*args, numbers, walk, int(max_states))
    if not any(isinstance(x, Tracer) for x in (board, num_mines, posterior.count)):
        _check_values(call, np.asarray(board), int(num_mines), posterior, max_states)
    return posterior, layouts


@ft.partial(jax.jit, static_argnames=("walk", "max_states"))
def _compiled(
    board: Array, num_mines: Array, numbers: Array, walk: _Walk, max_states: int
) -> tuple[MinePosterior, Array]:
    args = (board[None], num_mines[None], numbers[None])
    found = jax.tree.map(lambda x: x[0], _solver(max_states, walk)(*args))
    logarithm = jnp.log2(found.mantissa) + found.exponent.astype(jnp.float32)
    posterior = MinePosterior(
        count=jnp.ldexp(found.mantissa, found.exponent),
        log_count=logarithm * np.float32(np.log(2)),
        probability=found.probability,
        overflowed=jnp.isnan(found.mantissa),
    )
    return posterior, found.layouts


def check_max_states(call: str, max_states: int) -> None:
    """Raises a `ValueError` unless `max_states` is a power of two in range."""
    whole = isinstance(max_states, int | np.integer)
    if not whole or not 1 <= max_states <= _MOST_STATES or max_states & (max_states - 1):
        raise ValueError(
            f"{call}(max_states={max_states!r}): must be a power of two up to {_MOST_STATES}."
        )


def _check_kinds(call: str, board: Array, num_mines: int | Array, max_states: int) -> None:
    """Checks what is known of traced arguments too."""
    check_max_states(call, max_states)
    shape, dtype = jnp.shape(board), jnp.result_type(board)
    if len(shape) != 2 or 0 in shape or not jnp.issubdtype(dtype, jnp.integer):
        raise ValueError(
            f"{call}(board={dtype}{list(shape)}): must be integers, [rows, columns]; use jax.vmap "
            "over a batch."
        )
    shape, dtype = jnp.shape(num_mines), jnp.result_type(num_mines)
    if shape or not jnp.issubdtype(dtype, jnp.integer):
        raise ValueError(
            f"{call}(num_mines={dtype}{list(shape)}): must be one integer; use jax.vmap over a "
            "batch."
        )


def _check_values(
    call: str, board: np.ndarray, num_mines: int, posterior: MinePosterior, max_states: int
) -> None:
    about = f"{call}(<{board.shape[0]} x {board.shape[1]} board>, num_mines={num_mines}): "
    if posterior.overflowed:
        more = min(4 * max_states, _MOST_STATES)
        hint = f"allow more, for instance {more}" if more > max_states else "no more are possible"
        raise ValueError(
            f"{about}its frontier needs more than max_states={max_states} states, or counts more "
            f"than 2^100 apart; {hint}."
        )
    if posterior.count == 0:
        raise ValueError(f"{about}no layout is consistent: {_contradiction(board, num_mines)}.")


def _contradiction(board: np.ndarray, num_mines: int) -> str:
    """The simplest reason why no layout is consistent with the board."""
    place = "the {} in row {}, column {}".format
    for row, column in np.argwhere((board < -1) | (board > 8)):
        where = place(board[row, column], row, column)
        return f"{where}; numbers are 0 to 8, and -1 is a hidden cell"
    hidden = np.pad(board < 0, 1)
    total = int(hidden.sum())
    for row, column in np.argwhere(board >= 0):
        near = int(hidden[row : row + 3, column : column + 3].sum())
        if board[row, column] > near:
            return f"{place(board[row, column], row, column)} has {near} hidden neighbours"
    if not 0 <= num_mines <= total:
        return f"{num_mines} mines for {total} hidden cells"
    shown = board.size - total
    return f"its {shown} numbers contradict {num_mines} mines in {total} hidden cells"


@ft.cache
def _solver(max_states: int, walk: _Walk) -> Callable[[Array, Array, Array], _Solution]:
    """A function of `(board[boards, rows, columns], num_mines[boards], numbers[boards, layouts,
    n])`, where `walk` makes layouts from the numbers.

    Under `jax.vmap`, additional boards extend the batch, and additional numbers for the same boards
    are additional layouts. Therefore loops are never mapped: a mapped loop would copy its whole
    carry in every step.
    """

    @jax.custom_batching.custom_vmap
    def solve(board: Array, num_mines: Array, numbers: Array) -> _Solution:
        return _solve(board, num_mines, numbers, max_states, walk)

    @solve.def_vmap
    def _(axis_size: int, batched: list[bool], *args: Array) -> tuple[_Solution, _Solution]:
        board, num_mines, numbers = args
        if not (batched[0] or batched[1]):
            several, boards, number = numbers.shape[:3]
            flat = jnp.moveaxis(numbers, 0, 1).reshape(boards, several * number, numbers.shape[3])
            found = solve(board, num_mines, flat)
            split = found.layouts.reshape(boards, several, number, *board.shape[1:])
            found = found._replace(layouts=jnp.moveaxis(split, 1, 0))
            return found, _Solution(False, False, False, True)  # pyright: ignore[reportArgumentType]
        full = [
            x if is_batched else jnp.broadcast_to(x[None], (axis_size, *x.shape))
            for x, is_batched in zip(args, batched, strict=True)
        ]
        boards = full[0].shape[1]
        found = solve(*(x.reshape(axis_size * boards, *x.shape[2:]) for x in full))
        split = jax.tree.map(lambda x: x.reshape(axis_size, boards, *x.shape[1:]), found)
        return split, _Solution(True, True, True, True)  # pyright: ignore[reportArgumentType]

    return solve


def _solve(
    board: Array, num_mines: Array, numbers: Array, max_states: int, walk: _Walk
) -> _Solution:
    """Sweeps each board row by row, then column by column if that overflows, and then repeats both
    with longer lists."""
    boards, rows, columns = board.shape
    side = max(rows, columns)
    margin = ((0, 0), (0, side - rows), (0, side - columns))
    square = jnp.pad(board, margin, constant_values=WALL)
    # Under `shard_map`, loop carries must vary over devices like the arguments do.
    zero = 0 * (board[:, 0, 0] + num_mines)
    zero += jnp.sum(numbers[..., 0] < 0, axis=1, dtype=jnp.int32)
    # All boards row by row, then all of them column by column.
    both = tables(jnp.concatenate([square, jnp.swapaxes(square, 1, 2)]), rows * columns)
    given = both, num_mines + zero, numbers
    nothing = zero.astype(jnp.float32) + jnp.nan
    found = _Solution(
        mantissa=nothing,
        exponent=zero,
        probability=jnp.broadcast_to(nothing[:, None, None], board.shape),
        layouts=jnp.broadcast_to(
            (zero == 0)[:, None, None, None], (*numbers.shape[:2], rows, columns)
        ),
    )
    attempts, sizes = zero, [min(_FIRST, max_states)]
    while sizes[-1] < max_states:
        sizes.append(min(_FACTOR * sizes[-1], max_states))
    for stage, size in enumerate(sizes):
        limit = 2 * stage + 2
        # With longer lists fewer boards are swept at once, which limits memory.
        chunk = boards if stage == 0 else max(1, boards * _FIRST // (2 * size))
        attempts, found = jax.lax.while_loop(
            lambda carry, limit=limit: jnp.any(carry[0] < limit),
            ft.partial(_try, *given, walk, size, chunk, limit),
            (attempts, found),
        )
    valid = jnp.all((board >= -1) & (board <= 8), axis=(1, 2))
    mantissa = jnp.where(valid, found.mantissa, 0.0)
    known = (mantissa > 0)[:, None, None]
    hidden = jnp.where(board < 0, found.probability, 0.0)
    return _Solution(
        mantissa=mantissa,
        exponent=found.exponent,
        probability=jnp.where(known, hidden, jnp.nan),
        layouts=(found.layouts & (board < 0)[:, None]) | ~known[:, None],
    )


def _try(
    both: Tables,
    num_mines: Int32[Array, " boards"],
    numbers: Float32[Array, "boards layouts n"],
    walk: _Walk,
    size: int,
    chunk: int,
    limit: int,
    carry: tuple[Int32[Array, " boards"], _Solution],
) -> tuple[Int32[Array, " boards"], _Solution]:
    """Makes an attempt at `chunk` boards with lists of `size`, every second time by columns."""
    attempts, found = carry
    boards, rows, columns = found.probability.shape
    index = jnp.argsort(attempts >= limit, stable=True)[:chunk]
    attempt, num_mines = attempts[index], num_mines[index]
    turned = attempt % 2 == 1
    sweep = index + jnp.where(turned, boards, 0)
    known = jax.tree.map(lambda x: x[..., sweep], both)
    states, history = forward(known, num_mines, size)
    ends = finish(known, num_mines, states)

    def back(x: Array) -> Array:
        across = turned.reshape(-1, *(1 for _ in x.shape[1:]))
        return jnp.where(across, jnp.swapaxes(x, -1, -2), x)[..., :rows, :columns]

    new = _Solution(
        mantissa=ends.mantissa,
        exponent=ends.exponent,
        probability=back(marginals(known, history, ends)),
        layouts=back(walk(known, history, ends, numbers[index])),
    )
    # Boards that are already solved may fill the chunk; their results are dropped.
    due = attempt < limit
    solved = due & ~states.lost
    target = jnp.where(solved, index, boards)
    found = jax.tree.map(lambda x, y: x.at[target].set(y, mode="drop"), found, new)
    after = jnp.where(solved, _SOLVED, attempt + 1)
    return attempts.at[jnp.where(due, index, boards)].set(after, mode="drop"), found
