"""Environments by the names of the command line."""

from typing import Any

import jax
import jax.random as jr

from zero_app import environment, UsageError
from zero_envs import AbstractContinuousEnvironment, AbstractDiscreteEnvironment


World = AbstractContinuousEnvironment | AbstractDiscreteEnvironment

#: The time limit of evaluations for environments without one.
_LONGEST = 10_000


def build_world(name: str, backend: str) -> World:
    """The environment of a name of [`zero_envs.make`][]."""
    chosen = name.startswith("brax/") and backend != "auto"
    options = {"backend": backend} if chosen else {}
    env = environment(name, **options)
    if not isinstance(env, World) or getattr(env, "num_players", 1) != 1:
        raise UsageError(
            f"--env {name} is a {type(env).__name__}; SPO and MPO play environments of one player "
            "with one action a step, discrete or continuous."
        )
    return env


def longest_episode(env: World) -> int:
    """The maximum length of an episode in an evaluation."""
    return getattr(env, "max_steps", None) or _LONGEST


def features_of(env: World) -> Any:
    """The shapes of the features of an observation."""
    return jax.eval_shape(lambda: env.observe(env.init(key=jr.key(0)))).features
