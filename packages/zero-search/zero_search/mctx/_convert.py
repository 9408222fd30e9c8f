"""Our search trees as mctx's, and back."""

from typing import Any

import jax.numpy as jnp
import mctx
from jaxtyping import Array, Float

from .._select import AbstractSelection, best_action, prepare
from .._statistics import NodeStatistics
from .._tree import COLUMNS, COUNT, DISCOUNT, RAW, REWARD, Tree, UNSTORED, VALUE
from ._recurrent import Node


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
