"""Chance nodes: worlds in which outcomes with known probabilities follow the actions.

The search steps nodes of two kinds, decisions and afterstates, in turn. `ChanceNodes` makes such
a world of a chance model.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from ._check import (
    batch_size,
    check_afterstate_value,
    check_outcomes,
    check_prediction,
    check_step,
)
from ._model import AbstractChanceModel, AbstractPriorModel, Node
from ._rules import Outcomes, widened
from ._sample import safe_softmax, split_rows, where_rows


def sampled_step(
    model: AbstractChanceModel[Node, PyTree[Array]],
    node: Node,
    action: Int[Array, " batch"],
    *,
    key: Key[Array, " batch"],
) -> tuple[Node, Float[Array, " batch"], Float[Array, " batch"], Bool[Array, " batch"]]:
    """The `step` of a chance model: draws an outcome from its probabilities and resolves it."""
    afterstate = model.afterstate(node, action)
    outcome = _drawn_outcome(model.outcome_logits(afterstate), key)
    return model.resolve(afterstate, outcome)


class ChanceNode(eqx.Module):
    """A decision, or an afterstate with the node behind its first outcome.

    `reward` and `discount` are those of the move that led to `node`, for the player who acted.
    `chance` is 0 at a decision; at an afterstate it is above 0 and up to 1, and drawn outcomes
    follow from it.
    """

    node: PyTree[Array]
    afterstate: PyTree[Array]
    reward: Float[Array, "*rows"]
    discount: Float[Array, "*rows"]
    chance: Float[Array, "*rows"]


class ChanceNodes(AbstractPriorModel[ChanceNode]):
    """A chance model as a model in which actions and outcomes take turns.

    The reward and discount of a move lie on its outcome's edge; the edge to the afterstate has
    reward 0 and discount 1, so the value of an afterstate is the acting player's. Logits are as
    wide as the larger number of actions and outcomes.
    """

    model: AbstractChanceModel
    num_actions: int
    num_outcomes: int
    sampled: bool

    def root(
        self, state: PyTree[Array], obs: PyTree[Array], *, key: Key[Array, " batch"]
    ) -> ChanceNode:
        return self.decision(self.model.root(state, obs, key=key))

    def decision(self, node: PyTree[Array]) -> ChanceNode:
        """The decision to be made at `node`."""
        zero = jnp.zeros((batch_size(node),), jnp.float32)
        shapes = _afterstate_shapes(self.model, node)
        afterstate = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
        return ChanceNode(node, afterstate, zero, zero, zero)

    def step(
        self, node: ChanceNode, action: Int[Array, " batch"], *, key: Key[Array, " batch"]
    ) -> tuple[ChanceNode, Float[Array, " batch"], Float[Array, " batch"], Bool[Array, " batch"]]:
        """Resolves the outcome taken or, after an action, the first one of its afterstate."""
        at_chance, batch = node.chance > 0, action.shape[0]
        fresh = self.model.afterstate(node.node, jnp.minimum(action, self.num_actions - 1))
        after = where_rows(at_chance, node.afterstate, fresh)
        logits = self.model.outcome_logits(after)
        check_outcomes(logits, batch, self.num_outcomes)
        if self.sampled:
            dkey, ckey = split_rows(key, 2)
            first = _drawn_outcome(logits, dkey)
            draw = lambda k: 1.0 - jr.uniform(k, (), jnp.float32)  # above 0
            seed = jax.vmap(draw)(ckey)
        else:
            # Of the probabilities, as the search has them: rounding may make equals of two.
            probs = safe_softmax(logits.astype(jnp.float32))
            first, seed = jnp.argmax(probs, axis=1).astype(jnp.int32), 1.0
        outcome = jnp.where(at_chance, jnp.minimum(action, self.num_outcomes - 1), first)
        behind, reward, discount, last = self.model.resolve(after, outcome)
        check_step(node.node, behind, reward, discount, last, "resolve")
        goes_on = ~last & (discount != 0)
        reward, discount = reward.astype(jnp.float32), discount.astype(jnp.float32)
        possible = jnp.sum(logits > -jnp.inf, axis=1, dtype=jnp.int32)
        chance = ~at_chance & (possible > 1)
        unknown = jnp.any(~(logits < jnp.inf), axis=1) | ((possible == 0) & goes_on)
        told = jnp.where(chance, 0.0, reward)
        return (
            ChanceNode(behind, after, reward, discount, jnp.where(chance, seed, 0.0)),
            # The search replaces a NaN and counts it: nothing else would tell of a wrong law.
            jnp.where(unknown, jnp.nan, told),
            jnp.where(chance, 1.0, discount),
            last & ~chance,
        )

    def predict(
        self, node: ChanceNode, *, key: Key[Array, " batch"]
    ) -> tuple[Float[Array, "batch columns"], Float[Array, " batch"]]:
        pkey, akey = split_rows(key, 2)
        logits, value = self.model.predict(node.node, key=pkey)
        batch, chance = node.chance.shape[0], node.chance > 0
        check_prediction(logits, value, batch, self.num_actions)
        value = value.astype(jnp.float32)
        expected = self.model.afterstate_value(node.afterstate, key=akey)
        if expected is None:
            future = jnp.where(node.discount == 0, 0.0, node.discount * value)
            expected = node.reward + future
        else:
            check_afterstate_value(expected, batch)
        outcomes = self.model.outcome_logits(node.afterstate)
        logits, outcomes = (widened(x.astype(jnp.float32), self.width) for x in (logits, outcomes))
        logits = jnp.where(chance[:, None], outcomes, logits)
        return logits, jnp.where(chance, expected.astype(jnp.float32), value)

    @property
    def width(self) -> int:
        return max(self.num_actions, self.num_outcomes)


def chance_nodes(
    model: AbstractChanceModel, node: PyTree[Array], num_actions: int, rule: str
) -> tuple[ChanceNodes, Outcomes]:
    """The model with afterstates as nodes, and how the search treats them."""
    number = model.num_outcomes
    keys = jr.split(jr.key(0), batch_size(node))
    shapes = _afterstate_shapes(model, node)
    value = eqx.filter_eval_shape(lambda x: model.afterstate_value(x, key=keys), shapes)
    outcomes = Outcomes(rule, value is None, num_actions, number)
    return ChanceNodes(model, num_actions, number, rule == "sampled"), outcomes


def _afterstate_shapes(model: AbstractChanceModel, node: PyTree[Array]) -> PyTree:
    first = jnp.zeros((batch_size(node),), jnp.int32)
    return eqx.filter_eval_shape(model.afterstate, node, first)


def _drawn_outcome(
    logits: Float[Array, "batch outcomes"], key: Key[Array, " batch"]
) -> Int[Array, " batch"]:
    return jax.vmap(jr.categorical)(key, logits).astype(jnp.int32)
