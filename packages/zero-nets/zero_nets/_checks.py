"""Checks of the sizes, parameters and inputs of networks and distributions."""

import jax.core
import jax.random as jr
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray, Shaped


def check_sizes(least: int = 1, /, **sizes: int) -> None:
    for name, size in sizes.items():
        if size < least:
            raise ValueError(f"`{name}` is {size}; it must be at least {least}.")


def check_each(**sizes: tuple[int, ...]) -> None:
    for name, size in sizes.items():
        if not size or min(size) < 1:
            raise ValueError(f"`{name}` is {size}; it must be one or more sizes, each at least 1.")


def check_board(name: str, shape: tuple[int, ...]) -> None:
    if len(shape) != 3 or min(shape) < 1:
        raise ValueError(
            f"`{name}` is {shape}; it must be the rows, columns and channels of one observation, "
            "each at least 1."
        )


def check_choice(choices: tuple[str, ...], **options: str) -> None:
    for name, option in options.items():
        if option not in choices:
            allowed = ", ".join(map(repr, choices[:-1])) + f" or {choices[-1]!r}"
            raise ValueError(f"`{name}` is {option!r}; it must be {allowed}.")


def check_shape(name: str, x: Shaped[Array | np.ndarray, "..."], shape: tuple[int, ...]) -> None:
    if x.shape != shape:
        raise ValueError(
            f"`{name}` has shape {x.shape}, expected {shape}. Use `jax.vmap` over a batch."
        )


def check_vector(name: str, x: Shaped[Array, "..."]) -> None:
    if x.ndim != 1 or x.size < 1:
        raise ValueError(
            f"`{name}` has shape {x.shape}; it must be a vector of at least one number. Use "
            "`jax.vmap` over a batch."
        )


def concrete(x: ArrayLike) -> np.ndarray | None:
    """The values of `x`, or `None` if it is traced."""
    return None if isinstance(x, jax.core.Tracer) else np.asarray(x)


def check_positive(name: str, x: Float[Array, "*dims"]) -> None:
    values = concrete(x)
    # A NaN is accepted, because training loops detect it in the losses and report the step.
    if values is not None and np.any(values <= 0):
        raise ValueError(f"`{name}` is {values.tolist()}; it must be positive everywhere.")


def as_features(
    features: Shaped[Array, "..."], shape: tuple[int, ...], dtype: np.dtype
) -> Float[Array, "..."]:
    """The features in the dtype of the parameters, once their shape has been checked."""
    check_shape("features", features, shape)
    return features.astype(dtype)


def subkeys(key: PRNGKeyArray | None, num: int) -> list[PRNGKeyArray] | list[None]:
    """One key for each layer, or `None` for each: without a key a network draws no noise."""
    return [None] * num if key is None else list(jr.split(key, num))
