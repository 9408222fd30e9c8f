"""Several leaves of a game at a time: walk down often, evaluate together, back up in turn."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Int

from ._expand import evaluate, Found, KeyPair, Leaf, Pending, Setting, store, Walk
from ._indexing import take
from ._score import Chooser, Marks, Notes, rescore
from ._tree import Tree, UNSTORED
from ._walk import ascend, descend


class Walks(eqx.Module):
    """Walks that wait for their leaves to be evaluated."""

    path: Int[Array, "*leaves levels batch 2"]
    end: Walk


def many_leaves(
    setting: Setting, tree: Tree, notes: Notes, choose: Chooser, group: Int[Array, ""]
) -> tuple[Tree, Notes, Pending, Found, Walk]:
    """`num_leaves` simulations of every game.

    A walk marks its edges until its leaf has been evaluated, which drives the next walks
    elsewhere ([`zero_search.TreeSearch`][] says how). If two walks end at the same leaf all the
    same, the second does not count.

    **Returns:** besides trees and notes, the states to store, and what was found at the end of
    which walk, one row a leaf: all games' first leaves, all games' second ones, ...
    """
    tree, notes, walks = _all_down(setting, tree, notes, choose)
    wide = _widened(setting)
    flat = lambda x: x.reshape(-1, *x.shape[2:])
    ends = jax.tree.map(flat, walks.end)
    found = evaluate(wide, tree, ends, group)
    tree, notes, slots = _all_up(setting, tree, notes, choose, walks, found)
    return tree, notes, Pending(flat(slots), found.state), found, ends


def _all_down(
    setting: Setting, tree: Tree, notes: Notes, choose: Chooser
) -> tuple[Tree, Notes, Walks]:
    number = setting.rules.num_leaves
    # A leaf that is no visit: only the marks are entered.
    no = setting.alive & ~setting.alive
    zeros = no.astype(jnp.float32)
    unknown = Leaf(reward=zeros, discount=zeros, value=zeros, visits=zeros, real=no)
    marks = Marks(1, setting.rules.virtual_loss)

    def body(i, carry):
        tree, notes, walks = carry
        notes, walk = descend(setting, tree, notes)
        walks = jax.tree.map(lambda xs, x: xs.at[i].set(x), walks, Walks(notes.path, walk))
        notes, _, total = ascend(setting, tree, notes, walk, unknown, 0)
        return rescore(tree, notes, total, choose, marks), notes, walks

    none = jnp.stack([no.astype(jnp.int32)] * number)
    walks = Walks(jnp.stack([notes.path] * number), Walk(none, none, none, none))
    return jax.lax.fori_loop(0, number, body, (tree, notes, walks))


def _all_up(
    setting: Setting, tree: Tree, notes: Notes, choose: Chooser, walks: Walks, found: Found
) -> tuple[Tree, Notes, Int[Array, "leaves batch"]]:
    number, batch = setting.rules.num_leaves, setting.base.shape[0]
    marks = Marks(-1, setting.rules.virtual_loss)
    each = jax.tree.map(lambda x: x.reshape(number, batch, *x.shape[1:]), found)

    def body(i, carry):
        tree, notes, slots = carry
        path, walk, found = jax.tree.map(lambda x: x[i], (walks.path, walks.end, each))
        row = setting.base + walk.index
        now = take(tree.child.reshape(-1), row * tree.child.shape[1] + walk.action)
        again = (walk.code == UNSTORED) & (now != UNSTORED)
        walk = eqx.tree_at(lambda w: w.code, walk, now)
        tree, leaf, pending = store(setting, tree, walk, found)
        leaf = eqx.tree_at(lambda x: x.real, leaf, ~again)
        notes = Notes(path, notes.visit, notes.value)
        notes, _, total = ascend(setting, tree, notes, walk, leaf, 0)
        tree = rescore(tree, notes, total, choose, marks)
        return tree, notes, slots.at[i].set(pending.slot)

    return jax.lax.fori_loop(0, number, body, (tree, notes, walks.end.index))


def _widened(setting: Setting) -> Setting:
    """The setting of one row a leaf, each with keys of its own."""
    number = setting.rules.num_leaves
    leaves = jnp.arange(number, dtype=jnp.int32)
    each_row = jax.vmap(jr.fold_in, in_axes=(0, None))
    each_leaf = jax.vmap(each_row, in_axes=(None, 0))

    def keys(sim: Any) -> KeyPair:
        step_key, predict_key = setting.keys(sim)
        return each_leaf(step_key, leaves).reshape(-1), each_leaf(predict_key, leaves).reshape(-1)

    base, alive = jnp.tile(setting.base, number), jnp.tile(setting.alive, number)
    return Setting(setting.model, setting.rules, keys, base, alive)
