"""What can be refused of a distribution's parameters before they are traced."""

import jax.core
import jax.lax as lax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Real


Bound = Float[Array | np.ndarray, "*dims"]


def concrete(x: ArrayLike) -> np.ndarray | None:
    """The values of `x`, or `None` while JAX traces it."""
    return None if isinstance(x, jax.core.Tracer) else np.asarray(x)


def check_positive(name: str, x: Float[Array, "*dims"]) -> None:
    values = concrete(x)
    # A NaN passes: whoever trains looks for those in the losses, with the step they came from.
    if values is not None and np.any(values <= 0):
        raise ValueError(f"`{name}` is {values.tolist()}; it must be positive everywhere.")


def check_shape(name: str, x: Array | np.ndarray, shape: tuple[int, ...]) -> None:
    if x.shape != shape:
        raise ValueError(
            f"`{name}` has shape {x.shape}, expected {shape}. Use `jax.vmap` over a batch."
        )


def bounds(
    minimum: Real[ArrayLike, "..."],
    maximum: Real[ArrayLike, "..."],
    like: Float[Array, "*dims"],
    *,
    margin: float = 0.0,
) -> tuple[Bound, Bound]:
    """Both bounds in the shape and dtype of `like`, as NumPy arrays unless they are traced.

    Raises a `ValueError` where one is not finite or they are not more than `margin` apart.
    """
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


def _bound(x: Real[ArrayLike, "..."], like: Float[Array, "*dims"]) -> Bound:
    values = concrete(x)
    if values is not None:
        return np.broadcast_to(values.astype(like.dtype), like.shape)
    # Bounds are the environment's: were they leaves of a network, no gradient should move them.
    return jnp.broadcast_to(lax.stop_gradient(jnp.asarray(x, like.dtype)), like.shape)
