"""Chance nodes: worlds in which random outcomes follow the actions.

The search steps nodes of two kinds, decisions and afterstates, in turn. `ChanceNodes` makes such
a world of a chance model, and `Outcomes` says how its chance nodes are searched. `DrawnOutcomes`
makes a chance model of any other one that draws.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax.core import Tracer
from jaxtyping import Array, Float, Int, PyTree, UInt32

from ._check import batch_size, check_answer, check_range, check_step
from ._model import AbstractChanceModel, AbstractPriorModel, predicted, stepped
from ._rules import highest, MeanBackup
from ._sample import inverted, safe_softmax, seeds, split_rows, uniform, where_rows
from ._types import Bools, Floats, Ints, Keys, Node, NodeStatistics, Prediction, Stepped


#: The rules of `TreeSearch(outcomes=...)`; the last one is a search without chance nodes.
OUTCOMES = ("proportional", "weighted", "sampled", "drawn", "frozen")

# Added before a number of outcomes is rounded down: the root of a square may be a little too small.
_ROUNDING = 1e-3


def sampled_step(
    model: AbstractChanceModel[Node, PyTree[Array]], node: Node, action: Ints, *, key: Keys
) -> Stepped[Node]:
    """The `step` of a chance model: draws an outcome from its probabilities and resolves it. Where
    the logits are not those of probabilities, the reward is NaN, which planners replace and count.
    """
    afterstate = model.afterstate(node, action)
    logits = model.outcome_logits(afterstate)
    after, reward, discount, last = model.resolve(afterstate, _drawn_outcome(logits, key))
    unknown = _unknown(logits, ~last & (discount != 0))
    reward = jnp.where(unknown, jnp.nan, reward.astype(jnp.float32))
    return after, reward, discount, last


class Widening(eqx.Module):
    """How many outcomes a search draws of an action whose odds are not known: progressive widening.

    After `n` visits an action has at most `k * n**alpha` outcomes. They are visited in turn and the
    action is worth their mean, which converges to the expectation as `n` grows, if `alpha` is above
    0 and below 1. An outcome that is drawn twice counts twice. A node has room for the outcomes of
    an action that takes all simulations, and all nodes of a tree as much.

    **Arguments:**

    - `k`: 1 or more.
    - `alpha`: from 0, with which there are at most `k`, to 1, with which every visit draws another
        outcome and nothing behind one is searched.

    Couetoux, Hoock, Sokolovska, Teytaud and Bonnard 2011, "Continuous upper confidence trees",
    section 3.
    """

    k: float = 2.0
    alpha: float = 0.5

    def __check_init__(self):
        if isinstance(self.k, Tracer) or isinstance(self.alpha, Tracer):
            raise ValueError(
                "`Widening` was given a traced number; it decides how large a tree is, so give "
                "numbers that are known."
            )
        check_range("Widening", 1, k=self.k)
        check_range("Widening", 0, 1, alpha=self.alpha)

    def check(self, visits: int) -> None:
        """Raises where an action never has a second outcome in so many visits, if it has two."""
        if visits > 1 and self.most(visits) < 2:
            raise ValueError(
                f"`Widening(k={self.k:g}, alpha={self.alpha:g})`: never widens in {visits} "
                "simulations, so that one outcome stays; give a larger k or alpha, or "
                '`TreeSearch(outcomes="frozen")`.'
            )

    def most(self, visits: int) -> int:
        """The number of outcomes after so many visits."""
        return max(1, int(min(visits, self.k * visits**self.alpha + _ROUNDING)))

    def room(self, visits: Floats) -> Floats:
        """The same for arrays, and at least 1."""
        return jnp.maximum(jnp.floor(self.k * visits**self.alpha + _ROUNDING), 1.0)


class DrawnNode(eqx.Module):
    """A node and what is drawn behind it."""

    node: PyTree[Array]
    seed: UInt32[Array, "*rows"]


class DrawnAfterstate(eqx.Module):
    """An action at a node, and what its outcomes are drawn from."""

    node: PyTree[Array]
    action: Int[Array, "*rows"]
    seed: UInt32[Array, "*rows"]


class DrawnOutcomes(AbstractChanceModel[DrawnNode, DrawnAfterstate]):
    """A model whose `step` draws, as one with `num_outcomes` draws of each action that are equally
    likely. A draw follows from the node's seed, so that it can be made again.
    """

    model: AbstractPriorModel
    number: int

    @property
    def num_outcomes(self) -> int:
        return self.number

    def seeded(self, node: PyTree[Array], key: Keys) -> DrawnNode:
        return DrawnNode(node, seeds(key))

    def root(self, state: PyTree[Array], obs: PyTree[Array], *, key: Keys) -> DrawnNode:
        root_key, seed_key = split_rows(key, 2)
        return self.seeded(self.model.root(state, obs, key=root_key), seed_key)

    def step(self, node: DrawnNode, action: Ints, *, key: Keys) -> Stepped[DrawnNode]:
        return sampled_step(self, node, action, key=key)

    def predict(self, node: DrawnNode, *, key: Keys) -> Prediction:
        return self.model.predict(node.node, key=key)

    def afterstate(self, node: DrawnNode, action: Ints) -> DrawnAfterstate:
        return DrawnAfterstate(node.node, action, seeds(_keys(node.seed, action)))

    def outcome_logits(self, afterstate: DrawnAfterstate) -> Float[Array, "batch outcomes"]:
        return jnp.zeros((*afterstate.seed.shape, self.number), jnp.float32)

    def afterstate_value(self, afterstate: DrawnAfterstate, *, key: Keys) -> None:
        return None

    def resolve(self, afterstate: DrawnAfterstate, outcome: Ints) -> Stepped[DrawnNode]:
        step_key, seed_key = split_rows(_keys(afterstate.seed, outcome), 2)
        found = stepped(self.model, afterstate.node, afterstate.action, step_key)
        return self.seeded(found[0], seed_key), *found[1:]


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

    With `expected` an afterstate is worth `sum(p * (reward + discount * value))` over all outcomes,
    evaluated in one batch, whatever the model itself says of it.
    """

    model: AbstractChanceModel
    num_actions: int
    num_outcomes: int
    sampled: bool
    expected: bool

    def root(self, state: PyTree[Array], obs: PyTree[Array], *, key: Keys) -> ChanceNode:
        return self.decision(self.model.root(state, obs, key=key))

    def decision(self, node: PyTree[Array]) -> ChanceNode:
        """The decision to be made at `node`."""
        zero = jnp.zeros((batch_size(node),), jnp.float32)
        shapes = _afterstate_shapes(self.model, node)
        afterstate = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
        return ChanceNode(node, afterstate, zero, zero, zero)

    def step(self, node: ChanceNode, action: Ints, *, key: Keys) -> Stepped[ChanceNode]:
        """Resolves the outcome taken or, after an action, the first one of its afterstate."""
        at_chance, batch = node.chance > 0, action.shape[0]
        fresh = self.model.afterstate(node.node, jnp.minimum(action, self.num_actions - 1))
        after = where_rows(at_chance, node.afterstate, fresh)
        logits = self.model.outcome_logits(after)
        each = (
            f"one log-probability for each of the `num_outcomes={self.num_outcomes}` outcomes of "
            "every afterstate"
        )
        shape = batch, self.num_outcomes
        check_answer("outcome_logits", logits, "float", shape, "afterstates", each)
        if self.sampled:
            dkey, ckey = split_rows(key, 2)
            first = _drawn_outcome(logits, dkey)
            seed = 1.0 - uniform(ckey)  # above 0
        else:
            # Of the probabilities, as the search has them: rounding may make equals of two.
            probs = safe_softmax(logits.astype(jnp.float32))
            first, seed = jnp.argmax(probs, axis=1).astype(jnp.int32), jnp.float32(1)
        outcome = jnp.where(at_chance, jnp.minimum(action, self.num_outcomes - 1), first)
        found = self.model.resolve(after, outcome)
        check_step(node.node, found, "resolve")
        behind, reward, discount, last = found
        goes_on = ~last & (discount != 0)
        reward, discount = reward.astype(jnp.float32), discount.astype(jnp.float32)
        possible = jnp.sum(logits > -jnp.inf, axis=1, dtype=jnp.int32)
        chance = ~at_chance & (possible > 1)
        unknown = _unknown(logits, goes_on)
        told = jnp.where(chance, 0.0, reward)
        return (
            ChanceNode(behind, after, reward, discount, jnp.where(chance, seed, 0.0)),
            # The search replaces a NaN and counts it: nothing else would tell of a wrong law.
            jnp.where(unknown, jnp.nan, told),
            jnp.where(chance, 1.0, discount),
            last & ~chance,
        )

    def predict(
        self, node: ChanceNode, *, key: Keys
    ) -> tuple[Float[Array, "batch columns"], Floats]:
        pkey, akey = split_rows(key, 2)
        logits, value = predicted(self.model, node.node, pkey, self.num_actions)
        value, chance = value.astype(jnp.float32), node.chance > 0
        expected = self.value(node.afterstate, key=akey)
        if expected is None:
            future = jnp.where(node.discount == 0, 0.0, node.discount * value)
            expected = node.reward + future
        outcomes = self.model.outcome_logits(node.afterstate)
        logits, outcomes = (widened(x.astype(jnp.float32), self.width) for x in (logits, outcomes))
        logits = jnp.where(chance[:, None], outcomes, logits)
        return logits, jnp.where(chance, expected.astype(jnp.float32), value)

    def value(self, afterstate: PyTree[Array], *, key: Keys) -> Floats | None:
        """Of afterstates; `None` if it is that of the node behind their first outcome."""
        if not self.expected:
            value = self.model.afterstate_value(afterstate, key=key)
            if value is not None:
                shape, each = key.shape, "one value for every afterstate"
                check_answer("afterstate_value", value, "float", shape, "afterstates", each)
            return value
        probs = safe_softmax(self.model.outcome_logits(afterstate).astype(jnp.float32))
        batch, number = probs.shape
        every = jax.tree.map(lambda x: jnp.repeat(x, number, axis=0), afterstate)
        outcomes = jnp.tile(jnp.arange(number, dtype=jnp.int32), batch)
        node, reward, discount, _ = self.model.resolve(every, outcomes)
        keys = jax.vmap(lambda k: jr.split(k, number))(key).reshape(-1)
        _, value = predicted(self.model, node, keys, self.num_actions)
        future = jnp.where(discount == 0, 0.0, discount * value.astype(jnp.float32))
        worth = (reward + future).reshape(batch, number)
        return jnp.sum(jnp.where(probs > 0, probs * worth, 0.0), axis=1)

    @property
    def width(self) -> int:
        return max(self.num_actions, self.num_outcomes)


