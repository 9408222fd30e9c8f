"""Our search trees as mctx's and back, and what of an mctx tree outlives a move."""

import dataclasses
from typing import Any, cast

import jax
import jax.numpy as jnp
import mctx
from jaxtyping import Array, Float

from .._rules import AbstractSelection, best_action, prepare
from .._sample import where_rows
from .._tree import (
    COLUMNS,
    COUNT,
    DISCOUNT,
    RAW,
    REWARD,
    statistics,
    subtree,
    Tree,
    UNSTORED,
    VALUE,
)
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
    # mctx's own trees have gaps where `max_depth` stopped a simulation.
    reached = (slot > 0) & (slot < tree.size[:, None]) & (kept.action >= 0)
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


def from_mctx(tree: mctx.Tree, prior: Float[Array, "batch nodes features actions"]) -> Tree:
    """Trees to go on with, given what selection keeps of the nodes' priors. The next node takes the
    place behind the last one. Which actions come next is not known yet.
    """
    kept = _arrays(tree)
    batch, nodes, actions = kept.children_index.shape
    slot = jnp.arange(nodes, dtype=jnp.int32)[None]
    lane = jnp.arange(batch, dtype=jnp.int32)[:, None]
    real = lambda x: x.astype(jnp.float32)
    reward, discount = real(kept.children_rewards), real(kept.children_discounts)
    qvalues = reward + discount * real(kept.children_values)
    reached = kept.parents >= 0
    parent = jnp.maximum(kept.parents, 0)
    edge = parent * actions + jnp.maximum(kept.action_from_parent, 0)
    into = lambda x: jnp.where(reached, x.reshape(batch, -1)[lane, edge], 0.0)
    columns = {
        COUNT: real(kept.node_visits),
        VALUE: real(kept.node_values),
        REWARD: into(reward),
        DISCOUNT: into(discount),
        RAW: real(kept.raw_values),
    }
    stored = reached | ((slot == 0) & (kept.node_visits > 0))
    return Tree(
        step=jnp.zeros((batch, nodes, 2), jnp.int32),
        node=jnp.stack([columns[i] for i in range(COLUMNS)], axis=-1),
        edge=jnp.stack([real(kept.children_visits), qvalues], axis=2),
        child=kept.children_index,
        prior=prior,
        parent=parent,
        state=Node(
            embedding=kept.embeddings,
            logits=kept.children_prior_logits,
            value=kept.raw_values,
            action=kept.action_from_parent,
        ),
        size=1 + jnp.max(jnp.where(stored, slot, -1), axis=1),
    )


def going_on(tree: mctx.Tree, selection: AbstractSelection, logits: Array) -> Tree:
    """As `from_mctx`, given what selection is to see of the nodes' logits, with every node's best
    action found anew."""
    flat = lambda x: x.reshape(-1, *x.shape[2:])
    apart = lambda x: x.reshape(*logits.shape[:2], *x.shape[1:])
    trees = from_mctx(tree, apart(prepare(selection, flat(logits))))
    rows = statistics(flat(trees.prior), flat(trees.edge), flat(trees.node))
    best = apart(best_action(selection, rows))[..., None]
    code = jnp.take_along_axis(trees.child, best, axis=2)
    return dataclasses.replace(trees, step=jnp.concatenate([best, code], axis=-1))


def get_subtree(tree: mctx.Tree, child_index: Ints) -> mctx.Tree:
    """The trees below the roots' actions `child_index`, their nodes moved to the front in the
    same order.

    Visits and values stay, for [`zero_search.mctx.alphazero_policy`][] to go on with. A row whose
    action has no node below it becomes an empty tree, in which that policy plants a new root.
    """
    old = _arrays(tree)
    root = jnp.take_along_axis(old.children_index[:, 0], child_index[:, None], axis=1)[:, 0]
    trees = from_mctx(old, old.children_prior_logits[:, :, None])
    below = subtree(trees, jnp.maximum(root, 0), root >= 0)
    extra_data = cast(Any, tree).extra_data
    return to_mctx(below, jnp.zeros_like(old.root_invalid_actions), extra_data)


def _arrays(tree: mctx.Tree) -> Any:
    """A tree that may lie on the host, in arrays of JAX, without its `extra_data`."""
    return jax.tree.map(jnp.asarray, cast(Any, tree).replace(extra_data=None))


def reset_search_tree(tree: mctx.Tree, select_batch: Bools | None = None) -> mctx.Tree:
    """Empties the trees of the selected rows, without a selection all: at an episode's end."""
    old: Any = tree
    if select_batch is None:
        select_batch = jnp.ones(old.node_visits.shape[:1], bool)
    held = old.replace(extra_data=None)
    # A node that is not there holds zeros, but for these.
    names = ("parents", "action_from_parent", "children_index")
    none = {name: jnp.full_like(getattr(old, name), -1) for name in names}
    empty = jax.tree.map(jnp.zeros_like, held).replace(**none)
    return where_rows(jnp.asarray(select_batch), empty, held).replace(extra_data=old.extra_data)
