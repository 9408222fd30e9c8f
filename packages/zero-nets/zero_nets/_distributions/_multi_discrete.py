"""Several discrete choices made at once."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ._abstract import AbstractDistribution
from ._categorical import Categorical


class MultiDiscrete(AbstractDistribution):
    """Independent categorical distributions, of as many actions each as they like.

    **Attributes:**

    - `logits`: those of the first component, then those of the second, and so on; -inf is illegal.
    - `num_actions`: how many actions each component has.
    """

    logits: Float[Array, " logits"]
    num_actions: tuple[int, ...] = eqx.field(static=True)

    def __check_init__(self):
        if not self.num_actions or min(self.num_actions) < 1:
            raise ValueError(
                f"`num_actions` is {self.num_actions}; it must be one number or more, each at "
                "least 1."
            )
        if self.logits.shape != (sum(self.num_actions),):
            raise ValueError(
                f"The logits have shape {self.logits.shape}; `num_actions={self.num_actions}` "
                f"needs {(sum(self.num_actions),)}. Use `jax.vmap` over a batch."
            )

    def sample(self, *, key: PRNGKeyArray) -> Int[Array, " components"]:
        keys = jr.split(key, len(self.num_actions))
        return jax.vmap(lambda part, key: part.sample(key=key))(self._parts(), keys)

    def log_prob(self, action: Int[Array, " components"]) -> Float[Array, ""]:
        return jnp.sum(jax.vmap(Categorical.log_prob)(self._parts(), action))

    def mode(self) -> Int[Array, " components"]:
        return jax.vmap(Categorical.mode)(self._parts())

    def entropy(self, *, key: PRNGKeyArray | None = None) -> Float[Array, ""]:
        del key
        return jnp.sum(jax.vmap(lambda part: part.entropy())(self._parts()))

    def kl(self, other: "MultiDiscrete") -> Float[Array, " components"]:
        """`KL(self || other)` of each component."""
        if other.num_actions != self.num_actions:
            raise ValueError(
                f"A KL divergence of {self.num_actions} actions to {other.num_actions}; both "
                "distributions need as many."
            )
        return jax.vmap(Categorical.kl)(self._parts(), other._parts())

    def _parts(self) -> Categorical:
        """One distribution a row, the shorter ones filled up with illegal actions."""
        sizes = np.asarray(self.num_actions)[:, None]
        columns = np.arange(sizes.max())[None, :]
        index = np.where(columns < sizes, np.cumsum(sizes)[:, None] - sizes + columns, 0)
        logits = jnp.where(columns < sizes, self.logits[index], -jnp.inf)
        return jax.vmap(Categorical)(logits)
