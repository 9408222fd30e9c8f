"""The exact posterior of Minesweeper: how many layouts, where the mines are, and the layouts."""

import functools as ft
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from ._backward import layouts as drawn, listed
from ._solve import Solution, solver, Walk


_MOST_STATES = 32768
_MOST_LISTED = 65536


class MinePosterior(eqx.Module):
    """What a Minesweeper board says about its mines, all layouts being equally likely.

    **Attributes:**

    - `count`: the number of layouts that show this board; 0 if it contradicts itself, NaN where
        `overflowed`, infinite where float32 cannot hold it, which above 10^38 it cannot.
    - `log_count`: its natural logarithm, always finite where the count is a positive number.
    - `probability`: of a mine in each cell, 0 in cells that are shown; NaN where there is no layout
        or it is not known.
    - `overflowed`: the board needs more than `max_states` states, or its counts are further apart
        than float32 can tell.
    """

    count: Float[Array, "*axes"]
    log_count: Float[Array, "*axes"]
    probability: Float[Array, "*axes rows columns"]
    overflowed: Bool[Array, "*axes"]


def mine_posterior(
    board: Int[Array, "rows columns"], num_mines: int | Int[Array, ""], *, max_states: int = 512
) -> MinePosterior:
    """The number of layouts of `num_mines` mines that show `board`, and where mines are likely.

    Exact to the rounding of float32, by a sweep over the hidden cells that are next to a number. A
    state is how many mines each open number still lacks and how many were placed; equal states are
    merged. Cells that touch no number enter at the end by a binomial coefficient. The list of
    states has a fixed length: 32 at first, and for boards that need more, which are rare, four
    times as much each time, up to `max_states`.

    Works under `jax.jit`, `jax.vmap` and `jax.shard_map`. Boards of a batch wait for each other, so
    put together what is alike.

    **Arguments:**

    - `board`: numbers of mines around a cell, 0 to 8; -1 where hidden. No shown cell is a mine: do
        not ask about a board on which a mine was stepped on.
    - `num_mines`: on the whole board.
    - `max_states`: a power of two up to 32768. Boards need more states the more mines they hold;
        on 16 x 16 with 40 mines it was not measured. Time grows with its square.

    **Returns:** a [`zero_envs.MinePosterior`][].

    **Raises:** `ValueError` for arguments of a wrong kind or shape and a `max_states` that is not
    allowed, and, where the values are at hand (not under a transformation), for a board that no
    layout can show or that overflows. Under a transformation `count` is 0 or NaN, and `probability`
    NaN.
    """
    none = lambda cells: jnp.zeros((0, cells + 1), jnp.float32)
    return _posterior("mine_posterior", board, num_mines, drawn, none, max_states)[0]


def sample_mines(
    board: Int[Array, "rows columns"],
    num_mines: int | Int[Array, ""],
    num: int,
    *,
    key: PRNGKeyArray,
    max_states: int = 512,
) -> tuple[Bool[Array, "num rows columns"], MinePosterior]:
    """Draws `num` layouts, independent of each other and each as likely as any other.

    Costs little more than [`zero_envs.mine_posterior`][], which it returns as well. Mapped over
    keys alone, one board is solved once.

    **Arguments:** and **Raises:** as there. Under a transformation, where there is no layout or
    none is known, all cells of all layouts are mines, the shown ones too.
    """
    if not isinstance(num, int | np.integer) or num < 0:
        raise ValueError(f"sample_mines(num={num!r}): must be an integer of at least 0.")
    draw = lambda cells: jr.uniform(key, (num, cells + 1), jnp.float32)
    posterior, layouts = _posterior("sample_mines", board, num_mines, drawn, draw, max_states)
    return layouts, posterior


def list_mines(
    board: Int[Array, "rows columns"],
    num_mines: int | Int[Array, ""],
    num: int,
    *,
    max_states: int = 512,
) -> tuple[Bool[Array, "num rows columns"], Bool[Array, " num"], MinePosterior]:
    """All layouts, each once, if there are no more than `num`.

    Costs what [`zero_envs.sample_mines`][] does.

    **Arguments:** as there, but for the key; `num` is from 1 to 65536, beyond which float32 could
    not keep layouts apart.

    **Returns:** rows of which the first are the layouts and the others are all mines; which rows
    are layouts; and the posterior.

    **Raises:** as there, and a `ValueError` for a board with more layouts. Under a transformation
    no row is a layout where there are more.
    """
    if not isinstance(num, int | np.integer) or not 1 <= num <= _MOST_LISTED:
        raise ValueError(f"list_mines(num={num!r}): must be an integer from 1 to {_MOST_LISTED}.")
    ranks = jnp.arange(num, dtype=jnp.float32)
    numbers = lambda cells: ranks[:, None]
    posterior, layouts = _posterior("list_mines", board, num_mines, listed, numbers, max_states)
    # The count is rounded, but by far less than a half where there are so few.
    many = posterior.count > num + 0.5
    if not isinstance(many, Tracer) and many:
        raise ValueError(
            f"list_mines(num={num}): the board has {posterior.count:.6g} layouts; allow as many, "
            f"up to {_MOST_LISTED}, or draw some by sample_mines."
        )
    found = ~many & (ranks < posterior.count - 0.5)
    return layouts | ~found[:, None, None], found, posterior


def _posterior(
    call: str,
    board: Array,
    num_mines: int | Array,
    walk: Walk,
    numbers: Callable[[int], Array],
    max_states: int,
) -> tuple[MinePosterior, Array]:
    """`numbers` makes what `walk` makes layouts of, for so many cells."""
    _check_kinds(call, board, num_mines, max_states)
    board, num_mines = jnp.asarray(board, jnp.int32), jnp.asarray(num_mines, jnp.int32)
    made = numbers(board.size)
    posterior, layouts = _compiled(board, num_mines, made, walk, int(max_states))
    if not any(isinstance(x, Tracer) for x in (board, num_mines, posterior.count)):
        _check_values(call, np.asarray(board), int(num_mines), posterior, max_states)
    return posterior, layouts


@ft.partial(jax.jit, static_argnames=("walk", "max_states"))
def _compiled(
    board: Array, num_mines: Array, numbers: Array, walk: Walk, max_states: int
) -> tuple[MinePosterior, Array]:
    args = (board[None], num_mines[None], numbers[None])
    found = jax.tree.map(lambda x: x[0], solver(max_states, walk)(*args))
    return _reported(found), found.layouts


def _reported(found: Solution) -> MinePosterior:
    logarithm = jnp.log2(found.mantissa) + found.exponent.astype(jnp.float32)
    return MinePosterior(
        count=jnp.ldexp(found.mantissa, found.exponent),
        log_count=logarithm * np.float32(np.log(2)),
        probability=found.probability,
        overflowed=jnp.isnan(found.mantissa),
    )


def check_max_states(call: str, max_states: int) -> None:
    """Raises a `ValueError` for a length that no list of states has."""
    whole = isinstance(max_states, int | np.integer)
    if not whole or not 1 <= max_states <= _MOST_STATES or max_states & (max_states - 1):
        raise ValueError(
            f"{call}(max_states={max_states!r}): must be a power of two up to {_MOST_STATES}."
        )


def _check_kinds(call: str, board: Array, num_mines: int | Array, max_states: int) -> None:
    """What is known of arguments that are traced as well."""
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
        raise ValueError(f"{about}no layout shows this board: {_contradiction(board, num_mines)}.")


def _contradiction(board: np.ndarray, num_mines: int) -> str:
    """The simplest reason there is."""
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
    return f"its {shown} numbers and {num_mines} mines in {total} hidden cells do not go together"
