"""The simulations of a batch of trees: walk down, expand, back up.

One loop serves the whole batch. Games that have nothing to do write out of range, where writes
are dropped; nothing is selected over whole arrays. The walk down follows cached best actions and
notes the nodes it passes. The walk up turns them into new values, a few numbers a game and level.
Scoring, the part that costs, is done afterwards over the list of (game, level) pairs that were
really visited, so a shallow game does not wait for the deepest line of the batch.
"""

import functools as ft
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from ._expand import (
    evaluate,
    Leaf,
    no_state,
    nowhere,
    Rules,
    Setting,
    store,
    store_state,
    Walk,
)
from ._model import AbstractPriorModel
from ._select import best_action
from ._statistics import NodeStatistics
from ._tree import (
    ACTION,
    CODE,
    COUNT,
    DISCOUNT,
    RAW,
    REWARD,
    root_step,
    statistics,
    Tree,
    VALUE,
)


Chooser = Callable[[NodeStatistics], Int[Array, " rows"]]
# Chooses the roots' actions given the simulation's number and the roots' statistics.
RootRule = Callable[[Any, NodeStatistics], Int[Array, " batch"]]
# Levels handled by one turn of the loops that walk down and up: a turn costs more than a level.
_LEVELS = 4
# Pairs scored at once, if there are fewer games than this.
_PAIRS = 16
# Up to so many games, comparing all of them with a number is faster than bisection.
_COMPARED = 256
# What scoring changes of a tree.
_SCORED: Callable[[Any], tuple[Any, Any, Any]] = lambda tree: (tree.step, tree.node, tree.edge)


class Path(eqx.Module):
    """What a simulation notes by level; reused by the next one."""

    step: Int[Array, "levels batch 2"]  # node number and action taken
    new: Float[Array, "levels batch 2"]  # the node's new value; the taken edge's new Q


class SearchStats(eqx.Module):
    """What a search did, by game.

    **Attributes:**

    - `depth`: mean depth of the leaves; 0 for a row whose root has no legal action.
    - `invalid`: evaluations that were not finite and have been replaced.
    """

    depth: Float[Array, " batch"]
    invalid: Int[Array, " batch"]


def search(
    tree: Tree,
    model: AbstractPriorModel,
    rules: Rules,
    *,
    num_simulations: int,
    key: Key[Array, " batch"],
    root_rule: RootRule | None = None,
    loop: Callable[..., Any] = jax.lax.fori_loop,
) -> tuple[Tree, SearchStats]:
    """Runs `num_simulations` from planted roots. `loop` has the interface of `lax.fori_loop`."""
    batch, max_nodes, _ = tree.child.shape
    base = jnp.arange(batch, dtype=jnp.int32) * max_nodes
    alive = jnp.any(tree.prior[:, 0, 0] > -jnp.inf, axis=1)
    setting = Setting(model, rules, key, base, alive)
    if root_rule is not None:
        step = root_step(tree, root_rule(0, statistics(tree)))
        tree = eqx.tree_at(lambda t: t.step, tree, tree.step.at[:, 0].set(step))

    def body(sim, carry):
        tree, path, pending, depth, invalid = carry
        tree = store_state(tree, pending)
        path, walk = _descend(setting, tree, path)
        found = evaluate(setting, tree, walk, sim)
        tree, leaf, pending = store(setting, tree, walk, found)
        path = _ascend(setting, tree, path, walk, leaf)
        choose = None if root_rule is None else lambda root: root_rule(sim + 1, root)
        tree = _rescore(setting, tree, path, walk, leaf, choose)
        invalid = invalid + (found.invalid & alive).astype(jnp.int32)
        return tree, path, pending, depth + walk.depth.astype(jnp.float32), invalid

    first = jax.tree.map(lambda x: x[:, 0], tree.state)
    flat = lambda x: x.reshape(batch * max_nodes, *x.shape[2:])
    tree = _map_rows(flat, tree)
    levels = max_nodes + _LEVELS
    path = Path(
        step=jnp.zeros((levels, batch, 2), jnp.int32),
        new=jnp.zeros((levels, batch, 2), jnp.float32),
    )
    zeros = jnp.zeros((batch,), jnp.int32)
    init = (tree, path, no_state(tree, first), zeros.astype(jnp.float32), zeros)
    tree, _, pending, depth, invalid = loop(0, num_simulations, body, init)
    tree = store_state(tree, pending)
    tree = _map_rows(lambda x: x.reshape(batch, max_nodes, *x.shape[1:]), tree)
    return tree, SearchStats(depth / num_simulations, invalid)


