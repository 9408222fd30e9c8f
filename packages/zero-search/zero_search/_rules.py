"""Rules inside a search tree: how its Q-values are rescaled, which action comes next at a node, and
what the node is worth then.

In the formulas `n` is the visits of a node: of all its actions, and 1 for the node's own
evaluation, at the root too. So when a node is first scored `n` is 1 and its logarithm 0. `n_a` is
the visits of an action.
"""

import abc
import math

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ._check import check_kinds, check_option, check_positive, check_range, check_result
from ._sample import safe_softmax
from ._types import Floats, Ints, NodeStatistics, PerAction


class AbstractQTransform(eqx.Module):
    """Rescales the Q-values of a node's actions and says what stands for those never visited.

    It may use the statistics of that node alone. What it returns for illegal actions is ignored,
    but their values must not reach the others'.
    """

    @abc.abstractmethod
    def __call__(self, node: NodeStatistics) -> PerAction:
        """Transformed Q-values of all actions; finite."""


class ByParentAndSiblings(AbstractQTransform):
    """To `[0, 1]` by the smallest and largest value among the node and its visited actions.

    An unvisited action gets 0. So an exploration constant need not know the scale of rewards.
    """

    epsilon: float = 1e-8

    def __check_init__(self):
        check_range("ByParentAndSiblings", 0, epsilon=self.epsilon)

    def __call__(self, node: NodeStatistics) -> PerAction:
        visited, value = node.visits > 0, node.value
        known = jnp.where(visited, node.qvalues, value[:, None])
        low = jnp.minimum(value, jnp.min(known, axis=1))[:, None]
        high = jnp.maximum(value, jnp.max(known, axis=1))[:, None]
        scaled = jnp.where(visited, node.qvalues, low) - low
        return scaled / jnp.maximum(high - low, self.epsilon)


class ByMinMax(AbstractQTransform):
    """From a known range `[low, high]` to `[0, 1]`; an unvisited action gets 0."""

    low: float
    high: float

    def __check_init__(self):
        check_range("ByMinMax", -math.inf, low=self.low, high=self.high)
        if not self.low < self.high:
            raise ValueError(
                f"`ByMinMax(low={self.low}, high={self.high})`: low must be below high."
            )

    def __call__(self, node: NodeStatistics) -> PerAction:
        known = jnp.where(node.visits > 0, node.qvalues, self.low)
        return (known - self.low) / (self.high - self.low)


class PlainQ(AbstractQTransform):
    """Q-values as they are; an unvisited action gets `unvisited`.

    For rules whose constants were chosen for a known scale of returns. With the best possible
    return as `unvisited` every action is tried once.
    """

    unvisited: float = 0.0

    def __check_init__(self):
        check_range("PlainQ", -math.inf, unvisited=self.unvisited)

    def __call__(self, node: NodeStatistics) -> PerAction:
        return jnp.where(node.visits > 0, node.qvalues, self.unvisited)


class FirstPlayUrgency(AbstractQTransform):
    """Q-values as they are; an unvisited action gets its node's value, less `reduction * sqrt(P)`,
    `P` being the prior of the visited actions together.

    The more of the prior has been visited, the lower is the value of the rest. Only `reduction`
    depends on the scale of returns.

    Wu 2019, "Accelerating self-play learning in Go" (https://arxiv.org/abs/1902.10565), section 2;
    the idea of an urgency is from Gelly and Wang 2006, "Exploration exploitation in Go".
    """

    reduction: float = 0.0

    def __check_init__(self):
        check_range("FirstPlayUrgency", 0, reduction=self.reduction)

    def __call__(self, node: NodeStatistics) -> PerAction:
        visited = node.visits > 0
        # A visited action has none where a proof rules it out.
        probs = jnp.maximum(node.probabilities, 0.0)
        mass = jnp.sum(jnp.where(visited, probs, 0.0), axis=1)
        urgency = node.value - self.reduction * jnp.sqrt(mass)
        return jnp.where(visited, node.qvalues, urgency[:, None])


