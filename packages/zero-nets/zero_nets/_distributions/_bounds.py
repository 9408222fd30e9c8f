"""The bounds of an action."""

import jax.lax as lax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Real

from .._checks import concrete


Bound = Float[Array | np.ndarray, "*dims"]


def bounds(
    minimum: Real[ArrayLike, "..."],
    maximum: Real[ArrayLike, "..."],
    like: Float[Array | np.ndarray, "*dims"],
    *,
    margin: float = 0.0,
) -> tuple[Bound, Bound]:
    """Both bounds in the shape and dtype of `like`, as NumPy arrays unless they are traced.

    Raises a `ValueError` where one is neither a number nor of the shape of `like`, where one is
    not finite, or where they are not more than `margin` apart.
    """
    for name, bound in (("minimum", minimum), ("maximum", maximum)):
        if jnp.shape(bound) not in ((), like.shape):
            raise ValueError(
                f"`{name}` has shape {jnp.shape(bound)}; it must be one number, or one for each "
                f"dimension of an action of shape {like.shape}."
            )
    low, high = concrete(minimum), concrete(maximum)
    if low is not None and high is not None:
        if not (np.all(np.isfinite(low)) and np.all(np.isfinite(high))):
            raise ValueError(
                f"The bounds are {low.tolist()} and {high.tolist()}; they must be finite."
            )
        if not np.all(high - low > margin):
            raise ValueError(
                f"`minimum` is {low.tolist()} and `maximum` {high.tolist()}; the maximum must be "
                f"more than {margin:g} above the minimum in every dimension."
            )
    return _bound(minimum, like), _bound(maximum, like)


def same_bounds(one: tuple[Bound, Bound], other: tuple[Bound, Bound]) -> None:
    """Refuse what is known to have different bounds."""
    for a, b in zip(one, other, strict=True):
        x, y = concrete(a), concrete(b)
        if x is not None and y is not None and not np.array_equal(x, y):
            raise ValueError(
                f"One distribution is bounded by {x.tolist()}, the other by {y.tolist()}; a KL "
                "divergence needs equal bounds."
            )


def _bound(x: Real[ArrayLike, "..."], like: Float[Array | np.ndarray, "*dims"]) -> Bound:
    values = concrete(x)
    if values is not None:
        return np.broadcast_to(values.astype(like.dtype), like.shape)
    # Bounds are the environment's: were they leaves of a network, no gradient should move them.
    return jnp.broadcast_to(lax.stop_gradient(jnp.asarray(x, like.dtype)), like.shape)
