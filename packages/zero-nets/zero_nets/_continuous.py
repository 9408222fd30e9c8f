"""Distributions over vectors of real numbers, independent in every dimension."""

import functools as ft
import math
from typing import TypeVar

import distreqx.distributions as dx
import equinox as eqx
import jax
import jax.lax as lax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.scipy.special import betaln, digamma
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray, Real

from ._checks import check_positive, check_same_kind, check_shape, concrete
from ._distribution import AbstractDistribution
from ._precision import real


Bound = Float[Array | np.ndarray, "*dims"]

#: The width of the strip of constant density at either bound of a `TanhGaussian`, in units of the
#: action.
EDGE = 1e-3

_Policy = TypeVar("_Policy", "Gaussian", "TanhGaussian")


class Gaussian(AbstractDistribution):
    """An unbounded Gaussian in every dimension, with means `loc` and standard deviations
    `scale`."""

    loc: Float[Array, "*dims"] = eqx.field(converter=real)
    scale: Float[Array, "*dims"] = eqx.field(converter=real)

    def __check_init__(self):
        check_shape("scale", self.scale, self.loc.shape)
        check_positive("scale", self.scale)

    def sample(self, *, key: PRNGKeyArray) -> Float[Array, "*dims"]:
        return _normal(self).sample(key)

    def log_prob(self, action: Float[Array, "*dims"]) -> Float[Array, ""]:
        check_shape("action", action, self.loc.shape)
        return jnp.sum(_normal(self).log_prob(real(action)))

    def mode(self) -> Float[Array, "*dims"]:
        return self.loc

    def entropy(self) -> Float[Array, ""]:
        return jnp.sum(_normal(self).entropy())

    def kl(self, other: "Gaussian") -> Float[Array, "*dims"]:
        """`KL(self || other)` of each dimension."""
        check_same_kind(self, other)
        check_shape("other.loc", other.loc, self.loc.shape)
        return _normal(self).kl_divergence(_normal(other))

    def decouple(self, other: "Gaussian") -> tuple["Gaussian", "Gaussian"]:
        """Splits this policy into two, so that a loss can bound the change of its mean and of its
        standard deviation separately (Abdolmaleki et al. 2018, https://arxiv.org/abs/1806.06920,
        section 4.1): this mean with the standard deviation of `other`, and the reverse."""
        return _decoupled(self, other)


