"""Which action to try next at a node of the tree."""

import abc
import math

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ._check import check_kinds, check_range, check_result
from ._qtransform import AbstractQTransform, ByParentAndSiblings, transformed
from ._sample import safe_softmax
from ._statistics import NodeStatistics


class AbstractSelection(eqx.Module):
    """A rule that scores the actions of a node; the search takes the highest, lowest index first.

    A node is scored only when a simulation passes through it, so a score must depend on that
    node's own statistics alone. Illegal actions are never taken, whatever their score.
    """

    @abc.abstractmethod
    def prepare(
        self, logits: Float[Array, "rows actions"]
    ) -> Float[Array, "rows features actions"]:
        """What to keep of the prior, computed once when a node is expanded.

        The last feature must be the prior's probability of the action.
        """

    @abc.abstractmethod
    def score(self, node: NodeStatistics) -> Float[Array, "rows actions"]:
        """Scores of all actions."""


class PUCT(AbstractSelection):
    """AlphaZero's rule: `Q + c p sqrt(n) / (n_a + 1)` with `n` the visits of the node.

    Q is first put on a common scale by `qtransform`, by default to `[0, 1]` among the node and its
    visited actions ([`zero_search.ByParentAndSiblings`][]).

    Silver et al. 2018, "A general reinforcement learning algorithm that masters chess, shogi, and
    Go through self-play".
    """

    c: float = 1.0
    qtransform: AbstractQTransform = ByParentAndSiblings()

    def __check_init__(self):
        check_range("PUCT", 0, c=self.c)
        check_kinds("PUCT", AbstractQTransform, qtransform=self.qtransform)

    def prepare(self, logits: Float[Array, "rows actions"]) -> Float[Array, "rows 1 actions"]:
        return safe_softmax(logits)[:, None]

    def score(self, node: NodeStatistics) -> Float[Array, "rows actions"]:
        return transformed(self.qtransform, node) + _exploration(self.c, node)


class MuZeroPUCT(AbstractSelection):
    """MuZero's rule: as [`zero_search.PUCT`][] with `c = c_init + log((n + c_base + 1) / c_base)`.

    Schrittwieser et al. 2020, "Mastering Atari, Go, chess and shogi by planning with a learned
    model", appendix B, equation 2.
    """

    c_init: float = 1.25
    c_base: float = 19652.0
    qtransform: AbstractQTransform = ByParentAndSiblings()

    def __check_init__(self):
        check_range("MuZeroPUCT", 0, c_init=self.c_init)
        check_kinds("MuZeroPUCT", AbstractQTransform, qtransform=self.qtransform)
        if not 0 < self.c_base < math.inf:
            raise ValueError(f"`MuZeroPUCT(c_base={self.c_base})`: must be above 0.")

    def prepare(self, logits: Float[Array, "rows actions"]) -> Float[Array, "rows 1 actions"]:
        return safe_softmax(logits)[:, None]

    def score(self, node: NodeStatistics) -> Float[Array, "rows actions"]:
        c = self.c_init + jnp.log((node.count + self.c_base + 1.0) / self.c_base)
        return transformed(self.qtransform, node) + _exploration(c, node)


class UCB1(AbstractSelection):
    """The rule of UCT: `(Q + 1) / 2 + c sqrt(log N / n_a)` with `N` the visits of all actions.

    Unvisited actions come first, by prior and then by index. The halved Q turns values in
    `[-1, 1]` into win rates in `[0, 1]`, the scale for which `c = sqrt(2)` was derived.

    Auer et al. 2002, "Finite-time analysis of the multiarmed bandit problem"; Kocsis and
    Szepesvari 2006, "Bandit based Monte-Carlo planning".
    """

    c: float = math.sqrt(2.0)

    def __check_init__(self):
        check_range("UCB1", 0, c=self.c)

    def prepare(self, logits: Float[Array, "rows actions"]) -> Float[Array, "rows 1 actions"]:
        return safe_softmax(logits)[:, None]

    def score(self, node: NodeStatistics) -> Float[Array, "rows actions"]:
        prior, visits = node.probabilities, node.visits
        total = jnp.maximum(jnp.sum(visits, axis=1, keepdims=True), 1.0)
        bonus = self.c * jnp.sqrt(jnp.log(total) / jnp.maximum(visits, 1.0))
        unvisited = (prior > -jnp.inf) & (visits == 0)
        fresh = jnp.where(unvisited, prior, -jnp.inf)
        known = (node.qvalues + 1) / 2 + bonus
        return jnp.where(jnp.any(unvisited, axis=1, keepdims=True), fresh, known)


def prepare(
    selection: AbstractSelection, logits: Float[Array, "rows actions"]
) -> Float[Array, "rows features actions"]:
    """What the tree stores of a prior. `-inf` keeps an illegal action apart from a legal one
    whose probability underflows.
    """
    rows, actions = logits.shape
    prior = selection.prepare(logits)
    check_result(
        selection,
        "prepare",
        prior,
        (rows, ..., actions),
        "n features for every action of every row",
    )
    return jnp.where((logits > -jnp.inf)[:, None], prior, -jnp.inf)


def best_action(selection: AbstractSelection, node: NodeStatistics) -> Int[Array, " rows"]:
    """The legal action of the highest score, the lowest index among equals."""
    scores = selection.score(node)
    shape = node.visits.shape
    check_result(selection, "score", scores, shape, "one score for every action of every row")
    # A rule may say NaN or `-inf` of a legal action; an illegal one is no better for that.
    lowest = jnp.finfo(jnp.float32).min
    scores = jnp.where(scores > lowest, scores, lowest)
    return highest(jnp.where(node.prior[:, 0] > -jnp.inf, scores, -jnp.inf))


def highest(scores: Float[Array, "rows actions"]) -> Int[Array, " rows"]:
    """The index of the highest score, the lowest among equals."""
    # Two plain reductions vectorise on a CPU; the paired one of `argmax` does not.
    index = jnp.arange(scores.shape[1], dtype=jnp.int32)[None]
    top = jnp.max(scores, axis=1, keepdims=True)
    return jnp.min(jnp.where(scores == top, index, scores.shape[1] - 1), axis=1)


def _exploration(
    c: float | Float[Array, ""] | Float[Array, " rows"], node: NodeStatistics
) -> Float[Array, "rows actions"]:
    return (c * jnp.sqrt(node.count))[:, None] * node.probabilities / (node.visits + 1)
