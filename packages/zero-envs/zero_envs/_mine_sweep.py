"""The sweep over a Minesweeper board: all partial assignments of mines, merged into states."""

import functools as ft
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float32, Int16, Int32, UInt32


#: Marks a cell beyond the edge of a board that was padded to a square.
WALL = 9

_AROUND = [(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1) if (i, j) != (0, 0)]


class Tables(NamedTuple):
    """A batch of boards in the order of their sweeps.

    A sweep visits the hidden cells: first the *frontier*, which is the cells next to a number, row
    by row, and then all others. A number is *open* from its first to its last frontier neighbour.
    Each open number has a nibble (4 bits), which holds how many of its mines are still missing. The
    neighbours of a number span `2 side + 3` cells row by row, so the position of the number modulo
    `2 side + 3` is a nibble that no other open number uses. Nibbles are packed into 32-bit words.

    **Attributes:**

    - `enter`: the numbers that become open at a cell, in their nibbles.
    - `mine`: 1 in the nibble of each open number next to the cell.
    - `limit`: for those numbers, 8 plus the number of their frontier cells after this one; 15 in
        all other nibbles.
    - `frontier`, `hidden`: the number of frontier cells and of hidden cells.
    - `place`: the position of each hidden cell in the order; arbitrary for other cells.
    - `possible`: whether all numbers without hidden neighbours are 0.
    """

    enter: UInt32[Array, "cells words boards"]
    mine: UInt32[Array, "cells words boards"]
    limit: UInt32[Array, "cells words boards"]
    frontier: Int32[Array, " boards"]
    hidden: Int32[Array, " boards"]
    place: Int32[Array, "side side boards"]
    possible: Bool[Array, " boards"]


def tables(board: Int32[Array, "boards side side"], steps: int) -> Tables:
    """The tables of square boards with at most `steps` hidden cells."""
    hidden = board < 0
    shown = ~hidden & (board < WALL)
    shown_around, number_around = _around(shown), _around(jnp.where(shown, board, 0))
    frontier = hidden & ft.reduce(jnp.logical_or, shown_around.values())
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


def _around(x: Array, reach: int = 1) -> dict[tuple[int, int], Array]:
    """The neighbours at each offset of up to `reach` from each cell, 0 beyond the edge."""
    rows, columns = x.shape[1:]
    padded = jnp.pad(x, ((0, 0), (reach, reach), (reach, reach)))
    return {
        (i - reach, j - reach): padded[:, i : i + rows, j : j + columns]
        for i in range(2 * reach + 1)
        for j in range(2 * reach + 1)
        if (i, j) != (reach, reach)
    }


def _left(frontier: Bool[Array, "boards side side"]) -> dict[tuple[int, int], Array]:
    """For the neighbour in each direction, how many of its frontier cells come after this cell."""
    cells = frontier.astype(jnp.int32)
    around, left = _around(cells, 2), {}
    for i, j in _AROUND:
        later = [(i + k, j + m) for k, m in _AROUND if (i + k, j + m) > (0, 0)]
        left[i, j] = sum((around[x] for x in later), jnp.zeros_like(cells))
    return left


