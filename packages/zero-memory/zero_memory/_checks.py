"""Refusals of items that a buffer would otherwise broadcast, cast or misread."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree


def check_items(rings: PyTree[Array], items: PyTree[Array], num_axes: int) -> None:
    """Refuses items that are not like the example below their `num_axes` leading axes."""
    allowed, given = jax.tree.structure(rings), jax.tree.structure(items)
    if given != allowed:
        raise ValueError(
            f"items of structure {given} in a buffer of {allowed}: give items like the example."
        )
    leaves = jax.tree.leaves(items)
    time = leaves[0].shape[1:num_axes]
    for (path, ring), x in zip(jax.tree_util.tree_leaves_with_path(rings), leaves, strict=True):
        shape = (ring.shape[0], *time, *ring.shape[2:])
        if x.shape != shape or x.dtype != ring.dtype:
            raise ValueError(
                f"items{jax.tree_util.keystr(path)} is {x.dtype}{list(x.shape)}: give "
                f"{ring.dtype}{list(shape)}, like the example."
            )


def check_mask(mask: Array, num_envs: int) -> None:
    """Refuses a mask that would be broadcast over the environments."""
    if mask.shape != (num_envs,):
        raise ValueError(
            f"mask of shape {list(mask.shape)} for {num_envs} environments: give [{num_envs}], one "
            "truth value an environment."
        )


def check_accessor(
    name: str, accessor: Callable[[Any], Array], items: PyTree[Array], axes: tuple[int, ...]
) -> None:
    """Refuses an accessor that finds nothing in `items`, or not one number a row."""
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
    if name == "reward" and not jnp.issubdtype(leaf.dtype, jnp.floating):
        raise ValueError(
            f"the reward of the items is {leaf.dtype}: give a float, an outcome takes its place."
        )
