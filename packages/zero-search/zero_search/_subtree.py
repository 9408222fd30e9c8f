"""Which part of a tree outlives a move."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PyTree

from ._tree import CODE, FINAL, Tree, UNSTORED


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
    batch, max_nodes = tree.parent.shape
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

    step = move(tree.step, 0)
    code = jnp.where(live, _renumber(step[..., CODE], number), 0)
    parent = jnp.maximum(_renumber(move(tree.parent, 0), number), 0)
    child = move(tree.child, UNSTORED)
    return Tree(
        step=step.at[..., CODE].set(code),
        node=move(tree.node, 0),
        edge=move(tree.edge, 0),
        child=_renumber(child.reshape(batch, -1), number).reshape(child.shape),
        prior=move(tree.prior, 0),
        parent=jnp.where(live, parent, 0),
        # Behind the last node anything may lie, and keys of random numbers have no zero.
        state=jax.tree.map(lambda x: x[lane[:, None], source], tree.state),
        size=size,
    )


def _descendants(tree: Tree, root: Int[Array, " batch"]) -> Bool[Array, "batch nodes"]:
    """Which nodes lie at or below `root`: pointer doubling, as many gathers as `log2 depth`."""
    batch, max_nodes = tree.parent.shape
    slot = jnp.arange(max_nodes, dtype=jnp.int32)[None]
    up = jnp.where(slot == root[:, None], slot, tree.parent)

    def double(carry):
        up, _ = carry
        higher = jnp.take_along_axis(up, up, axis=1)
        return higher, jnp.any(higher != up)

    up, _ = jax.lax.while_loop(lambda carry: carry[1], double, double((up, None)))
    return (up == root[:, None]) & (slot < tree.size[:, None])


def _same(
    states: PyTree[Array], index: Int[Array, " batch"], other: PyTree[Array]
) -> Bool[Array, " batch"]:
    batch = index.shape[0]

    def equal(stored: Array, given: Array) -> Array:
        stored = stored[jnp.arange(batch), index]
        match = stored == given
        if jnp.issubdtype(given.dtype, jnp.floating):
            match = match | (jnp.isnan(stored) & jnp.isnan(given))
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
