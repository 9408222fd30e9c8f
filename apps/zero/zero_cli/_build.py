"""Builds network, agent and loop from a configuration."""

import dataclasses
import functools as ft
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import PRNGKeyArray

from zero_app import loop_of, UsageError
from zero_envs import load_class, own_code
from zero_memory import EpisodeBuffer, PrioritisedTrajectoryBuffer, TrajectoryBuffer
from zero_nets import (
    ActorCritic,
    AlphaZeroNet,
    BoardSymmetries,
    Chain,
    Concatenate,
    MLP,
    MultiDiscreteHead,
    PartsNet,
    TanhGaussianHead,
)
from zero_train import (
    candidates_and_value,
    EnvironmentModel,
    ExpertIteration,
    Loop,
    NStepReturns,
    PolicyModel,
)

from ._agents import SYMMETRIES
from ._config import Config
from ._muzero import muzero, no_own_network, SUPPORT, world_model
from ._worlds import build_world, World


def build_loop(config: Config) -> Loop:
    world = build_world(config.env)
    network = ft.partial(build_network, config, world)
    model = ft.partial(PolicyModel if config.samples else EnvironmentModel, world.env)
    has_symmetries = config.symmetries and config.env in SYMMETRIES
    augment = BoardSymmetries(**SYMMETRIES[config.env]) if has_symmetries else None
    keeps_states = config.reanalyse > 0
    if config.agent == "alphazero":
        agent = config.alphazero(
            network, model, max_return=world.max_return, keeps_states=keeps_states
        )
        buffer = ft.partial(EpisodeBuffer, num_players=world.players)
    elif config.learns_model:
        agent, augment = muzero(config, world, network), None
        buffer = ft.partial(PrioritisedTrajectoryBuffer, length=config.model_window)
    else:
        kind: dict[str, Any] = {"record": candidates_and_value} if config.samples else {}
        agent = ExpertIteration(
            network=network,
            model=model,
            optimiser=config.optimiser(),
            **config.planners(),
            **kind,
            entropy_bonus=_entropy_bonus(config),
            keeps_states=keeps_states,
            value_weight=config.value_weight,
            value_mix=config.value_mix,
            gamma=config.gamma,
            value_target=NStepReturns(config.n_steps),
            value_code=SUPPORT,
            target_rate=1 - config.average,
            target_acts=True,
        )
        buffer = ft.partial(TrajectoryBuffer, length=config.window)
    loop = loop_of(config, world.env, agent, buffer, augment)
    return dataclasses.replace(loop, reanalyse=config.reanalyse)


def build_network(config: Config, world: World, *, key: PRNGKeyArray) -> Any:
    """The network of the observation's shape: convolutions for a board or image of `[rows, columns,
    channels]`, and a perceptron of all numbers of any other; or the one that is asked for."""
    if config.learns_model:
        return world_model(config, world, key=key)
    features, num_actions = world.observation.features, world.num_actions
    if config.network != "auto":
        if config.samples:
            raise no_own_network(config)
        if config.network == "parts":
            return _parts(config, world, key=key)
        if config.network == "lines":
            return _lines(config, world, key=key)
        return _own_network(config, features, num_actions, key=key)
    if config.agent == "alphazero" and world.is_board:
        return _alphazero(config, world, blocks=config.blocks, key=key)
    if world.is_board:  # what a learned model sees and predicts, without its dynamics
        model: Any = world_model(config, world, key=key)
        return Chain(model.encoder, model.prediction)
    return _perceptron(config, world, key=key)


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


def _parts(config: Config, world: World, *, key: PRNGKeyArray) -> PartsNet:
    """The network that is shared among the parts of an observation."""
    if config.agent == "alphazero":
        raise no_own_network(config)
    sizes: dict[str, Any] = {"width": config.channels, "rounds": config.blocks - 1}
    sizes |= {"value_shape": (SUPPORT.num_atoms,), "key": key}
    try:
        return PartsNet(world.observation.features, world.num_actions, **sizes)
    except ValueError as e:
        raise UsageError(f"--network parts of {world.name}: {e}") from e


def _lines(config: Config, world: World, *, key: PRNGKeyArray) -> AlphaZeroNet:
    """The network that looks up the lines of a small board."""
    if config.agent != "alphazero" or not world.is_board:
        raise UsageError(
            "--network lines is for --agent alphazero and observations of [rows, columns, "
            "planes]; leave it out."
        )
    try:
        return _alphazero(config, world, blocks=config.blocks - 1, lines=True, key=key)
    except ValueError as e:
        raise UsageError(f"--network lines of {world.name}: {e}") from e


def _alphazero(config: Config, world: World, **sizes: Any) -> AlphaZeroNet:
    shape, num_actions = world.observation.features.shape, world.num_actions
    return AlphaZeroNet(
        shape, num_actions, channels=config.channels, max_value=world.max_return, **sizes
    )


def _entropy_bonus(config: Config) -> Any:
    """The bonus, as a function of the gradient steps before where it falls."""
    most, left = config.entropy_bonus, config.entropy_decay
    total = config.steps * config.updates
    done = lambda updates: jnp.minimum(updates.astype(jnp.float32) / total, 1.0)
    return (lambda updates: most * left ** done(updates)) if left < 1 else most


def _perceptron(config: Config, world: World, *, key: PRNGKeyArray) -> ActorCritic:
    """Policy and value of observations of any structure. AlphaZero's value is in
    `[-max_return, max_return]`; that of the others is logits over the atoms of `SUPPORT`."""
    tkey, pkey, vkey = jr.split(key, 3)
    width, alphazero = 4 * config.channels, config.agent == "alphazero"
    torso = MLP(world.size, (width,) * config.blocks, activation=jax.nn.silu, key=tkey)
    num_values = 1 if alphazero else SUPPORT.num_atoms
    value = MLP(width, (num_values,), activate_final=False, key=vkey)
    bounded = eqx.nn.Lambda(lambda value: world.max_return * jnp.tanh(value[0]))
    return ActorCritic(
        _policy(config, world, width, key=pkey),
        Chain(value, bounded) if alphazero else value,
        torso=Chain(Concatenate(), torso),
    )


def _policy(config: Config, world: World, width: int, *, key: PRNGKeyArray) -> Any:
    """The last layer of a policy."""
    if world.is_continuous:
        return TanhGaussianHead(width, world.num_actions, key=key)
    if config.samples:
        return MultiDiscreteHead(width, world.num_actions, key=key)
    return MLP(width, (world.num_actions,), activate_final=False, key=key)
