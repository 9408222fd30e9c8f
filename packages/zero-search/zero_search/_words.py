"""The leaves of a pytree side by side in one array of words, and back, bit for bit."""

import dataclasses
import functools as ft
import math
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Int, PyTree, Shaped


#: What numbers of so many bytes are taken for; those of 8 bytes are two of 4.
_BITS: dict[int, Any] = {1: jnp.uint8, 2: jnp.uint16, 4: jnp.int32, 8: jnp.int32}


@dataclasses.dataclass(frozen=True)
class Layout:
    """How the leaves of rows are kept: packed into one array of `rows words`, or apart.

    On GPUs and TPUs every array costs kernels of its own, and packing almost nothing. On a CPU
    packing large states takes time, and of arrays that lie apart those that nothing reads are left
    out of a program.

    **Attributes:**

    - `structure`: the tree that the leaves make.
    - `leaves`: the shape and dtype of each in one row.
    - `packed`: whether they lie in one array.
    """

    structure: Any
    leaves: tuple[jax.ShapeDtypeStruct, ...]
    packed: bool

    @classmethod
    def of(cls, tree: PyTree[Array], packed: bool) -> "Layout":
        leaves, structure = jax.tree.flatten(tree)
        shapes = tuple(jax.ShapeDtypeStruct(x.shape[1:], x.dtype) for x in leaves)
        return cls(structure, shapes, packed)

    def join(self, tree: PyTree[Array]) -> list[Array]:
        """The arrays that are kept of a tree of this layout."""
        leaves = self.structure.flatten_up_to(tree)
        if not (self.packed and leaves):
            return leaves
        return [jnp.concatenate([_words(x) for x in map(_plain, leaves)], axis=1)]

    def split(self, rows: list[Array]) -> PyTree[Array]:
        """The tree of which these arrays are kept."""
        if not (self.packed and rows):
            return jax.tree.unflatten(self.structure, rows)
        found, first = [], 0
        for leaf in self.leaves:
            plain = jax.eval_shape(_plain, jax.ShapeDtypeStruct((1, *leaf.shape), leaf.dtype))
            last = first + -(-math.prod(plain.shape) * plain.dtype.itemsize // 4)
            x = _numbers(rows[0][:, first:last], plain)
            found.append(_back(x, leaf.dtype))
            first = last
        return jax.tree.unflatten(self.structure, found)


def _words(x: Shaped[Array, "rows ..."]) -> Int[Array, "rows words"]:
    """The same in words of 4 bytes, the last one filled up with zeros."""
    bits = jax.lax.bitcast_convert_type(x, _BITS[x.dtype.itemsize])
    bits = bits.reshape(x.shape[0], -1 if x.size else 0)
    size = bits.dtype.itemsize
    number = 4 // size
    bits = jnp.pad(bits, ((0, 0), (0, -bits.shape[1] % number)))
    # By shifts, which XLA fuses with what comes before and after; what it casts it writes first.
    parts = [bits[:, i::number].astype(jnp.int32) << (8 * size * i) for i in range(number)]
    return bits if number == 1 else ft.reduce(jnp.bitwise_or, parts)


def _numbers(x: Int[Array, "rows words"], plain: jax.ShapeDtypeStruct) -> Shaped[Array, "rows ..."]:
    """What `_words` made this of: an array with such rows."""
    size, kept = plain.dtype.itemsize, _BITS[plain.dtype.itemsize]
    shape = (x.shape[0], *plain.shape[1:], *([2] if size == 8 else []))
    if size < 4:
        shifts = jnp.arange(0, 32, 8 * size, dtype=jnp.int32)[None, None]
        shifts = jnp.broadcast_to(shifts, (*x.shape, 4 // size))
        parts = jax.lax.shift_right_logical(jnp.broadcast_to(x[..., None], shifts.shape), shifts)
        parts = (parts & (2 ** (8 * size) - 1)).astype(kept)
        x = parts.reshape(x.shape[0], x.shape[1] * (4 // size))[:, : math.prod(plain.shape)]
    return jax.lax.bitcast_convert_type(x.reshape(shape), plain.dtype)


def _plain(x: Shaped[Array, "rows ..."]) -> Shaped[Array, "rows ..."]:
    """The same in a dtype of 1, 2, 4 or 8 bytes whose bits can be taken for another's."""
    if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        return jr.key_data(x)
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        return jnp.stack([x.real, x.imag], axis=-1)
    if x.dtype == jnp.bool_:
        return x.astype(jnp.uint8)
    if jnp.issubdtype(x.dtype, jnp.integer):
        return x.astype(jnp.int8) if jnp.iinfo(x.dtype).bits < 8 else x
    return x.astype(jnp.float32) if jnp.finfo(x.dtype).bits < 8 else x


def _back(x: Shaped[Array, "rows ..."], dtype: Any) -> Shaped[Array, "rows ..."]:
    """What `_plain` made this of."""
    if jnp.issubdtype(dtype, jax.dtypes.prng_key):
        return jr.wrap_key_data(x, impl=jr.key_impl(jnp.zeros((), dtype)))
    if jnp.issubdtype(dtype, jnp.complexfloating):
        return jax.lax.complex(x[..., 0], x[..., 1])
    return x.astype(dtype)
