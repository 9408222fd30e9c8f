"""Chance as one more player: a game in which actions and outcomes take turns.

A node's columns are the actions and then the outcomes; a decision may only take the first, chance
only the second. So to the search everything is an action, and what tells the two apart is in the
model (`Plies`) and in the selection rule (`ByKind`).
"""

from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from .._backup import AbstractBackup, back_up
from .._check import (
    batch_size,
    check_afterstate_value,
    check_outcomes,
    check_prediction,
    check_step,
)
from .._model import AbstractPriorModel
from .._noise import AbstractRootNoise
from .._sample import safe_softmax
from .._select import AbstractSelection
from .._statistics import NodeStatistics
from ._model import (
    AbstractAfterstateModel,
    AbstractChanceModel,
    draw_outcome,
)
from ._outcomes import Outcomes


Afterstate = TypeVar("Afterstate")


class Node(eqx.Module):
    """A state to decide in, or an afterstate with the state behind its first outcome.

    `reward` and `discount` are those of the move that led to `state`, for the player who acted.
    """

    state: PyTree[Array]
    afterstate: PyTree[Array]
    reward: Float[Array, " batch"]
    discount: Float[Array, " batch"]
    chance: Bool[Array, " batch"]


class Plies(AbstractPriorModel[Node]):
    """A chance model as a model in which actions and outcomes take turns.

    The reward and discount of a move, gamma included, lie on its outcome's edge; the edge to the
    afterstate has reward 0 and discount 1, so an afterstate's value is the acting player's.
    """

    model: AbstractChanceModel
    gamma: float
    num_actions: int
    sampled: bool

    def root(self, state: PyTree[Array]) -> Node:
        batch = batch_size(state)
        first = jnp.zeros((batch,), jnp.int32)
        shapes = eqx.filter_eval_shape(self.model.afterstate, state, first)
        zero = jnp.zeros((batch,), jnp.float32)
        return Node(
            state=state,
            afterstate=jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes),
            reward=zero,
            discount=zero,
            chance=jnp.zeros((batch,), jnp.bool_),
        )

    def step(
        self, state: Node, action: Int[Array, " batch"], *, key: Key[Array, " batch"]
    ) -> tuple[Node, Float[Array, " batch"], Float[Array, " batch"], Bool[Array, " batch"]]:
        """Resolves the outcome taken or, after an action, the first one of its afterstate."""
        node, actions, batch = state, self.num_actions, action.shape[0]
        fresh = self.model.afterstate(node.state, jnp.minimum(action, actions - 1))
        after = _where(node.chance, node.afterstate, fresh)
        logits = self.model.outcome_logits(after)
        check_outcomes(logits, batch)
        if self.sampled:
            first = draw_outcome(logits, key=key)
        else:
            # Of the probabilities, as the search has them: rounding may make equals of two.
            probs = safe_softmax(logits.astype(jnp.float32))
            first = jnp.argmax(probs, axis=1).astype(jnp.int32)
        taken = jnp.clip(action - actions, 0, logits.shape[1] - 1)
        outcome = jnp.where(node.chance, taken, first)
        after_state, reward, discount, last = self.model.resolve(after, outcome)
        check_step(node.state, after_state, reward, discount, last, "resolve")
        goes_on = ~last & (discount != 0)
        reward, discount = reward.astype(jnp.float32), self.gamma * discount.astype(jnp.float32)
        possible = jnp.sum(logits > -jnp.inf, axis=1, dtype=jnp.int32)
        chance = ~node.chance & (possible > 1)
        unknown = jnp.any(~(logits < jnp.inf), axis=1) | ((possible == 0) & goes_on)
        told = jnp.where(chance, 0.0, reward)
        return (
            Node(after_state, after, reward, discount, chance),
            # The search replaces a NaN and counts it: nothing else would tell of a wrong law.
            jnp.where(unknown, jnp.nan, told),
            jnp.where(chance, 1.0, discount),
            last & ~chance,
        )

    def predict(
        self, state: Node, *, key: Key[Array, " batch"]
    ) -> tuple[Float[Array, "batch columns"], Float[Array, " batch"]]:
        node, legal = state, state.chance[:, None]
        keys = jax.vmap(lambda k: tuple(jr.split(k, 3)))(key)
        predict_key, value_key, seed_key = keys
        logits, value = self.model.predict(node.state, key=predict_key)
        check_prediction(logits, value, node.reward.shape[0], self.num_actions)
        value = value.astype(jnp.float32)
        if isinstance(self.model, AbstractAfterstateModel):
            expected = self.model.afterstate_value(node.afterstate, key=value_key)
            check_afterstate_value(expected, node.reward.shape[0])
            expected = expected.astype(jnp.float32)
        else:
            future = jnp.where(node.discount == 0, 0.0, node.discount * value)
            expected = node.reward + future
        outcomes = [self.model.outcome_logits(node.afterstate).astype(jnp.float32)]
        if self.sampled:
            outcomes += [jax.vmap(lambda k: jr.uniform(k, (1,), jnp.float32))(seed_key)]
        columns = [jnp.where(legal, -jnp.inf, logits.astype(jnp.float32))]
        columns += [jnp.where(legal, x, -jnp.inf) for x in outcomes]
        return jnp.concatenate(columns, axis=1), jnp.where(node.chance, expected, value)