def _map_rows(fn: Callable[[Array], Array], tree: Tree) -> Tree:
    """Of all arrays but `size`."""
    rows = lambda t: (t.step, t.node, t.edge, t.child, t.prior, t.parent, t.state)
    return eqx.tree_at(rows, tree, jax.tree.map(fn, rows(tree)))


def _descend(setting: Setting, tree: Tree, path: Path) -> tuple[Path, Walk]:
    """Follows the cached actions from the roots, noting the nodes it passes."""
    limit = setting.rules.max_depth

    def cond(carry):
        return jnp.any(carry[3])

    def body(carry):
        noted, index, step, active, depth, level = carry
        block = []
        for _ in range(_LEVELS):
            block.append(jnp.stack([index, step[:, ACTION]], axis=-1))
            depth = depth + active.astype(jnp.int32)
            active = active & (step[:, CODE] >= 0)
            if limit is not None:
                active = active & (depth < limit)
            index = jnp.where(active, step[:, CODE], index)
            step = tree.step.at[setting.base + index].get(mode="promise_in_bounds")
        noted = jax.lax.dynamic_update_slice_in_dim(noted, jnp.stack(block), level, 0)
        return noted, index, step, active, depth, level + _LEVELS

    index = jnp.zeros_like(setting.base)
    step = tree.step.at[setting.base].get(mode="promise_in_bounds")
    init = (path.step, index, step, setting.alive, index, jnp.zeros((), jnp.int32))
    noted, index, step, _, depth, _ = jax.lax.while_loop(cond, body, init)
    return Path(noted, path.new), Walk(index, step[:, ACTION], step[:, CODE], depth)


