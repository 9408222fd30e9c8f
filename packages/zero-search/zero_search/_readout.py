"""From what is known of a root to a policy."""

import abc

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from ._check import check_range
from ._root import play_visits
from ._sample import safe_softmax, sample_action, Temperature
from ._statistics import NodeStatistics


class AbstractReadout(eqx.Module):
    """Turns a root into an action to play and weights to learn from."""

    @abc.abstractmethod
    def __call__(
        self,
        root: NodeStatistics,
        known: Bool[Array, "batch actions"],
        ply: Int[Array, " batch"],
        *,
        key: Key[Array, " batch"],
    ) -> tuple[Int[Array, " batch"], Float[Array, "batch actions"]]:
        """The action and the weights.

        **Arguments:**

        - `root`: visits and Q-values.
        - `known`: the actions whose Q-value means something; no other may get a weight. A row
            without any is filler: its weights are 0.
        - `ply`: moves played in the episode so far.
        """


class SoftmaxQ(AbstractReadout):
    """`softmax(Q / temperature)`; temperature 0 takes the highest Q, the lowest index among equals.

    The action is drawn from the weights, so that what is learned is what is played. An array is a
    temperature that may change without compiling anew, as over the updates of a run.
    """

    temperature: float | Float[Array, ""] | Temperature = 0.0

    def __check_init__(self):
        _check_temperature("SoftmaxQ", self.temperature)

    def __call__(
        self,
        root: NodeStatistics,
        known: Bool[Array, "batch actions"],
        ply: Int[Array, " batch"],
        *,
        key: Key[Array, " batch"],
    ) -> tuple[Int[Array, " batch"], Float[Array, "batch actions"]]:
        heat = self.temperature
        heat = jnp.asarray(heat(ply) if isinstance(heat, Temperature) else heat, jnp.float32)
        heat = jnp.broadcast_to(heat, ply.shape)[:, None]
        lead = jnp.where(known, root.qvalues, -jnp.inf)
        top = jnp.max(lead, axis=1, keepdims=True)
        # The highest is 0, so no temperature overflows it.
        lead = lead - jnp.where(top > -jnp.inf, top, 0.0)
        first = jnp.cumsum(lead == 0, axis=1, dtype=jnp.int32) == 1
        cold = jnp.where(first & (lead == 0), 0.0, -jnp.inf)
        weights = safe_softmax(jnp.where(heat > 0, lead / jnp.where(heat > 0, heat, 1.0), cold))
        return sample_action(weights, 1.0, key=key), weights


class VisitCounts(AbstractReadout):
    """Visits over their sum; the action is drawn by `visits ** (1 / temperature)`.

    As [`zero_search.TreeSearch`][] decides: the weights are those before temperature.
    """

    temperature: float | Temperature = 0.0

    def __check_init__(self):
        _check_temperature("VisitCounts", self.temperature)

    def __call__(
        self,
        root: NodeStatistics,
        known: Bool[Array, "batch actions"],
        ply: Int[Array, " batch"],
        *,
        key: Key[Array, " batch"],
    ) -> tuple[Int[Array, " batch"], Float[Array, "batch actions"]]:
        return play_visits(jnp.where(known, root.visits, 0.0), self.temperature, ply, key)


def _check_temperature(owner: str, heat: float | Float[Array, ""] | Temperature) -> None:
    if not isinstance(heat, Temperature | Array):
        check_range(owner, 0, temperature=heat)
