"""gymnax's environments (Lange, 2022, github.com/RobertTLange/gymnax)."""

import functools as ft
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from ._adapted import AdaptedEnvironment, continuous, ContinuousAdaptedEnvironment, Library, Stepped
from ._foreign import (
    Bounds,
    check_foreign,
    check_no_options,
    check_unbounded,
    default_numerics,
    import_or_explain,
)
from ._known import GYMNAX_DOWNLOADED, GYMNAX_STEADY, names_of, unknown


_CALL = "gymnax_environment"


def gymnax_environment(
    env: Any,
    *,
    params: Any = None,
    hidden: bool | None = None,
    bounds: Bounds | None = None,
    **options: Any,
) -> AdaptedEnvironment | ContinuousAdaptedEnvironment:
    """An environment of gymnax, stepped by its `step_env`, which does not reset.

    gymnax reports an end that is in its rules and the limit `max_steps_in_episode` of its
    parameters apart: the first is a termination and the second a truncation. An observation that
    is an integer (in `"FrozenLake-misc"`) becomes one-hot.

    **Arguments:**

    - `env`: an id of `gymnax.registered_envs`, for instance `"Catch-bsuite"`, or a
        `gymnax.environments.environment.Environment`, without gymnax's wrappers.
    - `params`: its parameters, by default `env.default_params`.
    - `hidden`: whether the state is only partly observable. It is required for environments that
        are not gymnax's own, and wherever parameters or options are given.
    - `bounds`: of continuous actions, by default those of gymnax's action space.
    - `options`: with an id, the arguments of the environment's constructor.
    """
    if isinstance(env, str):
        if params is None and hidden is None and bounds is None and not options:
            return _own(env)
        name, env = env, _make(env, options)
    else:
        check_foreign(_CALL, env, "an id or an environment of gymnax", "step_env", "is_truncated")
        check_no_options(_CALL, env, options)
        name = type(env).__name__
        if not hasattr(type(env), "step_env"):
            raise ValueError(
                f"{_CALL}(<{name}>): its class has no `step_env` of its own, as wrappers have "
                "none, so its `step` would be left out; pass the environment without it."
            )
    if hidden is None:
        raise ValueError(
            f"{_CALL}(<{name}>): not one of gymnax's own with its own parameters, so it is not "
            "known whether its state is fully observable; pass hidden=True or hidden=False."
        )
    steady = params is None and not options and name in GYMNAX_STEADY
    params = env.default_params if params is None else params
    return _adapted(env, name, params, hidden, bounds, steady)


@ft.cache
def _own(name: str) -> AdaptedEnvironment | ContinuousAdaptedEnvironment:
    """Returns the same object for the same id, so that nothing is traced twice."""
    env, known = _make(name, {}), names_of("gymnax")
    if name not in known:
        raise ValueError(
            f'{_CALL}("{name}"): it is none of gymnax itself; pass hidden=True or False.'
        )
    return _adapted(env, name, env.default_params, known[name].hidden, None, name in GYMNAX_STEADY)


def _make(name: str, options: dict[str, Any]) -> Any:
    gymnax = import_or_explain("gymnax", _CALL)
    if name in GYMNAX_DOWNLOADED:
        raise ValueError(
            f'{_CALL}("{name}"): it downloads its images when it is made, so it cannot be made by '
            f"its id; pass the environment itself, or one of: {', '.join(names_of('gymnax'))}."
        )
    if name not in gymnax.registered_envs:
        raise unknown(_CALL, name, names_of("gymnax"))
    try:
        with default_numerics(name):
            return gymnax.make(name, **options)[0]
    except TypeError as error:
        raise ValueError(f'{_CALL}("{name}"): {error}; give other options.') from error


def _adapted(
    env: Any, name: str, params: Any, hidden: bool, bounds: Bounds | None, steady: bool = False
) -> AdaptedEnvironment | ContinuousAdaptedEnvironment:
    with default_numerics(name):
        num_seen = getattr(env.observation_space(params), "n", None)
        space = env.action_space(params)

    def seen(observation: Any) -> Any:
        return observation if num_seen is None else jax.nn.one_hot(observation, num_seen)

    def reset(key: Array) -> tuple[Any, Any]:
        observation, state = env.reset_env(key, params)
        return state, seen(observation)

    def step(state: Any, action: Array, key: Array) -> Stepped:
        observation, after, reward, terminated, _ = env.step_env(key, state, action, params)
        truncated = env.is_truncated(after, params)
        return Stepped(after, seen(observation), reward, terminated, truncated)

    library = Library(_CALL, name, reset, step, steady)
    known: dict[str, Any] = {"hidden": hidden, "max_steps": int(params.max_steps_in_episode)}
    if hasattr(space, "n"):
        check_unbounded(_CALL, name, bounds)
        return AdaptedEnvironment(library=library, num_actions=int(space.n), **known)
    if hasattr(space, "low"):
        if not jnp.issubdtype(space.dtype, jnp.floating):
            raise ValueError(
                f"{_CALL}(<{name}>): its actions are a Box of {jnp.dtype(space.dtype)}; only real "
                "numbers are allowed in a Box."
            )
        limits = (space.low, space.high) if bounds is None else bounds
        return continuous(library, space.shape, limits, **known)
    kind = type(space).__name__
    raise ValueError(f"{_CALL}(<{name}>): its actions are a {kind}; Discrete or Box is allowed.")
