"""The arrays of a batch of search trees.

A node is a row of each array. Statistics of an edge lie in its parent's row, so an edge whose
child could not be stored still counts.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from ._check import batch_size
from ._select import AbstractSelection, prepare
from ._statistics import NodeStatistics


# Columns of `Tree.step`.
ACTION = 0  # the action to take here
CODE = 1  # its child code

# Columns of `Tree.node`.
COUNT = 0  # visits, the node's own evaluation included
VALUE = 1  # what the backup made of the outcomes, for the player to move here
REWARD = 2  # reward of the edge that leads here, for the parent's player
DISCOUNT = 3  # signed discount of that edge, times gamma
RAW = 4  # the evaluator's value
COLUMNS = 5

# Child codes: a node's number, or `UNSTORED`, or `FINAL - number` for a child that is never
# expanded.
UNSTORED = -1
FINAL = -2

# What stands for a child's visits if it has no row, or one that is never expanded.
NO_CHILD = -1.0
NOT_EXPANDED = -2.0


class Tree(eqx.Module):
    """Search trees; `*rows` is `batch nodes`, or their product while a search runs.

    Nodes are numbered in the order in which they were stored; the root is number 0.
    """

    step: Int[Array, "*rows 2"]  # cached, so that a walk down need not score
    node: Float[Array, "*rows columns"]
    # Visits; value for the parent's player, with reward; and if leaves are evaluated several at a
    # time, walks that have not come back.
    edge: Float[Array, "*rows planes actions"]
    child: Int[Array, "*rows actions"]
    prior: Float[Array, "*rows features actions"]
    parent: Int[Array, "*rows"]
    state: PyTree[Array]
    size: Int[Array, " batch"]


def empty(
    state: PyTree[Array],
    selection: AbstractSelection,
    max_nodes: int,
    num_actions: int,
    planes: int = 2,
) -> Tree:
    """Trees without nodes, for states like `state`."""
    batch = batch_size(state)
    rows = (batch, max_nodes)
    logits = jax.ShapeDtypeStruct((1, num_actions), jnp.float32)
    features = jax.eval_shape(lambda x: prepare(selection, x), logits).shape[1]
    return Tree(
        step=jnp.zeros((*rows, 2), jnp.int32),
        node=jnp.zeros((*rows, COLUMNS), jnp.float32),
        edge=jnp.zeros((*rows, planes, num_actions), jnp.float32),
        child=jnp.full((*rows, num_actions), UNSTORED, jnp.int32),
        prior=jnp.zeros((*rows, features, num_actions), jnp.float32),
        parent=jnp.zeros(rows, jnp.int32),
        state=jax.tree.map(lambda x: jnp.zeros((*rows, *x.shape[1:]), x.dtype), state),
        size=jnp.zeros((batch,), jnp.int32),
    )


def plant(
    tree: Tree,
    selection: AbstractSelection,
    state: PyTree[Array],
    logits: Float[Array, "batch actions"],
    value: Float[Array, " batch"],
) -> Tree:
    """Evaluates the roots anew: state, prior and raw value are replaced, kept statistics stay.

    `logits` may carry root noise: it reaches the root's row and no other.
    """
    prior = prepare(selection, logits)
    # A legal set that shrank since the subtree was grown keeps neither visits nor their outcomes.
    edge = tree.edge[:, 0] * (logits > -jnp.inf).astype(jnp.float32)[:, None]
    visits, qvalues = edge[:, 0], edge[:, 1]
    count = 1.0 + jnp.sum(visits, axis=1)
    whole = count == 1.0 + jnp.sum(tree.edge[:, 0, 0], axis=1)
    left = (value + jnp.sum(visits * qvalues, axis=1)) / count
    mean = jnp.where(tree.size > 0, jnp.where(whole, tree.node[:, 0, VALUE], left), value)
    zero = jnp.zeros_like(value)
    return Tree(
        step=tree.step,
        node=tree.node.at[:, 0].set(jnp.stack([count, mean, zero, zero, value], axis=-1)),
        edge=tree.edge.at[:, 0].set(edge),
        child=tree.child,
        prior=tree.prior.at[:, 0].set(prior),
        parent=tree.parent.at[:, 0].set(0),
        state=jax.tree.map(lambda t, x: t.at[:, 0].set(x), tree.state, state),
        size=jnp.maximum(tree.size, 1),
    )


def root_step(tree: Tree, action: Int[Array, " batch"]) -> Int[Array, "batch 2"]:
    """The row of `Tree.step` that takes `action` at the roots of unflattened trees."""
    code = tree.child[jnp.arange(action.shape[0]), 0, action]
    return jnp.stack([action, code], axis=-1)


def statistics(tree: Tree) -> NodeStatistics:
    """Of the roots of unflattened trees."""
    return NodeStatistics(
        prior=tree.prior[:, 0],
        visits=tree.edge[:, 0, 0],
        qvalues=tree.edge[:, 0, 1],
        count=tree.node[:, 0, COUNT],
        value=tree.node[:, 0, VALUE],
        raw_value=tree.node[:, 0, RAW],
    )
