"""Selection rules that add a confidence bound to plain Q-values.

`n` is the visits of a node: of all its actions, and 1 for the node's own evaluation, at the root
too. So when a node is first scored `n` is 1 and its logarithm 0. `n_a` is the visits of an action.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ._check import check_kinds, check_range
from ._qtransform import AbstractQTransform, PlainQ, transformed
from ._sample import safe_softmax
from ._select import AbstractSelection
from ._statistics import NodeStatistics


class PlainUCB1(AbstractSelection):
    """`Q + c sqrt(log n / (n_a + epsilon))`: UCT as it is often written down, without a prior.

    Unvisited actions come first as soon as the bound, about `c sqrt(log n / epsilon)` for them, is
    above all Q-values; among themselves by `qtransform` and then by index.

    Kocsis and Szepesvari 2006, "Bandit based Monte-Carlo planning". [`zero_search.UCB1`][] is the
    bandit's own rule, with `N = n - 1` and an unvisited action always first.
    """

    c: float = 1.0
    epsilon: float = 1e-3
    qtransform: AbstractQTransform = PlainQ()

    def __check_init__(self):
        check_range("PlainUCB1", 0, c=self.c)
        check_range("PlainUCB1", 1e-30, epsilon=self.epsilon)
        check_kinds("PlainUCB1", AbstractQTransform, qtransform=self.qtransform)

    def prepare(self, logits: Float[Array, "rows actions"]) -> Float[Array, "rows 1 actions"]:
        return safe_softmax(logits)[:, None]

    def score(self, node: NodeStatistics) -> Float[Array, "rows actions"]:
        bound = jnp.sqrt(jnp.log(node.count)[:, None] / (node.visits + self.epsilon))
        return transformed(self.qtransform, node) + self.c * bound


class LogPUCT(AbstractSelection):
    """`Q + c p sqrt(log(n + 1) / (n_a + 1))`: the prior on a bound that grows as UCB1's does.

    An action that is worse gets of the order of `log n` visits; from [`zero_search.PUCT`][], whose
    bound is `p sqrt(n) / (n_a + 1)`, of the order of `sqrt(n)`.
    """

    c: float = 1.0
    qtransform: AbstractQTransform = PlainQ(1.0)

    def __check_init__(self):
        check_range("LogPUCT", 0, c=self.c)
        check_kinds("LogPUCT", AbstractQTransform, qtransform=self.qtransform)

    def prepare(self, logits: Float[Array, "rows actions"]) -> Float[Array, "rows 1 actions"]:
        return safe_softmax(logits)[:, None]

    def score(self, node: NodeStatistics) -> Float[Array, "rows actions"]:
        bound = jnp.sqrt(jnp.log(node.count + 1.0)[:, None] / (node.visits + 1.0))
        return transformed(self.qtransform, node) + self.c * node.probabilities * bound


class PUCB(AbstractSelection):
    """`Q + sqrt(3 log n / (2 n_a)) - (2 / m_a) sqrt(log n / n)`: the prior as a predictor.

    `m` is `sqrt(p)` over its sum. The bound is 0 for an unvisited action, the second root 1 while
    `n` is 1. There is nothing to tune: it was derived for rewards in `[0, 1]`.

    Rosin 2011, "Multi-armed bandits with episode context", section 3.1.
    """

    qtransform: AbstractQTransform = PlainQ(1.0)

    def __check_init__(self):
        check_kinds("PUCB", AbstractQTransform, qtransform=self.qtransform)

    def prepare(self, logits: Float[Array, "rows actions"]) -> Float[Array, "rows 2 actions"]:
        prior = safe_softmax(logits)
        root = jnp.sqrt(prior)
        # An action whose probability underflowed must not divide by zero.
        weight = root / jnp.maximum(jnp.sum(root, axis=1, keepdims=True), 1.0)
        return jnp.stack([2 / jnp.maximum(weight, 1e-30), prior], axis=1)

    def score(self, node: NodeStatistics) -> Float[Array, "rows actions"]:
        log, count, visits = jnp.log(node.count)[:, None], node.count[:, None], node.visits
        bound = jnp.sqrt(1.5 * log / jnp.maximum(visits, 1.0))
        penalty = node.prior[:, 0] * jnp.where(count > 1, jnp.sqrt(log / count), 1.0)
        return transformed(self.qtransform, node) + jnp.where(visits > 0, bound, 0.0) - penalty
