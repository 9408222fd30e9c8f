"""The arrays of a batch of search trees, and which part of one outlives a move.

Every node is three rows: what the walk down needs (`node`), what its edges have seen (`edge`) and
what the evaluator said (`prior`). Statistics of an edge lie in its parent's row, so an edge whose
child could not be stored still counts.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from ._check import batch_size
from ._select import AbstractSelection, best_action, NodeStatistics, prepare


# Columns of `Tree.node`. Integers are kept as float32, exact below `MAX_NODES`, so that one gather
# reads the whole row.
BEST = 0  # action to take here, cached
NEXT = 1  # child code of that action, cached
COUNT = 2  # visits, the node's own evaluation included
VALUE = 3  # mean of what was backed up, for the player to move here
REWARD = 4  # reward of the edge that leads here, for the parent's player
DISCOUNT = 5  # signed discount of that edge, times gamma
RAW = 6  # the evaluator's value
INDEX = 7  # the node's own number
PARENT = 8
COLUMNS = 9

# Child codes: a node's number, or `UNSTORED`, or `FINAL - number` for a child that is never
# expanded.
UNSTORED = -1
FINAL = -2


class Tree(eqx.Module):
    """Search trees; `*rows` is `batch nodes`, or their product while a search runs."""

    node: Float[Array, "*rows columns"]
    edge: Float[Array, "*rows 2 actions"]  # visits; mean value for the parent's player
    child: Int[Array, "*rows actions"]
    prior: Float[Array, "*rows features actions"]
    state: PyTree[Array]
    size: Int[Array, " batch"]


def empty(
    state: PyTree[Array], selection: AbstractSelection, max_nodes: int, num_actions: int
) -> Tree:
    """Trees without nodes, for states like `state`."""
    batch = batch_size(state)
    rows = (batch, max_nodes)
    logits = jax.ShapeDtypeStruct((1, num_actions), jnp.float32)
    features = jax.eval_shape(lambda x: prepare(selection, x), logits).shape[1]
    return Tree(
        node=jnp.zeros((*rows, COLUMNS), jnp.float32),
        edge=jnp.zeros((*rows, 2, num_actions), jnp.float32),
        child=jnp.full((*rows, num_actions), UNSTORED, jnp.int32),
        prior=jnp.zeros((*rows, features, num_actions), jnp.float32),
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
    batch = value.shape[0]
    kept = tree.size > 0
    old = tree.node[:, 0]
    count = jnp.where(kept, old[:, COUNT], 1.0)
    mean = jnp.where(kept, old[:, VALUE], value)
    prior = prepare(selection, logits)
    # A legal set that shrank since the subtree was grown must not keep visits.
    edge = tree.edge[:, 0] * (logits > -jnp.inf).astype(jnp.float32)[:, None]
    best = best_action(
        selection, NodeStatistics(prior, edge[:, 0], edge[:, 1], count, mean, raw_value=value)
    )
    zero = jnp.zeros((batch,), jnp.float32)
    row = node_row(best, tree.child[jnp.arange(batch), 0, best], count, mean, zero, zero, value)
    return Tree(
        node=tree.node.at[:, 0].set(row),
        edge=tree.edge.at[:, 0].set(edge),
        child=tree.child,
        prior=tree.prior.at[:, 0].set(prior),
        state=jax.tree.map(lambda t, x: t.at[:, 0].set(x), tree.state, state),
        size=jnp.maximum(tree.size, 1),
    )


def statistics(tree: Tree, rows: Int[Array, " batch"] | None = None) -> NodeStatistics:
    """Of the nodes in the given flat rows; without them, of the roots of unflattened trees."""
    at = (slice(None), 0) if rows is None else rows
    node, edge = tree.node[at], tree.edge[at]
    return NodeStatistics(
        prior=tree.prior[at],
        visits=edge[:, 0],
        qvalues=edge[:, 1],
        count=node[:, COUNT],
        value=node[:, VALUE],
        raw_value=node[:, RAW],
    )


def node_row(
    best: Int[Array, " batch"],
    code: Int[Array, " batch"],
    count: Float[Array, " batch"],
    value: Float[Array, " batch"],
    reward: Float[Array, " batch"],
    discount: Float[Array, " batch"],
    raw_value: Float[Array, " batch"],
    index: Int[Array, " batch"] | None = None,
    parent: Int[Array, " batch"] | None = None,
) -> Float[Array, "batch columns"]:
    """A row of `Tree.node`; without `index` and `parent`, a root's."""
    zero = jnp.zeros_like(value)
    return jnp.stack(
        [
            best.astype(jnp.float32),
            code.astype(jnp.float32),
            count,
            value,
            reward,
            discount,
            raw_value,
            zero if index is None else index.astype(jnp.float32),
            zero if parent is None else parent.astype(jnp.float32),
        ],
        axis=-1,
    )