class Outcomes(eqx.Module):
    """How chance nodes are searched: one of the `OUTCOMES` but the last.

    With `through` the value of an afterstate is that of the node behind its first outcome, the
    likeliest or the drawn one: its own value then stands for a visit of that outcome.
    """

    rule: str
    through: bool
    num_actions: int
    num_outcomes: int
    widening: Widening

    def choose(self, node: NodeStatistics, chance: Floats) -> Ints:
        """The outcome to visit next; `node` has columns of outcomes."""
        probs = node.probabilities
        if self.rule == "sampled":
            return _drawn(probs, chance, node.count)
        counted = node.visits + (_first(probs) if self.through else 0.0)
        lag = probs / (counted + 1.0)
        if self.rule == "weighted":
            lag = jnp.where((counted == 0) & (probs > 0), 1.0 + probs, lag)
        if self.rule == "drawn":
            there = jnp.arange(self.num_outcomes, dtype=jnp.float32)
            room = self.widening.room(node.count)
            lag = jnp.where(there[None] < room[:, None], lag, -jnp.inf)
        return highest(jnp.where(node.legal, lag, -jnp.inf))

    def value(self, node: NodeStatistics, outcome: Floats) -> Floats:
        """What afterstates are worth, from the statistics of their outcomes alone."""
        if self.rule not in ("weighted", "drawn"):
            return MeanBackup()(node, outcome)
        probs, visits, qvalues = node.probabilities, node.visits, node.qvalues
        own = node.raw_value[:, None]
        if self.through:
            stands_in = (_first(probs) > 0) & (visits == 0)
            qvalues, visits = jnp.where(stands_in, own, qvalues), jnp.where(stands_in, 1.0, visits)
        known = jnp.where(visits > 0, jnp.maximum(probs, 0.0), 0.0)
        worth = jnp.sum(jnp.where(known > 0, known * qvalues, 0.0), axis=1)
        mass = jnp.sum(known, axis=1)
        if self.through:  # nothing is known of the others
            return worth / jnp.where(mass > 0, mass, 1.0)
        return worth + (1.0 - mass) * node.raw_value

    def passed_on(self, outcome: Floats, value: Floats) -> Floats:
        """What chance nodes pass on. Where each outcome is visited once before any comes twice, it
        is their value: a mean of what was returned would count rare outcomes too often."""
        return value if self.rule == "weighted" else outcome


