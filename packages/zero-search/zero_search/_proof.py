"""What a tree proves of returns: bounds of every edge, from the ends of games upwards.

A finished game is worth exactly what it paid. So an edge that leads there is known exactly, and a
node whose edges are known, or cannot beat one that is, is too. Winands, Björnsson and Saito 2008,
"Monte-Carlo Tree Search Solver"; bounds instead of wins and losses as in Cazenave and Saffidine
2010, "Score Bounded Monte-Carlo Tree Search".
"""

import dataclasses

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ._model import AbstractPriorModel
from ._tree import FINAL
from ._types import Floats, Mask, NodeStatistics, PerAction


# Planes of `Tree.edge`, where bounds are kept.
LOW, HIGH = 2, 3


def check_provable(model: AbstractPriorModel, max_return: float | None) -> None:
    """Raises where proofs are asked for over a model in which one outcome proves nothing."""
    by_chance = ("random", "num_outcomes", "num_signals")
    if max_return is not None and any(getattr(model, name, 0) for name in by_chance):
        raise ValueError(
            f"`TreeSearch(max_return={max_return})` over a {type(model).__name__}, which is random "
            "or hides something, so that nothing is proven: leave `max_return` out."
        )


class Bounds(eqx.Module):
    """The least and the greatest return of each action of some nodes, for the player to move there.

    What is known exactly has two equal bounds: both are computed in the same way from a finished
    game upwards.
    """

    low: PerAction
    high: PerAction
    most: float  # the greatest return of all, either way

    @classmethod
    def of(cls, edge: Float[Array, "batch planes actions"], most: float) -> "Bounds":
        """Those that a tree keeps of edges. Nothing is known of one that was never visited."""
        seen = edge[:, 0] > 0
        low = jnp.where(seen, edge[:, LOW], -most)
        return cls(low, jnp.where(seen, edge[:, HIGH], most), most)

    @property
    def known(self) -> Mask:
        """Whether the return of an action is known exactly."""
        return self.low == self.high

    def told(self, taken: Mask, low: Floats, high: Floats) -> "Bounds":
        """The bounds once those of the actions `taken` are known to be `low` and `high`."""
        # Rounded, a sum of rewards may be more than the greatest return.
        low, high = (jnp.clip(x, -self.most, self.most)[:, None] for x in (low, high))
        raised = jnp.where(taken, jnp.maximum(self.low, low), self.low)
        lowered = jnp.where(taken, jnp.minimum(self.high, high), self.high)
        return Bounds(raised, lowered, self.most)

    def of_node(self, legal: Mask) -> tuple[Floats, Floats]:
        """The least and the greatest return of the nodes, whose player takes the best action."""
        some = jnp.any(legal, axis=1)
        low = jnp.max(jnp.where(legal, self.low, -self.most), axis=1)
        high = jnp.max(jnp.where(legal, self.high, -self.most), axis=1)
        return low, jnp.where(some, high, self.most)

    def proven(self, legal: Mask) -> Bool[Array, " batch"]:
        """Whether the returns of the nodes are known exactly."""
        low, high = self.of_node(legal)
        return jnp.any(legal, axis=1) & (low == high)

    def better(self, legal: Mask) -> Mask:
        """The legal actions that may be better than what the player is sure of."""
        return legal & (self.high > self.of_node(legal)[0][:, None])

    def best(self, legal: Mask) -> Mask:
        """The legal actions that no other one is better than for sure."""
        return legal & (self.high >= self.of_node(legal)[0][:, None])

    def unknown(self, legal: Mask) -> Mask:
        """The actions to search: those whose return is not known and may be better than what the
        player is sure of; at nodes that are proven, the best ones."""
        left = self.better(legal) & ~self.known
        return jnp.where(jnp.any(left, axis=1, keepdims=True), left, self.best(legal))

    def playable(self, legal: Mask, qvalues: PerAction, visits: PerAction) -> Mask:
        """The actions that a plan may take.

        An action of unknown return may be taken if it may be better than what the player is sure of
        and its Q-value is not below a known return. The best ones of known return may be taken
        unless such another action was visited and cannot be worse. If none of all these was
        visited, every legal action may be taken.
        """
        sure = jnp.max(jnp.where(legal & self.known, self.low, -jnp.inf), axis=1, keepdims=True)
        likely = self.better(legal) & ((visits == 0) | (qvalues >= sure))
        surpassed = jnp.any(likely & (visits > 0) & (self.low >= sure), axis=1, keepdims=True)
        found = (self.best(legal) & self.known & ~surpassed) | likely
        some = jnp.any(found & (visits > 0), axis=1, keepdims=True)
        return jnp.where(some, found, legal)


def behind(reward: Floats, discount: Floats, low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """The bounds of an edge from those of the node behind it: `r + d v`, where a negative discount
    changes the player.

    A discount of 0 before a node that is not known is an invalid step's, which proves nothing.
    """
    one, other = reward + discount * low, reward + discount * high
    nothing = jnp.where((discount == 0) & (low < high), jnp.inf, 0.0)
    return jnp.minimum(one, other) - nothing, jnp.maximum(one, other) + nothing


def among(node: NodeStatistics, allowed: Mask) -> NodeStatistics:
    """The statistics as if no other actions than these were legal."""
    return dataclasses.replace(node, prior=jnp.where(allowed[:, None], node.prior, -jnp.inf))


def sealed(
    code: Int[Array, " rows"], action: Int[Array, " rows"], bounds: Bounds
) -> Int[Array, " rows"]:
    """The codes of the children of these actions, where one whose return is known is final."""
    known = jnp.take_along_axis(bounds.known, action[:, None], axis=1)[:, 0]
    return jnp.where(known & (code >= 0), FINAL - code, code)