class ByKind(AbstractSelection):
    """Scores actions by the given rule and outcomes by theirs.

    When outcomes are sampled a chance node needs a seed: a rule has no key, and a node is scored
    once for each of its visits. It comes as a last column of the logits, is kept as the first
    feature of all the others, and its own column is illegal.
    """

    selection: AbstractSelection
    outcomes: Outcomes
    num_actions: int

    def prepare(
        self, logits: Float[Array, "rows columns"]
    ) -> Float[Array, "rows features columns"]:
        sampled = self.outcomes.sampled
        split = [self.num_actions, logits.shape[1] - int(sampled)]
        actions, outcomes, seed = jnp.split(logits, split, axis=1)
        features = self.selection.prepare(actions)
        chance = safe_softmax(outcomes)[:, None]
        shape = (*features.shape[:2], chance.shape[2])
        features = jnp.concatenate([features, jnp.broadcast_to(chance, shape)], axis=2)
        if not sampled:
            return features
        kept = jnp.where(seed > -jnp.inf, seed, 0.0)[:, :, None]
        kept = jnp.broadcast_to(kept, (kept.shape[0], 1, features.shape[2]))
        features = jnp.concatenate([kept, features], axis=1)
        return jnp.pad(features, ((0, 0), (0, 0), (0, 1)), constant_values=-jnp.inf)

    def score(self, node: NodeStatistics) -> Float[Array, "rows columns"]:
        sampled = self.outcomes.sampled
        actions, outcomes = _by_kind(node, self.num_actions, sampled)
        seed = jnp.max(node.prior[:, 0], axis=1) if sampled else None
        decision = self.selection.score(actions)
        chance = self.outcomes.score(outcomes.probabilities, outcomes.visits, outcomes.count, seed)
        no_action = node.probabilities[:, node.visits.shape[1] - int(sampled) :]
        return jnp.concatenate([decision, chance, no_action], axis=1)


class ByKindBackup(AbstractBackup):
    """Backs decisions up by the given rule and afterstates by that of their outcomes."""

    backup: AbstractBackup
    outcomes: Outcomes
    num_actions: int

    def __call__(
        self, node: NodeStatistics, outcome: Float[Array, " rows"]
    ) -> Float[Array, " rows"]:
        actions, outcomes = _by_kind(node, self.num_actions, self.outcomes.sampled)
        decision = back_up(self.backup, actions, outcome)
        chance = ~jnp.any(actions.probabilities > -jnp.inf, axis=1)
        return jnp.where(chance, self.outcomes.value(outcomes, outcome), decision)


class ActionNoise(AbstractRootNoise):
    """Shows the given noise the actions only."""

    noise: AbstractRootNoise
    num_actions: int

    def __call__(
        self, logits: Float[Array, "batch columns"], *, key: Key[Array, " batch"]
    ) -> Float[Array, "batch columns"]:
        noisy = self.noise(logits[:, : self.num_actions], key=key)
        return jnp.concatenate([noisy, logits[:, self.num_actions :]], axis=1)


def _by_kind(
    node: NodeStatistics, num_actions: int, sampled: bool
) -> tuple[NodeStatistics, NodeStatistics]:
    """What the given rule may see, its own features of the actions; and the outcomes."""

    def cut(start: int, stop: int) -> NodeStatistics:
        columns = (node.prior[:, int(sampled) :], node.visits, node.qvalues)
        where = lambda n: (n.prior, n.visits, n.qvalues)
        return eqx.tree_at(where, node, tuple(x[..., start:stop] for x in columns))

    return cut(0, num_actions), cut(num_actions, node.visits.shape[1] - int(sampled))


def _where(chance: Bool[Array, " batch"], x: Afterstate, y: Afterstate) -> Afterstate:
    """Row by row, over any pytree."""

    def pick(x: Array, y: Array) -> Array:
        return jnp.where(chance.reshape((-1,) + (1,) * (x.ndim - 1)), x, y)

    return jax.tree.map(pick, x, y)