def chance_nodes(
    model: AbstractChanceModel,
    node: PyTree[Array],
    num_actions: int,
    rule: str,
    expected: bool,
    widening: Widening,
) -> tuple[ChanceNodes, Outcomes]:
    """The model with afterstates as nodes, and how the search treats them."""
    number = model.num_outcomes
    world = ChanceNodes(model, num_actions, number, rule == "sampled", expected)
    shapes = _afterstate_shapes(model, node)
    keys = jr.split(jr.key(0), batch_size(node))
    value = eqx.filter_eval_shape(lambda x: world.value(x, key=keys), shapes)
    return world, Outcomes(rule, value is None, num_actions, number, widening)


def decision(node: Any) -> Any:
    """The model's nodes; where the search steps a `ChanceNode`, the one that it holds (at a chance
    node, the one behind its first outcome). The leaves may also be NumPy arrays."""
    if isinstance(node, ChanceNode):
        node = node.node
    return node.node if isinstance(node, DrawnNode) else node


def is_chance(node: Any) -> Any:
    """Which are chance nodes; `None` in a world without them."""
    return node.chance > 0 if isinstance(node, ChanceNode) else None


def widened(x: Float[Array, "*axes columns"], width: int) -> Float[Array, "*axes {width}"]:
    """With columns of `-inf` up to `width`."""
    pad = [(0, 0)] * (x.ndim - 1) + [(0, width - x.shape[-1])]
    return jnp.pad(x, pad, constant_values=-jnp.inf)


