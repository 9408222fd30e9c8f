"""Computing in one floating-point type while parameters and results keep another."""

from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import DTypeLike


Tree = TypeVar("Tree")


class MixedPrecision(eqx.Module):
    """Any network, computing in another floating-point type.

    Parameters and floating-point inputs are cast on the way in and every result that is narrower
    than float32 on the way out, so the parameters, their gradients and what the network says stay
    float32. Wrap a torso and leave its heads as they are to keep the last layers exact.

    **Attributes:**

    - `net`: any callable pytree; its arguments are passed on.
    - `dtype`: what it computes in, e.g. `jnp.bfloat16`.
    """

    net: Callable[..., Any]
    dtype: np.dtype = eqx.field(static=True)

    def __init__(self, net: Callable[..., Any], dtype: DTypeLike):
        self.net = net
        self.dtype = computing(dtype)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        net, args, kwargs = cast((self.net, args, kwargs), self.dtype)
        return widen(net(*args, **kwargs))


def cast(tree: Tree, dtype: DTypeLike) -> Tree:
    """The same tree with its floating-point arrays in `dtype`."""
    return jax.tree.map(lambda x: x.astype(dtype) if _is_floating(x) else x, tree)


def widen(tree: Tree) -> Tree:
    """The same tree with no floating-point array narrower than float32."""
    return jax.tree.map(lambda x: x.astype(wide(x.dtype)) if _is_floating(x) else x, tree)


def _is_floating(x: Any) -> bool:
    return isinstance(x, jax.Array | np.ndarray) and jnp.issubdtype(x.dtype, jnp.floating)


def wide(dtype: np.dtype) -> np.dtype:
    """The same dtype, or float32 if that is wider."""
    return np.dtype(np.float32) if dtype.itemsize < 4 else dtype


def computing(dtype: DTypeLike) -> np.dtype:
    dtype = jnp.dtype(dtype)
    if not jnp.issubdtype(dtype, jnp.floating):
        raise ValueError(f"`dtype` is {dtype}; it must be a floating-point type.")
    if jax.dtypes.canonicalize_dtype(dtype) != dtype:
        raise ValueError(
            f"`dtype` is {dtype}, which JAX would cut down to float32; call "
            '`jax.config.update("jax_enable_x64", True)` first, or use float32.'
        )
    return dtype
