"""Checks that apply to the methods of all environments."""

from collections.abc import Callable
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._environment import Transition
from .._foreign import is_key


class BrokenPromiseError(Exception):
    """An environment does not satisfy its interface."""


def fail(message: str) -> NoReturn:
    raise BrokenPromiseError(message)


def batched(env: Any, name: str) -> Callable:
    """A method of the environment over a batch; the last argument of keyed methods is `key`.

    It is a new function for every call, so `jax.jit` cannot reuse an earlier trace.
    """
    method = getattr(env, name)
    if name in ("init", "step", "resample"):
        return jax.vmap(lambda *args: method(*args[:-1], key=args[-1]))
    return jax.vmap(lambda *args: method(*args))


#: An array, or what is known of one that is only traced.
Leaf = Array | jax.ShapeDtypeStruct


def leaves(tree: Any) -> list[tuple[str, Any]]:
    return [(jax.tree_util.keystr(path), x) for path, x in jax.tree.leaves_with_path(tree)]


def key_leaf(tree: Any) -> str | None:
    """The path of a PRNG key in a batch."""
    found = (name for name, leaf in leaves(tree) if is_key(name, leaf.dtype, leaf.shape[1:]))
    return next(found, None)


def kind(leaf: Leaf, axes: int = 1) -> str:
    """The dtype and shape of a leaf without its leading axes."""
    return f"{leaf.dtype}{list(leaf.shape[axes:])}"


def check_same(
    name: str, first: Any, second: Any, how: str = "called twice with the same arguments"
) -> None:
    """Checks that two calls of a method returned the same."""
    for (where, x), (_, y) in zip(leaves(first), leaves(second), strict=True):
        is_typed = jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
        if not is_typed and not np.array_equal(x, y, equal_nan=True):
            fail(f"{name} {how} differs in {where}.")


def check_signature(
    name: str, before: Any, after: Any, first: str = "init", what: str = "state", axes: int = 1
) -> None:
    """Checks that what the method `name` returns has the signature of what `first` returns, but for
    the leading axes."""
    old, new = jax.tree.structure(before), jax.tree.structure(after)
    if old != new:
        fail(f"{name} returns the structure {new} and {first} {old}; both must agree.")
    for (where, x), (_, y) in zip(leaves(before), leaves(after), strict=True):
        old, new = kind(x, axes), kind(y, axes)
        if old != new:
            fail(f"{what}{where} is {old} after {first} and {new} after {name}; both must agree.")


def check_strong(name: str, state: Any) -> None:
    """Checks that no leaf of the state that the method `name` returned is weakly typed."""
    for where, leaf in leaves(state):
        if leaf.weak_type:
            fail(
                f"state{where} is weakly typed after {name}, so the next step is traced again; "
                "give it a dtype, for instance jnp.zeros((), jnp.int32)."
            )


def check_laws(where: str, over: np.ndarray, transition: Transition) -> np.ndarray:
    """Checks the transitions of one step, and counts them in the order of `EnvironmentReport`."""
    reward, discount, last = map(np.asarray, jax.tree.leaves(transition))
    if not np.isfinite(reward).all():
        fail(f"{where}: a reward is not finite: {_show(reward)}.")
    if not np.isin(discount, (-1.0, 0.0, 1.0)).all():
        fail(
            f"{where}: a discount is not -1, 0 or 1: {_show(discount)}. It is the sign of the next "
            "player; gamma belongs to the planner and the agent."
        )
    if (wrong := over & ((reward != 0) | (discount != 0) | ~last)).any():
        i = int(np.argmax(wrong))
        fail(
            f"{where}: stepping on after the end of an episode gave reward {reward[i]:g}, discount "
            f"{discount[i]:g} and last={last[i]}; `step` in a final state must return reward 0, "
            "discount 0 and last=True."
        )
    if ((discount == 0) & ~last).any():
        fail(f"{where}: discount is 0 where last is False; a terminated episode must have both.")
    live = ~over
    terminated, truncated = live & last & (discount == 0), live & last & (discount != 0)
    rows = (live, terminated, truncated, live & (discount > 0), live & (discount < 0))
    return np.asarray([row.sum() for row in rows])


def check_pure(name: str, compiled: Any, again: Callable, *args: Any) -> None:
    """Checks that two traces of a method result in the same program, so that no Python state is
    part of it. `compiled` was traced with such arguments, and `again` is a new function of the
    method."""
    one, two = (jitted.lower(*args).as_text() for jitted in (compiled, jax.jit(again)))
    # The text of a host callback contains an address.
    if one != two and "callback" not in one:
        fail(
            f"two traces of {name} differ; it must depend on its arguments only, and not on Python "
            "counters or numpy.random."
        )


def _show(x: np.ndarray) -> str:
    """The different values of an array on one line."""
    return ", ".join(str(value) for value in np.unique(x)[:8])
