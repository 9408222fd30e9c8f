"""Beta distributions stretched to bounds."""

import jax.numpy as jnp
import jax.random as jr
from jax.scipy.special import betaln, digamma
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray, Real

from .._checks import check_positive, check_shape
from ._abstract import AbstractDistribution
from ._bounds import Bound, bounds, same_bounds


# How far from 0 and from 1 a place in the unit interval stays: next to 1, one step of float32.
_CLIP = 1e-7


# Not distreqx's Beta: the difference of log-gammas that it is normalised by loses digits for large
# parameters (an error of 0.04 in a log-density at 1e4 and 3e4), and its mode is NaN below 1.
class ClippedBeta(AbstractDistribution):
    """`minimum + range * x` of a Beta-distributed `x`, independently in every dimension.

    `x` is kept in [1e-7, 1 - 1e-7], in samples and in `log_prob`, where the density or its log
    may be infinite. Bounded without squashing, so no probability piles up at a bound (Chou et al.
    2017, https://proceedings.mlr.press/v70/chou17a.html); with `alpha` and `beta` above 1 it has
    one peak.

    **Attributes:**

    - `alpha`, `beta`: the two shape parameters, towards the maximum and towards the minimum.
    - `minimum`, `maximum`: bounds of the action.
    """

    alpha: Float[Array, "*dims"]
    beta: Float[Array, "*dims"]
    minimum: Bound
    maximum: Bound

    def __init__(
        self,
        alpha: Float[Array, "*dims"],
        beta: Float[Array, "*dims"],
        minimum: Real[ArrayLike, "..."],
        maximum: Real[ArrayLike, "..."],
    ):
        """**Arguments:**

        - `alpha`, `beta`: the two shape parameters, positive.
        - `minimum`, `maximum`: bounds of the action, one for all dimensions or one each. No
            gradient reaches them.
        """
        check_shape("beta", beta, alpha.shape)
        check_positive("alpha", alpha)
        check_positive("beta", beta)
        self.alpha = alpha
        self.beta = beta
        self.minimum, self.maximum = bounds(minimum, maximum, alpha)

    def sample(self, *, key: PRNGKeyArray) -> Float[Array, "*dims"]:
        return self._stretch(jr.beta(key, self.alpha, self.beta, dtype=self.alpha.dtype))

    def log_prob(self, action: Float[Array, "*dims"]) -> Float[Array, ""]:
        check_shape("action", action, self.alpha.shape)
        span = self.maximum - self.minimum
        below = jnp.clip((action - self.minimum) / span, _CLIP, 1 - _CLIP)
        above = jnp.clip((self.maximum - action) / span, _CLIP, 1 - _CLIP)
        log_density = (self.alpha - 1) * jnp.log(below) + (self.beta - 1) * jnp.log(above)
        return jnp.sum(log_density - betaln(self.alpha, self.beta) - jnp.log(span))

    def mode(self) -> Float[Array, "*dims"]:
        """Where the density peaks. With `alpha` or `beta` at most 1 that is a bound: of two peaks
        the higher, of two equal ones the minimum, and the middle if the density is flat."""
        peaked = (self.alpha > 1) & (self.beta > 1)
        total = jnp.where(peaked, self.alpha + self.beta - 2, 1.0)
        flat = (self.alpha == 1) & (self.beta == 1)
        bound = jnp.where(self.alpha > self.beta, 1.0, jnp.where(flat, 0.5, 0.0))
        return self._stretch(jnp.where(peaked, (self.alpha - 1) / total, bound))

    def entropy(self, *, key: PRNGKeyArray | None = None) -> Float[Array, ""]:
        del key
        both = digamma(self.alpha + self.beta)
        entropy = betaln(self.alpha, self.beta) + jnp.log(self.maximum - self.minimum)
        entropy += (self.alpha - 1) * (both - digamma(self.alpha))
        entropy += (self.beta - 1) * (both - digamma(self.beta))
        return jnp.sum(entropy)

    def kl(self, other: "ClippedBeta") -> Float[Array, "*dims"]:
        """`KL(self || other)`, of which equal bounds are no part.

        Raises a `ValueError` where the bounds are known to differ; of traced bounds it takes them
        to be equal.
        """
        check_shape("other.alpha", other.alpha, self.alpha.shape)
        same_bounds((self.minimum, self.maximum), (other.minimum, other.maximum))
        both = digamma(self.alpha + self.beta)
        kl = betaln(other.alpha, other.beta) - betaln(self.alpha, self.beta)
        kl += (self.alpha - other.alpha) * (digamma(self.alpha) - both)
        return kl + (self.beta - other.beta) * (digamma(self.beta) - both)

    def _stretch(self, x: Float[Array, "*dims"]) -> Float[Array, "*dims"]:
        x = jnp.clip(x, _CLIP, 1 - _CLIP)
        return jnp.asarray(self.minimum + (self.maximum - self.minimum) * x)