def subtree(
    tree: Tree,
    action: Int[Array, " batch"],
    next_state: PyTree[Array],
    last: Bool[Array, " batch"],
) -> Tree:
    """The trees below the played actions, their nodes moved to the front in the same order.

    A row is emptied when the action has no stored child, when the stored child's state differs
    from `next_state` (a chance event went the other way, something hidden came to light), and
    where `last`.
    """
    batch, max_nodes = tree.node.shape[:2]
    lane = jnp.arange(batch)
    code = tree.child[lane, 0, action]
    root = jnp.maximum(code, 0)
    keep = (code >= 0) & ~last & _same(tree.state, root, next_state)
    below = _descendants(tree, root) & keep[:, None]
    # Parents come before their children, so the new root is the first of its descendants.
    number = jnp.cumsum(below, axis=1, dtype=jnp.int32) - 1
    size = jnp.sum(below, axis=1, dtype=jnp.int32)
    slot = jnp.arange(max_nodes, dtype=jnp.int32)
    source = jnp.zeros((batch, max_nodes), jnp.int32)
    to = jnp.where(below, number, max_nodes)
    source = source.at[lane[:, None], to].set(slot[None], mode="drop")
    live = slot[None] < size[:, None]

    def move(x: Array, fill: Any) -> Array:
        axes = (batch, max_nodes) + (1,) * (x.ndim - 2)
        return jnp.where(live.reshape(axes), x[lane[:, None], source], jnp.asarray(fill, x.dtype))

    node = move(tree.node, 0)
    renumbered = [
        (NEXT, _renumber(node[..., NEXT].astype(jnp.int32), number)),
        (INDEX, jnp.broadcast_to(slot[None], live.shape)),
        (PARENT, jnp.maximum(_renumber(node[..., PARENT].astype(jnp.int32), number), 0)),
    ]
    for column, value in renumbered:
        node = node.at[..., column].set(jnp.where(live, value, 0).astype(jnp.float32))
    child = move(tree.child, UNSTORED)
    return Tree(
        node=node,
        edge=move(tree.edge, 0),
        child=_renumber(child.reshape(batch, -1), number).reshape(child.shape),
        prior=move(tree.prior, 0),
        state=jax.tree.map(lambda x: move(x, 0), tree.state),
        size=size,
    )


def _descendants(tree: Tree, root: Int[Array, " batch"]) -> Bool[Array, "batch nodes"]:
    """Which nodes lie at or below `root`: pointer doubling, `log2 nodes` gathers."""
    batch, max_nodes = tree.node.shape[:2]
    slot = jnp.arange(max_nodes, dtype=jnp.int32)[None]
    up = tree.node[..., PARENT].astype(jnp.int32)
    up = jnp.where(slot == root[:, None], slot, up)
    for _ in range(max(1, (max_nodes - 1).bit_length())):
        up = jnp.take_along_axis(up, up, axis=1)
    return (up == root[:, None]) & (slot < tree.size[:, None])


def _same(
    states: PyTree[Array], index: Int[Array, " batch"], other: PyTree[Array]
) -> Bool[Array, " batch"]:
    batch = index.shape[0]

    def equal(stored: Array, given: Array) -> Array:
        match = stored[jnp.arange(batch), index] == given
        return jnp.all(match.reshape(batch, -1), axis=1)

    matches = jax.tree.leaves(jax.tree.map(equal, states, other))
    return jnp.all(jnp.stack(matches), axis=0)


def _renumber(
    code: Int[Array, "batch entries"], number: Int[Array, "batch nodes"]
) -> Int[Array, "batch entries"]:
    final = code <= FINAL
    index = jnp.where(final, FINAL - code, jnp.maximum(code, 0))
    new = jnp.take_along_axis(number, index, axis=1)
    return jnp.where(final, FINAL - new, jnp.where(code < 0, code, new))
