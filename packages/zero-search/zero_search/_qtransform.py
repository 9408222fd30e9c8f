"""From Q-values to the scale on which a selection rule adds its own terms to them."""

import abc
import math

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ._check import check_range, check_result
from ._statistics import NodeStatistics
from ._types import PerAction


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
        mass = jnp.sum(jnp.where(visited, node.probabilities, 0.0), axis=1)
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
