"""Our search trees as mctx's and back, and what of an mctx tree outlives a move."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import mctx
from jaxtyping import Array, Bool, Float, Int

from .._select import AbstractSelection, best_action, prepare
from .._statistics import NodeStatistics
from .._tree import COLUMNS, COUNT, DISCOUNT, RAW, REWARD, Tree, UNSTORED, VALUE
from .._types import Bools, Ints
from ._nodes import Node


# chex dataclasses hide their constructors from type checkers.
_engine: Any = mctx


def to_mctx(tree: Tree, root_invalid_actions: Array, extra_data: Any) -> mctx.Tree:
    """All fields of an `mctx.Tree`, from grown trees whose states are `Node`s.

    An edge whose child found no room has no node to show; its mean value is written as a reward,
    with discount 0, so that `tree.qvalues` gives it.
    """
    batch, nodes, actions = tree.child.shape
    kept: Node = tree.state
    slot = jnp.arange(nodes, dtype=jnp.int32)[None]
    lane = jnp.arange(batch, dtype=jnp.int32)[:, None]
    reached = (slot > 0) & (slot < tree.size[:, None])
    none = jnp.int32(_engine.Tree.NO_PARENT)
    parent = jnp.where(reached, tree.parent, none)
    action = jnp.where(reached, kept.action, none)
    edge = jnp.where(reached, parent * actions + action, nodes * actions + slot)
    dtype = kept.value.dtype

    def by_edge(column: int) -> Float[Array, "batch nodes actions"]:
        """What belongs to the edge that leads to a node, in its parent's row."""
        flat = jnp.zeros((batch, nodes * actions), jnp.float32)
        found = tree.node[..., column]
        flat = flat.at[lane, edge].set(found, mode="drop", unique_indices=True)
        return flat.reshape(batch, nodes, actions)

    visits, qvalues = tree.edge[:, :, 0], tree.edge[:, :, 1]
    reward = jnp.where(tree.child == UNSTORED, qvalues, by_edge(REWARD))
    into = visits.reshape(batch, -1)[lane, jnp.where(reached, edge, 0)]
    count = jnp.where(slot == 0, tree.node[..., COUNT], jnp.where(reached, into, 0.0))
    return _engine.Tree(
        node_visits=count.astype(jnp.int32),
        raw_values=tree.node[..., RAW].astype(dtype),
        node_values=tree.node[..., VALUE].astype(dtype),
        parents=parent,
        action_from_parent=action,
        children_index=tree.child,
        children_prior_logits=kept.logits,
        children_values=by_edge(VALUE).astype(dtype),
        children_visits=visits.astype(jnp.int32),
        children_rewards=reward.astype(dtype),
        children_discounts=by_edge(DISCOUNT).astype(dtype),
        embeddings=kept.embedding,
        root_invalid_actions=root_invalid_actions,
        extra_data=extra_data,
    )


def from_mctx(
    tree: mctx.Tree, selection: AbstractSelection, logits: Float[Array, "batch nodes actions"]
) -> Tree:
    """Trees to go on with, given what selection is to see of the nodes' logits. Every node's best
    action is found anew. The next node takes the place behind the last one.
    """
    kept: Any = tree
    batch, nodes, actions = kept.children_index.shape
    slot = jnp.arange(nodes, dtype=jnp.int32)[None]
    lane = jnp.arange(batch, dtype=jnp.int32)[:, None]
    flat: Any = lambda x: x.reshape(batch * nodes, *x.shape[2:])
    unflat: Any = lambda x: x.reshape(batch, nodes, *x.shape[1:])
    real = lambda x: x.astype(jnp.float32)
    reward, discount = real(kept.children_rewards), real(kept.children_discounts)
    qvalues = reward + discount * real(kept.children_values)
    rows = NodeStatistics(
        prior=prepare(selection, flat(logits)),
        visits=flat(real(kept.children_visits)),
        qvalues=flat(qvalues),
        count=flat(real(kept.node_visits)),
        value=flat(real(kept.node_values)),
        raw_value=flat(real(kept.raw_values)),
    )
    best = unflat(best_action(selection, rows))[..., None]
    code = jnp.take_along_axis(kept.children_index, best, axis=2)
    reached = kept.parents >= 0
    parent = jnp.maximum(kept.parents, 0)
    edge = parent * actions + jnp.maximum(kept.action_from_parent, 0)
    into = lambda x: jnp.where(reached, x.reshape(batch, -1)[lane, edge], 0.0)
    columns = {
        COUNT: unflat(rows.count),
        VALUE: unflat(rows.value),
        REWARD: into(reward),
        DISCOUNT: into(discount),
        RAW: unflat(rows.raw_value),
    }
    stored = reached | ((slot == 0) & (kept.node_visits > 0))
    return Tree(
        step=jnp.concatenate([best, code], axis=-1),
        node=jnp.stack([columns[i] for i in range(COLUMNS)], axis=-1),
        edge=jnp.stack([real(kept.children_visits), qvalues], axis=2),
        child=kept.children_index,
        prior=unflat(rows.prior),
        parent=parent,
        state=Node(
            embedding=kept.embeddings,
            logits=kept.children_prior_logits,
            value=kept.raw_values,
            action=kept.action_from_parent,
        ),
        size=1 + jnp.max(jnp.where(stored, slot, -1), axis=1),
    )


# (`Any`, below: chex dataclasses hide from type checkers that they are dataclasses.)
# What a node that is not there holds, where it is not 0.
_NOTHING = {"parents": -1, "action_from_parent": -1, "children_index": -1}
_OF_ROOT = ("root_invalid_actions", "extra_data")


def get_subtree(tree: mctx.Tree, child_index: Ints) -> mctx.Tree:
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


def reset_search_tree(tree: mctx.Tree, select_batch: Bools | None = None) -> mctx.Tree:
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
