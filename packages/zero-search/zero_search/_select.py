"""Which action to try next at a node of the tree."""

import abc
import math

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ._sample import safe_softmax


class AbstractSelection(eqx.Module):
    """A rule that scores the actions of a node; the search takes the highest, lowest index first.

    A node is scored only when a simulation passes through it, so a score must depend on that
    node's own statistics alone.
    """

    @abc.abstractmethod
    def prepare(
        self, logits: Float[Array, "rows actions"]
    ) -> Float[Array, "rows features actions"]:
        """What to keep of the prior, computed once when a node is expanded."""

    @abc.abstractmethod
    def score(
        self,
        prior: Float[Array, "rows features actions"],
        visits: Float[Array, "rows actions"],
        qvalues: Float[Array, "rows actions"],
        *,
        count: Float[Array, " rows"],
        value: Float[Array, " rows"],
        raw_value: Float[Array, " rows"],
    ) -> Float[Array, "rows actions"]:
        """Scores of all actions; `-inf` for illegal ones.

        **Arguments:**

        - `prior`: what `prepare` returned.
        - `visits`, `qvalues`: of each edge; a Q-value is for the player to move at the node and
            means nothing where there are no visits.
        - `count`: visits of the node, its own evaluation included.
        - `value`: mean value of the node.
        - `raw_value`: the evaluator's value of the node.
        """


class PUCT(AbstractSelection):
    """AlphaZero's rule: `Q + c p sqrt(n) / (n_a + 1)` with `n` the visits of the node.

    Q is rescaled to `[0, 1]` by the smallest and largest value among the node and its visited
    actions, so `c` does not depend on the reward scale; an unvisited action gets 0.

    Silver et al. 2018, "A general reinforcement learning algorithm that masters chess, shogi, and
    Go through self-play".
    """

    c: float = 1.0

    def prepare(
        self, logits: Float[Array, "rows actions"]
    ) -> Float[Array, "rows features actions"]:
        return _probabilities(logits)

    def score(
        self,
        prior: Float[Array, "rows features actions"],
        visits: Float[Array, "rows actions"],
        qvalues: Float[Array, "rows actions"],
        *,
        count: Float[Array, " rows"],
        value: Float[Array, " rows"],
        raw_value: Float[Array, " rows"],
    ) -> Float[Array, "rows actions"]:
        del raw_value
        exploration = (self.c * jnp.sqrt(count))[:, None] * prior[:, 0] / (visits + 1)
        return _normalised(qvalues, visits, value) + exploration


class MuZeroPUCT(AbstractSelection):
    """MuZero's rule: as [`zero_search.PUCT`][] with `c = c_init + log((n + c_base + 1) / c_base)`.

    Schrittwieser et al. 2020, "Mastering Atari, Go, chess and shogi by planning with a learned
    model", appendix B, equation 2.
    """

    c_init: float = 1.25
    c_base: float = 19652.0

    def prepare(
        self, logits: Float[Array, "rows actions"]
    ) -> Float[Array, "rows features actions"]:
        return _probabilities(logits)

    def score(
        self,
        prior: Float[Array, "rows features actions"],
        visits: Float[Array, "rows actions"],
        qvalues: Float[Array, "rows actions"],
        *,
        count: Float[Array, " rows"],
        value: Float[Array, " rows"],
        raw_value: Float[Array, " rows"],
    ) -> Float[Array, "rows actions"]:
        del raw_value
        c = self.c_init + jnp.log((count + self.c_base + 1.0) / self.c_base)
        exploration = (jnp.sqrt(count) * c)[:, None] * prior[:, 0] / (visits + 1)
        return _normalised(qvalues, visits, value) + exploration


class UCB1(AbstractSelection):
    """The rule of UCT: `(Q + 1) / 2 + c sqrt(log N / n_a)` with `N` the visits of all actions.

    Unvisited actions come first, by prior and then by index. The halved Q turns values in
    `[-1, 1]` into win rates in `[0, 1]`, the scale for which `c = sqrt(2)` was derived.

    Auer et al. 2002, "Finite-time analysis of the multiarmed bandit problem"; Kocsis and
    Szepesvari 2006, "Bandit based Monte-Carlo planning".
    """

    c: float = math.sqrt(2.0)

    def prepare(
        self, logits: Float[Array, "rows actions"]
    ) -> Float[Array, "rows features actions"]:
        return _probabilities(logits)

    def score(
        self,
        prior: Float[Array, "rows features actions"],
        visits: Float[Array, "rows actions"],
        qvalues: Float[Array, "rows actions"],
        *,
        count: Float[Array, " rows"],
        value: Float[Array, " rows"],
        raw_value: Float[Array, " rows"],
    ) -> Float[Array, "rows actions"]:
        del count, value, raw_value
        legal = prior[:, 0] > -jnp.inf
        total = jnp.maximum(jnp.sum(visits, axis=1, keepdims=True), 1.0)
        bonus = self.c * jnp.sqrt(jnp.log(total) / jnp.maximum(visits, 1.0))
        unvisited = legal & (visits == 0)
        fresh = jnp.where(unvisited, prior[:, 0], -jnp.inf)
        known = jnp.where(legal, (qvalues + 1) / 2 + bonus, -jnp.inf)
        return jnp.where(jnp.any(unvisited, axis=1, keepdims=True), fresh, known)


def _probabilities(logits: Float[Array, "rows actions"]) -> Float[Array, "rows 1 actions"]:
    # `-inf` keeps an illegal action apart from a legal one whose probability underflows, and makes
    # its score `-inf` without a mask.
    return jnp.where(logits > -jnp.inf, safe_softmax(logits), -jnp.inf)[:, None]


def _normalised(
    qvalues: Float[Array, "rows actions"],
    visits: Float[Array, "rows actions"],
    value: Float[Array, " rows"],
) -> Float[Array, "rows actions"]:
    """Q-values on a scale where the node and its visited actions span `[0, 1]`."""
    visited = visits > 0
    known = jnp.where(visited, qvalues, value[:, None])
    low = jnp.minimum(value, jnp.min(known, axis=1))[:, None]
    high = jnp.maximum(value, jnp.max(known, axis=1))[:, None]
    return (jnp.where(visited, qvalues, low) - low) / jnp.maximum(high - low, 1e-8)
