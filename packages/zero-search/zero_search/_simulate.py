"""The simulations of a batch of trees: walk down, expand, back up.

One loop serves the whole batch. Games that have nothing to do write out of range, where writes
are dropped; nothing is selected over whole arrays. The walk down follows cached best actions and
notes the nodes it passes. The walk up turns them into new values, a few numbers a game and level,
and lists the visits. Scoring, the part that costs, is done afterwards over that list, so a
shallow game does not wait for the deepest line of the batch.
"""

import functools as ft
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ._expand import (
    evaluate,
    Keys,
    Leaf,
    no_state,
    nowhere,
    Rules,
    Setting,
    store,
    store_state,
    Walk,
)
from ._indexing import put, take
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
# Visits scored at once, if there are fewer games than this.
_VISITS = 16
# What scoring changes of a tree.
_SCORED: Callable[[Any], tuple[Any, Any, Any]] = lambda tree: (tree.step, tree.node, tree.edge)


class Visits(eqx.Module):
    """Visits of different nodes. A row that is out of range stands for no node."""

    row: Int[Array, " visits"]
    action: Int[Array, " visits"]  # that was taken
    alone: Bool[Array, " visits"]  # whether its child has no row of its own
    value: Float[Array, " visits"]  # of the node
    qvalue: Float[Array, " visits"]  # of that action, new
    count: Float[Array, " visits"]  # of the node, new
    raw_value: Float[Array, " visits"]


class Notes(eqx.Module):
    """What a simulation notes on its way; reused by the next one."""

    path: Int[Array, "levels batch 2"]  # node number and action taken
    visit: Int[Array, "visits 3"]  # row, action, alone
    value: Float[Array, "visits 4"]  # value (new), qvalue, count, raw_value


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
    key: Keys,
    root_rule: RootRule | None = None,
    loop: Callable[..., Any] = jax.lax.fori_loop,
) -> tuple[Tree, SearchStats]:
    """Runs `num_simulations` from planted roots. `loop` has the interface of `lax.fori_loop`."""
    batch, max_nodes, _ = tree.child.shape
    base = jnp.arange(batch, dtype=jnp.int32) * max_nodes
    alive = jnp.any(tree.prior[:, 0, 0] > -jnp.inf, axis=1)
    setting = Setting(model, rules, key, base, alive)
    interior = ft.partial(best_action, rules.selection)
    first = interior if root_rule is None else ft.partial(root_rule, 0)
    step = root_step(tree, first(statistics(tree)))
    tree = eqx.tree_at(lambda t: t.step, tree, tree.step.at[:, 0].set(step))

    def body(sim, carry):
        tree, notes, pending, depth, invalid = carry
        tree = store_state(tree, pending)
        notes, walk = _descend(setting, tree, notes)
        found = evaluate(setting, tree, walk, sim)
        tree, leaf, pending = store(setting, tree, walk, found)
        skip = 0 if root_rule is None else 1
        notes, roots, total = _ascend(setting, tree, notes, walk, leaf, skip)
        if root_rule is not None:
            tree = _write(tree, roots, ft.partial(root_rule, sim + 1))
        tree = _rescore(tree, notes, total, interior)
        invalid = invalid + (found.invalid & alive).astype(jnp.int32)
        return tree, notes, pending, depth + walk.depth.astype(jnp.float32), invalid

    state = jax.tree.map(lambda x: x[:, 0], tree.state)
    tree = _map_rows(lambda x: x.reshape(batch * max_nodes, *x.shape[2:]), tree)
    zeros, notes = jnp.zeros((batch,), jnp.int32), _blank(batch, max_nodes + _LEVELS)
    init = (tree, notes, no_state(tree, state), zeros.astype(jnp.float32), zeros)
    tree, _, pending, depth, invalid = loop(0, num_simulations, body, init)
    tree = store_state(tree, pending)
    tree = _map_rows(lambda x: x.reshape(batch, max_nodes, *x.shape[1:]), tree)
    return tree, SearchStats(depth / num_simulations, invalid)


