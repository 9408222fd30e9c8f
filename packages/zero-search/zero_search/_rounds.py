"""Sequential halving in rounds: the subtrees of different root actions do not touch, so one
simulation of each of them runs beside the others, and all their leaves are evaluated together.
"""

import dataclasses
import functools as ft
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from ._check import check_search
from ._engine import back_up, begin, counted, evaluate, Loop, SearchStats, store, walk_down, widened
from ._forest import Forest, on_device, take
from ._model import AbstractPriorModel
from ._tree import Rules, statistics, Tree
from ._types import Ints, Keys, NodeStatistics, PerAction
from ._walk import blank, Fixed, Visits, with_visit


#: `(statistics, started) -> scores` of the roots' actions; `-inf` where one is illegal.
RootScores = Callable[[NodeStatistics, PerAction], PerAction]


def search_in_rounds(
    tree: Tree,
    model: AbstractPriorModel,
    rules: Rules,
    *,
    phases: Sequence[tuple[int, int]],
    scores: RootScores,
    key: Keys,
    fresh: bool,
) -> tuple[Tree, SearchStats]:
    """Runs all phases from planted roots.

    A phase `(width, rounds)` keeps the `width` best of the actions that the phase before has kept,
    and simulates each of them once in every round. A game that has fewer simulates those alone.

    **Arguments:**

    - `scores`: asked at the start of every phase. `started[batch, actions]` is how many
        simulations of this search have taken each action.
    - `fresh`: whether the trees have no nodes but their roots.
    """
    batch = tree.size.shape[0]
    total = sum(width * rounds for width, rounds in phases)
    check_search(total, rules.num_leaves, tree.edge.shape[2], key, batch)
    fixed, vary = begin(tree, model, rules, key, None)
    searched = ft.partial(_search, tree, fixed, vary, phases, scores, fresh)
    tree, depth, invalid = on_device(searched, rules.kernels)
    started = rules.decisions(tree.root).visits - fixed.kept
    number = jnp.maximum(jnp.sum(started, axis=1), 1.0)
    return tree, SearchStats(started, depth.astype(jnp.float32) / number, invalid)


def _search(
    tree: Tree,
    fixed: Fixed,
    vary: Callable[[Loop], Loop],
    phases: Sequence[tuple[int, int]],
    scores: RootScores,
    fresh: bool,
    packed: bool,
) -> tuple[Tree, Ints, Ints]:
    """All phases, with the states of the trees `packed` or apart.

    **Returns:** the trees, the depths of all leaves together, and the invalid evaluations.
    """
    forest = Forest.of(tree, packed)
    (batch, max_nodes), before = tree.parent.shape, 0
    left = jnp.ones(fixed.kept.shape, jnp.bool_)
    depth, invalid = jnp.zeros((batch,), jnp.int32), jnp.zeros((batch,), jnp.int32)
    for width, rounds in phases:
        node = fixed.rules.decisions(_roots(fixed, forest))
        ranked = jnp.where(left, scores(node, node.visits - fixed.kept), -jnp.inf)
        best, action = jax.lax.top_k(ranked, width)
        real = best > -jnp.inf
        chosen = jax.nn.one_hot(action, left.shape[1], dtype=jnp.bool_)
        left = jnp.any(chosen & real[..., None], axis=1)
        # A walk that has no action of its own goes nowhere; the model is asked what is legal.
        action = jnp.where(real, action, action[:, :1])
        lanes = widened(fixed, width)
        lanes = dataclasses.replace(lanes, alive=lanes.alive & real.T.reshape(-1))
        # Every round adds a level to a subtree at most.
        levels = min(before + rounds, max_nodes) if fresh else max_nodes
        state = [take(x, lanes.base) for x in forest.state]
        slot, notes = forest.nowhere(width * batch), blank(width * batch, levels)
        start = vary(Loop(forest, notes, slot, state, None, invalid))
        turn = ft.partial(_round, fixed, lanes, action.T.reshape(-1))
        end = jax.lax.fori_loop(np.int32(before), np.int32(before + rounds), turn, start)
        steps = end.notes.depth.reshape(width, batch)
        depth = depth + jnp.sum(steps, axis=0, dtype=jnp.int32)
        forest, invalid, before = end.whole, end.invalid, before + rounds
    return forest.trees(), depth, invalid


def _round(
    fixed: Fixed, lanes: Fixed, action: Int[Array, " walks"], number: Int[Array, ""], loop: Loop
) -> Loop:
    """One simulation of each of the actions that are left in every game."""
    forest = loop.whole
    code = take(forest.child, forest.entry(lanes.base, action))
    notes, walk = walk_down(lanes, forest, loop.notes, jnp.stack([action, code], axis=1))
    pick = lambda own, x: jnp.where(walk.index == 0, own, x)
    walk = dataclasses.replace(walk, action=pick(action, walk.action), code=pick(code, walk.code))
    found = evaluate(lanes, forest, walk, number)
    forest, up, slot = store(lanes, forest, walk, found)
    forest, notes, visits, _ = back_up(lanes, forest, notes, walk, up, None, 1, 0)
    forest = _at_roots(fixed, forest, dataclasses.replace(visits, real=lanes.alive))
    state = forest.layout.join(found.state)
    return Loop(forest, notes, slot, state, None, counted(lanes, loop, found))


def _at_roots(fixed: Fixed, forest: Forest, visits: Visits) -> Forest:
    """Enters the visits of the roots, of each game one after another."""
    node, batch = _roots(fixed, forest), fixed.base.shape[0]
    each = jax.tree.map(lambda x: x.reshape(-1, batch), visits)
    for i in range(each.row.shape[0]):
        visit = jax.tree.map(lambda x, i=i: x[i], each)
        node = dataclasses.replace(node, count=node.count + visit.real.astype(jnp.float32))
        after = with_visit(node, visit)
        value = fixed.rules.value(after, None, visit.sample)
        node = dataclasses.replace(after, value=jnp.where(visit.real, value, node.value))
    row = jnp.where(fixed.alive, fixed.base, forest.nowhere(batch))
    numbers = jnp.stack([node.count, node.value], axis=1)
    edge = jnp.stack([node.visits, node.qvalues], axis=1)
    return forest.entered(row, forest.steps(fixed.base), numbers, edge)


def _roots(fixed: Fixed, forest: Forest) -> NodeStatistics:
    return statistics(fixed.prior, take(forest.edge, fixed.base), forest.nodes(fixed.base))