class CompletedByMixedValue(AbstractQTransform):
    """`(maxvisit_init + largest visit count) * value_scale * Q`, on the scale of logits.

    The Q of an unvisited action is the mixed value of the node: its raw value and the visited
    actions' Q-values, weighted by their prior; without `use_mixed_value`, the raw value alone.
    With `rescale_values` all Q of a node are first stretched to `[0, 1]`. Illegal actions count as
    unvisited ones in that.

    Danihelka et al. 2022, "Policy improvement by planning with Gumbel", equations 8, 10 and 33.
    """

    value_scale: float = 0.1
    maxvisit_init: float = 50.0
    rescale_values: bool = True
    use_mixed_value: bool = True
    epsilon: float = 1e-8

    def __check_init__(self):
        names = ("value_scale", "maxvisit_init", "epsilon")
        fields = {name: getattr(self, name) for name in names}
        check_range("CompletedByMixedValue", 0, **fields)

    def __call__(self, node: NodeStatistics) -> PerAction:
        visits, qvalues, raw = node.visits, node.qvalues, node.raw_value[:, None]
        visited = visits > 0
        other = _mixed(node) if self.use_mixed_value else raw
        completed = jnp.where(visited, qvalues, other)
        if self.rescale_values:
            low = jnp.min(completed, axis=1, keepdims=True)
            high = jnp.max(completed, axis=1, keepdims=True)
            completed = (completed - low) / jnp.maximum(high - low, self.epsilon)
        scale = self.maxvisit_init + jnp.max(visits, axis=1, keepdims=True)
        return scale * self.value_scale * completed


def transformed(rule: AbstractQTransform, node: NodeStatistics) -> PerAction:
    """What `rule` returns, if it has the right shape."""
    result, shape = rule(node), node.visits.shape
    check_result(rule, "__call__", result, shape, "one value for every action of every row")
    return result


def _mixed(node: NodeStatistics) -> Float[Array, "batch 1"]:
    visits, visited = node.count[:, None] - 1.0, node.visits > 0
    # A visited action whose probability underflowed must not divide by zero.
    probs = jnp.maximum(jnp.finfo(jnp.float32).tiny, node.probabilities)
    seen = jnp.where(visited, probs, 0.0)
    mass = jnp.sum(seen, axis=1, keepdims=True)
    weighted = jnp.sum(seen * node.qvalues, axis=1, keepdims=True)
    weighted = weighted / jnp.where(mass > 0, mass, 1.0)
    return (node.raw_value[:, None] + visits * weighted) / (visits + 1)


class AbstractSelection(eqx.Module):
    """A rule that scores the actions of a node; the search takes the highest, lowest index first.

    A node is scored only when a simulation passes through it, so a score must depend on that
    node's own statistics alone. Illegal actions are never taken, whatever their score.
    """

    @abc.abstractmethod
    def prepare(self, logits: PerAction) -> Float[Array, "batch features actions"]:
        """What to keep of the prior, computed once when a node is expanded.

        The last feature must be the prior's probability of the action.
        """

    @abc.abstractmethod
    def score(self, node: NodeStatistics) -> PerAction:
        """Scores of all actions."""


class PUCT(AbstractSelection):
    """AlphaZero's rule: `Q + c p sqrt(n) / (n_a + 1)`, with `p` the prior of the action.

    **Arguments:**

    - `c`: the exploration constant.
    - `qtransform`: puts Q on the scale of the second term; by default on `[0, 1]`, among the node
        and its visited actions ([`zero_search.ByParentAndSiblings`][]).
    - `c_base`: adds `log((n + c_base + 1) / c_base)` to `c`, as MuZero does.
    - `prior_temperature`: the prior is `softmax(logits / prior_temperature)`. Above 1 it is flatter
        than the evaluator's policy, so that moves that it thinks unlikely are searched sooner.
    - `bound`: `"sqrt"`, or `"log"` for `Q + c p sqrt(log(n + 1) / (n_a + 1))`, whose second term
        grows as that of [`zero_search.UCB1`][]: a worse action gets of the order of `log n` visits,
        not `sqrt(n)`.

    Silver et al. 2018, "A general reinforcement learning algorithm that masters chess, shogi, and
    Go through self-play"; `c_base`: Schrittwieser et al. 2020, "Mastering Atari, Go, chess and
    shogi by planning with a learned model", appendix B, equation 2.
    """

    c: float = 1.0
    qtransform: AbstractQTransform = ByParentAndSiblings()
    c_base: float | None = None
    bound: str = "sqrt"
    prior_temperature: float = 1.0

    def __check_init__(self):
        check_range("PUCT", 0, c=self.c)
        check_positive("PUCT", prior_temperature=self.prior_temperature)
        check_kinds("PUCT", AbstractQTransform, qtransform=self.qtransform)
        if self.c_base is not None:
            check_positive("PUCT", c_base=self.c_base)
        check_option("PUCT", ("sqrt", "log"), bound=self.bound)

    def prepare(self, logits: PerAction) -> Float[Array, "batch 1 actions"]:
        return safe_softmax(logits, self.prior_temperature)[:, None]

    def score(self, node: NodeStatistics) -> PerAction:
        c, count, above = self.c, node.count[:, None], node.visits + 1.0
        if self.c_base is not None:
            c = c + jnp.log((count + self.c_base + 1.0) / self.c_base)
        if self.bound == "sqrt":
            bonus = c * jnp.sqrt(count) * node.probabilities / above
        else:
            bonus = c * node.probabilities * jnp.sqrt(jnp.log(count + 1.0) / above)
        return transformed(self.qtransform, node) + bonus


