"""What all planners share: the carry, the root's evaluation and the plan."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from ._check import batch_size, check_carry, check_keys, check_move, check_prediction
from ._expand import masked_prediction
from ._model import AbstractPriorModel
from ._planner import check_plan, Plan
from ._sample import sample_action, Temperature
from ._simulate import SearchStats
from ._statistics import NodeStatistics
from ._subtree import subtree
from ._tree import statistics, Tree


class SearchCarry(eqx.Module):
    """What a tree search keeps between moves.

    **Attributes:**

    - `ply`: moves played in the episode so far.
    - `tree`: the kept subtrees, or `None` without reuse.
    """

    ply: Int[Array, " batch"]
    tree: Tree | None


class Root(eqx.Module):
    """The evaluator's word on the roots, and keys for what comes next."""

    logits: Float[Array, "batch actions"]
    value: Float[Array, " batch"]
    invalid: Bool[Array, " batch"]  # something was not finite and has been replaced
    noise_key: Key[Array, " batch"]
    search_key: Key[Array, " batch"]
    action_key: Key[Array, " batch"]


def first_carry(state: PyTree[Array], tree: Tree | None = None) -> SearchCarry:
    return SearchCarry(ply=jnp.zeros((batch_size(state),), jnp.int32), tree=tree)


def next_carry(
    carry: SearchCarry,
    action: Int[Array, " batch"],
    next_state: PyTree[Array],
    last: Bool[Array, " batch"],
) -> SearchCarry:
    """One ply on, with what is left of the trees."""
    check_move(carry.ply.shape[0], action, next_state, last)
    tree = carry.tree
    if tree is not None:
        tree = subtree(tree, action, next_state, last)
    return SearchCarry(ply=jnp.where(last, 0, carry.ply + 1), tree=tree)


def kept_or_empty(carry: SearchCarry, batch: int, empty: Callable[[], Tree]) -> Tree:
    """The carry's trees, if it has any, which must be of the shapes of empty ones."""
    if carry.tree is None:
        check_carry(carry.ply, None, None, batch)
        return empty()
    check_carry(carry.ply, carry.tree, jax.eval_shape(empty), batch)
    return carry.tree


def evaluate_root(
    model: AbstractPriorModel, state: PyTree[Array], key: Key[Array, " batch"]
) -> Root:
    batch = batch_size(state)
    check_keys(key, batch)
    predict_key, *keys = jax.vmap(lambda k: tuple(jr.split(k, 4)))(key)
    logits, value = model.predict(state, key=predict_key)
    check_prediction(logits, value, batch, None)
    return Root(*masked_prediction(logits, value), *keys)


def num_actions(model: AbstractPriorModel, state: PyTree[Array]) -> int:
    """How many actions the model's prior has, found without running it."""

    def logits(state):
        return evaluate_root(model, state, jr.split(jr.key(0), batch_size(state))).logits

    return eqx.filter_eval_shape(logits, state).shape[1]


def play_visits(
    visits: Float[Array, "batch actions"],
    temperature: float | Temperature,
    ply: Int[Array, " batch"],
    key: Key[Array, " batch"],
) -> tuple[Int[Array, " batch"], Float[Array, "batch actions"]]:
    """An action drawn by visits, and the weights: visits over their sum, before temperature."""
    weights = visits / jnp.maximum(jnp.sum(visits, axis=1, keepdims=True), 1.0)
    heat = temperature(ply) if isinstance(temperature, Temperature) else temperature
    return sample_action(weights, heat, key=key), weights


def make_plan(
    root: NodeStatistics,
    action: Int[Array, " batch"],
    weights: Float[Array, "batch actions"],
    known: Bool[Array, "batch actions"] | None = None,
    value: Float[Array, " batch"] | None = None,
    **stats: Array,
) -> Plan:
    """Fills in what follows from the root: all candidates, and its value where no Q is `known`.

    Known are the visited ones, and the value is the root's, if nothing else is said.
    """
    value = root.value if value is None else value
    known = root.visits > 0 if known is None else known
    qvalues = jnp.where(known, root.qvalues, value[:, None])
    actions = jnp.arange(weights.shape[1], dtype=jnp.int32)[None]
    plan = Plan(
        action=action,
        candidates=jnp.broadcast_to(actions, weights.shape),
        weights=weights,
        qvalues=qvalues,
        advantages=qvalues - value[:, None],
        value=value,
        stats=stats,
    )
    if not isinstance(stats["invalid"], Tracer):
        check_plan(plan)
    return plan


def tree_stats(root: Root, before: Tree, after: Tree, search: SearchStats) -> dict[str, Array]:
    """What a tree planner reports of a search that turned planted trees into grown ones."""
    return {
        "depth": search.depth,
        "nodes": after.size,
        "reused": jnp.sum(statistics(before).visits, axis=1),
        "invalid": search.invalid + root.invalid.astype(jnp.int32),
    }


def default_room(num_simulations: int, max_nodes: int | None, reuse: bool) -> int:
    """Nodes for the root and every simulation; with reuse for twice as many."""
    return (2 if reuse else 1) * num_simulations + 1 if max_nodes is None else max_nodes
