"""Computation in one floating-point dtype while parameters and results keep another."""

from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import DTypeLike

from ._checks import check_function, numbers


Tree = TypeVar("Tree")


class MixedPrecision(eqx.Module):
    """Wraps a network to compute in another floating-point dtype.

    Parameters and floating-point inputs are cast to `dtype`, such as `jnp.bfloat16`, and results
    narrower than float32 are cast to float32. The parameters, their gradients and the results
    therefore stay float32. To keep the last layers exact, wrap a torso and not its heads.
    """

    net: Callable[..., Any]
    dtype: DTypeLike = eqx.field(static=True, converter=lambda dtype: computing(dtype))

    def __check_init__(self):
        check_function(net=self.net)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        net, args, kwargs = cast((self.net, args, kwargs), self.dtype)
        return widen(net(*args, **kwargs))


def cast(tree: Tree, dtype: DTypeLike) -> Tree:
    """The same tree with its floating-point arrays in `dtype`."""
    return jax.tree.map(lambda x: x.astype(dtype) if is_floating(x) else x, tree)


def widen(tree: Tree) -> Tree:
    """The same tree with the floating-point arrays in at least float32."""
    return jax.tree.map(lambda x: x.astype(wide(x.dtype)) if is_floating(x) else x, tree)


def is_floating(x: Any) -> bool:
    """Whether `x` is a floating-point array or `jax.ShapeDtypeStruct`."""
    return hasattr(x, "dtype") and jnp.issubdtype(x.dtype, jnp.floating)


def wide(dtype: np.dtype) -> np.dtype:
    """The wider one of `dtype` and float32."""
    return np.dtype(np.float32) if dtype.itemsize < 4 else dtype


def real(x: Any) -> Any:
    """An array in floating point of at least float32, of integers too: in half precision sums lose
    their small terms, and integers would round what they are combined with.

    Numbers and lists of them are made arrays.
    """
    x = numbers(x)
    return x.astype(wide(x.dtype) if is_floating(x) else np.float32)


def computing(dtype: DTypeLike) -> np.dtype:
    """The dtype of a computation, once it has been checked."""
    try:
        dtype = jnp.dtype(dtype)
    except TypeError as error:
        raise ValueError(f"`dtype` is {dtype!r}; it must be a floating-point type.") from error
    if not jnp.issubdtype(dtype, jnp.floating):
        raise ValueError(f"`dtype` is {dtype}; it must be a floating-point type.")
    if jax.dtypes.canonicalize_dtype(dtype) != dtype:
        raise ValueError(
            f"`dtype` is {dtype}, which JAX would cut down to float32; call "
            '`jax.config.update("jax_enable_x64", True)` first, or use float32.'
        )
    return dtype
