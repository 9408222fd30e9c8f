"""The leaves of a pytree side by side in arrays of few dtypes, and back, bit for bit."""

import dataclasses
import functools as ft
import math
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Int, PyTree, Shaped


#: What numbers of so many bytes are kept as. Those of 8 bytes are two of 4; narrow ones stay apart,
#: because joining them to wider ones takes more time than moving one array more.
_KEPT: dict[int, Any] = {1: jnp.uint8, 2: jnp.uint16, 4: jnp.int32, 8: jnp.int32}

#: Arrays of `rows numbers`, by the bytes of a number.
Rows = dict[int, Array]


@dataclasses.dataclass(frozen=True)
class Layout:
    """Where the leaves of a row lie.

    **Attributes:**

    - `structure`: the tree that the leaves make.
    - `leaves`: the shape and dtype of each in one row.
    - `one`: whether all lie in one array, the narrow ones in words of 4 bytes.
    """

    structure: Any
    leaves: tuple[jax.ShapeDtypeStruct, ...]
    one: bool = False

    @classmethod
    def of(cls, tree: PyTree[Array], one: bool = False) -> "Layout":
        leaves, structure = jax.tree.flatten(tree)
        shapes = tuple(jax.ShapeDtypeStruct(x.shape[1:], x.dtype) for x in leaves)
        return cls(structure, shapes, one)

    def join(self, tree: PyTree[Array]) -> Rows:
        """The rows of a tree of this layout."""
        found: dict[int, list[Array]] = {}
        for x in map(_plain, self.structure.flatten_up_to(tree)):
            kept = _KEPT[x.dtype.itemsize]
            flat = jax.lax.bitcast_convert_type(x, kept).reshape(x.shape[0], -1 if x.size else 0)
            flat = _words(flat) if self.one else flat
            found.setdefault(flat.dtype.itemsize, []).append(flat)
        return {size: jnp.concatenate(parts, axis=1) for size, parts in found.items()}

    def split(self, rows: Rows) -> PyTree[Array]:
        """The tree that has these rows."""
        found, first = [], dict.fromkeys(rows, 0)
        for leaf in self.leaves:
            plain = jax.eval_shape(_plain, jax.ShapeDtypeStruct((1, *leaf.shape), leaf.dtype))
            kept, pair = _KEPT[plain.dtype.itemsize], plain.dtype.itemsize == 8
            number = math.prod(plain.shape) * (2 if pair else 1)
            per_word = 4 // jnp.dtype(kept).itemsize if self.one else 1
            size = 4 if self.one else jnp.dtype(kept).itemsize
            last = first[size] + -(-number // per_word)
            x = rows[size][:, first[size] : last]
            x = _numbers(x, kept) if per_word > 1 else x
            x = x[:, :number].reshape(x.shape[0], *plain.shape[1:], *([2] if pair else []))
            found.append(_back(jax.lax.bitcast_convert_type(x, plain.dtype), leaf.dtype))
            first[size] = last
        return jax.tree.unflatten(self.structure, found)


def _words(x: Shaped[Array, "rows numbers"]) -> Int[Array, "rows words"]:
    """The same in words of 4 bytes, the last one filled up with zeros."""
    size = x.dtype.itemsize
    number = 4 // size
    x = jnp.pad(x, ((0, 0), (0, -x.shape[1] % number)))
    # By shifts, which XLA fuses with what comes before and after; what it casts it writes first.
    parts = [x[:, i::number].astype(jnp.int32) << (8 * size * i) for i in range(number)]
    return x if number == 1 else ft.reduce(jnp.bitwise_or, parts)


def _numbers(x: Int[Array, "rows words"], kept: Any) -> Shaped[Array, "rows numbers"]:
    """What `_words` made this of, and the zeros."""
    bits = 8 * jnp.dtype(kept).itemsize
    shifts = jnp.arange(0, 32, bits, dtype=jnp.int32)[None, None]
    parts = jax.lax.shift_right_logical(
        x[..., None], jnp.broadcast_to(shifts, (*x.shape, 32 // bits))
    )
    parts = (parts & (2**bits - 1)).astype(kept)
    return parts.reshape(x.shape[0], x.shape[1] * (32 // bits))


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
