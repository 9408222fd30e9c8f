"""Actions changed after they are drawn."""

from collections.abc import Callable

import equinox as eqx
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from ._abstract import AbstractDistribution


class Postprocessed(AbstractDistribution):
    """Another distribution whose samples and mode pass through a function on their way out.

    Clipping, say, for an environment that refuses what is out of bounds. Unlike the density of a
    transformed variable, `log_prob`, `entropy` and `kl` stay those of the wrapped distribution,
    `log_prob` at whatever action it is given.

    **Attributes:**

    - `distribution`: what draws.
    - `function`: of one action, giving one action. It is static, so pass the same object every
        time (one made at module level or kept by a head), not a new lambda.
    """

    distribution: AbstractDistribution
    function: Callable[[Array], Array] = eqx.field(static=True)

    def sample(self, *, key: PRNGKeyArray) -> Shaped[Array, "*action"]:
        return self.function(self.distribution.sample(key=key))

    def log_prob(self, action: Shaped[Array, "*action"]) -> Float[Array, ""]:
        return self.distribution.log_prob(action)

    def mode(self) -> Shaped[Array, "*action"]:
        return self.function(self.distribution.mode())

    def entropy(self, *, key: PRNGKeyArray) -> Float[Array, ""]:
        return self.distribution.entropy(key=key)

    def kl(self, other: "Postprocessed") -> Float[Array, "*dims"]:
        return self.distribution.kl(other.distribution)