def _map_rows(fn: Callable[[Array], Array], tree: Tree) -> Tree:
    """Of all arrays but `size`."""
    rows = lambda t: (t.step, t.node, t.edge, t.child, t.prior, t.parent, t.state)
    return eqx.tree_at(rows, tree, jax.tree.map(fn, rows(tree)))


def _blank(batch: int, levels: int) -> Notes:
    visits = levels * batch + _chunk(batch)
    return Notes(
        path=jnp.zeros((levels, batch, 2), jnp.int32),
        visit=jnp.zeros((visits, 3), jnp.int32),
        value=jnp.zeros((visits, 4), jnp.float32),
    )


def _chunk(batch: int) -> int:
    return max(batch, _VISITS)


def _descend(setting: Setting, tree: Tree, notes: Notes) -> tuple[Notes, Walk]:
    """Follows the cached actions from the roots, noting the nodes it passes."""
    limit = setting.rules.max_depth

    def body(carry):
        path, index, step, active, depth, level = carry
        block = []
        for _ in range(_LEVELS):
            block.append(jnp.stack([index, step[:, ACTION]], axis=-1))
            depth = depth + active.astype(jnp.int32)
            active = active & (step[:, CODE] >= 0)
            if limit is not None:
                active = active & (depth < limit)
            index = jnp.where(active, step[:, CODE], index)
            step = take(tree.step, setting.base + index)
        path = jax.lax.dynamic_update_slice_in_dim(path, jnp.stack(block), level, 0)
        return path, index, step, active, depth, level + _LEVELS

    zeros, step = jnp.zeros_like(setting.base), take(tree.step, setting.base)
    init = (notes.path, zeros, step, setting.alive, zeros, jnp.zeros((), jnp.int32))
    path, index, step, _, depth, _ = jax.lax.while_loop(lambda c: jnp.any(c[3]), body, init)
    walk = Walk(index, step[:, ACTION], step[:, CODE], depth)
    return Notes(path, notes.visit, notes.value), walk


def _ascend(
    setting: Setting, tree: Tree, notes: Notes, walk: Walk, leaf: Leaf, skip: int
) -> tuple[Notes, Visits, Int[Array, ""]]:
    """Values from the leaves to the roots: `r + d v` along every walk.

    **Returns:** the visits of all levels but the first `skip` as a list, game after game; the
    roots' visits; and the length of the list, which is followed by visits of no node.
    """
    base, batch = setting.base, setting.base.shape[0]
    count = jnp.maximum(walk.depth - skip, 0)
    start = jnp.cumsum(count) - count

    def body(carry):
        block, visit, value, (outcome, child, reward, discount), _ = carry
        levels = block * _LEVELS + jnp.arange(_LEVELS, dtype=jnp.int32)[:, None]
        path = jax.lax.dynamic_slice_in_dim(notes.path, block * _LEVELS, _LEVELS, 0)
        row, action = base[None] + path[..., 0], path[..., 1]
        node = take(tree.node, row.reshape(-1)).reshape(*row.shape, -1)
        on = levels < walk.depth[None]
        alone = ~leaf.stored[None] & (levels + 1 == walk.depth[None])
        new = []
        for i in reversed(range(_LEVELS)):
            here, qvalue = reward + discount * outcome, reward + discount * child
            old, count, raw = node[i, :, VALUE], node[i, :, COUNT] + 1.0, node[i, :, RAW]
            visits = Visits(row[i], action[i], alone[i], old, qvalue, count, raw)
            fresh = setting.rules.backup(_visited(tree, visits), here)
            new.append(jnp.stack([fresh, qvalue, count, raw], axis=-1))
            values = ((here, outcome), (fresh, child))
            values += ((node[i, :, REWARD], reward), (node[i, :, DISCOUNT], discount))
            outcome, child, reward, discount = (jnp.where(on[i], x, y) for x, y in values)
        off = visit.shape[0] + jnp.arange(row.size, dtype=jnp.int32).reshape(row.shape)
        to = jnp.where(on & (levels >= skip), start[None] + levels - skip, off).reshape(-1)
        note = jnp.stack([row, action, alone.astype(jnp.int32)], axis=-1)
        visit = put(visit, to, note.reshape(-1, 3))
        value = put(value, to, jnp.stack(new[::-1]).reshape(-1, 4))
        return block - 1, visit, value, (outcome, child, reward, discount), new[-1]

    carried = (leaf.value, leaf.value, leaf.reward, leaf.discount)
    blocks = (jnp.max(walk.depth) - 1) // _LEVELS
    init = (blocks, notes.visit, notes.value, carried, jnp.zeros((batch, 4), jnp.float32))
    _, visit, value, _, root = jax.lax.while_loop(lambda c: c[0] >= 0, body, init)
    end, total = nowhere(tree, _chunk(batch)), start[-1] + count[-1]
    end = jnp.stack([end, jnp.zeros_like(end), jnp.zeros_like(end)], axis=-1)
    visit = jax.lax.dynamic_update_slice_in_dim(visit, end, total, 0)
    row = jnp.where(setting.alive, base, nowhere(tree, batch))
    alone = ~leaf.stored & (walk.depth == 1)
    roots = Visits(row, notes.path[0, :, 1], alone, *jnp.unstack(root, axis=-1))
    return Notes(notes.path, visit, value), roots, total


