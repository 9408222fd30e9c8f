"""The simulations of a batch of trees: walk down, expand, back up.

One loop serves the whole batch. Games that have nothing to do write out of range, where writes
are dropped; nothing is selected over whole arrays. The walk down follows cached best actions and
notes the rows it passes. The walk up turns them into new values, a few numbers a game and level.
Scoring, the part that costs, is done afterwards over the list of (game, level) pairs that were
really visited, so a shallow game does not wait for the deepest line of the batch.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, Key

from ._model import AbstractPriorModel
from ._select import AbstractSelection
from ._tree import (
    BEST,
    COLUMNS,
    COUNT,
    DISCOUNT,
    FINAL,
    first_argmax,
    INDEX,
    NEXT,
    node_row,
    RAW,
    REWARD,
    Tree,
    UNSTORED,
    VALUE,
)


# Chooses the root's action given the simulation's number and the tree (flat rows, roots' rows).
RootRule = Callable[[Any, Tree, Int[Array, " batch"]], Int[Array, " batch"]]


class _Scratch(eqx.Module):
    """What one simulation notes about its path, by level; reused by the next one."""

    rows: Float[Array, "levels batch columns"]
    new: Float[Array, "levels batch 2"]  # the node's new value; the taken edge's new Q


class _Leaf(eqx.Module):
    """Where a simulation ended."""

    reward: Float[Array, " batch"]
    discount: Float[Array, " batch"]
    value: Float[Array, " batch"]
    stored: Bool[Array, " batch"]


def search(
    tree: Tree,
    model: AbstractPriorModel,
    selection: AbstractSelection,
    *,
    num_simulations: int,
    gamma: float,
    key: Key[Array, " batch"],
    root_rule: RootRule | None = None,
) -> tuple[Tree, Float[Array, " batch"]]:
    """Runs `num_simulations` from planted roots.

    **Returns:** the grown trees and the mean depth of the leaves of each row (0 for a row whose
    root has no legal action: it stays as it was).
    """
    batch, max_nodes, num_actions = tree.child.shape
    base = jnp.arange(batch, dtype=jnp.int32) * max_nodes
    alive = jnp.any(tree.prior[:, 0, 0] > -jnp.inf, axis=1)

    def body(sim, carry):
        tree, scratch, total = carry
        row = tree.node[base]
        if root_rule is not None:
            best = root_rule(sim, tree, base)
            row = row.at[:, BEST].set(best.astype(jnp.float32))
            row = row.at[:, NEXT].set(tree.child[base, best].astype(jnp.float32))
        rows, row, depth = _descend(tree, base, row, alive, scratch.rows)
        tree, leaf = _expand(tree, model, selection, sim, base, row, alive, gamma, key)
        new = _ascend(rows, scratch.new, depth, leaf)
        tree = _rescore(tree, selection, base, rows, new, depth, leaf.stored)
        return tree, _Scratch(rows=rows, new=new), total + depth.astype(jnp.float32)

    flat = lambda x: x.reshape(batch * max_nodes, *x.shape[2:])
    scratch = _Scratch(
        rows=jnp.zeros((max_nodes, batch, COLUMNS), jnp.float32),
        new=jnp.zeros((max_nodes, batch, 2), jnp.float32),
    )
    init = (_map_rows(flat, tree), scratch, jnp.zeros((batch,), jnp.float32))
    tree, _, total = jax.lax.fori_loop(0, num_simulations, body, init)
    unflat = lambda x: x.reshape(batch, max_nodes, *x.shape[1:])
    return _map_rows(unflat, tree), total / num_simulations


def _map_rows(fn: Callable[[Array], Array], tree: Tree) -> Tree:
    return Tree(
        node=fn(tree.node),
        edge=fn(tree.edge),
        child=fn(tree.child),
        prior=fn(tree.prior),
        state=jax.tree.map(fn, tree.state),
        size=tree.size,
    )


def _descend(tree, base, row, alive, rows):
    """Follows the cached actions. Returns the noted rows, the last row and the depth."""

    def cond(carry):
        _, _, active, _, _ = carry
        return jnp.any(active)

    def body(carry):
        rows, row, active, depth, level = carry
        rows = jax.lax.dynamic_update_index_in_dim(rows, row, level, 0)
        code = row[:, NEXT].astype(jnp.int32)
        go_on = active & (code >= 0)
        child = tree.node.at[base + jnp.maximum(code, 0)].get(mode="promise_in_bounds")
        row = jnp.where(go_on[:, None], child, row)
        return rows, row, go_on, depth + active.astype(jnp.int32), level + 1

    init = (rows, row, alive, jnp.zeros_like(base), jnp.zeros((), jnp.int32))
    rows, row, _, depth, _ = jax.lax.while_loop(cond, body, init)
    return rows, row, depth


def _expand(tree, model, selection, sim, base, row, alive, gamma, key):
    """Steps the model from the last node of each walk and stores what it finds."""
    batch = base.shape[0]
    num_actions = tree.child.shape[1]
    max_nodes = tree.child.shape[0] // batch
    action, code = row[:, BEST].astype(jnp.int32), row[:, NEXT].astype(jnp.int32)
    parent_index = row[:, INDEX].astype(jnp.int32)
    parent = base + parent_index
    state = jax.tree.map(lambda x: x.at[parent].get(mode="promise_in_bounds"), tree.state)
    fold = jax.vmap(jr.fold_in, in_axes=(0, None))
    state, reward, discount, last = model.step(state, action, key=fold(key, 2 * sim))
    logits, value = model.predict(state, key=fold(key, 2 * sim + 1))
    check_prediction(logits, value, batch, num_actions)
    reward, discount = reward.astype(jnp.float32), gamma * discount.astype(jnp.float32)
    logits, value = logits.astype(jnp.float32), value.astype(jnp.float32)

    # Nothing follows a final state, nor one without a legal action: revisit, never expand.
    prior = selection.prepare(logits)
    final = last | (discount == 0) | ~jnp.any(logits > -jnp.inf, axis=1)
    new = alive & (code == UNSTORED)
    store = new & (tree.size < max_nodes)
    nowhere = batch * max_nodes + jnp.arange(batch, dtype=jnp.int32)
    slot = jnp.where(store, base + tree.size, nowhere)
    zeros = jnp.zeros((batch, num_actions), jnp.float32)
    one = jnp.ones_like(value)
    best = first_argmax(
        selection.score(prior, zeros, zeros, count=one, value=value, raw_value=value)
    )
    unstored = jnp.full_like(best, UNSTORED)
    fresh = node_row(best, unstored, one, value, reward, discount, value, tree.size, parent_index)
    put = lambda x, y: x.at[slot].set(y, mode="drop", unique_indices=True)
    link = jnp.where(final, FINAL - tree.size, tree.size)
    known = tree.node.at[base + jnp.where(code <= FINAL, FINAL - code, 0)].get(
        mode="promise_in_bounds"
    )
    pick = lambda column, fresh: jnp.where(code <= FINAL, known[:, column], fresh)
    leaf = _Leaf(
        reward=pick(REWARD, reward),
        discount=pick(DISCOUNT, discount),
        value=pick(RAW, value),
        stored=store | (code <= FINAL),
    )
    tree = Tree(
        node=put(tree.node, fresh),
        edge=tree.edge,
        child=tree.child.at[jnp.where(store, parent, nowhere), action].set(
            link, mode="drop", unique_indices=True
        ),
        prior=put(tree.prior, prior),
        state=jax.tree.map(put, tree.state, state),
        size=tree.size + store.astype(jnp.int32),
    )
    return tree, leaf


def _ascend(rows, new, depth, leaf):
    """Values from the leaves to the roots: `r + d v` along every walk."""

    def cond(carry):
        return carry[0] >= 0

    def body(carry):
        level, new, (outcome, child_value, reward, discount) = carry
        row = jax.lax.dynamic_index_in_dim(rows, level, 0, keepdims=False)
        on = level < depth
        up = reward + discount * outcome
        qvalue = reward + discount * child_value
        count = row[:, COUNT]
        value = (row[:, VALUE] * count + up) / (count + 1.0)
        new = jax.lax.dynamic_update_index_in_dim(
            new, jnp.stack([value, qvalue], axis=-1), level, 0
        )
        pairs = ((up, outcome), (value, child_value))
        pairs += ((row[:, REWARD], reward), (row[:, DISCOUNT], discount))
        return level - 1, new, tuple(jnp.where(on, x, y) for x, y in pairs)

    init = (jnp.max(depth) - 1, new, (leaf.value, leaf.value, leaf.reward, leaf.discount))
    _, new, _ = jax.lax.while_loop(cond, body, init)
    return new


def _rescore(tree, selection, base, rows, new, depth, stored):
    """Writes the visit of every (game, level) pair and finds its node's best action anew."""
    batch = base.shape[0]
    num_rows, num_actions = tree.child.shape
    end = jnp.cumsum(depth)
    start = end - depth
    lane_range = jnp.arange(batch, dtype=jnp.int32)
    actions = jnp.arange(num_actions, dtype=jnp.int32)[None]
    rows, new = rows.reshape(-1, COLUMNS), new.reshape(-1, 2)

    def cond(carry):
        return carry[0] < end[-1]

    def body(carry):
        first, node, edge = carry
        pair = first + lane_range
        # Whose pair it is: games follow each other in the list, each with its levels in order.
        lane = jnp.sum((end[None] <= pair[:, None]).astype(jnp.int32), axis=1)
        valid = lane < batch
        lane = jnp.minimum(lane, batch - 1)
        level = pair - start[lane]
        at = jnp.where(valid, level * batch + lane, 0)
        row = rows.at[at].get(mode="promise_in_bounds")
        value, qvalue = jnp.unstack(new.at[at].get(mode="promise_in_bounds"), axis=-1)
        index = jnp.where(valid, base[lane] + row[:, INDEX].astype(jnp.int32), 0)
        taken = actions == row[:, BEST].astype(jnp.int32)[:, None]
        seen = edge.at[index].get(mode="promise_in_bounds")
        visits = seen[:, 0] + taken.astype(jnp.float32)
        # A child that has no row of its own leaves its mean to the edge.
        mean = (seen[:, 1] * seen[:, 0] + qvalue[:, None]) / visits
        alone = (~stored[lane] & (level + 1 == depth[lane]))[:, None]
        qvalues = jnp.where(taken, jnp.where(alone, mean, qvalue[:, None]), seen[:, 1])
        count = row[:, COUNT] + 1.0
        prior = tree.prior.at[index].get(mode="promise_in_bounds")
        scores = selection.score(
            prior, visits, qvalues, count=count, value=value, raw_value=row[:, RAW]
        )
        best = first_argmax(scores)
        code = tree.child.at[index, best].get(mode="promise_in_bounds")
        fresh = jnp.concatenate(
            [
                jnp.stack([best.astype(jnp.float32), code.astype(jnp.float32), count, value], -1),
                row[:, REWARD:],
            ],
            axis=-1,
        )
        to = jnp.where(valid, index, num_rows + lane_range)
        put = lambda x, y: x.at[to].set(y, mode="drop", unique_indices=True)
        return first + batch, put(node, fresh), put(edge, jnp.stack([visits, qvalues], axis=1))

    init = (jnp.zeros((), jnp.int32), tree.node, tree.edge)
    _, node, edge = jax.lax.while_loop(cond, body, init)
    return eqx.tree_at(lambda t: (t.node, t.edge), tree, (node, edge))


def check_prediction(logits: Array, value: Array, batch: int, num_actions: int | None) -> None:
    """Raises where a model's prediction cannot be what it must be."""
    expected = "actions" if num_actions is None else str(num_actions)
    fits = logits.ndim == 2 and logits.shape[0] == batch
    if not fits or num_actions not in (None, logits.shape[1]) or value.shape != (batch,):
        raise ValueError(
            f"`model.predict` returned logits of shape {logits.shape} and values of shape "
            f"{value.shape} for {batch} states; they must be ({batch}, {expected}) and "
            f"({batch},). Return one row of logits and one scalar value for every state."
        )
