"""The walks of a batch of simulations, down to the leaves and back up."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ._backup import back_up
from ._expand import Leaf, nowhere, Setting, Walk
from ._indexing import put, take
from ._score import Notes, visited, Visits
from ._tree import ACTION, CODE, COUNT, DISCOUNT, RAW, REWARD, Tree, VALUE


# Levels handled by one turn of the loops: a turn costs more than a level.
_LEVELS = 4
# Visits scored at once, if there are fewer games than this.
_VISITS = 16


def blank(batch: int, max_nodes: int) -> Notes:
    """Notes of nothing, for trees of so many nodes."""
    levels = max_nodes + _LEVELS
    visits = levels * batch + _chunk(batch)
    return Notes(
        path=jnp.zeros((levels, batch, 2), jnp.int32),
        visit=jnp.zeros((visits, 3), jnp.int32),
        value=jnp.zeros((visits, 6), jnp.float32),
    )


def _chunk(batch: int) -> int:
    return max(batch, _VISITS)


def descend(setting: Setting, tree: Tree, notes: Notes) -> tuple[Notes, Walk]:
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


class _Up(eqx.Module):
    """What walks carry up: how the simulation went on below, and the edge that leads there."""

    outcome: Float[Array, " batch"]  # of this simulation, for the player to move below
    value: Float[Array, " batch"]  # of the node below
    visits: Float[Array, " batch"]  # of the node below, new; see `Visits.below`
    reward: Float[Array, " batch"]
    discount: Float[Array, " batch"]


def ascend(
    setting: Setting, tree: Tree, notes: Notes, walk: Walk, leaf: Leaf, skip: int
) -> tuple[Notes, Visits, Int[Array, ""]]:
    """Values from the leaves to the roots: `r + d v` along every walk.

    **Returns:** the visits of all levels but the first `skip` as a list, game after game; the
    roots' visits; and the length of the list, which is followed by visits of no node.
    """
    base, batch = setting.base, setting.base.shape[0]
    count = jnp.maximum(walk.depth - skip, 0)
    start = jnp.cumsum(count) - count
    real = jnp.broadcast_to(leaf.real.astype(jnp.int32)[None], (_LEVELS, batch))

    def body(carry):
        block, visit, value, up, _ = carry
        levels = block * _LEVELS + jnp.arange(_LEVELS, dtype=jnp.int32)[:, None]
        path = jax.lax.dynamic_slice_in_dim(notes.path, block * _LEVELS, _LEVELS, 0)
        row, action = base[None] + path[..., 0], path[..., 1]
        node = take(tree.node, row.reshape(-1)).reshape(*row.shape, -1)
        on = levels < walk.depth[None]
        new = []
        for i in reversed(range(_LEVELS)):
            found, higher = _one_level(setting, tree, up, leaf.real, row[i], action[i], node[i])
            up = jax.tree.map(lambda x, y, on=on[i]: jnp.where(on, x, y), higher, up)
            new.append(found)
        off = visit.shape[0] + jnp.arange(row.size, dtype=jnp.int32).reshape(row.shape)
        to = jnp.where(on & (levels >= skip), start[None] + levels - skip, off).reshape(-1)
        visit = put(visit, to, jnp.stack([row, action, real], axis=-1).reshape(-1, 3))
        value = put(value, to, jnp.stack(new[::-1]).reshape(-1, 6))
        return block - 1, visit, value, up, new[-1]

    up = _Up(leaf.value, leaf.value, leaf.visits, leaf.reward, leaf.discount)
    blocks = (jnp.max(walk.depth) - 1) // _LEVELS
    init = (blocks, notes.visit, notes.value, up, jnp.stack([leaf.value] * 6, axis=-1))
    _, visit, value, _, root = jax.lax.while_loop(lambda c: c[0] >= 0, body, init)
    end, total = nowhere(tree, _chunk(batch)), start[-1] + count[-1]
    end = jnp.stack([end, jnp.zeros_like(end), jnp.zeros_like(end)], axis=-1)
    visit = jax.lax.dynamic_update_slice_in_dim(visit, end, total, 0)
    row = jnp.where(setting.alive, base, nowhere(tree, batch))
    roots = Visits(row, notes.path[0, :, 1], leaf.real, *jnp.unstack(root, axis=-1))
    return Notes(notes.path, visit, value), roots, total


def _one_level(
    setting: Setting,
    tree: Tree,
    up: _Up,
    real: Bool[Array, " batch"],
    row: Int[Array, " batch"],
    action: Int[Array, " batch"],
    node: Float[Array, "batch columns"],
) -> tuple[Float[Array, "batch 6"], _Up]:
    """The visits of one node a game, as a row of `Notes.value`, and what goes on up."""
    outcome, qvalue = up.reward + up.discount * up.outcome, up.reward + up.discount * up.value
    count, raw_value = node[:, COUNT] + real.astype(jnp.float32), node[:, RAW]
    visits = Visits(row, action, real, node[:, VALUE], qvalue, count, raw_value, outcome, up.visits)
    value = back_up(setting.rules.backup, visited(tree, visits), outcome)
    value = jnp.where(real, value, node[:, VALUE])
    found = jnp.stack([value, qvalue, count, raw_value, outcome, up.visits], axis=-1)
    return found, _Up(outcome, value, count, node[:, REWARD], node[:, DISCOUNT])
