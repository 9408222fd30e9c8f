"""What a Jumanji environment must be before it can be played here."""

import copy
import functools as ft
import inspect
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ._foreign import default_numerics, raw_key, unknown
from ._sokoban import SokobanGenerator


#: Environments of Jumanji whose state holds what the player cannot see, by the name of the class.
HIDDEN_JUMANJI = frozenset({"Minesweeper", "RobotWarehouse"})

_MISSING = (
    "JumanjiEnvironment needs jumanji, which is not installed: install zero-envs with its extra "
    "`jumanji`."
)


def make(env: Any, options: dict[str, Any]) -> tuple[Any, int | None, tuple[int, ...]]:
    """The environment without its time limit, the limit, and how many values each component of an
    action has."""
    if isinstance(env, str):
        env, limit = _configured(env, options) if options else _registered(env)
    elif options:
        raise ValueError(
            f"JumanjiEnvironment(<{name_of(env)}>, {', '.join(options)}): options belong to an id; "
            "give them to the environment itself."
        )
    else:
        env, limit = _unlimited(env)
    num_values = _num_values(env)
    with default_numerics():
        reward = jax.eval_shape(lambda: env.reset(raw_key(jax.random.key(0)))[1].reward)
    if reward.shape:
        raise ValueError(
            f"JumanjiEnvironment(<{name_of(env)}>): it pays {reward.shape[0]} agents one reward "
            "each; one player has one reward: wrap it in jumanji.wrappers.MultiToSingleWrapper, "
            "which adds them up, or choose another."
        )
    return env, limit, num_values


def name_of(env: Any) -> str:
    return type(env.unwrapped).__name__


def is_hidden(env: Any) -> bool:
    for kind in (type(env), type(env.unwrapped)):
        if not kind.__module__.startswith("jumanji."):
            raise ValueError(
                f"JumanjiEnvironment(<{kind.__name__}>): not one of Jumanji's own, so nobody but "
                "you knows whether its state holds what the player cannot see; pass hidden=True "
                "or False."
            )
    return name_of(env) in HIDDEN_JUMANJI


@ft.cache
def _registered(name: str) -> tuple[Any, int | None]:
    """Always the same object for an id, so that nothing is traced twice."""
    return _unlimited(_construct(name, {}))


def _configured(name: str, options: dict[str, Any]) -> tuple[Any, int | None]:
    kind = type(_registered(name)[0].unwrapped)
    allowed = list(inspect.signature(kind).parameters)
    refused = [option for option in options if option not in allowed]
    if refused:
        raise ValueError(
            f'JumanjiEnvironment("{name}", {", ".join(refused)}): {kind.__name__} takes '
            f"{', '.join(allowed)}; for anything else give it a jumanji.wrappers.Wrapper of yours."
        )
    return _unlimited(_construct(name, options))


def _construct(name: str, options: dict[str, Any]) -> Any:
    try:
        from jumanji import registration
    except ImportError as error:
        raise ImportError(_MISSING) from error
    allowed = registration.registered_environments()
    if name not in allowed:
        raise unknown("JumanjiEnvironment", name, allowed)
    with default_numerics():
        if name == "Sokoban-v0" and "generator" not in options:
            # Jumanji's own levels would be downloaded now.
            options = {"generator": SokobanGenerator(), **options}
        return registration.make(name, **options)


def _unlimited(env: Any) -> tuple[Any, int | None]:
    """The environment without its time limit, and the limit.

    Only so can an end at the limit be told from the limit.
    """
    limit = getattr(env, "time_limit", None)
    if limit is None:
        return env, None
    env = copy.copy(env)
    if env is not env.unwrapped and "time_limit" not in vars(env):
        env._env, _ = _unlimited(env._env)
    else:
        env.time_limit = jnp.iinfo(jnp.int32).max
    return env, int(limit)


def _num_values(env: Any) -> tuple[int, ...]:
    spec = env.action_spec
    values = getattr(spec, "num_values", None)
    if values is None and _counts_from_zero(spec):
        values = np.broadcast_to(np.asarray(spec.maximum, np.int64) + 1, spec.shape)
    if values is None:
        raise ValueError(
            f"JumanjiEnvironment(<{name_of(env)}>): its actions are a {type(spec).__name__} of "
            f"{np.dtype(spec.dtype).name}; they must be integers from 0 on. Choose another "
            "environment."
        )
    return tuple(np.ravel(np.asarray(values)).tolist())


def _counts_from_zero(spec: Any) -> bool:
    """Discrete actions by another name, as those of `MultiCVRP` are."""
    minimum = getattr(spec, "minimum", None)
    return minimum is not None and np.issubdtype(spec.dtype, np.integer) and not np.any(minimum)