class UCB1(AbstractSelection):
    """The rule of UCT: `Q + c sqrt(log N / n_a)`, with `N = n - 1` the visits of all actions.

    Unvisited actions come first, by prior and then by index.

    **Arguments:**

    - `c`: the exploration constant; `sqrt(2)` was derived for returns in `[0, 1]`.
    - `qtransform`: by default it puts values in `[-1, 1]` on that scale, as win rates.
    - `epsilon`: if given, the rule is `Q + c sqrt(log n / (n_a + epsilon))`, as UCT is also
        written. An unvisited action, whose Q is what `qtransform` says, then comes first only once
        this term is above all others.

    Auer et al. 2002, "Finite-time analysis of the multiarmed bandit problem"; Kocsis and
    Szepesvari 2006, "Bandit based Monte-Carlo planning".
    """

    c: float = math.sqrt(2.0)
    qtransform: AbstractQTransform = ByMinMax(-1.0, 1.0)
    epsilon: float | None = None

    def __check_init__(self):
        check_range("UCB1", 0, c=self.c)
        check_kinds("UCB1", AbstractQTransform, qtransform=self.qtransform)
        if self.epsilon is not None:
            check_positive("UCB1", epsilon=self.epsilon)

    def prepare(self, logits: PerAction) -> Float[Array, "batch 1 actions"]:
        return safe_softmax(logits)[:, None]

    def score(self, node: NodeStatistics) -> PerAction:
        prior, visits = node.probabilities, node.visits
        if self.epsilon is not None:
            bound = jnp.sqrt(jnp.log(node.count)[:, None] / (visits + self.epsilon))
            return transformed(self.qtransform, node) + self.c * bound
        total = jnp.maximum(jnp.sum(visits, axis=1, keepdims=True), 1.0)
        bonus = self.c * jnp.sqrt(jnp.log(total) / jnp.maximum(visits, 1.0))
        unvisited = (prior > -jnp.inf) & (visits == 0)
        fresh = jnp.where(unvisited, prior, -jnp.inf)
        known = transformed(self.qtransform, node) + bonus
        return jnp.where(jnp.any(unvisited, axis=1, keepdims=True), fresh, known)


class PUCB(AbstractSelection):
    """`Q + sqrt(3 log n / (2 n_a)) - (2 / m_a) sqrt(log n / n)`: the prior as a predictor.

    `m` is `sqrt(p)` over its sum. The bound is 0 for an unvisited action, the second root 1 while
    `n` is 1. There is nothing to tune: it was derived for rewards in `[0, 1]`.

    Rosin 2011, "Multi-armed bandits with episode context", section 3.1.
    """

    qtransform: AbstractQTransform = PlainQ(1.0)

    def __check_init__(self):
        check_kinds("PUCB", AbstractQTransform, qtransform=self.qtransform)

    def prepare(self, logits: PerAction) -> Float[Array, "batch 2 actions"]:
        prior = safe_softmax(logits)
        root = jnp.sqrt(prior)
        # An action whose probability underflowed must not divide by zero.
        weight = root / jnp.maximum(jnp.sum(root, axis=1, keepdims=True), 1.0)
        return jnp.stack([2 / jnp.maximum(weight, 1e-30), prior], axis=1)

    def score(self, node: NodeStatistics) -> PerAction:
        log, count, visits = jnp.log(node.count)[:, None], node.count[:, None], node.visits
        bound = jnp.sqrt(1.5 * log / jnp.maximum(visits, 1.0))
        penalty = node.prior[:, 0] * jnp.where(count > 1, jnp.sqrt(log / count), 1.0)
        return transformed(self.qtransform, node) + jnp.where(visits > 0, bound, 0.0) - penalty


