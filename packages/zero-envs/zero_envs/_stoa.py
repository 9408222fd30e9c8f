"""Environments with the interface of Stoa (github.com/EdanToledo/Stoa)."""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from ._adapted import AdaptedEnvironment, continuous, ContinuousAdaptedEnvironment, Library, Stepped
from ._foreign import (
    Bounds,
    check_foreign,
    check_unbounded,
    check_unwrapped,
    default_numerics,
    import_or_explain,
)


_CALL = "stoa_environment"


def stoa_environment(
    env: Any,
    *,
    hidden: bool | None = None,
    bounds: Bounds | None = None,
    max_steps: int | None = None,
) -> AdaptedEnvironment | ContinuousAdaptedEnvironment:
    """An environment with the interface of Stoa, without wrappers that reset or vectorise it.

    A step of the type `TERMINATED` with discount 0 is a termination, and every other last one a
    truncation. (Stoa's adapter to Jumanji calls all last steps terminated.) Stoa's states hold PRNG
    keys. Here they do not: all of them are drawn anew from the `key` of `step`, so that no planner
    foresees what the environment will draw. A key is a typed one, or two `uint32`, or four, in a
    field whose name has "key" or "rng" in it.

    **Arguments:**

    - `env`: a `stoa.Environment`. Stoa has no names of environments.
    - `hidden`: whether the state is only partly observable. It is required.
    - `bounds`: of continuous actions, by default those of Stoa's action space.
    - `max_steps`: the limit that the environment has, for evaluations; it adds none.
    """
    spaces = import_or_explain("stoa.spaces", _CALL, "stoa")
    check_foreign(_CALL, env, "an environment of Stoa", "reset", "step", "action_space")
    check_unwrapped(_CALL, env, hint=" (of gymnax: gymnax_environment)")
    kind = type(env).__name__
    if hidden is None:
        raise ValueError(
            f"{_CALL}(<{kind}>): it is not known whether its state is fully observable; pass "
            "hidden=True or hidden=False."
        )
    library = Library(_CALL, kind, *_functions(env))
    known: dict[str, Any] = {"hidden": hidden, "max_steps": max_steps}
    with default_numerics(kind):
        space = env.action_space()
    if isinstance(space, spaces.DiscreteSpace):
        check_unbounded(_CALL, kind, bounds)
        return _discrete(library, int(space.num_values), known)
    if isinstance(space, spaces.MultiDiscreteSpace):
        raise ValueError(
            f"{_CALL}(<{kind}>): its actions have several components; wrap it in "
            "stoa.MultiDiscreteToDiscreteWrapper."
        )
    if not isinstance(space, spaces.ArraySpace):
        raise ValueError(
            f"{_CALL}(<{kind}>): its actions are a {type(space).__name__}; give an environment "
            "with a DiscreteSpace or a BoundedArraySpace."
        )
    if not jnp.issubdtype(space.dtype, jnp.floating):
        raise ValueError(
            f"{_CALL}(<{kind}>): its actions are a {type(space).__name__} of {space.dtype}; give "
            "an environment with a DiscreteSpace, or with actions of real numbers."
        )
    low, high = getattr(space, "minimum", -math.inf), getattr(space, "maximum", math.inf)
    return continuous(library, space.shape, (low, high) if bounds is None else bounds, **known)


def _discrete(library: Library, num_actions: int, known: dict[str, Any]) -> AdaptedEnvironment:
    if num_actions >= 2**31:
        raise ValueError(
            f"{_CALL}(<{library.name}>): it has {num_actions} actions; there may be fewer than "
            "2**31, for int32 actions."
        )
    env = AdaptedEnvironment(library=library, num_actions=num_actions, **known)
    # A mask of another shape than the actions fails now and not in the first step.
    jax.eval_shape(lambda: env.observe(env.init(key=jax.random.key(0))))
    return env


def _functions(env: Any) -> tuple[Any, Any]:
    def reset(key: Array) -> tuple[Any, Any]:
        state, first = env.reset(key)
        return state, first.observation

    def step(state: Any, action: Array, key: Array) -> Stepped:
        del key  # The state was given keys that are drawn from it.
        after, seen = env.step(state, action)
        if seen.reward.shape:
            raise ValueError(
                f"{_CALL}(<{type(env).__name__}>): a step has rewards of shape "
                f"{list(seen.reward.shape)}; there must be one, of one player."
            )
        terminated = seen.terminated() & (seen.discount == 0)
        return Stepped(after, seen.observation, seen.reward, terminated, seen.last() & ~terminated)

    return reset, step