def _ascend(setting: Setting, tree: Tree, path: Path, walk: Walk, leaf: Leaf) -> Path:
    """Values from the leaves to the roots: `r + d v` along every walk."""

    def body(carry):
        block, new, (outcome, child_value, reward, discount) = carry
        first = block * _LEVELS
        step = jax.lax.dynamic_slice_in_dim(path.step, first, _LEVELS, 0)
        rows = setting.base[None] + step[..., 0]
        node = tree.node.at[rows].get(mode="promise_in_bounds")
        values = []
        for i in reversed(range(_LEVELS)):
            on = first + i < walk.depth
            outcome_here = reward + discount * outcome
            qvalue = reward + discount * child_value
            alone = ~leaf.stored & (first + i + 1 == walk.depth)
            visited = _visit(tree, rows[i], step[i, :, 1], node[i], qvalue, alone)
            value = setting.rules.backup(visited, outcome_here)
            values.append(jnp.stack([value, qvalue], axis=-1))
            outcome = jnp.where(on, outcome_here, outcome)
            child_value = jnp.where(on, value, child_value)
            reward = jnp.where(on, node[i, :, REWARD], reward)
            discount = jnp.where(on, node[i, :, DISCOUNT], discount)
        new = jax.lax.dynamic_update_slice_in_dim(new, jnp.stack(values[::-1]), first, 0)
        return block - 1, new, (outcome, child_value, reward, discount)

    carried = (leaf.value, leaf.value, leaf.reward, leaf.discount)
    init = ((jnp.max(walk.depth) - 1) // _LEVELS, path.new, carried)
    _, new, _ = jax.lax.while_loop(lambda carry: carry[0] >= 0, body, init)
    return Path(path.step, new)


def _visit(
    tree: Tree,
    rows: Int[Array, " pairs"],
    action: Int[Array, " pairs"],
    node: Float[Array, "pairs columns"],
    qvalue: Float[Array, " pairs"],
    alone: Bool[Array, " pairs"],
) -> NodeStatistics:
    """The statistics of nodes after one more visit; their values are still the old ones."""
    actions = jnp.arange(tree.child.shape[1], dtype=jnp.int32)[None]
    taken = actions == action[:, None]
    edge = tree.edge.at[rows].get(mode="promise_in_bounds")
    visits = edge[:, 0] + taken.astype(jnp.float32)
    # A child that has no row of its own leaves its mean to the edge.
    mean = (edge[:, 1] * edge[:, 0] + qvalue[:, None]) / visits
    fresh = jnp.where(alone[:, None], mean, qvalue[:, None])
    return NodeStatistics(
        prior=tree.prior.at[rows].get(mode="promise_in_bounds"),
        visits=visits,
        qvalues=jnp.where(taken, fresh, edge[:, 1]),
        count=node[:, COUNT] + 1.0,
        value=node[:, VALUE],
        raw_value=node[:, RAW],
    )


def _rescore(
    setting: Setting,
    tree: Tree,
    path: Path,
    walk: Walk,
    leaf: Leaf,
    choose: Chooser | None,
) -> Tree:
    """Writes the visit of every (game, level) pair and finds its node's best action anew.

    The roots' is found by `choose` if there is one.
    """
    batch = setting.base.shape[0]
    number = max(batch, _PAIRS)
    write = ft.partial(_write, setting, path, walk, leaf)
    skip = 0
    if choose is not None:
        lanes, skip = jnp.arange(batch, dtype=jnp.int32), 1
        tree = write(choose, tree, lanes, jnp.zeros_like(lanes), setting.alive)
    count = jnp.maximum(walk.depth - skip, 0)
    end = jnp.cumsum(count)
    start = end - count
    interior = ft.partial(best_action, setting.rules.selection)

    def body(carry):
        first, step, node, edge = carry
        # Games follow each other in the list, each with its levels in order.
        pair = first + jnp.arange(number, dtype=jnp.int32)
        lane = jnp.minimum(_count_below(end, pair), batch - 1)
        level, valid = pair - start[lane] + skip, pair < end[-1]
        current = eqx.tree_at(_SCORED, tree, (step, node, edge))
        return first + number, *_SCORED(write(interior, current, lane, level, valid))

    init = (jnp.zeros((), jnp.int32), *_SCORED(tree))
    _, *scored = jax.lax.while_loop(lambda carry: carry[0] < end[-1], body, init)
    return eqx.tree_at(_SCORED, tree, tuple(scored))


def _write(
    setting: Setting,
    path: Path,
    walk: Walk,
    leaf: Leaf,
    choose: Chooser,
    tree: Tree,
    lane: Int[Array, " pairs"],
    level: Int[Array, " pairs"],
    valid: Bool[Array, " pairs"],
) -> Tree:
    """Writes the visits of these pairs, all of different nodes."""
    batch, number = setting.base.shape[0], lane.shape[0]
    at = jnp.where(valid, level * batch + lane, 0)
    index, action = jnp.unstack(path.step.reshape(-1, 2)[at], axis=-1)
    value, qvalue = jnp.unstack(path.new.reshape(-1, 2)[at], axis=-1)
    rows = jnp.where(valid, setting.base[lane] + index, 0)
    node = tree.node.at[rows].get(mode="promise_in_bounds")
    alone = ~leaf.stored[lane] & (level + 1 == walk.depth[lane])
    visited = _visit(tree, rows, action, node, qvalue, alone)
    visited = eqx.tree_at(lambda n: n.value, visited, value)
    best = choose(visited)
    code = tree.child.at[rows, best].get(mode="promise_in_bounds")
    to = jnp.where(valid, rows, nowhere(tree, number))
    put = lambda x, y: x.at[to].set(y, mode="drop", unique_indices=True)
    node = jnp.concatenate([jnp.stack([visited.count, value], -1), node[:, REWARD:]], axis=-1)
    fresh = (
        put(tree.step, jnp.stack([best, code], axis=-1)),
        put(tree.node, node),
        put(tree.edge, jnp.stack([visited.visits, visited.qvalues], axis=1)),
    )
    return eqx.tree_at(_SCORED, tree, fresh)


def _count_below(end: Int[Array, " batch"], pair: Int[Array, " pairs"]) -> Int[Array, " pairs"]:
    """How many of the ascending `end` are not above each pair's number."""
    if end.shape[0] <= _COMPARED:
        return jnp.sum((end[None] <= pair[:, None]).astype(jnp.int32), axis=1)
    return jnp.searchsorted(end, pair, side="right").astype(jnp.int32)
