"""From what is known of a root to a policy."""

import abc

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ._check import check_choice, check_kinds, check_range, check_result
from ._planner import Plan
from ._qtransform import AbstractQTransform, CompletedByMixedValue, transformed
from ._root import best_due
from ._sample import safe_softmax, sample_action, Temperature
from ._statistics import RootStatistics
from ._types import Floats, Ints, Keys, PerAction


class AbstractReadout(eqx.Module):
    """Turns a root into an action to play, and weights and a value to learn from."""

    @abc.abstractmethod
    def __call__(self, root: RootStatistics, *, key: Keys) -> tuple[Ints, PerAction, Floats]:
        """Returns the action, the weights and the value of the plan.

        Only actions that are `root.known` may get a weight. A row without any is filler: its
        weights are 0. The value is for the player to move at the root.
        """


class VisitCounts(AbstractReadout):
    """AlphaZero's readout: the weights are the visits over their sum.

    The action is drawn by `visits ** (1 / temperature)`; temperature 0 takes the most visited, the
    lowest index among equals. The value is the root's.
    """

    temperature: float | Temperature = 0.0

    def __check_init__(self):
        _check_temperature("VisitCounts", self.temperature)

    def __call__(self, root: RootStatistics, *, key: Keys) -> tuple[Ints, PerAction, Floats]:
        visits, heat = jnp.where(root.known, root.node.visits, 0.0), self.temperature
        weights = visits / jnp.maximum(jnp.sum(visits, axis=1, keepdims=True), 1.0)
        heat = heat(root.ply) if isinstance(heat, Temperature) else heat
        return sample_action(weights, heat, key=key), weights, root.node.value


class ImprovedPolicy(AbstractReadout):
    """Gumbel MuZero's readout: the weights are `softmax(logits + transformed Q)`.

    The action is the best of `gumbel + logits + transformed Q` among those that most simulations
    took. The value is the root's.

    Danihelka et al. 2022, "Policy improvement by planning with Gumbel", section 4 and equation 11.
    """

    qtransform: AbstractQTransform = CompletedByMixedValue()

    def __check_init__(self):
        check_kinds("ImprovedPolicy", AbstractQTransform, qtransform=self.qtransform)

    def __call__(self, root: RootStatistics, *, key: Keys) -> tuple[Ints, PerAction, Floats]:
        del key
        node, most = root.node, jnp.max(root.started, axis=1, keepdims=True)
        action = best_due(root, self.qtransform, root.started == most)
        weights = safe_softmax(root.logits + transformed(self.qtransform, node))
        return action, weights, node.value


class SoftmaxQ(AbstractReadout):
    """`softmax(Q / temperature)`; temperature 0 takes the highest Q, the lowest index among equals.

    The action is drawn from the weights, so that what is learned is what is played, and the value
    is that of this policy: `sum(weights * Q)`. The root's own value would count what was tried for
    exploration. An array is a temperature that may change without compiling anew, as over the
    updates of a run.
    """

    temperature: float | Float[Array, ""] | Temperature = 0.0

    def __check_init__(self):
        _check_temperature("SoftmaxQ", self.temperature)

    def __call__(self, root: RootStatistics, *, key: Keys) -> tuple[Ints, PerAction, Floats]:
        heat, qvalues = self.temperature, root.node.qvalues
        heat = heat(root.ply) if isinstance(heat, Temperature) else heat
        heat = jnp.broadcast_to(jnp.asarray(heat, jnp.float32), root.ply.shape)[:, None]
        lead = jnp.where(root.known, qvalues, -jnp.inf)
        top = jnp.max(lead, axis=1, keepdims=True)
        # The highest is 0, so no temperature overflows it.
        lead = lead - jnp.where(top > -jnp.inf, top, 0.0)
        first = jnp.cumsum(lead == 0, axis=1, dtype=jnp.int32) == 1
        cold = jnp.where(first & (lead == 0), 0.0, -jnp.inf)
        weights = safe_softmax(jnp.where(heat > 0, lead / jnp.where(heat > 0, heat, 1.0), cold))
        worth = jnp.sum(jnp.where(weights > 0, weights * qvalues, 0.0), axis=1)
        # A row of filler has no policy.
        value = jnp.where(jnp.any(weights > 0, axis=1), worth, root.node.value)
        return sample_action(weights, 1.0, key=key), weights, value


def read_out(
    readout: AbstractReadout, root: RootStatistics, stats: dict[str, Array], key: Keys
) -> Plan:
    """The plan that `readout` makes of a root, if what it returns has the right shapes."""
    action, weights, value = readout(root, key=key)
    shape = root.logits.shape
    check_choice(readout, "__call__", action, shape[0])
    check_result(readout, "__call__", weights, shape, "one weight for every action of every row")
    check_result(readout, "__call__", value, shape[:1], "one value for every row")
    qvalues = jnp.where(root.known, root.node.qvalues, value[:, None])
    visits = root.node.visits
    return Plan.over_actions(
        action, weights, visits=visits, qvalues=qvalues, value=value, stats=stats
    )


def _check_temperature(owner: str, heat: float | Float[Array, ""] | Temperature) -> None:
    if isinstance(heat, Array) and heat.shape != ():
        raise ValueError(f"`{owner}(temperature=...)` has shape {heat.shape}: must be a scalar.")
    if not isinstance(heat, Temperature | Array):
        check_range(owner, 0, temperature=heat)
