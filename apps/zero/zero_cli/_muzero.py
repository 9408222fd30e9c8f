"""Builds the network and agent of MuZero and Stochastic MuZero from a configuration."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from zero_app import UsageError
from zero_nets import (
    PrefixWorldModel,
    RunningStatistics,
    StochasticWorldModel,
    ValueSupport,
    WorldModel,
)
from zero_train import candidates_and_value, LatentPolicyModel, MuZero

from ._config import Config
from ._worlds import World


#: Values of any size, compressed as in MuZero.
SUPPORT = ValueSupport(301, transform=True)


def muzero(config: Config, world: World, network: Any) -> MuZero:
    """The agent. A game of two is not discounted."""
    if config.memory and world.players == 2:
        raise UsageError(
            f"--memory was given, and {world.name} is a game of two, where a player plans, and "
            "remembers, its own moves alone; leave it out."
        )
    planners, kind = config.planners(), dict[str, Any]()
    if config.samples:
        kind = {"model": LatentPolicyModel, "record": candidates_and_value}
    else:
        planners["planner"] = dataclasses.replace(planners["planner"], reuse=False)
    return MuZero(
        network=network,
        optimiser=config.optimiser(),
        **planners,
        **kind,
        gamma=1.0 if world.players == 2 else config.gamma,
        num_players=world.players,
        code=_code(config, world),
        num_unroll=config.model_steps,
        n_steps=config.n_steps,
        value_weight=config.value_weight,
        reward_weight=config.reward_weight,
        entropy_bonus=config.entropy_bonus,
        consistency=config.consistency,
        correction=config.correction,
        memory_steps=config.memory_steps if config.memory else 0,
        bootstrap="network",
        statistics=_statistics(config, world),
    )


def world_model(
    config: Config, world: World, *, key: PRNGKeyArray
) -> WorldModel | PrefixWorldModel | StochasticWorldModel:
    """Convolutions for a board or image, a perceptron for any other observation."""
    features = world.observation.features
    if config.network != "auto":
        raise no_own_network(config)
    kind: Any = StochasticWorldModel if config.agent == "stochastic" else WorldModel
    shared: dict[str, Any] = {
        "value_shape": (_code(config, world).num_atoms,),
        "projection_size": 4 * config.channels if config.consistency else None,
        "key": key,
    }
    shared["action_size" if world.is_continuous else "num_actions"] = world.num_actions
    if config.value_prefix:
        kind, shared["prefix_steps"] = PrefixWorldModel, config.value_prefix
    if config.memory:
        shared["memory_size"] = 4 * config.channels
    if world.is_board:
        size = {"channels": config.channels, "blocks": config.blocks}
        return kind.convolutional(features.shape, **size, **shared)
    return kind.perceptron(features, width=4 * config.channels, layers=config.blocks, **shared)


def no_own_network(config: Config) -> UsageError:
    """What is wrong with a network of one's own."""
    return UsageError(
        f"--network {config.network} was given, but --agent {config.agent} has networks of its "
        "own; leave it out."
    )


def _code(config: Config, world: World) -> ValueSupport:
    """What rewards and values are logits of."""
    if world.players == 1 or not config.learns_model:
        return SUPPORT
    return ValueSupport(21, maximum=world.max_return)


def _statistics(config: Config, world: World) -> RunningStatistics | None:
    features = world.observation.features
    floats = [jnp.issubdtype(x.dtype, jnp.floating) for x in jax.tree.leaves(features)]
    if not config.normalise_observations or world.is_board or not any(floats):
        return None
    return RunningStatistics.init(features)
