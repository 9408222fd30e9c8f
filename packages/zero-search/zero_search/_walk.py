"""The walks of a batch of simulations, down to the leaves and back up."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, Key

from ._model import AbstractPriorModel
from ._rules import Rules
from ._tree import (
    ACTION,
    CODE,
    COUNT,
    DISCOUNT,
    put,
    RAW,
    REWARD,
    take,
    Tree,
    VALUE,
    visited,
    Visits,
)


# Levels handled by one turn of the loops: a turn costs more than a level.
LEVELS = 4
# Visits scored at once, if there are fewer games than this.
VISITS = 16

# Every row's keys for `step` and `predict`.
KeyPair = tuple[Key[Array, " batch"], Key[Array, " batch"]]
# `(simulation, statistics, started, inside) -> action`; see `search`.
RootChoice = Callable[..., Int[Array, " batch"]]


class Fixed(eqx.Module):
    """What stays the same from one simulation to the next."""

    model: AbstractPriorModel
    rules: Rules
    key: Key[Array, " batch"] | Callable[[Any], KeyPair]
    choose_root: RootChoice | None
    kept: Float[Array, "batch columns"]  # visits of the roots' actions before this search
    base: Int[Array, " batch"]  # the roots' rows
    alive: Bool[Array, " batch"]  # whether the root has a legal action

    def keys(self, sim: int | Int[Array, ""]) -> KeyPair:
        if callable(self.key):
            return self.key(sim)
        fold = jax.vmap(jr.fold_in, in_axes=(0, None))
        return fold(self.key, 2 * sim), fold(self.key, 2 * sim + 1)


class Walk(eqx.Module):
    """Where a walk down ended: the number of the last node, and what it would do next."""

    index: Int[Array, "*axes"]
    action: Int[Array, "*axes"]
    code: Int[Array, "*axes"]
    depth: Int[Array, "*axes"]


class Up(eqx.Module):
    """What walks carry up: how the simulation went on below, and the edge that leads there."""

    outcome: Float[Array, " batch"]  # of this simulation, for the player to move below
    value: Float[Array, " batch"]  # of the node below
    visits: Float[Array, " batch"]  # of the node below, new; see `Visits.below`
    reward: Float[Array, " batch"]
    discount: Float[Array, " batch"]


class Notes(eqx.Module):
    """What a simulation notes on its way; reused by the next one.

    The visits are listed game after game.
    """

    path: Int[Array, "levels batch 2"]  # node number and action taken
    visit: Int[Array, "visits 3"]  # row, action, real
    value: Float[Array, "visits 6"]  # value (new), qvalue, count, raw_value, sample, below


def descend(fixed: Fixed, tree: Tree, notes: Notes) -> tuple[Notes, Walk]:
    """Follows the cached actions from the roots, noting the nodes it passes."""
    limit = fixed.rules.max_depth

    def body(carry):
        path, index, step, active, depth, level = carry
        block = []
        for _ in range(LEVELS):
            block.append(jnp.stack([index, step[:, ACTION]], axis=-1))
            depth = depth + active.astype(jnp.int32)
            active = active & (step[:, CODE] >= 0)
            if limit is not None:
                active = active & (depth < limit)
            index = jnp.where(active, step[:, CODE], index)
            step = take(tree.step, fixed.base + index)
        path = jax.lax.dynamic_update_slice_in_dim(path, jnp.stack(block), level, 0)
        return path, index, step, active, depth, level + LEVELS

    zeros, step = jnp.zeros_like(fixed.base), take(tree.step, fixed.base)
    init = (notes.path, zeros, step, fixed.alive, zeros, jnp.zeros((), jnp.int32))
    path, index, step, _, depth, _ = jax.lax.while_loop(lambda c: jnp.any(c[3]), body, init)
    walk = Walk(index, step[:, ACTION], step[:, CODE], depth)
    return Notes(path, notes.visit, notes.value), walk


def ascend(
    fixed: Fixed,
    tree: Tree,
    notes: Notes,
    walk: Walk,
    up: Up,
    leaf_real: Bool[Array, " batch"],
    skip: int,
) -> tuple[Notes, Visits, Int[Array, ""]]:
    """Values from the leaves to the roots: `r + d v` along every walk.

    **Returns:** the visits of all levels but the first `skip` as a list, game after game; the
    roots' visits; and the length of the list, which is followed by visits of no node.
    """
    base, batch = fixed.base, fixed.base.shape[0]
    count = jnp.maximum(walk.depth - skip, 0)
    start = jnp.cumsum(count) - count
    real = jnp.broadcast_to(leaf_real.astype(jnp.int32)[None], (LEVELS, batch))

    def level(up, row, action, node):
        """The visits of one node a game, as a row of `Notes.value`, and what goes on up."""
        outcome, qvalue = up.reward + up.discount * up.outcome, up.reward + up.discount * up.value
        count, raw_value = node[:, COUNT] + leaf_real.astype(jnp.float32), node[:, RAW]
        old = node[:, VALUE]
        visits = Visits(row, action, leaf_real, old, qvalue, count, raw_value, outcome, up.visits)
        chance = chance_at(fixed.rules, tree, row)
        value = fixed.rules.value(visited(tree, visits), chance, outcome)
        value = jnp.where(leaf_real, value, old)
        found = jnp.stack([value, qvalue, count, raw_value, outcome, up.visits], axis=-1)
        return found, Up(outcome, value, count, node[:, REWARD], node[:, DISCOUNT])

    def body(carry):
        block, visit, value, up, _ = carry
        levels = block * LEVELS + jnp.arange(LEVELS, dtype=jnp.int32)[:, None]
        path = jax.lax.dynamic_slice_in_dim(notes.path, block * LEVELS, LEVELS, 0)
        row, action = base[None] + path[..., 0], path[..., 1]
        node = take(tree.node, row.reshape(-1)).reshape(*row.shape, -1)
        on = levels < walk.depth[None]
        new = []
        for i in reversed(range(LEVELS)):
            found, higher = level(up, row[i], action[i], node[i])
            up = jax.tree.map(lambda x, y, on=on[i]: jnp.where(on, x, y), higher, up)
            new.append(found)
        off = visit.shape[0] + jnp.arange(row.size, dtype=jnp.int32).reshape(row.shape)
        to = jnp.where(on & (levels >= skip), start[None] + levels - skip, off).reshape(-1)
        visit = put(visit, to, jnp.stack([row, action, real], axis=-1).reshape(-1, 3))
        value = put(value, to, jnp.stack(new[::-1]).reshape(-1, 6))
        return block - 1, visit, value, up, new[-1]

    blocks = (jnp.max(walk.depth) - 1) // LEVELS
    init = (blocks, notes.visit, notes.value, up, jnp.stack([up.value] * 6, axis=-1))
    _, visit, value, _, root = jax.lax.while_loop(lambda c: c[0] >= 0, body, init)
    end, total = nowhere(tree, max(batch, VISITS)), start[-1] + count[-1]
    end = jnp.stack([end, jnp.zeros_like(end), jnp.zeros_like(end)], axis=-1)
    visit = jax.lax.dynamic_update_slice_in_dim(visit, end, total, 0)
    row = jnp.where(fixed.alive, base, nowhere(tree, batch))
    roots = Visits(row, notes.path[0, :, 1], leaf_real, *jnp.unstack(root, axis=-1))
    return Notes(notes.path, visit, value), roots, total


def chance_at(
    rules: Rules, tree: Tree, row: Int[Array, " visits"]
) -> Float[Array, " visits"] | None:
    """Which of the nodes are chance nodes: above 0 there."""
    return take(tree.state.chance, row) if rules.outcomes is not None else None


def nowhere(tree: Tree, number: int) -> Int[Array, " number"]:
    """Rows out of range, where writes are dropped."""
    return tree.child.shape[0] + jnp.arange(number, dtype=jnp.int32)
