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

from ._types import Floats, NodeStatistics, PerAction


class Bounds(eqx.Module):
    """The least and the greatest return of each action of some nodes, for the player to move there.

    A tree keeps by how much both are nearer than `most`, the greatest return of all, so that 0 is
    an action of which nothing is known.
    """

    raised: PerAction
    lowered: PerAction
    most: float = eqx.field(static=True)

    @classmethod
    def of(cls, edge: Float[Array, "batch planes actions"], most: float) -> "Bounds":
        """Of edges whose last two planes they are."""
        return cls(edge[:, -2], edge[:, -1], most)

    @property
    def low(self) -> PerAction:
        return self.raised - self.most

    @property
    def high(self) -> PerAction:
        return self.most - self.lowered

    @property
    def known(self) -> Bool[Array, "batch actions"]:
        """Whether the return of an action is known exactly, up to rounding."""
        return self.raised + self.lowered >= 2 * self.most * (1 - 1e-6)

    def told(self, taken: Bool[Array, "batch actions"], low: Floats, high: Floats) -> "Bounds":
        """The bounds once those of the actions `taken` are known to be `low` and `high`."""
        raised = jnp.maximum(self.raised, jnp.where(taken, low[:, None] + self.most, 0.0))
        lowered = jnp.maximum(self.lowered, jnp.where(taken, self.most - high[:, None], 0.0))
        return Bounds(raised, lowered, self.most)

    def of_node(self, legal: Bool[Array, "batch actions"]) -> tuple[Floats, Floats]:
        """The least and the greatest return of the nodes, whose player takes the best action."""
        some = jnp.any(legal, axis=1)
        low = jnp.max(jnp.where(legal, self.low, -self.most), axis=1)
        high = jnp.max(jnp.where(legal, self.high, -self.most), axis=1)
        return low, jnp.where(some, high, self.most)

    def proven(self, legal: Bool[Array, "batch actions"]) -> Bool[Array, " batch"]:
        """Whether the returns of the nodes are known exactly, up to rounding."""
        low, high = self.of_node(legal)
        return jnp.any(legal, axis=1) & (high - low <= 2e-6 * self.most)

    def open(self, legal: Bool[Array, "batch actions"]) -> Bool[Array, "batch actions"]:
        """The legal actions that may be the best: all that another one does not equal for sure."""
        low = jnp.where(legal, self.low, -jnp.inf)
        least = jnp.max(low, axis=1, keepdims=True)
        # Of those that are sure of as much as any, the one that may be worth most.
        best = jnp.argmax(jnp.where(low == least, self.high, -jnp.inf), axis=1)[:, None]
        one = jnp.arange(legal.shape[1], dtype=jnp.int32)[None] == best
        return legal & (one | (self.high > least))

    def unknown(self, legal: Bool[Array, "batch actions"]) -> Bool[Array, "batch actions"]:
        """Of the `open` actions those whose returns are not known; all of them where none is."""
        some = self.open(legal)
        left = some & ~self.known
        return jnp.where(jnp.any(left, axis=1, keepdims=True), left, some)


def behind(reward: Floats, discount: Floats, low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """The bounds of an edge from those of the node behind it: `r + d v`, where a negative discount
    changes the player."""
    one, other = reward + discount * low, reward + discount * high
    return jnp.minimum(one, other), jnp.maximum(one, other)


def among(node: NodeStatistics, allowed: Bool[Array, "batch actions"]) -> NodeStatistics:
    """The statistics as if no other actions than these were legal."""
    return dataclasses.replace(node, prior=jnp.where(allowed[:, None], node.prior, -jnp.inf))


def sealed(
    code: Int[Array, " rows"], action: Int[Array, " rows"], bounds: Bounds, final: int
) -> Int[Array, " rows"]:
    """The codes of the children of these actions, where one whose return is known is final."""
    known = jnp.take_along_axis(bounds.known, action[:, None], axis=1)[:, 0]
    return jnp.where(known & (code >= 0), final - code, code)
