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
from jaxtyping import Array, Float, Int, Key

from ._expand import expand, Leaf, Setting, Walk
from ._model import AbstractPriorModel
from ._select import AbstractSelection, best_action, NodeStatistics
from ._tree import (
    BEST,
    COLUMNS,
    COUNT,
    DISCOUNT,
    INDEX,
    NEXT,
    RAW,
    REWARD,
    Tree,
    VALUE,
)


# Chooses the root's action given the simulation's number and the tree (flat rows, roots' rows).
RootRule = Callable[[Any, Tree, Int[Array, " batch"]], Int[Array, " batch"]]


class _Scratch(eqx.Module):
    """What one simulation notes about its path, by level; reused by the next one."""

    rows: Float[Array, "levels batch columns"]
    new: Float[Array, "levels batch 2"]  # the node's new value; the taken edge's new Q


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
    batch, max_nodes, _ = tree.child.shape
    base = jnp.arange(batch, dtype=jnp.int32) * max_nodes
    alive = jnp.any(tree.prior[:, 0, 0] > -jnp.inf, axis=1)
    setting = Setting(model, selection, gamma, key, base, alive)

    def body(sim, carry):
        tree, scratch, total = carry
        row = tree.node[base]
        if root_rule is not None:
            best = root_rule(sim, tree, base)
            row = row.at[:, BEST].set(best.astype(jnp.float32))
            row = row.at[:, NEXT].set(tree.child[base, best].astype(jnp.float32))
        rows, walk = _descend(setting, tree, row, scratch.rows)
        tree, leaf = expand(setting, tree, walk, sim)
        scratch = _ascend(_Scratch(rows=rows, new=scratch.new), walk, leaf)
        tree = _rescore(setting, tree, scratch, walk, leaf)
        return tree, scratch, total + walk.depth.astype(jnp.float32)

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


def _descend(
    setting: Setting,
    tree: Tree,
    row: Float[Array, "batch columns"],
    rows: Float[Array, "levels batch columns"],
) -> tuple[Float[Array, "levels batch columns"], Walk]:
    """Follows the cached actions from the roots' `row`, noting what it passes in `rows`."""

    def cond(carry):
        _, _, active, _, _ = carry
        return jnp.any(active)

    def body(carry):
        rows, row, active, depth, level = carry
        rows = jax.lax.dynamic_update_index_in_dim(rows, row, level, 0)
        code = row[:, NEXT].astype(jnp.int32)
        go_on = active & (code >= 0)
        child = tree.node.at[setting.base + jnp.maximum(code, 0)].get(mode="promise_in_bounds")
        row = jnp.where(go_on[:, None], child, row)
        return rows, row, go_on, depth + active.astype(jnp.int32), level + 1

    depth = jnp.zeros_like(setting.base)
    init = (rows, row, setting.alive, depth, jnp.zeros((), jnp.int32))
    rows, row, _, depth, _ = jax.lax.while_loop(cond, body, init)
    return rows, Walk(row, depth)


def _ascend(scratch: _Scratch, walk: Walk, leaf: Leaf) -> _Scratch:
    """Values from the leaves to the roots: `r + d v` along every walk."""

    def cond(carry):
        return carry[0] >= 0

    def body(carry):
        level, new, (outcome, child_value, reward, discount) = carry
        row = jax.lax.dynamic_index_in_dim(scratch.rows, level, 0, keepdims=False)
        on = level < walk.depth
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

    carried = (leaf.value, leaf.value, leaf.reward, leaf.discount)
    init = (jnp.max(walk.depth) - 1, scratch.new, carried)
    _, new, _ = jax.lax.while_loop(cond, body, init)
    return _Scratch(rows=scratch.rows, new=new)


def _rescore(setting: Setting, tree: Tree, scratch: _Scratch, walk: Walk, leaf: Leaf) -> Tree:
    """Writes the visit of every (game, level) pair and finds its node's best action anew."""
    base, depth = setting.base, walk.depth
    batch = base.shape[0]
    num_rows, num_actions = tree.child.shape
    end = jnp.cumsum(depth)
    start = end - depth
    lane_range = jnp.arange(batch, dtype=jnp.int32)
    actions = jnp.arange(num_actions, dtype=jnp.int32)[None]
    rows, new = scratch.rows.reshape(-1, COLUMNS), scratch.new.reshape(-1, 2)

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
        alone = (~leaf.stored[lane] & (level + 1 == depth[lane]))[:, None]
        qvalues = jnp.where(taken, jnp.where(alone, mean, qvalue[:, None]), seen[:, 1])
        count = row[:, COUNT] + 1.0
        prior = tree.prior.at[index].get(mode="promise_in_bounds")
        best = best_action(
            setting.selection,
            NodeStatistics(prior, visits, qvalues, count, value, raw_value=row[:, RAW]),
        )
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
