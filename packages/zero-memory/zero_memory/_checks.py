"""Checks of arguments that a buffer would otherwise broadcast, cast or misread."""

import numbers
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jaxtyping import Array, Bool, Int, PyTree


def plain(x: Any) -> Any:
    """A scalar of NumPy's as a number of Python's, which does not overflow."""
    is_scalar = hasattr(x, "item") and not x.shape and not isinstance(x, Array)
    return x.item() if is_scalar else x


def check_sizes(buffer: Any, *names: str) -> None:
    """Refuses sizes below 1, more slots than int32 can index, and sizes that `num_shards` does not
    divide."""
    for name in (*names, "num_shards"):
        size = getattr(buffer, name)
        if not isinstance(size, numbers.Integral):
            raise ValueError(f"{name}={size!r}: give an integer.")
        if size < 1:
            raise ValueError(f"{name}={size}: give at least 1.")
    for name in ("num_envs", "batch_size"):
        if getattr(buffer, name) % buffer.num_shards:
            raise ValueError(
                f"{name}={getattr(buffer, name)} does not divide over "
                f"num_shards={buffer.num_shards}: give a multiple of it."
            )
    if buffer.num_envs * buffer.capacity >= 2**31:
        raise ValueError(
            f"num_envs={buffer.num_envs} with capacity={buffer.capacity}: give fewer than 2**31 "
            "slots, for int32 indices."
        )


def check_discount(discount: Array) -> Array:
    """Refuses discounts beyond 1 if they are known, and makes them NaN otherwise."""
    good = ~((discount < -1) | (discount > 1))  # NaN stays NaN; -128 of 8 bits is its own `abs`
    if is_known(good) and not bool(jnp.all(good)):
        raise ValueError(
            f"a discount of {discount.ravel()[jnp.argmin(good)]}: give numbers from -1 to 1."
        )
    return jnp.where(good, discount.astype(jnp.float32), jnp.nan)


def check_example(example: PyTree[Array]) -> None:
    """Refuses an item without arrays, because these have the numbers of environments and rows, and
    one with other things than numbers."""
    for path, x in jax.tree_util.tree_leaves_with_path(example):
        as_array(f"example{jax.tree_util.keystr(path)}", x)
    if not jax.tree.leaves(example):
        raise ValueError(f"an example of {example}: give an item with at least one array.")


def as_array(name: str, x: Any) -> Array:
    """An array of what may be one of NumPy's, a list or a number."""
    try:
        return jnp.asarray(x)
    except (TypeError, ValueError):
        given = x if isinstance(x, str | None) else type(x).__name__
        raise ValueError(f"{name} is {given!r}: give an array of numbers.") from None


def check_kind(buffer: Any, state: Any, kind: type) -> None:
    """Refuses the state of another kind of buffer."""
    if not isinstance(state, kind):
        raise ValueError(
            f"a state that is of {type(state).__name__} in {type(buffer).__name__}: give one of "
            f"{kind.__name__}, which its own `init` returns."
        )


def check_items(
    rings: PyTree, items: PyTree[Array], num_axes: int, *, copies: bool = False
) -> tuple[int, ...]:
    """Refuses items that differ from those stored in `rings[envs, capacity, ...]` in more than
    their `num_axes` leading axes, one more if there may be `copies`. Returns these axes."""
    allowed, given = jax.tree.structure(rings), jax.tree.structure(items)
    if given != allowed:
        raise ValueError(
            f"items of structure {given} in a buffer of {allowed}: give items like the example."
        )
    leaves = [x if hasattr(x, "dtype") else as_array("items", x) for x in jax.tree.leaves(items)]
    slots = jax.tree_util.tree_leaves_with_path(rings)
    given_axes = leaves[0].ndim - (slots[0][1].ndim - 2)
    if copies and given_axes == num_axes + 1:
        num_axes += 1
    # With too few axes the number of rows is unknown, so the message cannot give a shape.
    if given_axes < num_axes:
        raise ValueError(
            f"{_described(slots[0][0], leaves[0])}: give {num_axes} axes, environments first, "
            "before those of the example."
        )
    axes = leaves[0].shape[1:num_axes]
    for (path, ring), x in zip(slots, leaves, strict=True):
        shape = (ring.shape[0], *axes, *ring.shape[2:])
        if x.shape != shape or x.dtype != ring.dtype:
            raise ValueError(
                f"{_described(path, x)}: give {ring.dtype}{list(shape)}, as the example is stored."
            )
    return leaves[0].shape[:num_axes]


