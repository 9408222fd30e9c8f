"""What a search works on while it runs: all trees of a batch as one array of nodes.

Every gather and scatter is a kernel of its own on a GPU. So the numbers of a node lie in one row,
and there the leaves of its state in another.
"""

import dataclasses
import functools as ft
import math
from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, PyTree, Shaped

from ._chance import ChanceNode
from ._tree import COLUMNS, Tree
from ._types import Ints


# Columns of `Forest.record`: those of `Tree.step`, then those of `Tree.node`, then these.
NODE = 2
PARENT = NODE + COLUMNS
CHANCE = PARENT + 1

Result = TypeVar("Result")


class Forest(eqx.Module):
    """The trees of a batch while they are searched, the nodes of all along one axis."""

    # The bits of `Tree.step`, `node` and `parent`, and in a world with chance nodes whether this is
    # one. The first four columns change with every visit.
    record: Int[Array, "rows bits"]
    edge: Float[Array, "rows planes actions"]
    prior: Float[Array, "rows features actions"]
    # Read and written entry by entry, for which TPUs would make another layout of `Tree.child` in
    # every simulation.
    child: Int[Array, " entries"]
    state: list[Array]  # the leaves of `Tree.state`, as `layout` keeps them
    size: Ints
    layout: "Layout" = eqx.field(static=True)

    @classmethod
    def of(cls, tree: Tree, packed: bool) -> "Forest":
        """The trees, their states `packed` or apart."""
        batch, nodes, width = tree.child.shape
        if (nodes + 1) * batch * width >= 2**31:
            raise ValueError(
                f"{batch} trees of {nodes} nodes with {width} actions have more edges than 32 bits "
                "can count; search fewer games at once, or give `max_nodes`."
            )
        chance = tree.state.chance if isinstance(tree.state, ChanceNode) else None
        one = lambda x: x.reshape(batch * nodes, *x.shape[2:])
        state = jax.tree.map(one, tree.state)
        layout = Layout.of(state, packed)
        return cls(
            record=recorded(*jax.tree.map(one, (tree.step, tree.node, tree.parent, chance))),
            edge=one(tree.edge),
            prior=one(tree.prior),
            child=tree.child.reshape(-1),
            state=layout.join(state),
            size=tree.size,
            layout=layout,
        )

    def trees(self) -> Tree:
        """The trees one after another again."""
        batch, width = self.size.shape[0], self.edge.shape[-1]
        apart = lambda x: x.reshape(batch, x.shape[0] // batch, *x.shape[1:])
        record = apart(self.record)
        return Tree(
            step=record[..., :NODE],
            node=_floats(record[..., NODE:PARENT]),
            edge=apart(self.edge),
            child=apart(self.child.reshape(-1, width)),
            prior=apart(self.prior),
            parent=record[..., PARENT],
            state=jax.tree.map(apart, self.layout.split(self.state)),
            size=self.size,
        )

    @property
    def number(self) -> int:
        """How many nodes there is room for, in all trees together."""
        return self.record.shape[0]

    def steps(self, row: Int[Array, " rows"]) -> Int[Array, "rows 2"]:
        """`Tree.step` of these nodes."""
        return take(self.record, row, NODE)

    def nodes(self, row: Int[Array, " rows"]) -> Float[Array, "rows columns"]:
        """`Tree.node` of these nodes."""
        return _floats(take(self.record, row, PARENT)[:, NODE:])

    def chance(self, row: Int[Array, " rows"]) -> Float[Array, " rows"] | None:
        """Above 0 where these are chance nodes; `None` in a world without them."""
        known = self.record.shape[1] > CHANCE
        return _floats(take(self.record, row)[:, CHANCE]) if known else None

    def states(self, row: Int[Array, " rows"]) -> PyTree[Array]:
        """`Tree.state` of these nodes."""
        return self.layout.split([take(x, row) for x in self.state])

    def entry(self, row: Int[Array, " rows"], action: Int[Array, " rows"]) -> Int[Array, " rows"]:
        """Where the code of a child lies in `child`."""
        return row * self.edge.shape[-1] + action

    def leading(
        self, row: Int[Array, " rows"], action: Int[Array, " rows"]
    ) -> Int[Array, "rows 2"]:
        """`Tree.step` for nodes where `action` comes next."""
        return jnp.stack([action, take(self.child, self.entry(row, action))], axis=1)

    def nowhere(self, number: int) -> Int[Array, " rows"]:
        """Rows out of range, where writes are dropped."""
        return self.number + jnp.arange(number, dtype=jnp.int32)

    def entered(
        self,
        row: Int[Array, " rows"],
        step: Int[Array, "rows 2"],
        numbers: Float[Array, "rows 2"],
        edge: Float[Array, "rows planes actions"],
    ) -> "Forest":
        """The trees where these nodes have new steps, visits and values, and planes of edges."""
        columns = jnp.concatenate([step, _bits(numbers)], axis=1)
        record, edge = put(self.record, row, columns), put(self.edge, row, edge)
        return dataclasses.replace(self, record=record, edge=edge)


def kernels_of(kernels: str, chance: bool) -> str:
    """What `TreeSearch.kernels` is over a model with or without chance nodes: `"plain"` or
    `"pallas"`."""
    if kernels != "auto":
        return kernels
    device = jax.devices()[0]
    nvidia = device.platform == "gpu" and device.device_kind.startswith("NVIDIA")
    # Triton compiles for 8.0 and later.
    fits = nvidia and float(device.compute_capability) >= 8 and jax.__version_info__ >= (0, 10)
    return "pallas" if fits and not chance else "plain"


def on_device(search: Callable[[bool], Result], kernels: str) -> Result:
    """What `search` makes of trees, whose states it is told to pack or not. A CPU searches them
    apart, another device packed; which one it is, is known when the program is lowered."""
    if kernels == "pallas":
        return search(True)
    return jax.lax.platform_dependent(cpu=lambda: search(False), default=lambda: search(True))


def recorded(
    step: Int[Array, "rows 2"],
    node: Float[Array, "rows columns"],
    parent: Int[Array, " rows"],
    chance: Float[Array, " rows"] | None,
) -> Int[Array, "rows bits"]:
    """`Forest.record` of nodes."""
    columns = [step, _bits(node), parent[:, None]]
    columns += [] if chance is None else [_bits(chance[:, None])]
    return jnp.concatenate(columns, axis=1)


def _bits(x: Float[Array, "*axes"]) -> Int[Array, "*axes"]:
    return jax.lax.bitcast_convert_type(x, jnp.int32)


def _floats(x: Int[Array, "*axes"]) -> Float[Array, "*axes"]:
    return jax.lax.bitcast_convert_type(x, jnp.float32)


def take(
    x: Shaped[Array, "rows ..."], index: Int[Array, " number"], width: int | None = None
) -> Shaped[Array, "number ..."]:
    """The rows `x[index]`, or their first `width` columns; a number that is too large takes the
    last row.

    Negative numbers are not allowed: caring for them would cost time.
    """
    numbers = jax.lax.GatherDimensionNumbers(
        offset_dims=tuple(range(1, x.ndim)), collapsed_slice_dims=(0,), start_index_map=(0,)
    )
    sizes = x.shape[1:] if width is None else (width, *x.shape[2:])
    return jax.lax.gather(x, index[:, None], numbers, (1, *sizes), mode="clip")


def put(
    x: Shaped[Array, "rows ..."], index: Int[Array, " number"], values: Shaped[Array, "number ..."]
) -> Shaped[Array, "rows ..."]:
    """`x` with the rows `x[index]` replaced; a number that is too large writes nothing.

    No row may be written twice. Narrower `values` replace the first columns.
    """
    numbers = jax.lax.ScatterDimensionNumbers(
        update_window_dims=tuple(range(1, x.ndim)),
        inserted_window_dims=(0,),
        scatter_dims_to_operand_dims=(0,),
    )
    return jax.lax.scatter(x, index[:, None], values, numbers, unique_indices=True, mode="drop")


#: What numbers of so many bytes are taken for; those of 8 bytes are two of 4.
_BITS: dict[int, Any] = {1: jnp.uint8, 2: jnp.uint16, 4: jnp.int32, 8: jnp.int32}


@dataclasses.dataclass(frozen=True)
class Layout:
    """How the leaves of rows are kept: packed into one array of `rows words`, or apart.

    On GPUs and TPUs every array costs kernels of its own, and packing almost nothing. On a CPU
    packing large states takes time, and of arrays that lie apart those that nothing reads are left
    out of a program.
    """

    structure: Any  # the tree that the leaves make
    leaves: tuple[jax.ShapeDtypeStruct, ...]  # the shape and dtype of each in one row
    packed: bool  # whether they lie in one array

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