def _nibble(side: int, offset: tuple[int, int]) -> np.ndarray:
    """A 1 in the nibble of the neighbour in the given direction, `[side, side, words]`."""
    position = np.arange(side * side).reshape(side, side) + side * offset[0] + offset[1]
    slot = position % (2 * side + 3)
    words = np.arange(-(-(2 * side + 3) // 8))
    one = np.uint32(1) << (4 * (slot % 8)).astype(np.uint32)
    return np.where(slot[..., None] // 8 == words, one[..., None], np.uint32(0))


def _place(
    frontier: Bool[Array, "boards side side"], hidden: Bool[Array, "boards side side"]
) -> tuple[Int32[Array, "boards side side"], Int32[Array, " boards"]]:
    """The position of each hidden cell in the order of the sweep, and the size of the frontier."""

    def rank(x: Array) -> Array:
        flat = x.reshape(len(x), -1).astype(jnp.int32)
        return (jnp.cumsum(flat, axis=1) - flat).reshape(x.shape)

    count = jnp.sum(frontier, axis=(1, 2), dtype=jnp.int32)
    others = count[:, None, None] + rank(hidden & ~frontier)
    return jnp.where(frontier, rank(frontier), others), count


# Weights are scaled so that the largest is in [1, 2). A weight below this may soon round to 0.
_SMALLEST = 2.0**-100
_BELOW_1 = np.float32(1 - 2.0**-24)


class States(NamedTuple):
    """The states of one step: partial assignments of mines that allow the same continuations.

    **Attributes:**

    - `lacking`: the missing mines of all open numbers, in their nibbles.
    - `used`: the number of mines so far.
    - `weight`: the number of assignments, divided by `2 ** exponent`; 0 in unused entries.
    - `lost`: whether there were more states than entries, or weights too far apart for float32.
    """

    lacking: UInt32[Array, "words boards states"]
    used: Int32[Array, "boards states"]
    weight: Float32[Array, "boards states"]
    exponent: Int32[Array, " boards"]
    lost: Bool[Array, " boards"]


class History(NamedTuple):
    """The predecessors of the states of every step.

    A state has at most two: `safe` if the cell holds no mine, and `mined` if it holds one. The
    fractions of its assignments that come from them are `safe_share` and `mined_share`.
    """

    safe: Int16[Array, "cells boards states"]
    mined: Int16[Array, "cells boards states"]
    safe_share: Float32[Array, "cells boards states"]
    mined_share: Float32[Array, "cells boards states"]


def forward(
    tables: Tables, num_mines: Int32[Array, " boards"], size: int
) -> tuple[States, History]:
    """Sweeps over the frontiers of all boards together, with lists of `size` states."""
    steps, words, boards = tables.mine.shape
    # Under `shard_map`, loop carries must vary over devices like the boards do.
    zero = (num_mines - num_mines)[:, None] + jnp.zeros((1, size), jnp.int32)
    states = States(
        lacking=jnp.broadcast_to(zero.astype(jnp.uint32)[None], (words, boards, size)),
        used=zero,
        weight=jnp.where(jnp.arange(size)[None] == 0, 1.0, zero.astype(jnp.float32)),
        exponent=zero[:, 0],
        lost=zero[:, 0] != 0,
    )
    pointers = jnp.broadcast_to(zero.astype(jnp.int16)[None], (steps, boards, size))
    shares = jnp.broadcast_to(zero.astype(jnp.float32)[None], (steps, boards, size))
    history = History(pointers, pointers, shares, shares)

    def body(step: Array, carry: tuple[States, History]) -> tuple[States, History]:
        states, history = carry
        states, came = _advance(tables, num_mines, step, states)
        return states, History(*(x.at[step].set(y) for x, y in zip(history, came, strict=True)))

    return jax.lax.fori_loop(0, jnp.max(tables.frontier), body, (states, history))


def _advance(
    tables: Tables, num_mines: Int32[Array, " boards"], step: Array, states: States
) -> tuple[States, History]:
    """Extends all states by one cell, once without and once with a mine."""
    size = states.weight.shape[1]
    alive = states.weight > 0
    mine, limit = tables.mine[step][..., None], tables.limit[step][..., None]
    safe = states.lacking + tables.enter[step][..., None]
    mined = safe - mine
    # If the highest bit of a nibble of the difference is set, nothing was borrowed, so that
    # 8 + limit >= lacking in this nibble.
    top = 8 * mine
    safe_ok = alive & jnp.all((limit - safe) & top == top, axis=0)
    some = jnp.all((safe + 7 * mine) & top == top, axis=0)
    mined_ok = alive & some & jnp.all((limit - mined) & top == top, axis=0)
    mined_ok &= (states.used < num_mines[:, None]) & (step < tables.frontier)[:, None]
    # Two predecessors may lead to the same state, one without and one with a mine.
    index = jnp.arange(size)
    first, second = [*safe, states.used], [*mined, states.used + 1]
    same = _equal(second, mined_ok, first, safe_ok)
    twin = _along_first(jnp.max, jnp.where(same, index[None, :, None], -1))
    fresh = mined_ok & ~_along_first(jnp.any, _equal(first, safe_ok, second, mined_ok))
    source, count = _compact(jnp.concatenate([safe_ok, fresh], axis=1), size)
    pick = lambda x, index: jnp.take_along_axis(x, index, axis=-1)
    exists = index[None] < jnp.minimum(count, size)[:, None]
    is_safe = source < size
    parent = jnp.where(is_safe, source, source - size)
    other = jnp.where(is_safe, pick(twin, parent), parent)
    from_safe = jnp.where(exists & is_safe, pick(states.weight, parent), 0.0)
    from_mined = jnp.where(exists & (other >= 0), pick(states.weight, other), 0.0)
    weight = from_safe + from_mined
    inverse = jnp.where(exists, 1 / jnp.where(exists, weight, 1.0), 0.0)
    came = History(
        safe=parent.astype(jnp.int16),
        mined=jnp.maximum(other, 0).astype(jnp.int16),
        safe_share=from_safe * inverse,
        mined_share=from_mined * inverse,
    )
    both = jnp.concatenate([safe, mined], axis=-1)
    used = jnp.concatenate([states.used, states.used + 1], axis=-1)
    weight, power = _scaled(weight)
    too_small = jnp.any(exists & (weight < _SMALLEST), axis=1)
    states = States(
        lacking=pick(both, jnp.broadcast_to(source[None], (len(both), *source.shape))),
        used=pick(used, source),
        weight=weight,
        exponent=states.exponent + power,
        lost=states.lost | (count > size) | too_small,
    )
    return states, came


def _equal(a: list[Array], a_ok: Array, b: list[Array], b_ok: Array) -> Array:
    """Which states are equal, `[boards, states of a, states of b]`. Reduce over the states of `a`,
    because XLA vectorises over the last axis."""
    equal = a_ok[:, :, None] & b_ok[:, None, :]
    for x, y in zip(a, b, strict=True):
        equal &= x[:, :, None] == y[:, None, :]
    return equal


def _along_first(reduce: Callable[..., Array], x: Array) -> Array:
    """Reduces `[boards, k, n]` over `k`, which must be a multiple of 32 if it is above 32.

    On a CPU, XLA does not fuse longer reductions with the computation of `x`, which would make them
    16 times slower.
    """
    while x.shape[1] > 32:
        x = reduce(x.reshape(len(x), -1, 32, x.shape[2]), axis=2)
        # Without a barrier XLA merges the reductions into a long one.
        x = jax.lax.optimization_barrier(x)
    return reduce(x, axis=1)


def _compact(
    keep: Bool[Array, "boards candidates"], size: int
) -> tuple[Int32[Array, "boards states"], Int32[Array, " boards"]]:
    """The indices of the first `size` candidates to keep, and the number of all of them."""
    rank = jnp.cumsum(keep, axis=1, dtype=jnp.int32)
    # Entry `i` is the first candidate with `i` others before it. A scatter would be slow.
    before = rank[:, :, None] <= jnp.arange(size, dtype=jnp.int32)[None, None]
    source = _along_first(jnp.sum, before.astype(jnp.int32))
    return jnp.minimum(source, keep.shape[1] - 1), rank[:, -1]


def _scaled(
    weight: Float32[Array, "boards states"],
) -> tuple[Float32[Array, "boards states"], Int32[Array, " boards"]]:
    """The weights divided by a power of two (which is exact) so that the largest is in [1, 2)."""
    largest = jnp.max(weight, axis=1)
    # The exponent bits of a positive float32 are floor(log2(x)) + 127.
    bits = jax.lax.bitcast_convert_type(jnp.where(largest > 0, largest, 1.0), jnp.int32)
    power = jnp.right_shift(bits, 23) - 127
    return weight * _power_of_two(-power)[:, None], power


def _power_of_two(power: Int32[Array, "..."]) -> Float32[Array, "..."]:
    """Exactly `2 ** power`, or 0 below -126. XLA's `exp2` is not exact."""
    bits = jnp.left_shift(jnp.clip(power + 127, 0, 255), 23)
    return jax.lax.bitcast_convert_type(bits, jnp.float32)


def _log2_factorials(largest: int) -> tuple[np.ndarray, np.ndarray]:
    """The integer and fractional parts of `log2(n!)`, which keep all digits in float32."""
    logs = np.concatenate([[0.0], np.cumsum(np.log2(np.arange(1, largest + 1)))])
    whole = np.floor(logs)
    return whole.astype(np.int32), (logs - whole).astype(np.float32)


class Ends(NamedTuple):
    """The states after the last frontier cell, including the mines outside the frontier.

    **Attributes:**

    - `share`: the fraction of all layouts that belongs to each state.
    - `elsewhere`: the number of mines outside the frontier.
    - `mantissa`, `exponent`: the number of layouts is `mantissa * 2 ** exponent`.
    """

    share: Float32[Array, "boards states"]
    elsewhere: Int32[Array, "boards states"]
    mantissa: Float32[Array, " boards"]
    exponent: Int32[Array, " boards"]


def finish(tables: Tables, num_mines: Int32[Array, " boards"], states: States) -> Ends:
    """Multiplies each state by the `C(others, elsewhere)` placements of its remaining mines."""
    others = (tables.hidden - tables.frontier)[:, None]
    elsewhere = num_mines[:, None] - states.used
    fits = (states.weight > 0) & (elsewhere >= 0) & (elsewhere <= others)
    fits &= tables.possible[:, None]
    n, k = jnp.broadcast_to(others, fits.shape), jnp.where(fits, elsewhere, 0)
    whole, fraction = (jnp.asarray(x) for x in _log2_factorials(len(tables.mine)))
    power = whole[n] - whole[k] - whole[n - k]
    rest = jnp.exp2(fraction[n] - fraction[k] - fraction[n - k])
    scale = jnp.max(jnp.where(fits, power, 0), axis=1)
    scaled = states.weight * rest * _power_of_two(power - scale[:, None])
    mass = jnp.where(fits, scaled, 0.0)
    mantissa = jnp.sum(mass, axis=1)
    share = mass / jnp.where(mantissa > 0, mantissa, 1.0)[:, None]
    return Ends(share, elsewhere, mantissa, states.exponent + scale)


def marginals(tables: Tables, history: History, ends: Ends) -> Float32[Array, "boards side side"]:
    """The probability of a mine in each cell, 0 in cells that are not hidden."""
    steps, boards, size = history.safe.shape
    index = jnp.arange(size, dtype=jnp.int16)

    def body(i: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        share, found = carry
        step = jnp.max(tables.frontier) - 1 - i
        safe = share * history.safe_share[step]
        mined = share * history.mined_share[step]
        found = found.at[step].set(jnp.sum(mined, axis=1))
        from_safe = history.safe[step][..., None] == index[None, None]
        from_mined = history.mined[step][..., None] == index[None, None]
        back = jnp.where(from_safe, safe[..., None], 0.0)
        back += jnp.where(from_mined, mined[..., None], 0.0)
        return _along_first(jnp.sum, back), found

    zero = (ends.share[:, 0] * 0.0)[None]
    start = (ends.share, jnp.broadcast_to(zero, (steps, boards)))
    _, found = jax.lax.fori_loop(0, jnp.max(tables.frontier), body, start)
    others = jnp.maximum(tables.hidden - tables.frontier, 1).astype(jnp.float32)
    mines = jnp.sum(ends.share * ends.elsewhere.astype(jnp.float32), axis=1)
    elsewhere = (mines / others)[:, None]
    order = jnp.arange(steps)[None]
    found = jnp.where(order < tables.frontier[:, None], found.T, elsewhere)
    # Rounding may lead above 1.
    found = jnp.where(order < tables.hidden[:, None], jnp.minimum(found, 1.0), 0.0)
    return _on_board(tables, found)


def drawn_layouts(
    tables: Tables,
    history: History,
    ends: Ends,
    uniforms: Float32[Array, "boards layouts cells_and_1"],
) -> Bool[Array, "boards layouts side side"]:
    """Draws independent layouts from the posterior. The last number of each row of `uniforms`
    decides the last state, the others one cell each."""
    by_step = uniforms.transpose(2, 0, 1)
    return _walk(tables, history, ends, by_step[-1], lambda step, left: by_step[step])


def listed_layouts(
    tables: Tables, history: History, ends: Ends, ranks: Float32[Array, "boards layouts 1"]
) -> Bool[Array, "boards layouts side side"]:
    """Different layouts for different ranks below the number of layouts, arbitrary ones for others.

    This is arithmetic decoding: the interval [0, 1) is divided equally between the ranks. The
    middle of a rank's part decides the last state, and its position within the interval of the
    chosen alternative decides each next step. Every step loses bits of the position, altogether as
    many as a rank has, so ranks must be far below `2 ** 24`.
    """
    count = jnp.maximum(ends.mantissa * _power_of_two(ends.exponent), 1.0)
    number = (ranks[..., 0] + 0.5) / count[:, None]
    return _walk(tables, history, ends, jnp.minimum(number, _BELOW_1), lambda step, left: left)


def _walk(
    tables: Tables,
    history: History,
    ends: Ends,
    first: Float32[Array, "boards layouts"],
    number: Callable[[Array, Array], Array],
) -> Bool[Array, "boards layouts side side"]:
    """Chooses the last state by `first`, and then goes back through all cells.

    Every choice divides [0, 1) into one interval for each alternative, as long as its probability,
    and takes the interval in which a number lies. `number(step, left)` is the number of a step,
    where `left` is the relative position of the previous number within its interval.
    """
    steps = len(tables.mine)
    total = jnp.cumsum(ends.share, axis=1)
    aim = first * total[:, -1:]
    state = jnp.sum(total[:, None] <= aim[..., None], axis=2, dtype=jnp.int32)
    need, end, share = (
        jnp.take_along_axis(x, state, axis=1) for x in (ends.elsewhere, total, ends.share)
    )
    drawn = jnp.broadcast_to((aim < 0)[None], (steps, *aim.shape))

    def frontier(i: Array, carry: tuple[Array, ...]) -> tuple[Array, ...]:
        state, left, drawn = carry
        step = jnp.max(tables.frontier) - 1 - i
        pick = lambda x: jnp.take_along_axis(x[step], state, axis=1)
        this, share = number(step, left), pick(history.mined_share)
        mine = this < share
        left = jnp.where(
            mine, _within(this, share), _within(this - share, pick(history.safe_share))
        )
        state = jnp.where(mine, pick(history.mined), pick(history.safe)).astype(jnp.int32)
        return state, left, drawn.at[step].set(mine)

    def elsewhere(step: Array, carry: tuple[Array, ...]) -> tuple[Array, ...]:
        # Knuth (1997, section 3.4.2), algorithm S: a cell holds a mine with the probability that
        # is the number of missing mines divided by the number of remaining cells.
        need, left, drawn = carry
        cells = jnp.where(step >= tables.frontier, tables.hidden - step, 0)[:, None]
        reach = number(step, left) * cells.astype(jnp.float32)
        mines, safe = need.astype(jnp.float32), (cells - need).astype(jnp.float32)
        mine = (reach < mines) & (cells > 0)
        after = jnp.where(mine, _within(reach, mines), _within(reach - mines, safe))
        left = jnp.where(cells > 0, after, left)
        return need - mine.astype(jnp.int32), left, drawn.at[step].set(drawn[step] | mine)

    longest = jnp.max(tables.frontier)
    start = (state, _within(aim - (end - share), share), drawn)
    _, left, drawn = jax.lax.fori_loop(0, longest, frontier, start)
    begin, last = jnp.min(tables.frontier), jnp.max(tables.hidden)
    _, _, drawn = jax.lax.fori_loop(begin, last, elsewhere, (need, left, drawn))
    return _on_board(tables, drawn.transpose(1, 2, 0))


def _within(x: Array, share: Array) -> Array:
    """The relative position of `x` in an interval from 0 to `share`: from 0 to below 1."""
    return jnp.clip(x / jnp.where(share > 0, share, 1.0), 0.0, _BELOW_1)


def _on_board(tables: Tables, x: Array) -> Array:
    """Rearranges `[boards, ..., cells]` from the sweep's order to `[boards, ..., side, side]`."""
    side, _, boards = tables.place.shape
    place = jnp.minimum(tables.place.reshape(-1, boards).T, x.shape[-1] - 1)
    place = place.reshape(boards, *(1 for _ in x.shape[2:]), side * side)
    found = jnp.take_along_axis(x, jnp.broadcast_to(place, (*x.shape[:-1], side * side)), axis=-1)
    return found.reshape(*x.shape[:-1], side, side)
