"""Builds network, agent and loop from a configuration."""

import functools as ft
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from zero_app import loop_of, UsageError
from zero_envs import load_class, own_code
from zero_memory import EpisodeBuffer, TrajectoryBuffer
from zero_nets import (
    ActorCritic,
    AlphaZeroNet,
    Chain,
    Concatenate,
    MLP,
)
from zero_train import EnvironmentModel, ExpertIteration, Loop, NStepReturns

from ._config import Config
from ._muzero import muzero, SUPPORT, windows, world_model
from ._worlds import build_world, SYMMETRIES, World


def build_loop(config: Config) -> Loop:
    """The training loop of a configuration."""
    world = build_world(config.env)
    network = ft.partial(build_network, config, world)
    model = ft.partial(EnvironmentModel, world.env)
    augment = SYMMETRIES.get(config.env) if config.symmetries else None
    if config.agent == "alphazero":
        agent = config.alphazero(network, model)
        buffer = ft.partial(EpisodeBuffer, num_players=world.players)
        return loop_of(config, world.env, agent, buffer, augment)
    if config.agent == "muzero":
        return loop_of(config, world.env, muzero(config, world, network), windows(config))
    agent = ExpertIteration(
        network=network,
        model=model,
        optimiser=config.optimiser(),
        explorer=config.explorer(),
        planner=config.planner(),
        value_weight=config.value_weight,
        value_mix=config.value_mix,
        gamma=config.gamma,
        value_target=NStepReturns(config.n_steps),
        value_code=SUPPORT,
        target_rate=1 - config.average,
        target_acts=True,
    )
    buffer = ft.partial(TrajectoryBuffer, length=config.window)
    return loop_of(config, world.env, agent, buffer, augment)


def build_network(config: Config, world: World, *, key: PRNGKeyArray) -> Any:
    """The network of the observation's shape: convolutions for a board of `[rows, columns,
    channels]`, and a perceptron of all numbers of any other."""
    features, num_actions = world.observation.features, world.num_actions
    if config.agent == "muzero":
        return world_model(config, world, num_actions, key=key)
    if config.network != "auto":
        return _own_network(config, features, num_actions, key=key)
    max_value = world.max_return
    if config.agent == "alphazero" and world.is_board:
        return AlphaZeroNet(
            features.shape,
            num_actions,
            channels=config.channels,
            blocks=config.blocks,
            max_value=max_value,
            key=key,
        )
    return _perceptron(config, world.size, num_actions, max_value, key=key)


def _own_network(config: Config, features: Any, num_actions: int, *, key: PRNGKeyArray) -> Any:
    """The network that `--network` names, if it returns logits and a value."""
    values = () if config.agent == "alphazero" else (SUPPORT.num_atoms,)
    wanted = f"logits of shape ({num_actions},) and a value of shape {values}"
    said = f"--network {config.network}"
    try:
        kind = load_class(config.network)
    except ValueError as e:
        raise UsageError(f"{said}: {e}") from e
    try:
        with own_code(config.network.rpartition(":")[2]):
            network = kind(features, num_actions, key=key)
            found = jax.eval_shape(lambda x: network(x), features)
    except ValueError as e:
        raise UsageError(
            f"{said}: {e}; it is called with the features of an observation, the number of actions "
            f"and key=KEY, and what it makes must turn features into {wanted}."
        ) from e
    shapes = [x.shape for x in jax.tree.leaves(found)]
    floats = all(jnp.issubdtype(x.dtype, jnp.floating) for x in jax.tree.leaves(found))
    if not isinstance(found, tuple) or shapes != [(num_actions,), values] or not floats:
        given = ", ".join(f"{x.dtype}{[*x.shape]}" for x in jax.tree.leaves(found))
        raise UsageError(
            f"{said} returns {given or type(found).__name__} for one observation; it must return "
            f"two arrays of float32, {wanted}."
        )
    return network


def _perceptron(
    config: Config, size: int, num_actions: int, max_value: float, *, key: PRNGKeyArray
) -> ActorCritic:
    """Policy and value of observations of any structure. AlphaZero's value is in
    [-max_value, max_value]; that of expert iteration is logits over the atoms of `SUPPORT`."""
    tkey, pkey, vkey = jr.split(key, 3)
    width, alphazero = 4 * config.channels, config.agent == "alphazero"
    torso = MLP(size, (width,) * config.blocks, activation=jax.nn.silu, key=tkey)
    num_values = 1 if alphazero else SUPPORT.num_atoms
    value = MLP(width, (num_values,), activate_final=False, key=vkey)
    bounded = eqx.nn.Lambda(ft.partial(_bounded, max_value))
    return ActorCritic(
        MLP(width, (num_actions,), activate_final=False, key=pkey),
        Chain(value, bounded) if alphazero else value,
        torso=Chain(Concatenate(), torso),
    )


def _bounded(most: float, value: Float[Array, "1"]) -> Float[Array, ""]:
    return most * jnp.tanh(value[0])
