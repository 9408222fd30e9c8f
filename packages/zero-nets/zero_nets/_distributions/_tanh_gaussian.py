"""Gaussians squashed into bounds."""

import functools as ft
import math

import distreqx.distributions as dx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray, Real

from .._checks import check_positive, check_shape
from ._abstract import AbstractDistribution
from ._bounds import Bound, bounds, same_bounds


# The width of the strip at either bound, in units of the action, whatever the bounds.
EDGE = 1e-3


class TanhGaussian(AbstractDistribution):
    """`middle + range / 2 * tanh(x)` of a Gaussian `x`, independently in every dimension.

    Close to a bound the density of the action is steep and `x` cannot be told from the rounded
    action. So the last 0.001 at either bound (in units of the action) counts as one place: all the
    probability of `x` beyond it, spread evenly. The density integrates to 1, and `log_prob` and
    its gradients are finite for every action, one at or outside the bounds included.

    **Attributes:**

    - `loc`, `scale`: mean and standard deviation of `x`, before the squashing.
    - `minimum`, `maximum`: bounds of the action.
    """

    loc: Float[Array, "*dims"]
    scale: Float[Array, "*dims"]
    minimum: Bound
    maximum: Bound

    def __init__(
        self,
        loc: Float[Array, "*dims"],
        scale: Float[Array, "*dims"],
        minimum: Real[ArrayLike, "..."],
        maximum: Real[ArrayLike, "..."],
    ):
        """**Arguments:**

        - `loc`, `scale`: mean and standard deviation of `x`, before the squashing.
        - `minimum`, `maximum`: bounds of the action, one for all dimensions or one each, more than
            0.002 apart. No gradient reaches them.
        """
        check_shape("scale", scale, loc.shape)
        check_positive("scale", scale)
        self.loc = loc
        self.scale = scale
        self.minimum, self.maximum = bounds(minimum, maximum, loc, margin=2 * EDGE)

    def sample(self, *, key: PRNGKeyArray) -> Float[Array, "*dims"]:
        return self._squash(dx.Normal(self.loc, self.scale).sample(key))

    def log_prob(self, action: Float[Array, "*dims"]) -> Float[Array, ""]:
        check_shape("action", action, self.loc.shape)
        # The distances to the two bounds say all: x = atanh(.) = (log below - log above) / 2 and
        # dy/dx = below * above / (range / 2). They are exact next to a bound, where
        # 1 - tanh(x)^2 has lost its digits.
        span = self.maximum - self.minimum
        below = jnp.log(jnp.maximum(action - self.minimum, EDGE))
        above = jnp.log(jnp.maximum(self.maximum - action, EDGE))
        edge = math.log(EDGE)
        inside = dx.Normal(self.loc, self.scale).log_prob((below - above) / 2)
        inside += jnp.log(span / 2) - below - above
        reach = (jnp.log(span - EDGE) - edge) / 2
        low = _log_ndtr((-reach - self.loc) / self.scale) - edge
        high = _log_ndtr((self.loc - reach) / self.scale) - edge
        at_low = action <= self.minimum + EDGE
        at_high = action >= self.maximum - EDGE
        return jnp.sum(jnp.where(at_low, low, jnp.where(at_high, high, inside)))

    def mode(self) -> Float[Array, "*dims"]:
        """The squashed mean, as is usual; the density itself peaks elsewhere, or at both bounds."""
        return self._squash(self.loc)

    def entropy(self, *, key: PRNGKeyArray | None = None) -> Float[Array, ""]:
        """The entropy of the squashed Gaussian, without its edges.

        That is the Gaussian's own and the mean of `log(dy/dx)`, which has no closed form: a
        quadrature of 16 points, right to 2e-5 up to a `scale` of 1, to 0.004 at 2 and to 0.03 at
        3. It has no noise, and so needs no `key`.
        """
        del key
        nodes, weights = (
            jnp.asarray(x, self.loc.dtype).reshape(*[1] * self.loc.ndim, -1) for x in _quadrature()
        )
        x = jnp.abs(self.loc[..., None] + self.scale[..., None] * nodes)
        # log(cosh(x)) without overflow; `log1p`, or a softplus, would take several times as long
        # for digits that the sum does not keep.
        log_cosh = jnp.sum((x + jnp.log(1 + jnp.exp(-2 * x))) * weights, axis=-1) - math.log(2)
        half = (self.maximum - self.minimum) / 2
        entropy = dx.Normal(self.loc, self.scale).entropy()
        return jnp.sum(entropy + jnp.log(half) - 2 * log_cosh)

    def kl(self, other: "TanhGaussian") -> Float[Array, "*dims"]:
        """That of the two Gaussians before the squashing, which changes it by nothing.

        Raises a `ValueError` where the bounds are known to differ; of traced bounds it takes them
        to be equal.
        """
        check_shape("other.loc", other.loc, self.loc.shape)
        same_bounds((self.minimum, self.maximum), (other.minimum, other.maximum))
        return dx.Normal(self.loc, self.scale).kl_divergence(dx.Normal(other.loc, other.scale))

    def decouple(self, other: "TanhGaussian") -> tuple["TanhGaussian", "TanhGaussian"]:
        """This mean with the `scale` of `other`, and the mean of `other` with this `scale`; see
        [`zero_nets.Gaussian.decouple`][]."""
        return (
            eqx.tree_at(lambda d: d.scale, self, other.scale),
            eqx.tree_at(lambda d: d.loc, self, other.loc),
        )

    def _squash(self, x: Float[Array, "*dims"]) -> Float[Array, "*dims"]:
        middle = (self.maximum + self.minimum) / 2
        half = (self.maximum - self.minimum) / 2
        # Rounding may end just outside.
        return jnp.clip(middle + half * jnp.tanh(x), self.minimum, self.maximum)


@jax.custom_jvp
def _log_ndtr(x: Float[Array, "*dims"]) -> Float[Array, "*dims"]:
    # The log of the standard Gaussian's distribution function. JAX's own derivative of it is a
    # difference of squares: in float32 it is 3 times too small at -1e4, and 1e5 times at -1e5.
    return jax.scipy.special.log_ndtr(x)


@_log_ndtr.defjvp
def _log_ndtr_jvp(primals, tangents):
    (x,), (dx_,) = primals, tangents
    y = _log_ndtr(x)
    near = jnp.maximum(x, -10.0)
    direct = jnp.exp(-(near**2) / 2 - _log_ndtr(near) - math.log(2 * math.pi) / 2)
    # Far out, the first terms of Laplace's continued fraction of the inverse Mills ratio.
    far = jnp.maximum(-x, 10.0)
    fraction = far + 1 / (far + 2 / (far + 3 / (far + 4 / far)))
    return y, jnp.where(x < -10.0, fraction, direct) * dx_


@ft.cache
def _quadrature() -> tuple[np.ndarray, np.ndarray]:
    """Points and weights of Gauss and Hermite: of the mean under a standard Gaussian."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(16)
    return nodes, weights / weights.sum()
