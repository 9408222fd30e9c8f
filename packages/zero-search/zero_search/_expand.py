"""The leaf of a simulation: asking the model what lies there, and storing the answer."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from ._check import check_prediction, check_step
from ._model import AbstractPriorModel
from ._select import AbstractSelection, best_action, NodeStatistics, prepare
from ._tree import (
    BEST,
    DISCOUNT,
    FINAL,
    INDEX,
    NEXT,
    node_row,
    RAW,
    REWARD,
    Tree,
    UNSTORED,
)


class Setting(eqx.Module):
    """What stays the same from one simulation to the next."""

    model: AbstractPriorModel
    selection: AbstractSelection
    gamma: float
    key: Key[Array, " batch"]
    base: Int[Array, " batch"]  # the roots' rows
    alive: Bool[Array, " batch"]  # whether the root has a legal action


class Walk(eqx.Module):
    """Where a walk down ended: the last stored node, before its best action."""

    row: Float[Array, "batch columns"]
    depth: Int[Array, " batch"]

    @property
    def action(self) -> Int[Array, " batch"]:
        return self.row[:, BEST].astype(jnp.int32)

    @property
    def code(self) -> Int[Array, " batch"]:
        return self.row[:, NEXT].astype(jnp.int32)

    @property
    def index(self) -> Int[Array, " batch"]:
        return self.row[:, INDEX].astype(jnp.int32)


class Found(eqx.Module):
    """What the model says lies behind that action."""

    state: PyTree[Array]
    reward: Float[Array, " batch"]
    discount: Float[Array, " batch"]
    final: Bool[Array, " batch"]
    logits: Float[Array, "batch actions"]
    value: Float[Array, " batch"]


class Leaf(eqx.Module):
    """What a simulation backs up, and whether a stored child holds it."""

    reward: Float[Array, " batch"]
    discount: Float[Array, " batch"]
    value: Float[Array, " batch"]
    stored: Bool[Array, " batch"]


def expand(
    setting: Setting, tree: Tree, walk: Walk, sim: int | Int[Array, ""]
) -> tuple[Tree, Leaf]:
    """Steps the model from the end of every walk and stores what it finds, where there is room."""
    batch = walk.depth.shape[0]
    found = _evaluate(setting, tree, walk, sim)
    new = setting.alive & (walk.code == UNSTORED)
    new = new & (tree.size < tree.child.shape[0] // batch)
    leaf = _leaf(setting.base, tree, walk, found, new)
    return _store(setting, tree, walk, found, new), leaf


def _evaluate(setting: Setting, tree: Tree, walk: Walk, sim: int | Int[Array, ""]) -> Found:
    parent = setting.base + walk.index
    before = jax.tree.map(lambda x: x.at[parent].get(mode="promise_in_bounds"), tree.state)
    fold = jax.vmap(jr.fold_in, in_axes=(0, None))
    step_key, predict_key = fold(setting.key, 2 * sim), fold(setting.key, 2 * sim + 1)
    state, reward, discount, last = setting.model.step(before, walk.action, key=step_key)
    check_step(before, state, reward, discount, last)
    logits, value = setting.model.predict(state, key=predict_key)
    check_prediction(logits, value, walk.depth.shape[0], tree.child.shape[1])
    reward, discount = reward.astype(jnp.float32), setting.gamma * discount.astype(jnp.float32)
    logits, value = logits.astype(jnp.float32), value.astype(jnp.float32)
    # Nothing follows a final state, nor one without a legal action: revisit, never expand.
    final = last | (discount == 0) | ~jnp.any(logits > -jnp.inf, axis=1)
    return Found(state, reward, discount, final, logits, value)


def _leaf(
    base: Int[Array, " batch"],
    tree: Tree,
    walk: Walk,
    found: Found,
    new: Bool[Array, " batch"],
) -> Leaf:
    """What was just found or, behind an edge to a final state, what was found there before."""
    revisited = walk.code <= FINAL
    at = base + jnp.where(revisited, FINAL - walk.code, 0)
    known = tree.node.at[at].get(mode="promise_in_bounds")
    pick = lambda column, fresh: jnp.where(revisited, known[:, column], fresh)
    return Leaf(
        reward=pick(REWARD, found.reward),
        discount=pick(DISCOUNT, found.discount),
        value=pick(RAW, found.value),
        stored=new | revisited,
    )


def _store(
    setting: Setting, tree: Tree, walk: Walk, found: Found, new: Bool[Array, " batch"]
) -> Tree:
    """Adds a node in every row that has a `new` one; the others write out of range."""
    base, value = setting.base, found.value
    nowhere = tree.child.shape[0] + jnp.arange(base.shape[0], dtype=jnp.int32)
    slot = jnp.where(new, base + tree.size, nowhere)
    edge = jnp.where(new, base + walk.index, nowhere)
    put = lambda x, y: x.at[slot].set(y, mode="drop", unique_indices=True)
    prior = prepare(setting.selection, found.logits)
    zeros, one = jnp.zeros_like(found.logits), jnp.ones_like(value)
    best = best_action(
        setting.selection, NodeStatistics(prior, zeros, zeros, one, value, raw_value=value)
    )
    unstored = jnp.full_like(best, UNSTORED)
    row = node_row(
        best, unstored, one, value, found.reward, found.discount, value, tree.size, walk.index
    )
    link = jnp.where(found.final, FINAL - tree.size, tree.size)
    return Tree(
        node=put(tree.node, row),
        edge=tree.edge,
        child=tree.child.at[edge, walk.action].set(link, mode="drop", unique_indices=True),
        prior=put(tree.prior, prior),
        state=jax.tree.map(put, tree.state, found.state),
        size=tree.size + new.astype(jnp.int32),
    )
