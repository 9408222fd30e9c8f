"""No choice at all."""

import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from .._checks import check_shape
from ._abstract import AbstractDistribution


class Deterministic(AbstractDistribution):
    """All probability on one action, discrete or continuous.

    **Attributes:**

    - `action`: the one.
    """

    action: Shaped[Array, "*dims"]

    def sample(self, *, key: PRNGKeyArray) -> Shaped[Array, "*dims"]:
        del key
        return self.action

    def log_prob(self, action: Shaped[Array, "*dims"]) -> Float[Array, ""]:
        """0 of the action itself and -inf of any other: a probability, not a density."""
        check_shape("action", action, self.action.shape)
        return jnp.where(jnp.all(action == self.action), self._zero(), -jnp.inf)

    def mode(self) -> Shaped[Array, "*dims"]:
        return self.action

    def entropy(self, *, key: PRNGKeyArray | None = None) -> Float[Array, ""]:
        del key
        return self._zero()

    def kl(self, other: "Deterministic") -> Float[Array, "*dims"]:
        """0 where the actions are equal and infinite where they are not."""
        check_shape("other.action", other.action, self.action.shape)
        return jnp.where(self.action == other.action, self._zero(), jnp.inf)

    def _zero(self) -> Float[Array, ""]:
        """In the type of a continuous action."""
        floating = jnp.issubdtype(self.action.dtype, jnp.floating)
        return jnp.zeros((), self.action.dtype if floating else float)