def _afterstate_shapes(model: AbstractChanceModel, node: PyTree[Array]) -> PyTree:
    first = jnp.zeros((batch_size(node),), jnp.int32)
    return eqx.filter_eval_shape(model.afterstate, node, first)


def _unknown(logits: Float[Array, "batch outcomes"], goes_on: Bools) -> Bools:
    """Which rows are not logits of probabilities. After the end of a game all may be `-inf`."""
    impossible = jnp.all(logits == -jnp.inf, axis=1)
    return jnp.any(~(logits < jnp.inf), axis=1) | (impossible & goes_on)


def _drawn_outcome(logits: Float[Array, "batch outcomes"], key: Keys) -> Ints:
    return jax.vmap(jr.categorical)(key, logits).astype(jnp.int32)


def _keys(seed: UInt32[Array, " batch"], number: Ints) -> Keys:
    return jax.vmap(lambda bits, i: jr.fold_in(jr.key(bits), i))(seed, number)


def _first(probs: Float[Array, "batch outcomes"]) -> Float[Array, "batch outcomes"]:
    """1 for the outcome that a new afterstate is resolved to, unless one is drawn."""
    return jax.nn.one_hot(jnp.argmax(probs, axis=1), probs.shape[1], dtype=jnp.float32)


def _drawn(probs: Float[Array, "batch outcomes"], seed: Floats, count: Floats) -> Ints:
    """The outcome of a node's visit number `count`, by inverting the distribution."""
    keys = _keys(jax.lax.bitcast_convert_type(seed, jnp.uint32), count.astype(jnp.int32))
    return inverted(probs, uniform(keys))