class TanhGaussian(AbstractDistribution):
    """A squashed Gaussian: `middle + range / 2 * tanh(x)` with a Gaussian `x`.

    Close to a bound the density is steep, and `x` cannot be recovered from the rounded action.
    Therefore the density is constant within 0.001 of either bound (in units of the action), where
    it spreads the whole probability of the corresponding `x` evenly. The density integrates to 1,
    and `log_prob` and its gradients are finite for every action, also at and outside the bounds.

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
        """The bounds are more than 0.002 apart. They receive no gradient."""
        self.loc, self.scale = real(loc), real(scale)
        check_shape("scale", self.scale, self.loc.shape)
        check_positive("scale", self.scale)
        self.minimum, self.maximum = bounds(minimum, maximum, self.loc, margin=2 * EDGE)

    def sample(self, *, key: PRNGKeyArray) -> Float[Array, "*dims"]:
        return self._squash(_normal(self).sample(key))

    def log_prob(self, action: Float[Array, "*dims"]) -> Float[Array, ""]:
        check_shape("action", action, self.loc.shape)
        action = real(action)
        # With the distances to the bounds, x = atanh(.) = (log below - log above) / 2 and
        # dy/dx = below * above / (range / 2). They are exact next to a bound, where 1 - tanh(x)^2
        # loses its digits.
        span = self.maximum - self.minimum
        below = jnp.log(jnp.maximum(action - self.minimum, EDGE))
        above = jnp.log(jnp.maximum(self.maximum - action, EDGE))
        edge = math.log(EDGE)
        inside = _normal(self).log_prob((below - above) / 2)
        inside += jnp.log(span / 2) - below - above
        reach = (jnp.log(span - EDGE) - edge) / 2
        low = _log_ndtr((-reach - self.loc) / self.scale) - edge
        high = _log_ndtr((self.loc - reach) / self.scale) - edge
        at_low = action <= self.minimum + EDGE
        at_high = action >= self.maximum - EDGE
        return jnp.sum(jnp.where(at_low, low, jnp.where(at_high, high, inside)))

    def mode(self) -> Float[Array, "*dims"]:
        """The squashed mean, as is usual. It is not the maximum of the density."""
        return self._squash(self.loc)

    def entropy(self) -> Float[Array, ""]:
        """The entropy of the squashed Gaussian, ignoring the constant density at the bounds.

        It is the entropy of `x` plus the mean of `log(dy/dx)`. The latter has no closed form, so it
        is computed by a quadrature of 16 points, with an error of 2e-5 up to a `scale` of 1, 0.004
        at 2 and 0.03 at 3.
        """
        nodes, weights = (
            jnp.asarray(x, self.loc.dtype).reshape(*[1] * self.loc.ndim, -1) for x in _quadrature()
        )
        x = jnp.abs(self.loc[..., None] + self.scale[..., None] * nodes)
        # log(cosh(x)) without overflow. `log1p` or a softplus would take several times as long, for
        # digits that the sum does not keep.
        log_cosh = jnp.sum((x + jnp.log(1 + jnp.exp(-2 * x))) * weights, axis=-1) - math.log(2)
        half = (self.maximum - self.minimum) / 2
        return jnp.sum(_normal(self).entropy() + jnp.log(half) - 2 * log_cosh)

    def kl(self, other: "TanhGaussian") -> Float[Array, "*dims"]:
        """`KL(self || other)` of each dimension, which the squashing does not change. The bounds
        must be equal; traced ones are not compared."""
        check_same_kind(self, other)
        check_shape("other.loc", other.loc, self.loc.shape)
        _check_same_bounds(self, other)
        return _normal(self).kl_divergence(_normal(other))

    def decouple(self, other: "TanhGaussian") -> tuple["TanhGaussian", "TanhGaussian"]:
        """This `loc` with the `scale` of `other`, and the `loc` of `other` with this `scale`; see
        [`zero_nets.Gaussian.decouple`][]."""
        return _decoupled(self, other)

    def _squash(self, x: Float[Array, "*dims"]) -> Float[Array, "*dims"]:
        middle = (self.maximum + self.minimum) / 2
        half = (self.maximum - self.minimum) / 2
        # Rounding may lead just outside.
        return jnp.clip(middle + half * jnp.tanh(x), self.minimum, self.maximum)


@jax.custom_jvp
def _log_ndtr(x: Float[Array, "*dims"]) -> Float[Array, "*dims"]:
    # The logarithm of the standard Gaussian's distribution function. JAX's own derivative is a
    # difference of squares: in float32 it is 3 times too small at -1e4 and 1e5 times at -1e5.
    return jax.scipy.special.log_ndtr(x)


@_log_ndtr.defjvp
def _log_ndtr_jvp(primals, tangents):
    (x,), (dx_,) = primals, tangents
    y = _log_ndtr(x)
    near = jnp.maximum(x, -10.0)
    direct = jnp.exp(-(near**2) / 2 - _log_ndtr(near) - math.log(2 * math.pi) / 2)
    # Far from 0, the first terms of Laplace's continued fraction of the inverse Mills ratio.
    far = jnp.maximum(-x, 10.0)
    fraction = far + 1 / (far + 2 / (far + 3 / (far + 4 / far)))
    return y, jnp.where(x < -10.0, fraction, direct) * dx_


@ft.cache
def _quadrature() -> tuple[np.ndarray, np.ndarray]:
    """The Gauss-Hermite nodes and weights of a mean under a standard Gaussian."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(16)
    return nodes, weights / weights.sum()


# The distance that a Beta variable keeps from 0 and from 1: about one float32 step next to 1.
_CLIP = 1e-7


