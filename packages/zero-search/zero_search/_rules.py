"""The replaceable parts of a search together, and how chance nodes are searched."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int

from ._backup import AbstractBackup, back_up, MeanBackup
from ._sample import safe_softmax
from ._select import AbstractSelection, best_action, highest, prepare
from ._statistics import NodeStatistics


#: The rules of `TreeSearch(outcomes=...)`.
RULES = ("proportional", "weighted", "sampled")


class Outcomes(eqx.Module):
    """How chance nodes are searched: one of the `RULES`.

    With `through` the value of an afterstate is that of the node behind its first outcome, the
    likeliest or the drawn one: its own value then stands for a visit of that outcome.
    """

    rule: str
    through: bool
    num_actions: int
    num_outcomes: int

    def choose(self, node: NodeStatistics, chance: Float[Array, " rows"]) -> Int[Array, " rows"]:
        """The outcome to visit next; `node` has columns of outcomes."""
        probs = node.probabilities
        if self.rule == "sampled":
            return _drawn(probs, chance, node.count)
        counted = node.visits + (_first(probs) if self.through else 0.0)
        lag = probs / (counted + 1.0)
        if self.rule == "weighted":
            lag = jnp.where((counted == 0) & (probs > 0), 1.0 + probs, lag)
        return highest(jnp.where(node.legal, lag, -jnp.inf))

    def value(self, node: NodeStatistics, outcome: Float[Array, " rows"]) -> Float[Array, " rows"]:
        """What afterstates are worth, from the statistics of their outcomes alone."""
        if self.rule != "weighted":
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


class Rules(eqx.Module):
    """The replaceable parts of a search.

    **Attributes:**

    - `selection`, `backup`: which action to try next, and what a node's value becomes.
    - `outcomes`: how chance nodes are searched; `None` in a world without them.
    - `max_depth`: nothing deeper is expanded; a leaf there is revisited with its first value.
    - `stop_at_final`: revisit final nodes; otherwise expand below them like anywhere else.
    - `num_leaves`: walks of a game before their leaves are evaluated together.
    - `virtual_loss`: how many losing visits a walk counts for until its leaf is evaluated.
    """

    selection: AbstractSelection
    backup: AbstractBackup = MeanBackup()
    outcomes: Outcomes | None = None
    max_depth: int | None = None
    stop_at_final: bool = True
    num_leaves: int = 1
    virtual_loss: float = 1.0

    def prior(
        self, logits: Float[Array, "rows columns"], chance: Float[Array, " rows"] | None = None
    ) -> Float[Array, "rows features columns"]:
        """What the tree keeps of the logits of new nodes; `chance` is above 0 at chance nodes."""
        if self.outcomes is None or chance is None:
            return prepare(self.selection, logits)
        features = prepare(self.selection, logits[:, : self.outcomes.num_actions])
        outcomes = logits[:, : self.outcomes.num_outcomes]
        odds = jnp.where(outcomes > -jnp.inf, safe_softmax(outcomes), -jnp.inf)
        width = logits.shape[1]
        odds = jnp.broadcast_to(widened(odds, width)[:, None], (*features.shape[:2], width))
        return jnp.where((chance > 0)[:, None, None], odds, widened(features, width))

    def decisions(self, node: NodeStatistics) -> NodeStatistics:
        """The statistics with the columns of actions alone."""
        return node if self.outcomes is None else _columns(node, self.outcomes.num_actions)

    def choose(
        self, node: NodeStatistics, chance: Float[Array, " rows"] | None
    ) -> Int[Array, " rows"]:
        """The action, or at a chance node the outcome, to take next."""
        action = best_action(self.selection, self.decisions(node))
        if self.outcomes is None or chance is None:
            return action
        outcome = self.outcomes.choose(_columns(node, self.outcomes.num_outcomes), chance)
        return jnp.where(chance > 0, outcome, action)

    def value(
        self,
        node: NodeStatistics,
        chance: Float[Array, " rows"] | None,
        outcome: Float[Array, " rows"],
    ) -> Float[Array, " rows"]:
        """The new values of nodes after a simulation whose return from there is `outcome`."""
        value = back_up(self.backup, self.decisions(node), outcome)
        if self.outcomes is None or chance is None:
            return value
        expected = self.outcomes.value(_columns(node, self.outcomes.num_outcomes), outcome)
        return jnp.where(chance > 0, expected, value)


def widened(x: Float[Array, "*axes columns"], width: int) -> Float[Array, "*axes {width}"]:
    """With columns of `-inf` up to `width`."""
    pad = [(0, 0)] * (x.ndim - 1) + [(0, width - x.shape[-1])]
    return jnp.pad(x, pad, constant_values=-jnp.inf)


def _columns(node: NodeStatistics, number: int) -> NodeStatistics:
    prior, visits, qvalues = (x[..., :number] for x in (node.prior, node.visits, node.qvalues))
    return dataclasses.replace(node, prior=prior, visits=visits, qvalues=qvalues)


def _first(probs: Float[Array, "rows outcomes"]) -> Float[Array, "rows outcomes"]:
    """1 for the outcome that a new afterstate is resolved to, unless one is drawn."""
    return jax.nn.one_hot(jnp.argmax(probs, axis=1), probs.shape[1])


def _drawn(
    probs: Float[Array, "rows outcomes"],
    seed: Float[Array, " rows"],
    count: Float[Array, " rows"],
) -> Int[Array, " rows"]:
    """The outcome of a node's visit number `count`, by inverting the distribution."""

    def uniform(seed, count):
        bits = jax.lax.bitcast_convert_type(seed, jnp.uint32)
        return jr.uniform(jr.fold_in(jr.key(bits), count.astype(jnp.int32)), (), jnp.float32)

    below = jnp.cumsum(jnp.maximum(probs, 0.0), axis=1)
    threshold = jax.vmap(uniform)(seed, count) * below[:, -1]
    drawn = jnp.sum((below <= threshold[:, None]).astype(jnp.int32), axis=1)
    return jnp.minimum(drawn, probs.shape[1] - 1)
