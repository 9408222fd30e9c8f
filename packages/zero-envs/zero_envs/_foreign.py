"""Helpers of the adapters to other libraries."""

import contextlib
import importlib
import importlib.util
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import keystr, tree_map_with_path
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray


_Tree = TypeVar("_Tree")

# Folded into the key of a step before it becomes keys of a state, so that these are others than
# those that the library splits from the key of the step itself.
_CARRIED = 0x6B657973


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


def is_key(path: str, dtype: Any, shape: tuple[int, ...]) -> bool:
    """Whether an array at that path of a state is a PRNG key, or an array of them: a typed one, or
    two integers, or four, with such a name."""
    if jnp.issubdtype(dtype, jax.dtypes.prng_key):
        return True
    named = any(part in path.lower() for part in ("key", "rng"))
    return named and dtype == jnp.uint32 and shape[-1:] in ((2,), (4,))


def without_keys(tree: Any) -> Any:
    """The state of a library, in which every PRNG key is `None`."""
    # Some leaves are Python numbers.
    hidden = lambda path, x: is_key(keystr(path), jnp.result_type(x), jnp.shape(x))
    return tree_map_with_path(lambda path, x: None if hidden(path, x) else x, tree)


def with_keys(like: Any, tree: Any, key: PRNGKeyArray) -> Any:
    """What [`without_keys`][] made of a state, with keys drawn from `key` in place of those it had.
    `like` is the state of the library, or its shapes."""
    key, places = jax.random.fold_in(key, _CARRIED), itertools.count()

    def restored(path: Any, shape: Any, x: Any) -> Any:
        if not is_key(keystr(path), shape.dtype, shape.shape):
            return x
        drawn, typed = jax.random.fold_in(key, next(places)), shape.dtype != jnp.uint32
        if several := shape.shape if typed else shape.shape[:-1]:
            drawn = jax.random.split(drawn, several)
        return drawn if typed else jax.random.key_data(drawn)

    return tree_map_with_path(restored, like, tree)


#: The lowest and the highest action, each a number or one for each dimension.
Bounds = tuple[ArrayLike | Sequence[float], ArrayLike | Sequence[float]]
#: The same, once they are known to be finite: one number for each dimension.
Limits = tuple[tuple[float, ...], tuple[float, ...]]


def checked_bounds(call: str, name: str, shape: tuple[int, ...], bounds: Bounds) -> Limits:
    """The lowest and the highest action of that shape, flat, once they are known to be finite.
    `call` and the `name` of what it was given are for the message."""
    try:
        low, high = bounds
        wide = [np.broadcast_to(np.asarray(x, np.float64), shape) for x in (low, high)]
    except (TypeError, ValueError):
        raise ValueError(
            f"{call}(bounds={bounds!r}): give the lowest and the highest action, each a number or "
            f"{' x '.join(map(str, shape)) or 1} numbers."
        ) from None
    low, high = map(np.ravel, wide)
    if not (np.isfinite(low) & np.isfinite(high) & (low < high)).all():
        raise ValueError(
            f"{call}(<{name}>): its actions have no bounds (low {low.tolist()}, high "
            f"{high.tolist()}), so they cannot be mapped to [-1, 1]; pass bounds=(low, high), all "
            "finite and low below high."
        )
    return tuple(low.tolist()), tuple(high.tolist())


def check_unbounded(call: str, name: str, bounds: Bounds | None) -> None:
    """Raises a `ValueError` for `bounds` of numbered actions."""
    if bounds is not None:
        raise ValueError(
            f"{call}(<{name}>, bounds={bounds!r}): its actions are numbered; leave out `bounds`, "
            "which are those of continuous actions."
        )


def within_bounds(action: Float[Array, " size"], limits: Limits) -> Float[Array, " size"]:
    """An action from -1 to 1, which is clipped to that, as one within the limits."""
    least, most = (jnp.asarray(x, jnp.float32) for x in limits)
    return least + (jnp.clip(action, -1.0, 1.0) + 1.0) * 0.5 * (most - least)


def check_foreign(call: str, given: Any, allowed: str, *names: str) -> None:
    """Raises a `ValueError` for what lacks attributes that an environment of a library has."""
    if isinstance(given, type) or not all(hasattr(given, name) for name in names):
        raise ValueError(f"{call}({given!r}): give {allowed}.")


#: The wrappers of brax, Jumanji, Playground and Stoa that reset within a step or step a batch.
_RESETTING = frozenset(
    {
        "AutoResetWrapper",
        "BraxAutoResetWrapper",
        "BraxDomainRandomizationVmapWrapper",
        "CachedAutoResetWrapper",
        "DomainRandomizationVmapWrapper",
        "GymnaxToStoa",
        "OptimisticResetVmapWrapper",
        "VmapAutoResetWrapper",
        "VmapWrapper",
    }
)


def check_unwrapped(call: str, env: Any, *ending: str, hint: str = "") -> None:
    """Raises a `ValueError` where a wrapper of an environment, or a class above it, resets within a
    step or steps a batch, or is one of `ending`, which end episodes by themselves."""
    part, seen = env, set[int]()
    while part is not None and id(part) not in seen:
        seen.add(id(part))
        names = {kind.__name__ for kind in type(part).__mro__}
        if found := sorted(names & {*_RESETTING, *ending}):
            does = "resets within a step or steps a batch, and here episodes end"
            does = "ends episodes itself" if found[0] in ending else does
            raise ValueError(
                f"{call}(<{type(env).__name__}>): {found[0]} {does}; pass an environment without "
                f"it{hint}."
            )
        fields = getattr(part, "__dict__", {})
        part = fields.get("_env") or fields.get("env")


def check_no_options(call: str, env: Any, options: Iterable[str]) -> None:
    """Raises a `ValueError` for options beside an environment that is no name but made already."""
    if (options := list(options)) and not isinstance(env, str):
        raise ValueError(
            f"{call}(<{type(env).__name__}>, {', '.join(options)}): options belong to a name; give "
            "them to the environment itself."
        )


def import_or_explain(module: str, call: str, extra: str = "") -> Any:
    """Imports a module of an optional dependency; its `extra` has by default the same name."""
    name = module.partition(".")[0]
    try:
        importlib.import_module(name)
        return importlib.import_module(module)
    except ImportError as error:
        # A library may lack what it imports itself.
        missing = error.name if isinstance(error, ModuleNotFoundError) and error.name else name
        raise ImportError(
            f"{call} needs {missing}, which is not installed: install zero-envs with its extra "
            f"`{extra or name}`."
        ) from error
