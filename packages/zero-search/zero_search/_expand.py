"""The leaf of a simulation: asking the model what lies there, and storing the answer."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from ._backup import AbstractBackup, MeanBackup
from ._check import check_prediction, check_step
from ._indexing import put, take
from ._model import AbstractPriorModel
from ._select import AbstractSelection, best_action, prepare
from ._statistics import NodeStatistics
from ._tree import DISCOUNT, FINAL, NO_CHILD, NOT_EXPANDED, RAW, REWARD, Tree, UNSTORED


# The largest value, reward or discount that counts as finite. Sums of those are still floats; an
# overflow would end in NaN scores.
LARGEST = 1e30

# Every row's keys for `step` and `predict`.
KeyPair = tuple[Key[Array, " batch"], Key[Array, " batch"]]
# One key a row, which is folded, or what gives both for the number of a simulation.
Keys = Key[Array, " batch"] | Callable[[Any], KeyPair]


class Rules(eqx.Module):
    """The replaceable parts of a search.

    **Attributes:**

    - `selection`, `backup`: which action to try next, and what a node's value becomes.
    - `gamma`: multiplies the model's signed discounts.
    - `max_depth`: nothing deeper is expanded; a leaf there is revisited with its first value.
    - `stop_at_final`: revisit final states; otherwise expand below them like anywhere else.
    - `num_leaves`: walks of a game before their leaves are evaluated together.
    - `virtual_loss`: how many losing visits a walk counts for until its leaf is evaluated.
    """

    selection: AbstractSelection
    backup: AbstractBackup = MeanBackup()
    gamma: float = 1.0
    max_depth: int | None = None
    stop_at_final: bool = True
    num_leaves: int = 1
    virtual_loss: float = 1.0


class Setting(eqx.Module):
    """What stays the same from one simulation to the next."""

    model: AbstractPriorModel
    rules: Rules
    key: Keys
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


class Found(eqx.Module):
    """What the model says lies behind that action."""

    state: PyTree[Array]
    reward: Float[Array, " batch"]
    discount: Float[Array, " batch"]
    final: Bool[Array, " batch"]
    logits: Float[Array, "batch actions"]
    value: Float[Array, " batch"]
    invalid: Bool[Array, " batch"]  # something was not finite and has been replaced


class Leaf(eqx.Module):
    """What a simulation backs up."""

    reward: Float[Array, " batch"]
    discount: Float[Array, " batch"]
    value: Float[Array, " batch"]
    visits: Float[Array, " batch"]  # of the child that holds it, as in `Visits.below`
    real: Bool[Array, " batch"]  # whether the simulation counts


class Pending(eqx.Module):
    """A state found by one simulation, to be stored by the next.

    One that reads the parents' states and then writes new ones would have XLA copy them all, for
    it cannot tell which comes first. Writing before reading leaves no doubt.
    """

    slot: Int[Array, " batch"]
    state: PyTree[Array]


def no_state(tree: Tree, state: PyTree[Array]) -> Pending:
    """Nothing to store. `tree` has flat rows."""
    return Pending(nowhere(tree, jax.tree.leaves(state)[0].shape[0]), state)


def store_state(tree: Tree, pending: Pending) -> Tree:
    write = lambda x, y: put(x, pending.slot, y)
    return eqx.tree_at(lambda t: t.state, tree, jax.tree.map(write, tree.state, pending.state))


def nowhere(tree: Tree, number: int) -> Int[Array, " number"]:
    """Rows out of range, where writes are dropped."""
    return tree.child.shape[0] + jnp.arange(number, dtype=jnp.int32)


def evaluate(setting: Setting, tree: Tree, walk: Walk, sim: int | Int[Array, ""]) -> Found:
    """What lies at the end of every walk."""
    parent = setting.base + walk.index
    before = jax.tree.map(lambda x: take(x, parent), tree.state)
    actions = tree.child.shape[1]
    return ask(setting.model, setting.rules, before, walk.action, setting.keys(sim), actions)


def ask(
    model: AbstractPriorModel,
    rules: Rules,
    before: PyTree[Array],
    action: Int[Array, " batch"],
    keys: tuple[Key[Array, " batch"], Key[Array, " batch"]],
    num_actions: int,
) -> Found:
    """Steps the model and asks for a prior and a value of what comes; `keys` are for the two."""
    state, reward, discount, last = model.step(before, action, key=keys[0])
    check_step(before, state, reward, discount, last)
    logits, value = model.predict(state, key=keys[1])
    check_prediction(logits, value, action.shape[0], num_actions)
    logits, value, invalid = masked_prediction(logits, value)
    edge = jnp.stack([reward.astype(jnp.float32), discount.astype(jnp.float32)])
    known = jnp.abs(edge) <= LARGEST
    reward, discount = jnp.unstack(jnp.where(known, edge, 0.0))
    # Nothing follows a final state, nor one without a legal action: revisit, never expand.
    final = last | (discount == 0) | ~jnp.any(logits > -jnp.inf, axis=1)
    return Found(
        state=state,
        reward=reward,
        discount=rules.gamma * discount,
        final=final & rules.stop_at_final,
        logits=logits,
        value=value,
        invalid=invalid | ~jnp.all(known, axis=0),
    )


def masked_prediction(
    logits: Float[Array, "batch actions"], value: Float[Array, " batch"]
) -> tuple[Float[Array, "batch actions"], Float[Array, " batch"], Bool[Array, " batch"]]:
    """A prediction in float32 with which the search can reckon, and where it had to be changed.

    A NaN among the logits makes that action the least likely one, `+inf` the most likely; a value
    that is not finite, or beyond `LARGEST`, becomes 0. A logit of `-inf` stays: it means illegal.
    """
    logits, value = logits.astype(jnp.float32), value.astype(jnp.float32)
    # Half of what a float holds, so that the difference of two logits is finite.
    limit = jnp.finfo(jnp.float32).max / 2
    unknown = jnp.isnan(logits)
    clean = jnp.where(unknown, -limit, jnp.clip(logits, -limit, limit))
    clean = jnp.where(logits == -jnp.inf, -jnp.inf, clean)
    known = jnp.abs(value) <= LARGEST
    invalid = jnp.any(unknown | (logits == jnp.inf), axis=1) | ~known
    return clean, jnp.where(known, value, 0.0), invalid


def store(setting: Setting, tree: Tree, walk: Walk, found: Found) -> tuple[Tree, Leaf, Pending]:
    """Adds a node in every row where there is room and something new; the others write nowhere."""
    base, batch = setting.base, walk.depth.shape[0]
    new = setting.alive & (walk.code == UNSTORED) & (tree.size < tree.child.shape[0] // batch)
    slot = jnp.where(new, base + tree.size, nowhere(tree, batch))
    edge = jnp.where(new, base + walk.index, nowhere(tree, batch))
    value, zeros, one = found.value, jnp.zeros_like(found.logits), jnp.ones_like(found.value)
    prior = prepare(setting.rules.selection, found.logits)
    best = best_action(
        setting.rules.selection, NodeStatistics(prior, zeros, zeros, one, value, raw_value=value)
    )
    row = jnp.stack([one, value, found.reward, found.discount, value], axis=-1)
    link = jnp.where(found.final, FINAL - tree.size, tree.size)
    tree = Tree(
        step=put(tree.step, slot, jnp.stack([best, jnp.full_like(best, UNSTORED)], axis=-1)),
        node=put(tree.node, slot, row),
        edge=tree.edge,
        child=tree.child.at[edge, walk.action].set(link, mode="drop", unique_indices=True),
        prior=put(tree.prior, slot, prior),
        parent=put(tree.parent, slot, walk.index),
        state=tree.state,
        size=tree.size + new.astype(jnp.int32),
    )
    return tree, _leaf(base, tree, walk, found, new), Pending(slot, found.state)


def _leaf(
    base: Int[Array, " batch"], tree: Tree, walk: Walk, found: Found, new: Bool[Array, " batch"]
) -> Leaf:
    """What was just found or, behind an edge to a child that is not expanded, its first value."""
    revisited = walk.code != UNSTORED
    child = jnp.where(walk.code <= FINAL, FINAL - walk.code, walk.code)
    at = base + jnp.where(revisited, child, 0)
    known = take(tree.node, at)
    pick = lambda column, fresh: jnp.where(revisited, known[:, column], fresh)
    return Leaf(
        reward=pick(REWARD, found.reward),
        discount=pick(DISCOUNT, found.discount),
        value=pick(RAW, found.value),
        visits=jnp.where(new, 1.0, jnp.where(revisited, NOT_EXPANDED, NO_CHILD)),
        real=jnp.ones_like(new),
    )
