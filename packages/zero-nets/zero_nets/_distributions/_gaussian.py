"""Independent Gaussians, unbounded."""

import distreqx.distributions as dx
import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from .._checks import check_positive, check_shape
from ._abstract import AbstractDistribution


class Gaussian(AbstractDistribution):
    """A Gaussian in every dimension, each independent of the others.

    **Attributes:**

    - `loc`, `scale`: means and standard deviations.
    """

    loc: Float[Array, "*dims"]
    scale: Float[Array, "*dims"]

    def __check_init__(self):
        check_shape("scale", self.scale, self.loc.shape)
        check_positive("scale", self.scale)

    def sample(self, *, key: PRNGKeyArray) -> Float[Array, "*dims"]:
        return dx.Normal(self.loc, self.scale).sample(key)

    def log_prob(self, action: Float[Array, "*dims"]) -> Float[Array, ""]:
        check_shape("action", action, self.loc.shape)
        return jnp.sum(dx.Normal(self.loc, self.scale).log_prob(action))

    def mode(self) -> Float[Array, "*dims"]:
        return self.loc

    def entropy(self, *, key: PRNGKeyArray | None = None) -> Float[Array, ""]:
        del key
        return jnp.sum(dx.Normal(self.loc, self.scale).entropy())

    def kl(self, other: "Gaussian") -> Float[Array, "*dims"]:
        check_shape("other.loc", other.loc, self.loc.shape)
        return dx.Normal(self.loc, self.scale).kl_divergence(dx.Normal(other.loc, other.scale))

    def decouple(self, other: "Gaussian") -> tuple["Gaussian", "Gaussian"]:
        """Two policies that each share one half of this one, so that its mean and its standard
        deviation can be moved at rates of their own (Abdolmaleki et al. 2018,
        https://arxiv.org/abs/1806.06920, section 4.1).

        **Returns:**

        This mean with the standard deviation of `other`, and the mean of `other` with this
        standard deviation.
        """
        return (
            eqx.tree_at(lambda d: d.scale, self, other.scale),
            eqx.tree_at(lambda d: d.loc, self, other.loc),
        )
