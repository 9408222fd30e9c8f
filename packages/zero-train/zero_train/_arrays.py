"""Arrays and numbers that losses and returns share.

Illegal is -inf, in logits, log-probabilities and Q-values. Filler rows and final states may have no
legal action at all. A weight or discount of 0 makes such a row count for nothing, but 0 times
infinity is NaN, in the value or in the gradient.
"""

import functools as ft
import inspect
import math
from collections.abc import Callable
from typing import Any, get_args, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from ._checks import as_line, check_range


_P = ParamSpec("_P")
_T = TypeVar("_T")


def check_axes(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Makes a function raise where its arguments do not have the axes and the kind of numbers of
    its annotations or a `lambda_` is not from 0 to 1, take lists and NumPy's arrays too, and
    compute in float32 at least.

    jaxtyping checks them too, but few users turn that on, and a loss of a batch that should have
    been vmapped is an ordinary number.
    """
    signature = inspect.signature(function)
    annotations = {name: x.annotation for name, x in signature.parameters.items()}
    axes = {name: found for name, x in annotations.items() if (found := _axes(x))}
    kinds = {name: found for name, x in annotations.items() if (found := _kind(x))}

    @ft.wraps(function)
    def checked(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        bound = signature.bind(*args, **kwargs)
        # In double precision a scalar of NumPy's would make the result one, unlike Python's.
        given = bound.arguments
        given.update({k: float(x) for k, x in given.items() if isinstance(x, np.floating)})
        for name, kind in kinds.items():
            parts = get_args(annotations[name])
            if name not in given or (given[name] is None and type(None) in parts):
                continue
            x = taken(f"`{function.__name__}({name}=)`", given[name], kind)
            if type(x) is int and kind == "real numbers" and float not in parts:
                x = float(x)
            on_host = np.ndarray in [getattr(part, "array_type", None) for part in parts]
            # Traced integers index it, which NumPy refuses.
            given[name] = jnp.asarray(x) if isinstance(x, np.ndarray) and not on_host else x
        shapes = {name: jnp.shape(x) for name, x in given.items() if name in axes and x is not None}
        takes = {
            name: next((x for x in axes[name] if len(x.split()) == len(shape)), axes[name][-1])
            for name, shape in shapes.items()
        }
        lengths: dict[str, int] = {}
        if not all(_fits(takes[name], shape, lengths) for name, shape in shapes.items()):
            raise ValueError(
                f"`{function.__name__}` was given "
                + ", ".join(f"{name}{list(shape)}" for name, shape in shapes.items())
                + " but takes "
                + ", ".join(f"{name}[{names}]" for name, names in takes.items())
                + ": one example, axes of one name equally long and not empty; `jax.vmap` it over "
                "a batch."
            )
        if "lambda_" in given:
            check_range(function.__name__, 0, 1, lambda_=given["lambda_"])
        return function(*bound.args, **bound.kwargs)

    return checked


def taken(called: str, x: Any, kind: str = "real numbers") -> Any:
    """A number, an array, or a list made one, of this kind.

    Arrays of half precision and of integers are given in float32. In half precision the sum of
    many terms loses the small ones, and its differences of large numbers are noise.
    """
    array: Any = x
    if isinstance(x, list | tuple):
        try:
            traced = any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(x))
            array = jnp.asarray(x) if traced else np.asarray(x)
        except (TypeError, ValueError):
            pass
    dtype = np.asarray(x).dtype if isinstance(x, int | float) else getattr(array, "dtype", None)
    if dtype is None or not any(jnp.issubdtype(dtype, of) for of in _KINDS[kind]):
        given = as_line(x) if dtype is None or isinstance(x, int | float) else f"of {dtype}"
        raise ValueError(f"{called} is {given}; give {kind}, in an array if they are several.")
    if not hasattr(array, "dtype") or kind in ("integers", "numbers"):
        return array
    if kind == "booleans":
        return array.astype(bool)
    wide = jnp.issubdtype(dtype, jnp.floating) and dtype.itemsize >= 4
    dtype = jax.dtypes.canonicalize_dtype(dtype) if wide else jnp.float32
    return array if array.dtype == dtype else array.astype(dtype)


def at_action(x: Array, action: Array) -> Array:
    """The entry of the action, or NaN where there is no such action: JAX takes the nearest one."""
    # JAX cuts the number of actions to the bits of the action, 300 to 44.
    action = action if jnp.result_type(action).itemsize >= 4 else action.astype(jnp.int32)
    exists = (action >= 0) & (action < x.shape[0])
    return jnp.where(exists, x[jnp.where(exists, action, 0)], jnp.nan)


#: What an argument may be, and the dtypes that are that.
_KINDS: dict[str, tuple[Any, ...]] = {
    "real numbers": (jnp.floating, jnp.integer, jnp.bool_),
    "integers": (jnp.integer,),
    "booleans": (jnp.bool_, jnp.integer),
    "numbers": (jnp.number, jnp.bool_),
}


def _kind(annotation: Any) -> str | None:
    """What an argument is: the first of a union's arrays says it."""
    for x in (annotation, *get_args(annotation)):
        dtypes = getattr(x, "dtypes", ())
        if isinstance(dtypes, tuple | list):
            for dtype, kind in zip(("float32", "int32", "bool"), _KINDS, strict=False):
                if dtype in dtypes:
                    return kind
        elif hasattr(x, "dim_str"):
            return "numbers"
    return None


def _axes(annotation: Any) -> list[str]:
    """The axes that an argument may have: those of each array type of a union."""
    names = [
        x.dim_str.strip() for x in (annotation, *get_args(annotation)) if hasattr(x, "dim_str")
    ]
    return [x for x in names if not x.startswith("*")]


def _fits(axes: str, shape: tuple[int, ...], lengths: dict[str, int]) -> bool:
    """Whether the shape has these axes, of lengths seen before."""
    names = axes.split()
    if names[-1:] == ["..."]:
        names = names[:-1]
        shape = shape[: len(names)]
    return (
        len(shape) == len(names)
        and 0 not in shape
        and all(lengths.setdefault(x, size) == size for x, size in zip(names, shape, strict=True))
    )


def ratio(log_ratio: Float[Array, "*axes"]) -> Float[Array, "*axes"]:
    """`exp(log_ratio)`, at most a number that is far below the largest one, and so its slope: an
    infinite slope times a weight, or the slope of a clip, of 0 would be NaN."""
    most = math.log(float(jnp.finfo(log_ratio.dtype).max)) - 10
    # The difference is 0 and has a slope; to subtract the excess would cancel where it is large.
    known = jnp.minimum(log_ratio, jnp.finfo(log_ratio.dtype).max)
    held = most + (known - jax.lax.stop_gradient(known))
    return jnp.exp(jnp.where(log_ratio > most, held, log_ratio))


def finite(x: Float[Array, "*axes"]) -> Float[Array, "*axes"]:
    """0 for -inf, without a gradient."""
    return jnp.where(jnp.isneginf(x), 0.0, x)


def log_softmax(logits: Float[Array, "*axes actions"]) -> Float[Array, "*axes actions"]:
    """Log-probabilities; the uniform ones where nothing is legal."""
    some = jnp.any(~jnp.isneginf(logits), axis=-1, keepdims=True)
    return jax.nn.log_softmax(jnp.where(some, logits, 0.0), axis=-1)
