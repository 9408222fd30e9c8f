"""The way back through a sweep: exact marginals, and layouts, drawn or listed."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float32, Int32

from ._sweep import along_first, History, log2_factorials, power_of_two, States
from ._tables import Tables


_BELOW_1 = np.float32(1 - 2.0**-24)


class Ends(NamedTuple):
    """The states after the last frontier cell, the mines elsewhere counted in.

    **Attributes:**

    - `share`: of all layouts, those that come to this state.
    - `elsewhere`: how many of their mines are on cells that touch no number.
    - `mantissa`, `exponent`: there are `mantissa * 2 ** exponent` layouts, 0 if none is possible.
    """

    share: Float32[Array, "boards states"]
    elsewhere: Int32[Array, "boards states"]
    mantissa: Float32[Array, " boards"]
    exponent: Int32[Array, " boards"]


def close(tables: Tables, num_mines: Int32[Array, " boards"], states: States) -> Ends:
    """Each state leaves `C(others, elsewhere)` ways to place what is left."""
    others = (tables.hidden - tables.frontier)[:, None]
    elsewhere = num_mines[:, None] - states.used
    fits = (states.weight > 0) & (elsewhere >= 0) & (elsewhere <= others)
    fits &= tables.possible[:, None]
    n, k = jnp.broadcast_to(others, fits.shape), jnp.where(fits, elsewhere, 0)
    whole, fraction = (jnp.asarray(x) for x in log2_factorials(len(tables.mine)))
    power = whole[n] - whole[k] - whole[n - k]
    rest = jnp.exp2(fraction[n] - fraction[k] - fraction[n - k])
    scale = jnp.max(jnp.where(fits, power, 0), axis=1)
    scaled = states.weight * rest * power_of_two(power - scale[:, None])
    mass = jnp.where(fits, scaled, 0.0)
    mantissa = jnp.sum(mass, axis=1)
    share = mass / jnp.where(mantissa > 0, mantissa, 1.0)[:, None]
    return Ends(share, elsewhere, mantissa, states.exponent + scale)


def marginals(tables: Tables, history: History, ends: Ends) -> Float32[Array, "boards side side"]:
    """The probability of a mine, 0 in cells that are not hidden."""
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
        return along_first(jnp.sum, back), found

    zero = (ends.share[:, 0] * 0.0)[None]
    start = (ends.share, jnp.broadcast_to(zero, (steps, boards)))
    _, found = jax.lax.fori_loop(0, jnp.max(tables.frontier), body, start)
    others = jnp.maximum(tables.hidden - tables.frontier, 1).astype(jnp.float32)
    mines = jnp.sum(ends.share * ends.elsewhere.astype(jnp.float32), axis=1)
    elsewhere = (mines / others)[:, None]
    order = jnp.arange(steps)[None]
    found = jnp.where(order < tables.frontier[:, None], found.T, elsewhere)
    # Rounding must not make more than certainty of certainty.
    found = jnp.where(order < tables.hidden[:, None], jnp.minimum(found, 1.0), 0.0)
    return in_place(tables, found)


def layouts(
    tables: Tables,
    history: History,
    ends: Ends,
    uniforms: Float32[Array, "boards layouts cells_and_1"],
) -> Bool[Array, "boards layouts side side"]:
    """Exact and independent: one number decides the last state, one more each cell."""
    by_step = uniforms.transpose(2, 0, 1)
    return _walk(tables, history, ends, by_step[-1], lambda step, left: by_step[step])


def listed(
    tables: Tables,
    history: History,
    ends: Ends,
    ranks: Float32[Array, "boards layouts 1"],
) -> Bool[Array, "boards layouts side side"]:
    """All different for different ranks below the number of layouts; anything for others.

    The middle of a rank's share of [0, 1) decides the last state, and each next step is decided by
    where in the share that was chosen it lies, as in arithmetic decoding. That loses as many bits
    of the number as a rank has, so ranks must be far below `2 ** 24`.
    """
    count = jnp.maximum(ends.mantissa * power_of_two(ends.exponent), 1.0)
    number = (ranks[..., 0] + 0.5) / count[:, None]
    return _walk(tables, history, ends, jnp.minimum(number, _BELOW_1), lambda step, left: left)


def _walk(
    tables: Tables,
    history: History,
    ends: Ends,
    first: Float32[Array, "boards layouts"],
    number: Callable[[Array, Array], Array],
) -> Bool[Array, "boards layouts side side"]:
    """From a last state, decided by `first`, back through all cells.

    Numbers in [0, 1) decide: those below a share what the share is of. `number(step, left)` is the
    next, `left` being what the one before leaves over: where it lies in the share that it fell in.
    """
    steps = len(tables.mine)
    total = jnp.cumsum(ends.share, axis=1)
    aim = first * total[:, -1:]
    state = jnp.sum(total[:, None] <= aim[..., None], axis=2, dtype=jnp.int32)
    need, end, share = (
        jnp.take_along_axis(x, state, axis=1) for x in (ends.elsewhere, total, ends.share)
    )
    drawn = jnp.broadcast_to((first < 0)[None], (steps, *first.shape))

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
        # Knuth (1997, section 3.4.2), algorithm S: each next cell with the share still needed.
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
    return in_place(tables, drawn.transpose(1, 2, 0))


def _within(x: Array, share: Array) -> Array:
    """Where in a share it lies, from 0 to below 1."""
    return jnp.clip(x / jnp.where(share > 0, share, 1.0), 0.0, _BELOW_1)


def in_place(tables: Tables, x: Array) -> Array:
    """Out of the order of the sweep, `[boards, ..., cells]`, onto the board."""
    side, _, boards = tables.place.shape
    place = jnp.minimum(tables.place.reshape(-1, boards).T, x.shape[-1] - 1)
    place = place.reshape(boards, *(1 for _ in x.shape[2:]), side * side)
    found = jnp.take_along_axis(x, jnp.broadcast_to(place, (*x.shape[:-1], side * side)), axis=-1)
    return found.reshape(*x.shape[:-1], side, side)
