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
from jaxtyping import Array, Float, Int

from ._expand import evaluate, Keys, no_state, Rules, Setting, store, store_state
from ._leaves import many_leaves
from ._model import AbstractPriorModel
from ._score import rescore, write
from ._select import best_action
from ._statistics import NodeStatistics
from ._tree import root_step, statistics, Tree
from ._walk import ascend, blank, descend


# Chooses the roots' actions given the simulation's number and the roots' statistics.
RootRule = Callable[[Any, NodeStatistics], Int[Array, " batch"]]


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
    """Runs `num_simulations` from planted roots, a multiple of `rules.num_leaves`.

    `loop` has the interface of `lax.fori_loop`. A `root_rule` allows one leaf at a time only.
    """
    (batch, max_nodes, _), leaves = tree.child.shape, rules.num_leaves
    base = jnp.arange(batch, dtype=jnp.int32) * max_nodes
    alive = jnp.any(tree.prior[:, 0, 0] > -jnp.inf, axis=1)
    # Under `shard_map` what the loops carry must vary over devices as the trees do.
    vary = lambda x: jnp.where(alive[0], x, x)
    setting = Setting(model, rules, key, vary(base), alive)
    interior = ft.partial(best_action, rules.selection)
    first = interior if root_rule is None else ft.partial(root_rule, 0)
    step = root_step(tree, first(statistics(tree)))
    tree = eqx.tree_at(lambda t: t.step, tree, tree.step.at[:, 0].set(step))

    def one(tree, notes, sim):
        notes, walk = descend(setting, tree, notes)
        found = evaluate(setting, tree, walk, sim)
        tree, leaf, pending = store(setting, tree, walk, found)
        skip = 0 if root_rule is None else 1
        notes, roots, total = ascend(setting, tree, notes, walk, leaf, skip)
        if root_rule is not None:
            tree = write(tree, roots, ft.partial(root_rule, sim + 1))
        return rescore(tree, notes, total, interior), notes, pending, found, walk

    def body(sim, carry):
        tree, notes, pending, depth, invalid = carry
        tree = store_state(tree, pending)
        if leaves == 1:
            tree, notes, pending, found, walk = one(tree, notes, sim)
        else:
            tree, notes, pending, found, walk = many_leaves(setting, tree, notes, interior, sim)
        bad = found.invalid.reshape(leaves, batch) & alive[None]
        depth = depth + jnp.sum(walk.depth.reshape(leaves, batch), axis=0, dtype=jnp.float32)
        return tree, notes, pending, depth, invalid + jnp.sum(bad, axis=0, dtype=jnp.int32)

    state = jax.tree.map(lambda x: jnp.concatenate([x[:, 0]] * leaves), tree.state)
    tree = _map_rows(lambda x: x.reshape(batch * max_nodes, *x.shape[2:]), tree)
    zeros, notes = jnp.zeros((batch,), jnp.int32), blank(batch, max_nodes)
    init = (tree, notes, no_state(tree, state), zeros.astype(jnp.float32), zeros)
    init = jax.tree.map(vary, init)
    tree, _, pending, depth, invalid = loop(0, num_simulations // leaves, body, init)
    tree = store_state(tree, pending)
    tree = _map_rows(lambda x: x.reshape(batch, max_nodes, *x.shape[1:]), tree)
    return tree, SearchStats(depth / num_simulations, invalid)


def _map_rows(fn: Callable[[Array], Array], tree: Tree) -> Tree:
    """Of all arrays but `size`."""
    rows = lambda t: (t.step, t.node, t.edge, t.child, t.prior, t.parent, t.state)
    return eqx.tree_at(rows, tree, jax.tree.map(fn, rows(tree)))
