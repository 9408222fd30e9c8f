"""A real number out of finitely many."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .._checks import check_shape, concrete
from ._abstract import AbstractDistribution
from ._categorical import Categorical


class DiscreteValued(AbstractDistribution):
    """A categorical distribution over real numbers: of a return (Bellemare et al. 2017,
    https://arxiv.org/abs/1707.06887), or over a grid of continuous actions.

    **Attributes:**

    - `logits`: unnormalised log-probabilities of the values.
    - `values`: the support, strictly increasing.
    """

    logits: Float[Array, " atoms"]
    values: Float[Array | np.ndarray, " atoms"]

    def __check_init__(self):
        check_shape("values", self.values, self.logits.shape)
        values = concrete(self.values)
        if values is not None and not np.all(np.diff(values) > 0):
            raise ValueError(f"`values` is {values.tolist()}; it must be strictly increasing.")

    @classmethod
    def from_probs(
        cls, probs: Float[Array, " atoms"], values: Float[Array | np.ndarray, " atoms"]
    ) -> "DiscreteValued":
        """Of probabilities, which may be 0, rather than logits."""
        possible = probs > 0
        return cls(jnp.where(possible, jnp.log(jnp.where(possible, probs, 1.0)), -jnp.inf), values)

    @property
    def probs(self) -> Float[Array, " atoms"]:
        """The probabilities of all values."""
        return Categorical(self.logits).probs

    def mean(self) -> Float[Array, ""]:
        """The expected value."""
        return jnp.sum(self.probs * self.values)

    def variance(self) -> Float[Array, ""]:
        """The expected square of the distance to the mean."""
        return jnp.sum(self.probs * (self.values - self.mean()) ** 2)

    def sample(self, *, key: PRNGKeyArray) -> Float[Array, ""]:
        return jnp.asarray(self.values)[Categorical(self.logits).sample(key=key)]

    def log_prob(self, action: Float[Array, ""]) -> Float[Array, ""]:
        """The log-probability of the value `action`: -inf if it is none of the support."""
        found = self.values == action
        return Categorical(self.logits).log_prob(jnp.where(jnp.any(found), jnp.argmax(found), -1))

    def mode(self) -> Float[Array, ""]:
        """The most likely value, the lowest of equals."""
        return jnp.asarray(self.values)[Categorical(self.logits).mode()]

    def entropy(self, *, key: PRNGKeyArray | None = None) -> Float[Array, ""]:
        del key
        return Categorical(self.logits).entropy()

    def kl(self, other: "DiscreteValued") -> Float[Array, ""]:
        """`KL(self || other)` of two distributions over the same values.

        Raises a `ValueError` where the values are known to differ.
        """
        mine, theirs = concrete(self.values), concrete(other.values)
        if mine is not None and theirs is not None and not np.array_equal(mine, theirs):
            raise ValueError(
                f"A KL divergence of values {mine.tolist()} to {theirs.tolist()}; it needs the "
                "same support."
            )
        return Categorical(self.logits).kl(Categorical(other.logits))