def _visited(tree: Tree, visits: Visits) -> NodeStatistics:
    """The statistics of nodes after one more visit."""
    actions = jnp.arange(tree.child.shape[1], dtype=jnp.int32)[None]
    taken = actions == visits.action[:, None]
    edge = take(tree.edge, visits.row)
    number = edge[:, 0] + taken.astype(jnp.float32)
    # A child that has no row of its own leaves its mean to the edge.
    mean = (edge[:, 1] * edge[:, 0] + visits.qvalue[:, None]) / number
    fresh = jnp.where(visits.alone[:, None], mean, visits.qvalue[:, None])
    return NodeStatistics(
        prior=take(tree.prior, visits.row),
        visits=number,
        qvalues=jnp.where(taken, fresh, edge[:, 1]),
        count=visits.count,
        value=visits.value,
        raw_value=visits.raw_value,
    )


def _rescore(tree: Tree, notes: Notes, total: Int[Array, ""], choose: Chooser) -> Tree:
    """Writes the listed visits and finds the best action of every visited node anew."""
    number = notes.visit.shape[0] - notes.path.shape[0] * notes.path.shape[1]

    def body(carry):
        first, *scored = carry
        part = lambda x: jax.lax.dynamic_slice_in_dim(x, first, number, 0)
        row, action, alone = jnp.unstack(part(notes.visit), axis=-1)
        visits = Visits(row, action, alone > 0, *jnp.unstack(part(notes.value), axis=-1))
        current = eqx.tree_at(_SCORED, tree, tuple(scored))
        return first + number, *_SCORED(_write(current, visits, choose))

    init = (jnp.zeros((), jnp.int32), *_SCORED(tree))
    _, *scored = jax.lax.while_loop(lambda carry: carry[0] < total, body, init)
    return eqx.tree_at(_SCORED, tree, tuple(scored))


def _write(tree: Tree, visits: Visits, choose: Chooser) -> Tree:
    """Enters visits in the tree, with what `choose` would take there next."""
    visited = _visited(tree, visits)
    best = choose(visited)
    code = take(tree.child.reshape(-1), visits.row * tree.child.shape[1] + best)
    scored = (
        put(tree.step, visits.row, jnp.stack([best, code], axis=-1)),
        put(tree.node, visits.row, jnp.stack([visits.count, visits.value], axis=-1)),
        put(tree.edge, visits.row, jnp.stack([visited.visits, visited.qvalues], axis=1)),
    )
    return eqx.tree_at(_SCORED, tree, scored)