# distreqx's `Beta` is normalised by a difference of log-gammas, which loses digits for large
# parameters (an error of 0.04 in a log-density at 1e4 and 3e4), and its mode is NaN below 1.
class ClippedBeta(AbstractDistribution):
    """A Beta distribution stretched to bounds: `minimum + range * x` with a Beta-distributed `x`.

    It is bounded without squashing, so no probability accumulates at a bound (Chou et al. 2017,
    https://proceedings.mlr.press/v70/chou17a.html). With `alpha` and `beta` above 1 it has one
    peak. `x` is clipped to [1e-7, 1 - 1e-7] in samples and in `log_prob`, because the density or
    its logarithm may be infinite at 0 and 1.

    **Attributes:**

    - `alpha`, `beta`: the shape parameters. A larger `alpha` moves probability towards the maximum,
        a larger `beta` towards the minimum.
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
        """The shape parameters are positive. The bounds receive no gradient."""
        self.alpha, self.beta = real(alpha), real(beta)
        check_shape("beta", self.beta, self.alpha.shape)
        check_positive("alpha", self.alpha)
        check_positive("beta", self.beta)
        self.minimum, self.maximum = bounds(minimum, maximum, self.alpha)

    def sample(self, *, key: PRNGKeyArray) -> Float[Array, "*dims"]:
        return self._stretch(jr.beta(key, self.alpha, self.beta, dtype=self.alpha.dtype))

    def log_prob(self, action: Float[Array, "*dims"]) -> Float[Array, ""]:
        check_shape("action", action, self.alpha.shape)
        action, span = real(action), self.maximum - self.minimum
        below = jnp.clip((action - self.minimum) / span, _CLIP, 1 - _CLIP)
        above = jnp.clip((self.maximum - action) / span, _CLIP, 1 - _CLIP)
        log_density = (self.alpha - 1) * jnp.log(below) + (self.beta - 1) * jnp.log(above)
        return jnp.sum(log_density - betaln(self.alpha, self.beta) - jnp.log(span))

    def mode(self) -> Float[Array, "*dims"]:
        """The action of the highest density.

        If `alpha` or `beta` is at most 1 it is a bound: the one with the higher peak, or the
        minimum if both are equal. It is the middle if the density is flat.
        """
        peaked = (self.alpha > 1) & (self.beta > 1)
        total = jnp.where(peaked, self.alpha + self.beta - 2, 1.0)
        flat = (self.alpha == 1) & (self.beta == 1)
        bound = jnp.where(self.alpha > self.beta, 1.0, jnp.where(flat, 0.5, 0.0))
        return self._stretch(jnp.where(peaked, (self.alpha - 1) / total, bound))

    def entropy(self) -> Float[Array, ""]:
        both = digamma(self.alpha + self.beta)
        entropy = betaln(self.alpha, self.beta) + jnp.log(self.maximum - self.minimum)
        entropy += (self.alpha - 1) * (both - digamma(self.alpha))
        entropy += (self.beta - 1) * (both - digamma(self.beta))
        return jnp.sum(entropy)

    def kl(self, other: "ClippedBeta") -> Float[Array, "*dims"]:
        """`KL(self || other)` of each dimension, which the bounds do not change. They must be
        equal, as those of a [`zero_nets.TanhGaussian`][]."""
        check_same_kind(self, other)
        check_shape("other.alpha", other.alpha, self.alpha.shape)
        _check_same_bounds(self, other)
        both = digamma(self.alpha + self.beta)
        kl = betaln(other.alpha, other.beta) - betaln(self.alpha, self.beta)
        kl += (self.alpha - other.alpha) * (digamma(self.alpha) - both)
        return kl + (self.beta - other.beta) * (digamma(self.beta) - both)

    def _stretch(self, x: Float[Array, "*dims"]) -> Float[Array, "*dims"]:
        x = jnp.clip(x, _CLIP, 1 - _CLIP)
        return jnp.asarray(self.minimum + (self.maximum - self.minimum) * x)


def bounds(
    minimum: Real[ArrayLike, "..."],
    maximum: Real[ArrayLike, "..."],
    like: Float[Array | np.ndarray, "*dims"],
    *,
    margin: float = 0.0,
) -> tuple[Bound, Bound]:
    """Both bounds in the shape and dtype of `like`, as NumPy arrays unless they are traced."""
    for name, bound in (("minimum", minimum), ("maximum", maximum)):
        if jnp.shape(bound) not in ((), like.shape):
            raise ValueError(
                f"`{name}` has shape {jnp.shape(bound)}; it must be one number, or one for each "
                f"dimension of an action of shape {like.shape}."
            )
    low, high = concrete(minimum), concrete(maximum)
    if low is not None and high is not None:
        for name, bound in (("minimum", low), ("maximum", high)):
            if not np.issubdtype(bound.dtype, np.number):
                raise ValueError(
                    f"`{name}` is {bound.tolist()!r}; it must be a number, or one each."
                )
        if not (np.all(np.isfinite(low)) and np.all(np.isfinite(high))):
            raise ValueError(
                f"`minimum` is {low.tolist()} and `maximum` {high.tolist()}; both must be finite."
            )
        # In the precision of the bounds, whichever NumPy compares.
        if not np.all(high - low > np.asarray(margin, np.result_type(low, high, np.float32))):
            raise ValueError(
                f"`minimum` is {low.tolist()} and `maximum` {high.tolist()}; the maximum must be "
                f"more than {margin:g} above the minimum in every dimension."
            )
    return _bound(minimum, like), _bound(maximum, like)


def _bound(x: Real[ArrayLike, "..."], like: Float[Array | np.ndarray, "*dims"]) -> Bound:
    values = concrete(x)
    if values is not None:
        return np.broadcast_to(values.astype(like.dtype), like.shape)
    # The bounds belong to the environment: if they are leaves of a network, they are not trained.
    return jnp.broadcast_to(lax.stop_gradient(jnp.asarray(x, like.dtype)), like.shape)


def _check_same_bounds(one: TanhGaussian | ClippedBeta, other: TanhGaussian | ClippedBeta) -> None:
    for a, b in ((one.minimum, other.minimum), (one.maximum, other.maximum)):
        x, y = concrete(a), concrete(b)
        if x is not None and y is not None and not np.array_equal(x, y):
            raise ValueError(
                f"One distribution is bounded by {x.tolist()}, the other by {y.tolist()}; a KL "
                "divergence needs equal bounds."
            )


def _normal(policy: Gaussian | TanhGaussian) -> dx.Normal:
    return dx.Normal(policy.loc, policy.scale)


def _decoupled(one: _Policy, other: _Policy) -> tuple[_Policy, _Policy]:
    return (
        eqx.tree_at(lambda policy: policy.scale, one, other.scale),
        eqx.tree_at(lambda policy: policy.loc, one, other.loc),
    )
