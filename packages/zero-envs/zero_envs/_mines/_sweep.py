"""The sweep over the frontier, forward: all partial assignments of mines, merged into states."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float32, Int16, Int32, UInt32

from ._tables import Tables


# Weights are scaled so that the largest is about 1; below this, rounding to 0 is near.
_SMALLEST = 2.0**-100


class States(NamedTuple):
    """The states of one step: classes of partial assignments with the same future.

    **Attributes:**

    - `lacking`: the nibbles of [`zero_envs._mines._tables.Tables`][].
    - `used`: mines so far.
    - `weight`: how many assignments there are, divided by `2 ** exponent`; 0 where no state is.
    - `lost`: there were more states than room, or weights too far apart: nothing is exact.
    """

    lacking: UInt32[Array, "words boards states"]
    used: Int32[Array, "boards states"]
    weight: Float32[Array, "boards states"]
    exponent: Int32[Array, " boards"]
    lost: Bool[Array, " boards"]


class History(NamedTuple):
    """Where the states of every step came from.

    A state is reached from at most two: from `safe` if the cell has no mine, from `mined` if it
    has one. Of its assignments the share `mined_share` came the second way, `safe_share` the first.
    """

    safe: Int16[Array, "cells boards states"]
    mined: Int16[Array, "cells boards states"]
    safe_share: Float32[Array, "cells boards states"]
    mined_share: Float32[Array, "cells boards states"]


def forward(
    tables: Tables, num_mines: Int32[Array, " boards"], size: int
) -> tuple[States, History]:
    """Sweeps with lists of `size` states; all boards together, to the end of the largest."""
    steps, words, boards = tables.mine.shape
    # Zeros that vary over devices as the boards do.
    zero = (num_mines - num_mines)[:, None] + jnp.zeros((1, size), jnp.int32)
    none = zero != 0
    states = States(
        lacking=jnp.broadcast_to(zero.astype(jnp.uint32)[None], (words, boards, size)),
        used=zero,
        weight=jnp.where(jnp.arange(size)[None] == 0, 1.0, zero.astype(jnp.float32)),
        exponent=zero[:, 0],
        lost=none[:, 0],
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
    """One more cell: with a mine, and without."""
    size = states.weight.shape[1]
    alive = states.weight > 0
    mine, limit = tables.mine[step][..., None], tables.limit[step][..., None]
    safe = states.lacking + tables.enter[step][..., None]
    mined = safe - mine
    # The highest bit of a nibble says that nothing was borrowed: 8 + limit >= lacking.
    top = 8 * mine
    safe_ok = alive & jnp.all((limit - safe) & top == top, axis=0)
    some = jnp.all((safe + 7 * mine) & top == top, axis=0)
    mined_ok = alive & some & jnp.all((limit - mined) & top == top, axis=0)
    mined_ok &= (states.used < num_mines[:, None]) & (step < tables.frontier)[:, None]
    # A state reached both ways is one state; each way leads to different ones.
    index = jnp.arange(size)
    first, second = [*safe, states.used], [*mined, states.used + 1]
    same = _equal(second, mined_ok, first, safe_ok)
    twin = along_first(jnp.max, jnp.where(same, index[None, :, None], -1))
    fresh = mined_ok & ~along_first(jnp.any, _equal(first, safe_ok, second, mined_ok))
    source, count = _compact(jnp.concatenate([safe_ok, fresh], axis=1), size)

    def pick(x: Array, index: Array) -> Array:
        return jnp.take_along_axis(x, index, axis=-1)

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
    """`[boards, of a, of b]`. To be reduced over `a`: XLA vectorises over the last axis."""
    equal = a_ok[:, :, None] & b_ok[:, None, :]
    for x, y in zip(a, b, strict=True):
        equal &= x[:, :, None] == y[:, None, :]
    return equal


def along_first(reduce: Callable[..., Array], x: Array) -> Array:
    """Reduces `[boards, k, n]` over `k`, a multiple of 32 if above.

    On a CPU XLA does not fuse longer reductions with what they reduce, which is 16 times slower.
    """
    while x.shape[1] > 32:
        x = reduce(x.reshape(len(x), -1, 32, x.shape[2]), axis=2)
        # Else XLA makes one long reduction of them again.
        x = jax.lax.optimization_barrier(x)
    return reduce(x, axis=1)


def _compact(
    keep: Bool[Array, "boards candidates"], size: int
) -> tuple[Int32[Array, "boards states"], Int32[Array, " boards"]]:
    """The indices of the first `size` to keep, and how many there are."""
    rank = jnp.cumsum(keep, axis=1, dtype=jnp.int32)
    # Entry `i` is the first that has `i` before it: no scatter, which is slow everywhere.
    before = rank[:, :, None] <= jnp.arange(size, dtype=jnp.int32)[None, None]
    source = along_first(jnp.sum, before.astype(jnp.int32))
    return jnp.minimum(source, keep.shape[1] - 1), rank[:, -1]


def _scaled(
    weight: Float32[Array, "boards states"],
) -> tuple[Float32[Array, "boards states"], Int32[Array, " boards"]]:
    """Divided by a power of two, which is exact, so that the largest is in [1, 2)."""
    largest = jnp.max(weight, axis=1)
    power = exponent_of(jnp.where(largest > 0, largest, 1.0))
    return weight * power_of_two(-power)[:, None], power


def exponent_of(x: Float32[Array, "..."]) -> Int32[Array, "..."]:
    """`floor(log2(x))` of positive normal numbers."""
    bits = jax.lax.bitcast_convert_type(x, jnp.int32)
    return jnp.right_shift(bits, 23) - 127


def power_of_two(power: Int32[Array, "..."]) -> Float32[Array, "..."]:
    """`2 ** power` to the last bit, which XLA's `exp2` does not promise; 0 below -126."""
    bits = jnp.left_shift(jnp.clip(power + 127, 0, 255), 23)
    return jax.lax.bitcast_convert_type(bits, jnp.float32)


def log2_factorials(largest: int) -> tuple[np.ndarray, np.ndarray]:
    """Whole and fractional parts of `log2(n!)`, so that float32 loses nothing by their size."""
    logs = np.concatenate([[0.0], np.cumsum(np.log2(np.arange(1, largest + 1)))])
    whole = np.floor(logs)
    return whole.astype(np.int32), (logs - whole).astype(np.float32)
