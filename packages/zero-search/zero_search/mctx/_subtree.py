"""What is kept of an `mctx.Tree` after a move."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import mctx
from jaxtyping import Array, Bool, Int


# (`Any`, below: chex dataclasses hide from type checkers that they are dataclasses.)
# What a node that is not there holds, where it is not 0.
_NOTHING = {"parents": -1, "action_from_parent": -1, "children_index": -1}
_OF_ROOT = ("root_invalid_actions", "extra_data")


def get_subtree(tree: mctx.Tree, child_index: Int[Array, " batch"]) -> mctx.Tree:
    """The trees below the roots' actions `child_index`, their nodes moved to the front in the
    same order.

    Visits and values stay, for [`zero_search.mctx.alphazero_policy`][] to go on with. A row whose
    action has no node below it becomes an empty tree, in which that policy plants a new root.
    """
    old: Any = tree
    batch, nodes = old.node_visits.shape
    slot = jnp.arange(nodes, dtype=jnp.int32)[None]
    lane = jnp.arange(batch, dtype=jnp.int32)[:, None]
    root = old.children_index[lane, 0, child_index[:, None]]
    # Pointer doubling: `log2 nodes` gathers lead every node to the ancestor below which it stays.
    up = jnp.where((slot == root) | (old.parents < 0), slot, old.parents)
    for _ in range(max(1, (nodes - 1).bit_length())):
        up = jnp.take_along_axis(up, up, axis=1)
    below = (up == root) & (root >= 0)
    number = jnp.cumsum(below, axis=1, dtype=jnp.int32) - 1
    source = jnp.argsort(~below, axis=1, stable=True)
    moved = _rows(old, lambda x: x[lane, source], slot > number[:, -1:])

    def renumber(index: Int[Array, "batch ..."]) -> Int[Array, "batch ..."]:
        flat = index.reshape(batch, -1)
        new = jnp.take_along_axis(number, jnp.maximum(flat, 0), axis=1)
        return jnp.where(flat < 0, flat, new).reshape(index.shape)

    # The first node that stays is the new root: children come after their parents.
    top = slot == 0
    moved["parents"] = jnp.where(top, -1, renumber(moved["parents"]))
    moved["action_from_parent"] = jnp.where(top, -1, moved["action_from_parent"])
    moved["children_index"] = renumber(moved["children_index"])
    return old.replace(**moved, root_invalid_actions=jnp.zeros_like(old.root_invalid_actions))


def reset_search_tree(
    tree: mctx.Tree, select_batch: Bool[Array, " batch"] | None = None
) -> mctx.Tree:
    """Empties the trees of the selected rows, without a selection all: at an episode's end."""
    old: Any = tree
    batch, nodes = old.node_visits.shape
    if select_batch is None:
        select_batch = jnp.ones((batch,), bool)
    select = select_batch[:, None]
    rows = _rows(old, lambda x: x, jnp.broadcast_to(select, (batch, nodes)))
    invalid = jnp.where(select, jnp.zeros_like(old.root_invalid_actions), old.root_invalid_actions)
    return old.replace(**rows, root_invalid_actions=invalid)


def _rows(
    tree: Any, move: Callable[[Array], Array], empty: Bool[Array, "batch nodes"]
) -> dict[str, Any]:
    """All that a tree holds of each node, moved, then emptied."""

    def new(name: str, x: Array) -> Array:
        gone = empty.reshape(empty.shape + (1,) * (x.ndim - 2))
        return jnp.where(gone, jnp.asarray(_NOTHING.get(name, 0), x.dtype), move(x))

    names = [field.name for field in dataclasses.fields(tree) if field.name not in _OF_ROOT]
    return {
        name: jax.tree.map(lambda x, name=name: new(name, x), getattr(tree, name)) for name in names
    }
