"""What every check of an environment is made of."""

from collections.abc import Callable
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._environment import Transition


def fail(env: Any, message: str) -> NoReturn:
    raise AssertionError(f"check_environment({type(env).__name__}): {message}")


def leaves(tree: Any) -> list[tuple[str, Array]]:
    return [(jax.tree_util.keystr(path), x) for path, x in jax.tree.leaves_with_path(tree)]


def is_typed_key(leaf: Array) -> bool:
    return bool(jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key))


def is_key(name: str, leaf: Array) -> bool:
    """A typed key, or a pair of integers called one."""
    named = "key" in name.lower() or "rng" in name.lower()
    return is_typed_key(leaf) or (leaf.dtype == jnp.uint32 and leaf.shape[1:] == (2,) and named)


def check_same(env: Any, name: str, first: Any, second: Any) -> None:
    for (where, x), (_, y) in zip(leaves(first), leaves(second), strict=True):
        if is_typed_key(x):
            continue
        if not np.array_equal(np.asarray(x), np.asarray(y), equal_nan=True):
            fail(env, f"{name} called twice with the same arguments differs in {where}.")


def check_signature(env: Any, name: str, before: Any, after: Any) -> None:
    """That the method `name` returns a state like those of `init`."""
    old, new = jax.tree.structure(before), jax.tree.structure(after)
    if old != new:
        fail(env, f"{name} changes the state's structure from {old} to {new}; it must keep it.")
    for (where, x), (_, y) in zip(leaves(before), leaves(after), strict=True):
        if (x.shape, x.dtype) != (y.shape, y.dtype):
            fail(
                env,
                f"state{where} is {x.dtype}{list(x.shape[1:])} after init and "
                f"{y.dtype}{list(y.shape[1:])} after {name}; both must agree.",
            )
        if y.weak_type:
            fail(env, f"state{where} is weakly typed after {name}; cast it to a dtype.")


def check_transition(env: Any, transition: Any, num_envs: int, name: str = "step") -> None:
    if not isinstance(transition, Transition):
        fail(env, f"{name} returns a {type(transition).__name__}; return (state, Transition).")
    for field, kind in (("reward", jnp.floating), ("discount", jnp.floating), ("last", jnp.bool_)):
        leaf = getattr(transition, field)
        wanted = kind.__name__
        if leaf.shape != (num_envs,) or not jnp.issubdtype(leaf.dtype, kind):
            fail(
                env,
                f"{field} is {leaf.dtype}{list(leaf.shape[1:])}; it must be a {wanted} scalar.",
            )


def check_laws(env: Any, where: str, over: np.ndarray, transition: Transition) -> np.ndarray:
    """Checks one step's transitions and counts them, in the order of the report."""
    reward = np.asarray(transition.reward)
    discount = np.asarray(transition.discount)
    last = np.asarray(transition.last)
    if not np.isfinite(reward).all():
        fail(env, f"{where}: a reward is not finite: {_show(reward)}.")
    if not np.isin(discount, (-1.0, 0.0, 1.0)).all():
        fail(
            env,
            f"{where}: a discount is not -1, 0 or 1: {_show(discount)}. It says who moves "
            "next; gamma belongs to the planner and the agent.",
        )
    if (over & ((reward != 0) | (discount != 0) | ~last)).any():
        fail(
            env,
            f"{where}: a final state is not absorbing; after last, reward is "
            f"{_show(reward[over])}, discount {_show(discount[over])}, last {_show(last[over])}, "
            "and must be 0, 0, True.",
        )
    if ((discount == 0) & ~last).any():
        fail(env, f"{where}: discount is 0 where last is False; the end must have both.")
    live = ~over
    ends = live & last
    terminated = ends & (discount == 0)
    rows = (live, terminated, ends & ~terminated, live & (discount > 0), live & (discount < 0))
    return np.asarray([row.sum() for row in rows])


def check_pure(
    env: Any, fresh: Callable[[], dict[str, Callable]], arguments: tuple[tuple, ...]
) -> None:
    """Compares the programs of two traces: they differ if Python state gets into them.

    `fresh` returns the named functions anew, so that `jax.jit` cannot remember having traced them.
    """
    for (name, first), second, args in zip(
        fresh().items(), fresh().values(), arguments, strict=True
    ):
        one, two = (jax.jit(fn).lower(*args).as_text() for fn in (first, second))
        # The text of a host callback holds an address.
        if one != two and "callback" not in one:
            fail(
                env,
                f"{name} is another program each time it is traced; it must depend on nothing but "
                "its arguments: no Python counters, no numpy.random.",
            )


def _show(x: np.ndarray) -> str:
    """Its different values, on one line."""
    return ", ".join(str(value) for value in np.unique(x)[:8])