class ImprovedPolicySelection(AbstractSelection):
    """Gumbel MuZero's rule: takes the action whose share of the visits lags most behind the
    improved policy `softmax(logits + transformed Q)`.

    It is deterministic, and visit frequencies follow the improved policy.

    Danihelka et al. 2022, "Policy improvement by planning with Gumbel", equation 14.
    """

    qtransform: AbstractQTransform = CompletedByMixedValue()

    def __check_init__(self):
        check_kinds("ImprovedPolicySelection", AbstractQTransform, qtransform=self.qtransform)

    def prepare(self, logits: PerAction) -> Float[Array, "batch 2 actions"]:
        return jnp.stack([logits, safe_softmax(logits)], axis=1)

    def score(self, node: NodeStatistics) -> PerAction:
        improved = safe_softmax(node.prior[:, 0] + transformed(self.qtransform, node))
        return improved - node.visits / node.count[:, None]


def prepare(
    selection: AbstractSelection, logits: PerAction
) -> Float[Array, "batch features actions"]:
    """What the tree stores of a prior. `-inf` keeps an illegal action apart from a legal one
    whose probability underflows.
    """
    rows, actions = logits.shape
    prior = selection.prepare(logits)
    each = "n features for every action of every row"
    check_result(selection, "prepare", prior, (rows, ..., actions), each)
    legal = logits > -jnp.inf
    # One after another: to score a new node XLA takes them apart again, for which it would write
    # the whole prior if it were masked at once.
    features = [jnp.where(legal, prior[:, i], -jnp.inf) for i in range(prior.shape[1])]
    return jnp.stack(features, axis=1)


def best_action(selection: AbstractSelection, node: NodeStatistics) -> Ints:
    """The legal action of the highest score, the lowest index among equals."""
    scores = selection.score(node)
    shape = node.visits.shape
    check_result(selection, "score", scores, shape, "one score for every action of every row")
    # A rule may say NaN or `-inf` of a legal action; an illegal one is no better for that.
    lowest = jnp.finfo(jnp.float32).min
    scores = jnp.where(scores > lowest, scores, lowest)
    return highest(jnp.where(node.legal, scores, -jnp.inf))


def highest(scores: PerAction) -> Ints:
    """The index of the highest score, the lowest among equals."""
    # Two plain reductions vectorise on a CPU; the paired one of `argmax` does not.
    index = jnp.arange(scores.shape[1], dtype=jnp.int32)[None]
    top = jnp.max(scores, axis=1, keepdims=True)
    return jnp.min(jnp.where(scores == top, index, scores.shape[1] - 1), axis=1)


class AbstractBackup(eqx.Module):
    """Turns a node's statistics into its value, on the way up.

    The Q-value of the edge above becomes `reward + discount * value`, so values propagate whatever
    the rule. The outcome of the simulation is passed on unchanged, but by chance nodes of
    `outcomes="weighted"`, which pass on their value.
    """

    @abc.abstractmethod
    def __call__(self, node: NodeStatistics, outcome: Floats) -> Floats:
        """The new values of the nodes, for the player to move there.

        **Arguments:**

        - `node`: its `count` and the taken edge's visits and Q-value include this visit; its
            `value` does not yet.
        - `outcome`: the return of this simulation from the node on.
        """


class MeanBackup(AbstractBackup):
    """The mean of all outcomes, the node's own evaluation being the first.

    Coulom 2006, "Efficient selectivity and backup operators in Monte-Carlo tree search".
    """

    def __call__(self, node: NodeStatistics, outcome: Floats) -> Floats:
        return (node.value * (node.count - 1.0) + outcome) / node.count


class MaxBackup(AbstractBackup):
    """The best Q-value of the visited actions.

    A complete tree then has exactly the value of best play. With a noisy evaluator the value is too
    high, because the maximum prefers actions that were overrated.

    Coulom 2006, "Efficient selectivity and backup operators in Monte-Carlo tree search".
    """

    def __call__(self, node: NodeStatistics, outcome: Floats) -> Floats:
        del outcome
        return jnp.max(jnp.where(node.visits > 0, node.qvalues, -jnp.inf), axis=1)
