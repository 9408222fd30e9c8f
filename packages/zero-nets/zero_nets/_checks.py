"""What every network asks of its sizes and its inputs."""

import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, Shaped


def check_sizes(**sizes: int) -> None:
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"`{name}` is {size}; it must be at least 1.")


def check_each(**sizes: tuple[int, ...]) -> None:
    for name, size in sizes.items():
        if not size or min(size) < 1:
            raise ValueError(f"`{name}` is {size}; it must be one or more sizes, each at least 1.")


def check_choice(choices: tuple[str, ...], **options: str) -> None:
    for name, option in options.items():
        if option not in choices:
            allowed = ", ".join(map(repr, choices[:-1])) + f" or {choices[-1]!r}"
            raise ValueError(f"`{name}` is {option!r}; it must be {allowed}.")


def check_shape(features: Shaped[Array, "..."], shape: tuple[int, ...]) -> None:
    if features.shape != shape:
        raise ValueError(
            f"The features have shape {features.shape}; this network was built for {shape}. "
            "It takes one example: use `jax.vmap` over a batch."
        )


def as_features(
    features: Shaped[Array, "..."], shape: tuple[int, ...], dtype: np.dtype
) -> Float[Array, "..."]:
    """The features, of the shape a network was built for, in the type of its parameters."""
    check_shape(features, shape)
    return features.astype(dtype)


def subkeys(key: PRNGKeyArray | None, num: int) -> list[PRNGKeyArray] | list[None]:
    """A key for each layer, or none for any: a network without a key draws no noise."""
    return [None] * num if key is None else list(jr.split(key, num))
