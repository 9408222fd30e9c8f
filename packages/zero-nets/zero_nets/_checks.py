"""Checks of the sizes, parameters and inputs of networks and distributions."""

import contextlib
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Integer, PRNGKeyArray, Shaped


def check_sizes(least: int = 1, /, **sizes: int) -> None:
    for name, size in sizes.items():
        if not _are_sizes(size, least=least):
            raise ValueError(f"`{name}` is {size!r}; it must be an integer of at least {least}.")


def check_each(**sizes: Any) -> None:
    for name, size in sizes.items():
        if not (isinstance(size, Sequence | np.ndarray) and len(size) and _are_sizes(*size)):
            raise ValueError(
                f"`{name}` is {size!r}; it must be one or more sizes, each an integer of at least "
                "1."
            )


def check_board(name: str, shape: tuple[int, ...]) -> None:
    if len(shape) != 3 or not _are_sizes(*shape):
        raise ValueError(
            f"`{name}` is {shape}; it must be the rows, columns and channels of one observation, "
            "each at least 1."
        )


def _are_sizes(*sizes: Any, least: int = 1) -> bool:
    return all(isinstance(x, int | np.integer) and x >= least for x in sizes)


def check_number(
    least: float = -math.inf, most: float = math.inf, /, *, above: bool = False, **given: Any
) -> None:
    """Refuses what is not finite, not from `least` to `most`, or is `least` where it must be
    `above`: a number, or each of an array. Traced values are not known."""
    for name, x in given.items():
        values = concrete(x)
        if values is None:
            continue
        fits = np.issubdtype(values.dtype, np.number) and np.isrealobj(values)
        fits = fits and not isinstance(x, list | tuple)
        if fits:
            low = values > least if above else values >= least
            fits = bool(np.all(low & (values <= most) & (np.abs(values) < np.inf)))
        if not fits:
            bounds = f" in {'(' if above else '['}{least:g}, {most:g}]"
            if most == math.inf:
                bounds = f" {'above' if above else 'of at least'} {least:g}"
            allowed = "a finite number" + ("" if least == -math.inf else bounds)
            raise ValueError(f"`{name}` is {values.tolist()!r}; it must be {allowed}.")


def check_index(name: str, index: Any, number: int) -> None:
    """Refuses what is not one integer from 0 to `number - 1`. A traced one is not known."""
    known = isinstance(index, int | np.integer) or (
        getattr(index, "shape", None) == ()
        and np.issubdtype(getattr(index, "dtype", object), np.integer)
    )
    value = concrete(index) if known else -1
    if value is not None and not 0 <= value < number:
        raise ValueError(f"`{name}` is {index}; it must be an integer from 0 to {number - 1}.")


def check_function(**functions: Any) -> None:
    for name, function in functions.items():
        if not callable(function):
            raise ValueError(f"`{name}` is {function!r}; it must be a function.")


def check_choice(choices: tuple[str, ...], **options: str) -> None:
    for name, option in options.items():
        if option not in choices:
            allowed = ", ".join(map(repr, choices[:-1])) + f" or {choices[-1]!r}"
            raise ValueError(f"`{name}` is {option!r}; it must be {allowed}.")


def check_shape(name: str, x: Shaped[Array | np.ndarray, "..."], shape: tuple[int, ...]) -> None:
    if (given := shape_of(name, x)) != shape:
        raise ValueError(
            f"`{name}` has shape {given}, expected {shape}. Use `jax.vmap` over a batch."
        )


def check_vector(name: str, x: Shaped[Array, "..."]) -> None:
    if len(shape := shape_of(name, x)) != 1 or x.size < 1:
        raise ValueError(
            f"`{name}` has shape {shape}; it must be a vector of at least one number. Use "
            "`jax.vmap` over a batch."
        )


def as_cells(x: Any, channels: int) -> Any:
    """A board of numbers with these channels, in floating point."""
    shape = shape_of("x", x)
    if len(shape) != 3 or 0 in shape or shape[-1] != channels:
        raise ValueError(
            f"`x` has shape {shape}; it must be rows, columns and {channels} channels. Use "
            "`jax.vmap` over a batch."
        )
    x = numbers(x)
    return x if jnp.issubdtype(x.dtype, jnp.floating) else x.astype(jnp.float32)


def shape_of(name: str, x: Any) -> tuple[int, ...]:
    """The shape of an array or a number; anything else is refused."""
    if not isinstance(x, int | float) and not hasattr(x, "shape"):
        raise ValueError(f"`{name}` is {x!r}; it must be an array.")
    return np.shape(x)


def numbers(x: Any) -> Any:
    """An array of real numbers, made of a number or a list; anything else is refused."""
    array = x
    if isinstance(x, int | float | list | tuple):
        traced = any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(x))
        with contextlib.suppress(TypeError, ValueError):
            array = jnp.asarray(x if traced else np.asarray(x))
    dtype = getattr(array, "dtype", None)
    if dtype is None or not any(jnp.issubdtype(dtype, of) for of in _REAL):
        given = repr(x) if dtype is None else f"An array of {dtype}"
        raise ValueError(f"{given} was given; give an array of numbers, all of them real.")
    known = jax.dtypes.canonicalize_dtype(dtype)  # JAX warns where it has to cut down itself
    return array if dtype == known else array.astype(known)


_REAL = (jnp.floating, jnp.integer, jnp.bool_)


def check_same_kind(first: Any, second: Any) -> None:
    if not (isinstance(first, type(second)) or isinstance(second, type(first))):
        kinds = f"{type(first).__name__} to {type(second).__name__}"
        raise ValueError(f"A KL divergence of {kinds}; both must be of the same class.")


def checked_action(action: Any, shape: tuple[int, ...]) -> Integer[Array | np.ndarray, "..."]:
    """The action in at least 32 bits: JAX cuts a number of actions to the bits of the action that
    it is compared with, 300 to 44. Refuses what are no integers of this shape."""
    check_shape("action", action, shape)
    dtype = getattr(action, "dtype", None) or np.asarray(action).dtype
    if not jnp.issubdtype(dtype, jnp.integer):
        raise ValueError(f"`action` is of {dtype}; actions are integers.")
    # As NumPy's, where it is no array of JAX's, which would cut 64 bits.
    action = action if isinstance(action, Array) else np.asarray(action)
    return action if dtype.itemsize >= 4 else action.astype(np.int32)


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
    return numbers(features).astype(dtype)


def subkeys(key: PRNGKeyArray | None, num: int) -> list[PRNGKeyArray] | list[None]:
    """One key for each layer, or `None` for each: without a key a network draws no noise."""
    return [None] * num if key is None else list(jr.split(key, num))
