"""Which outcome a chance node visits next, and what its outcomes are worth together."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float

from .._backup import MeanBackup
from .._statistics import NodeStatistics


#: The rules of `ChanceSearch(outcomes=...)`.
RULES = ("proportional", "weighted", "sampled")


class Outcomes(eqx.Module):
    """One of the `RULES`.

    With `through` an afterstate was judged by the state behind its first outcome, the likeliest
    or the drawn one: its own value then stands for a visit of that outcome.
    """

    rule: str
    through: bool

    @property
    def sampled(self) -> bool:
        """Whether a node needs a seed."""
        return self.rule == "sampled"

    def score(
        self,
        probs: Float[Array, "rows outcomes"],
        visits: Float[Array, "rows outcomes"],
        count: Float[Array, " rows"],
        seed: Float[Array, " rows"] | None,
    ) -> Float[Array, "rows outcomes"]:
        """Highest for the outcome to visit next; `probs` are `-inf` where there is none."""
        if seed is not None:
            return _drawn(probs, seed, count)
        counted = visits + (_first(probs) if self.through else 0.0)
        lag = probs / (counted + 1.0)
        if self.rule == "proportional":
            return lag
        untried = (counted == 0) & (probs > 0)
        return jnp.where(untried, 1.0 + probs, lag)

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


def _first(probs: Float[Array, "rows outcomes"]) -> Float[Array, "rows outcomes"]:
    """1 for the outcome that a new afterstate is resolved to, unless one is drawn."""
    return jax.nn.one_hot(jnp.argmax(probs, axis=1), probs.shape[1])


def _drawn(
    probs: Float[Array, "rows outcomes"],
    seed: Float[Array, " rows"],
    count: Float[Array, " rows"],
) -> Float[Array, "rows outcomes"]:
    """1 for the outcome drawn for a node's visit number `count`, by inverting the distribution."""

    def uniform(seed, count):
        bits = jax.lax.bitcast_convert_type(seed, jnp.uint32)
        return jr.uniform(jr.fold_in(jr.key(bits), count.astype(jnp.int32)), (), jnp.float32)

    below = jnp.cumsum(jnp.maximum(probs, 0.0), axis=1)
    threshold = jax.vmap(uniform)(seed, count) * below[:, -1]
    drawn = jnp.sum((below <= threshold[:, None]).astype(jnp.int32), axis=1)
    return jax.nn.one_hot(drawn, probs.shape[1], dtype=jnp.float32)