def _described(path: tuple[Any, ...], leaf: Array) -> str:
    return f"items{jax.tree_util.keystr(path)} is {leaf.dtype}{list(leaf.shape)}"


def check_mask(mask: Array, num_envs: int) -> None:
    """Refuses a mask of a wrong shape or dtype, which would be broadcast or used as numbers."""
    if mask.shape != (num_envs,) or mask.dtype != bool:
        raise ValueError(
            f"mask of {mask.dtype}{list(mask.shape)} for {num_envs} environments: give "
            f"bool[{num_envs}], one truth value an environment."
        )


def check_accessor(
    name: str, accessor: Callable[[Any], Array], items: PyTree[Array], axes: tuple[int, ...]
) -> None:
    """Refuses an accessor that does not return one number for each row of `items`."""
    try:
        leaf = jnp.asarray(accessor(items))
    except (AttributeError, KeyError, IndexError, TypeError) as e:
        raise ValueError(
            f"the items have no {name} where the buffer looks for it ({e}): give it "
            f"`{name}=lambda item: <its leaf>`."
        ) from e
    if leaf.shape != axes:
        raise ValueError(
            f"the {name} of the items has shape {list(leaf.shape)}: give {list(axes)}, one "
            "number a row."
        )
    if name == "last" and leaf.dtype != bool:
        raise ValueError(f"the last of the items is {leaf.dtype}: give bool.")


def check_state(buffer: Any, num_envs: int, num_shards: int, capacity: int) -> None:
    """Refuses the state of a buffer of another size, and a slice of the environments that does not
    hold whole shards."""
    if capacity != buffer.capacity:
        raise ValueError(
            f"a state of {capacity} slots an environment in a buffer of "
            f"capacity={buffer.capacity}: give a state of this buffer's own `init`."
        )
    envs_per_shard = buffer.num_envs // buffer.num_shards
    if num_envs != num_shards * envs_per_shard:
        raise ValueError(
            f"a slice of {num_envs} environments and {num_shards} shards, but a shard has "
            f"{envs_per_shard} environments: split num_shards={buffer.num_shards} evenly."
        )


def is_known(x: Array) -> bool:
    """Whether the values of `x` can be read: it is not traced, and this host has all of it."""
    return not isinstance(x, Tracer) and x.is_fully_addressable


def check_priorities(
    indices: Array, priorities: Array, num_slots: int, period: int
) -> tuple[Int[Array, " batch"], Bool[Array, " batch"]]:
    """Refuses shapes that do not fit and, if they are known, wrong indices and priorities. Returns
    the first index of each window, and which windows start at a place in the buffer and have a
    priority."""
    if not jnp.issubdtype(indices.dtype, jnp.integer) or jnp.iscomplexobj(priorities):
        raise ValueError(
            f"indices of {indices.dtype} and priorities of {priorities.dtype}: give "
            "`Batch.indices`, which are integers, and real numbers."
        )
    if indices.ndim != 2 or not indices.shape[1] or priorities.shape != indices.shape[:1]:
        raise ValueError(
            f"priorities of shape {list(priorities.shape)} for indices of shape "
            f"{list(indices.shape)}: give `Batch.indices` and one priority a window."
        )
    # JAX casts `num_slots` to the dtype of the index, so eight bits would overflow.
    first = indices[:, 0]
    first = first if first.dtype.itemsize >= 4 else first.astype(jnp.int32)
    there = (first >= 0) & (first < num_slots) & (first % period == 0)
    if is_known(there) and not all(there.tolist()):
        raise ValueError(
            f"an index of {first[jnp.argmin(there)]}: give `Batch.indices`, whose windows start "
            f"at places from 0 to {num_slots - 1}, multiples of period={period}."
        )
    good = jnp.isfinite(priorities) & (priorities >= 0)
    if is_known(good) and not all(good.tolist()):
        raise ValueError(
            f"a priority of {priorities[jnp.argmin(good)]}: give finite numbers from 0 on."
        )
    return first, there & good
