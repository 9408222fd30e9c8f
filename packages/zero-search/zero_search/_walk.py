"""Walks through the trees: down to a leaf along cached actions, and up again with its value.

A turn of either loop is several levels of all walks. A game has one walk, or several that meet at
the root alone.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ._forest import Forest, put, take
from ._proof import among, behind, Bounds, sealed
from ._sample import varying
from ._tree import ACTION, CODE, COUNT, DISCOUNT, RAW, REWARD, Rules, VALUE
from ._types import Bools, Floats, Ints, Keys, NodeStatistics, PerAction


# Levels handled by one turn of the loops: a turn costs more than a level.
LEVELS = 4
# Visits scored at once, if there are fewer games than this.
VISITS = 16

# The visits of a child that has no row, or one that is never expanded.
NO_CHILD = -1.0
NOT_EXPANDED = -2.0

# Every row's keys for `step` and `predict`.
KeyPair = tuple[Keys, Keys]
# `(simulation, statistics, started, inside) -> action`; see `search`.
RootChoice = Callable[..., Ints]
# The next simulation, and how many have started with each action, if that is counted.
Following = tuple[Int[Array, ""], PerAction | None]


class Fixed(eqx.Module):
    """What stays the same from one simulation to the next."""

    ask: Callable[..., Any]  # `(node, action, step_key, predict_key)`: what the model answers
    rules: Rules
    keys: Callable[[Any], KeyPair]  # of a simulation
    choose_root: RootChoice | None
    prior: Float[Array, "batch features width"]  # of the roots
    kept: Float[Array, "batch columns"]  # visits of the roots' actions before this search
    base: Ints  # the roots' rows
    alive: Bools  # whether the root has a legal action


class Walk(eqx.Module):
    """Where a walk down ended: the number of the last node, and what it would do next."""

    index: Int[Array, "*axes"]
    action: Int[Array, "*axes"]
    code: Int[Array, "*axes"]
    depth: Int[Array, "*axes"]


class Up(eqx.Module):
    """What walks carry up: how the simulation went on below, and the edge that leads there."""

    outcome: Floats  # of this simulation, for the player to move below
    value: Floats  # of the node below
    visits: Floats  # of the node below, new; see `Visits.below`
    reward: Floats
    discount: Floats
    low: Floats | None = None  # bounds of the node below, where they are kept
    high: Floats | None = None


class Notes(eqx.Module):
    """What a simulation notes on its way; reused by the next one.

    The visits are listed game after game. If those of the roots are left to the caller, they come
    first, one a walk.
    """

    path: Int[Array, "levels batch 2"]  # node number and action taken
    depth: Ints  # of all walks so far, together
    visit: Int[Array, "visits 3"]  # row, action, real
    value: Float[Array, "visits columns"]  # value (new), and what follows it in `Visits`


def blank(walks: int, depth: int, rules: Rules) -> Notes:
    """Room for the notes of so many walks of at most this depth."""
    levels = depth + LEVELS
    visits = levels * walks + max(walks, VISITS)
    return Notes(
        path=jnp.zeros((levels, walks, 2), jnp.int32),
        depth=jnp.zeros((walks,), jnp.int32),
        visit=jnp.zeros((visits, 3), jnp.int32),
        value=jnp.zeros((visits, 6 if rules.max_return is None else 8), jnp.float32),
    )


class Visits(eqx.Module):
    """Visits of different nodes. A row that is out of range stands for no node."""

    row: Int[Array, " visits"]
    action: Int[Array, " visits"]  # that was taken
    real: Bool[Array, " visits"]  # whether it counts; only marks change if not
    value: Float[Array, " visits"]  # of the node
    qvalue: Float[Array, " visits"]  # of that action, new
    count: Float[Array, " visits"]  # of the node, new
    raw_value: Float[Array, " visits"]
    sample: Float[Array, " visits"]  # what this simulation made of that action
    # Visits of the child, new; `NO_CHILD` without one, `NOT_EXPANDED` where they are not counted.
    below: Float[Array, " visits"]
    low: Float[Array, " visits"] | None = None  # bounds of that action, where they are kept
    high: Float[Array, " visits"] | None = None

    def taken(self, num_actions: int) -> Bool[Array, "visits actions"]:
        """Which action each visit took."""
        return jnp.arange(num_actions, dtype=jnp.int32)[None] == self.action[:, None]


def visited(rules: Rules, forest: Forest, visits: Visits) -> tuple[NodeStatistics, Bounds | None]:
    """The statistics of nodes after one more visit, and the bounds of their actions."""
    edge = take(forest.edge, visits.row)
    before = NodeStatistics(
        prior=take(forest.prior, visits.row),
        visits=edge[:, 0],
        qvalues=edge[:, 1],
        count=visits.count,
        value=visits.value,
        raw_value=visits.raw_value,
    )
    node = with_visit(before, visits)
    if rules.max_return is None or visits.low is None or visits.high is None:
        return node, None
    taken = visits.taken(node.visits.shape[1]) & visits.real[:, None]
    bounds = Bounds.of(edge, rules.max_return).told(taken, visits.low, visits.high)
    qvalues = jnp.where(taken, jnp.clip(node.qvalues, bounds.low, bounds.high), node.qvalues)
    return dataclasses.replace(node, qvalues=qvalues), bounds


def with_visit(node: NodeStatistics, visits: Visits) -> NodeStatistics:
    """The statistics with one more visit of the actions taken."""
    taken = visits.taken(node.visits.shape[1]) & visits.real[:, None]
    number = node.visits + taken.astype(jnp.float32)
    # Visits from when the tree was too full for a child are known to the edge alone.
    mean = (node.qvalues * node.visits + visits.sample[:, None]) / jnp.maximum(number, 1.0)
    below, qvalue = visits.below[:, None], visits.qvalue[:, None]
    same = (below == number) | ((below == NOT_EXPANDED) & (node.qvalues == qvalue))
    qvalues = jnp.where(taken, jnp.where(same, qvalue, mean), node.qvalues)
    return dataclasses.replace(node, visits=number, qvalues=qvalues)


def with_losses(
    node: NodeStatistics, marked: Float[Array, "visits actions"], loss: float
) -> NodeStatistics:
    """The statistics as if every mark were a visit, and `loss` of them as bad as can be.

    As bad as can be is the lowest value among the node and its visited actions: on no scale but
    the node's own. With `loss` 0 marks change the numbers of visits alone (Liu et al. 2020,
    "Watch the unobserved: a simple approach to parallelizing Monte Carlo tree search").
    """
    known = jnp.where(node.visits > 0, node.qvalues, node.value[:, None])
    low = jnp.minimum(node.value, jnp.min(known, axis=1))[:, None]
    # Exactly `low` if all were losses: a Q transform may stretch the least difference to 1.
    share = node.visits / jnp.maximum(node.visits + loss * marked, 1.0)
    mean = low + share * (node.qvalues - low)
    return dataclasses.replace(
        node,
        visits=node.visits + marked,
        qvalues=jnp.where(marked > 0, mean, node.qvalues),
        count=node.count + jnp.sum(marked, axis=1),
    )


def rescored(
    rules: Rules,
    node: NodeStatistics,
    visits: Visits,
    marks: Float[Array, "visits actions"] | None,
    mark: int,
    chance: Float[Array, " visits"] | None,
) -> tuple[Int[Array, " visits"], list[Float[Array, "visits actions"]]]:
    """What comes next at nodes that were visited, and the planes of their edges.

    `marks` are the walks that have not come back, if they are counted, `mark` what to add to them.
    """
    edge = [node.visits, node.qvalues]
    if marks is not None:
        taken = visits.taken(node.visits.shape[-1]).astype(jnp.float32)
        marks = marks + mark * taken
        edge.append(marks)
        node = with_losses(node, marks, rules.virtual_loss)
    return rules.choose(node, chance), edge


def walk_down(
    fixed: Fixed, forest: Forest, notes: Notes, step: Int[Array, "batch 2"] | None
) -> tuple[Notes, Walk]:
    """Follows the cached actions from the roots, noting the nodes it passes. `step`, if given, is
    what to do at the roots; a walk that ends there tells the cached action nevertheless."""
    if fixed.rules.kernels == "pallas":
        # Pallas takes half a second to import.
        from . import _kernels

        return _kernels.walk_down(fixed, forest, notes, step)
    step = forest.steps(fixed.base) if step is None else step
    limit = fixed.rules.max_depth

    def body(carry):
        path, walk, level = carry
        index, action, code, depth = jnp.unstack(walk)
        block = []
        for _ in range(LEVELS):
            block.append(jnp.stack([index, action], axis=-1))
            active = depth >= 0
            follows = active & (code >= 0)
            if limit is not None:
                follows = follows & (depth + 1 < limit)
            depth = jnp.where(active, jnp.where(follows, depth + 1, ~(depth + 1)), depth)
            index = jnp.where(follows, code, index)
            action, code = jnp.unstack(forest.steps(fixed.base + index), axis=1)
        path = jax.lax.dynamic_update_slice_in_dim(path, jnp.stack(block), level, 0)
        return path, jnp.stack([index, action, code, depth]), level + LEVELS

    # XLA copies every array that a turn changes, and runs the copies side by side: on a CPU the
    # threads cost more than the work. So a walk is one array, and one that has ended has its depth
    # inverted.
    zeros = varying(jnp.zeros_like(fixed.base), fixed.base)
    first = jnp.stack([zeros, *jnp.unstack(step, axis=1), jnp.where(fixed.alive, 0, ~zeros)])
    init = (notes.path, first, jnp.zeros((), jnp.int32))
    path, last, _ = jax.lax.while_loop(lambda carry: jnp.any(carry[1][3] >= 0), body, init)
    index, action, code, depth = jnp.unstack(last)
    walk = Walk(index, action, code, ~depth)
    return dataclasses.replace(notes, path=path, depth=notes.depth + walk.depth), walk


def ascend(
    fixed: Fixed, forest: Forest, notes: Notes, walk: Walk, up: Up, leaf_real: Bools, skip: int
) -> tuple[Notes, Visits, Int[Array, ""]]:
    """Values from the leaves to the roots: `r + d v` along every walk.

    **Returns:** the visits of all levels as a list; the roots' visits, if `skip` is 1 and not 0;
    and the number of all others.
    """
    base, batch = fixed.base, fixed.base.shape[0]
    count = jnp.maximum(walk.depth - skip, 0)
    start = jnp.cumsum(count, dtype=jnp.int32) - count + skip * (batch - 1)
    real = jnp.broadcast_to(leaf_real.astype(jnp.int32)[None], (LEVELS, batch))

    def level(up, row, action, node):
        """The visits of one node a game, as a row of `Notes.value`, and what goes on up."""
        outcome, qvalue = up.reward + up.discount * up.outcome, up.reward + up.discount * up.value
        count, raw_value = node[:, COUNT] + leaf_real.astype(jnp.float32), node[:, RAW]
        old = node[:, VALUE]
        edge: tuple[Floats, ...] = ()
        if up.low is not None and up.high is not None:
            edge = behind(up.reward, up.discount, up.low, up.high)
        told = qvalue, count, raw_value, outcome, up.visits, *edge
        now, bounds = visited(fixed.rules, forest, Visits(row, action, leaf_real, old, *told))
        chance = forest.chance(row)
        value, limits = fixed.rules.value(now, chance, outcome), ()
        if bounds is not None:
            limits = bounds.of_node(now.legal)
            value = jnp.clip(value, *limits)
        value = jnp.where(leaf_real, value, old)
        found = jnp.stack([value, *told], axis=-1)
        outcome = fixed.rules.passed_on(chance, outcome, value)
        return found, Up(outcome, value, count, node[:, REWARD], node[:, DISCOUNT], *limits)

    def body(carry):
        left, visit, value, up = carry
        up = Up(*jnp.unstack(up))
        first = (left - 1) * LEVELS
        levels = first + jnp.arange(LEVELS, dtype=jnp.int32)[:, None]
        path = jax.lax.dynamic_slice_in_dim(notes.path, first, LEVELS, 0)
        row, action = base[None] + path[..., 0], path[..., 1]
        node = forest.nodes(row.reshape(-1)).reshape(*row.shape, -1)
        on = levels < walk.depth[None]
        new = []
        for i in reversed(range(LEVELS)):
            found, higher = level(up, row[i], action[i], node[i])
            up = jax.tree.map(lambda x, y, on=on[i]: jnp.where(on, x, y), higher, up)
            new.append(found)
        off = visit.shape[0] + jnp.arange(row.size, dtype=jnp.int32).reshape(row.shape)
        place = start[None] + levels
        if skip:
            place = jnp.where(levels < skip, jnp.arange(batch, dtype=jnp.int32)[None], place)
        to = jnp.where(on, place, off).reshape(-1)
        visit = put(visit, to, jnp.stack([row, action, real], axis=-1).reshape(-1, 3))
        value = put(value, to, jnp.stack(new[::-1]).reshape(row.size, -1))
        return left - 1, visit, value, together(up)

    turns = jnp.max(jax.lax.div(walk.depth + (LEVELS - 1), jnp.int32(LEVELS)))
    together = lambda up: jnp.stack(jax.tree.leaves(up))
    init = (turns, notes.visit, notes.value, together(up))
    _, visit, value, _ = jax.lax.while_loop(lambda c: c[0] > 0, body, init)
    row = jnp.where(fixed.alive, base, forest.nowhere(batch))
    roots = Visits(row, notes.path[0, :, 1], leaf_real, *jnp.unstack(value[:batch], axis=-1))
    total = jnp.sum(count, dtype=jnp.int32)
    return dataclasses.replace(notes, visit=visit, value=value), roots, total


def back_up(
    fixed: Fixed,
    forest: Forest,
    notes: Notes,
    walk: Walk,
    up: Up,
    real: Bools | None,
    skip: int,
    mark: int,
) -> tuple[Forest, Notes, Visits, NodeStatistics | None]:
    """Backs up along every walk, and enters the visits of all levels but the first `skip`.

    `real` says which of the walks count; `None`, that all do.

    **Returns:** the trees, the notes, the roots' visits, and what a kernel knows of the roots after
    them. Without a kernel and with `skip` 0 the visits mean nothing.
    """
    if fixed.rules.kernels == "pallas":
        from . import _kernels

        return _kernels.back_up(fixed, forest, notes, walk, up, real, skip, mark)
    real = jnp.ones_like(fixed.alive) if real is None else real
    notes, roots, total = ascend(fixed, forest, notes, walk, up, real, skip)
    start = fixed.base.shape[0] if skip else 0
    number = max(fixed.base.shape[0], VISITS)

    # From the end of the list: a count from 0 would be a constant, which a loop copies first. The
    # states are not carried: JAX would keep those of them that nothing else reads.
    def body(carry):
        first, record, edge = carry[0] - number, *carry[1:]
        at = jnp.maximum(first, 0) + start
        part = lambda x: jax.lax.dynamic_slice_in_dim(x, at, number, 0)
        row, action, real = jnp.unstack(part(notes.visit), axis=-1)
        there = jnp.arange(-number, 0, dtype=jnp.int32) < first
        row = jnp.where(there, row, forest.nowhere(number))
        visits = Visits(row, action, real > 0, *jnp.unstack(part(notes.value), axis=-1))
        now = dataclasses.replace(forest, record=record, edge=edge)
        now = write(fixed, now, visits, mark, None)
        return first, now.record, now.edge

    init = total, forest.record, forest.edge
    _, record, edge = jax.lax.while_loop(lambda carry: carry[0] > 0, body, init)
    return dataclasses.replace(forest, record=record, edge=edge), notes, roots, None


def write(
    fixed: Fixed, forest: Forest, visits: Visits, mark: int, following: Following | None
) -> Forest:
    """Enters visits in the trees, with what comes next there; `following` is for the roots."""
    rules = fixed.rules
    node, bounds = visited(rules, forest, visits)
    marks = take(forest.edge, visits.row)[:, -1] if rules.num_leaves > 1 else None
    within = node if bounds is None else among(node, bounds.unknown(node.legal))
    best, edge = rescored(rules, within, visits, marks, mark, forest.chance(visits.row))
    if following is not None:
        best = chosen(fixed, node, best, following)
    numbers = jnp.stack([visits.count, visits.value], axis=1)
    step = forest.leading(visits.row, best)
    if bounds is not None:
        edge[2:2] = [bounds.low, bounds.high]
        step = step.at[:, CODE].set(sealed(step[:, CODE], best, bounds))
    return forest.entered(visits.row, step, numbers, jnp.stack(edge, axis=1))


def chosen(fixed: Fixed, root: NodeStatistics, inside: Ints, following: Following) -> Ints:
    """The actions at the roots, where the rule inside would take `inside`."""
    assert fixed.choose_root is not None
    (sim, started), root = following, fixed.rules.decisions(root)
    started = root.visits - fixed.kept if started is None else started
    return fixed.choose_root(sim, root, started, inside)


def enter(
    fixed: Fixed,
    forest: Forest,
    notes: Notes,
    walk: Walk,
    up: Up,
    real: Bools | None,
    mark: int,
    following: Following,
) -> tuple[Forest, Notes]:
    """Backs up along every walk, and finds the best action of every visited node anew.

    `real` says which of the walks count, or is `None`. `mark` is added to the number of walks that
    wait at each edge for their leaf.
    """
    # A kernel scores the roots as it comes by; a list of visits would be longer by all roots.
    skip = 0 if fixed.choose_root is None or fixed.rules.kernels == "pallas" else 1
    forest, notes, roots, node = back_up(fixed, forest, notes, walk, up, real, skip, mark)
    if skip:
        forest = write(fixed, forest, roots, mark, following)
    elif fixed.choose_root is not None and node is not None:
        best = chosen(fixed, node, forest.steps(fixed.base)[:, ACTION], following)
        step = forest.leading(fixed.base, best)
        forest = dataclasses.replace(forest, record=put(forest.record, roots.row, step))
    return forest, notes
