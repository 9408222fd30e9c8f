"""Helpers of the adapters to other libraries."""

import contextlib
import importlib
import importlib.util
from collections.abc import Iterator
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray


_Tree = TypeVar("_Tree")


@contextlib.contextmanager
def default_numerics(name: str) -> Iterator[None]:
    """Applies the default promotion of dtypes and ranks, on which other libraries rely. In double
    precision many of their environments mix dtypes, which is refused under this name."""
    try:
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            yield
    except TypeError as error:
        if jnp.result_type(float) != jnp.float64:
            raise
        raise ValueError(
            f"{name} cannot be played in double precision, because its library mixes dtypes: turn "
            "JAX_ENABLE_X64 (jax_enable_x64) off, or choose another environment."
        ) from error


def raw_key(key: PRNGKeyArray) -> Array:
    """The raw form of a typed key.

    Other libraries pass keys through `lax.cond`, which under `jax.vmap` selects between two copies
    of a typed key, and `jax_debug_key_reuse` reports that as reuse. A key that is not of JAX's
    default implementation is returned as it is, because a raw key has no implementation.
    """
    if not hasattr(key, "dtype") or jnp.issubdtype(key.dtype, jax.dtypes.prng_key) and key.ndim:
        given = f"{key.dtype}{list(key.shape)}" if hasattr(key, "dtype") else repr(key)
        raise ValueError(f"the key is {given}; give one, such as jax.random.key(0).")
    default = jax.eval_shape(jax.random.key, 0).dtype
    return jax.random.key_data(key) if key.dtype == default else key


def strongly_typed(tree: _Tree) -> _Tree:
    """Removes weak types from all leaves.

    Other libraries initialise states with Python numbers. These are weakly typed, so the second
    step would be traced again.
    """
    return jax.tree.map(lambda x: jax.lax.convert_element_type(x, jnp.result_type(x)), tree)


def check_foreign(call: str, given: Any, allowed: str, *names: str) -> None:
    """Raises a `ValueError` for what lacks attributes that an environment of a library has."""
    if isinstance(given, type) or not all(hasattr(given, name) for name in names):
        raise ValueError(f"{call}({given!r}): give {allowed}.")


def import_or_explain(module: str, call: str) -> Any:
    """Imports a module of an optional dependency."""
    name = module.partition(".")[0]
    try:
        importlib.import_module(name)
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"{call} needs {name}, which is not installed: install zero-envs with its extra "
            f"`{name}`."
        ) from error
