"""The training loop of a configuration."""

from collections.abc import Callable
from typing import Any

from zero_envs import AbstractEnvironment
from zero_train import AbstractAgent, Loop

from .._command._config import AbstractConfig


def loop_of(
    config: AbstractConfig,
    env: AbstractEnvironment,
    agent: AbstractAgent,
    buffer: Callable[..., Any],
    augment: Any = None,
) -> Loop:
    """The training loop of a configuration that has a `capacity`. The `buffer` is the class of the
    replay, or a partial of it with what is not in a configuration."""
    known: Any = config
    return Loop(
        env=env,
        agent=agent,
        buffer=buffer(
            capacity=known.capacity,
            num_envs=config.envs,
            batch_size=config.batch,
            num_shards=config.shards,
        ),
        augment=augment,
        unroll_length=config.unroll,
        opening_plies=getattr(config, "opening_plies", 0),
        num_updates=config.updates,
    )
