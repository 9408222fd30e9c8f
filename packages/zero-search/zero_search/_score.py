"""Entering visits in a tree, and what its nodes would do next: the part of a search that costs."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ._indexing import put, take
from ._statistics import NodeStatistics
from ._tree import NOT_EXPANDED, Tree


Chooser = Callable[[NodeStatistics], Int[Array, " rows"]]
# What scoring changes of a tree.
_SCORED: Callable[[Any], tuple[Any, Any, Any]] = lambda tree: (tree.step, tree.node, tree.edge)


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


class Notes(eqx.Module):
    """What a simulation notes on its way; reused by the next one.

    The visits are listed game after game.
    """

    path: Int[Array, "levels batch 2"]  # node number and action taken
    visit: Int[Array, "visits 3"]  # row, action, real
    value: Float[Array, "visits 6"]  # value (new), qvalue, count, raw_value, sample, below


class Marks(eqx.Module):
    """How walks that have not come back are treated.

    **Attributes:**

    - `change`: to the number of marks on the edges of the visits.
    - `virtual_loss`: losing visits that a mark counts for.
    """

    change: int
    virtual_loss: float


def visited(tree: Tree, visits: Visits) -> NodeStatistics:
    """The statistics of nodes after one more visit."""
    taken = _taken(tree, visits) & visits.real[:, None]
    edge = take(tree.edge, visits.row)
    number = edge[:, 0] + taken.astype(jnp.float32)
    # Visits from when the tree was too full for a child are known to the edge alone.
    mean = (edge[:, 1] * edge[:, 0] + visits.sample[:, None]) / jnp.maximum(number, 1.0)
    below, qvalue = visits.below[:, None], visits.qvalue[:, None]
    same = (below == number) | ((below == NOT_EXPANDED) & (edge[:, 1] == qvalue))
    fresh = jnp.where(same, qvalue, mean)
    return NodeStatistics(
        prior=take(tree.prior, visits.row),
        visits=number,
        qvalues=jnp.where(taken, fresh, edge[:, 1]),
        count=visits.count,
        value=visits.value,
        raw_value=visits.raw_value,
    )


def rescore(
    tree: Tree, notes: Notes, total: Int[Array, ""], choose: Chooser, marks: Marks | None = None
) -> Tree:
    """Writes the listed visits and finds the best action of every visited node anew."""
    number = notes.visit.shape[0] - notes.path.shape[0] * notes.path.shape[1]

    def body(carry):
        first, *scored = carry
        part = lambda x: jax.lax.dynamic_slice_in_dim(x, first, number, 0)
        row, action, real = jnp.unstack(part(notes.visit), axis=-1)
        visits = Visits(row, action, real > 0, *jnp.unstack(part(notes.value), axis=-1))
        current = eqx.tree_at(_SCORED, tree, tuple(scored))
        return first + number, *_SCORED(write(current, visits, choose, marks))

    init = (jnp.zeros((), jnp.int32), *_SCORED(tree))
    _, *scored = jax.lax.while_loop(lambda carry: carry[0] < total, body, init)
    return eqx.tree_at(_SCORED, tree, tuple(scored))


def write(tree: Tree, visits: Visits, choose: Chooser, marks: Marks | None = None) -> Tree:
    """Enters visits in the tree, with what `choose` would take there next."""
    node = visited(tree, visits)
    edge = [node.visits, node.qvalues]
    if marks is not None:
        taken = _taken(tree, visits).astype(jnp.float32)
        marked = take(tree.edge, visits.row)[:, 2] + marks.change * taken
        edge.append(marked)
        node = _with_losses(node, marked, marks.virtual_loss)
    best = choose(node)
    code = take(tree.child.reshape(-1), visits.row * tree.child.shape[1] + best)
    scored = (
        put(tree.step, visits.row, jnp.stack([best, code], axis=-1)),
        put(tree.node, visits.row, jnp.stack([visits.count, visits.value], axis=-1)),
        put(tree.edge, visits.row, jnp.stack(edge, axis=1)),
    )
    return eqx.tree_at(_SCORED, tree, scored)


def _taken(tree: Tree, visits: Visits) -> Bool[Array, "visits actions"]:
    return jnp.arange(tree.child.shape[1], dtype=jnp.int32)[None] == visits.action[:, None]


def _with_losses(
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
    return NodeStatistics(
        prior=node.prior,
        visits=node.visits + marked,
        qvalues=jnp.where(marked > 0, mean, node.qvalues),
        count=node.count + jnp.sum(marked, axis=1),
        value=node.value,
        raw_value=node.raw_value,
    )
