"""Builds environment, agent and loop from a configuration."""

import functools as ft
from typing import Any

import jax.numpy as jnp
import optax
from jax.sharding import Mesh
from jaxtyping import Array, Int, PyTree

from zero_envs import Monsters
from zero_memory import TrajectoryBuffer
from zero_nets import ValueSupport
from zero_search import AbstractPlanner, AbstractPriorModel, DirichletNoise, PlainQ, PUCT, SoftmaxQ
from zero_train import (
    AbstractActor,
    Evaluator,
    ExpertIteration,
    Loop,
    NStepReturns,
    PlanningActor,
    PolicyActor,
)
from zero_train.app import UsageError

from ._config import Config
from ._network import build_network
from ._planners import build_model, build_planner
from ._symmetry import random_symmetry


def build_env(config: Config) -> Monsters:
    """The environment of evaluations."""
    return _world(config)


def build_agent(config: Config) -> ExpertIteration:
    """The agent of a configuration."""
    env = _training_env(config)
    return ExpertIteration(
        network=ft.partial(build_network, config, env),
        optimiser=_optimiser(config),
        model=ft.partial(_model, config, env),
        explorer=ft.partial(_explorer, config),
        planner=_player_planner(config, config.planner, config.player_simulations),
        gamma=config.gamma,
        value_target=NStepReturns(config.n_steps),
        value_code=ValueSupport(config.atoms, maximum=1.0),
        value_mix=config.value_mix,
        value_weight=config.value_weight,
        entropy_bonus=config.entropy_bonus,
        target_period=config.target_period,
        target_rate=config.target_rate,
    )


def build_loop(config: Config, mesh: Mesh) -> Loop:
    """The training loop of a configuration.

    **Raises:** `UsageError` if the shards cannot be divided evenly over the learning devices.
    """
    learners = mesh.shape["data"] - config.actor_devices
    if learners > 0 and config.shards % learners:
        raise UsageError(
            f"--shards {config.shards} does not divide over the {learners} devices that learn; "
            f"give a multiple of {learners} that divides --envs and --batch, or other --devices."
        )
    return Loop(
        env=_training_env(config),
        agent=build_agent(config),
        buffer=TrajectoryBuffer(
            capacity=config.capacity,
            num_envs=config.envs,
            batch_size=config.batch,
            length=config.length,
            num_shards=config.shards,
        ),
        augment=random_symmetry if config.symmetries else None,
        unroll_length=config.unroll,
        num_updates=config.updates,
        mesh=mesh,
        actor_devices=config.actor_devices,
    )


def learning_rate(config: Config) -> optax.Schedule:
    """The learning rate of each gradient update."""
    if config.schedule == "cosine":
        return optax.cosine_decay_schedule(
            config.learning_rate, config.steps * config.updates, config.decay
        )
    return optax.exponential_decay(
        config.learning_rate, config.steps * config.updates, config.decay
    )


def _player_planner(config: Config, planner: str, simulations: int) -> AbstractPlanner:
    """The planner of evaluations: without noise, it plays the highest Q-value."""
    return build_planner(
        planner,
        simulations,
        selection=_selection(config),
        outcomes=config.outcomes,
    )


def build_actor(
    config: Config, params: PyTree[Array], planner: str, simulations: int
) -> AbstractActor:
    """The actor with the given parameters.

    `planner` is a name (see `PlannerName`), or `"network"` for the network without a search.
    """
    env, evaluate = build_env(config), build_agent(config).evaluator(params)
    if planner == "network":
        return PolicyActor(evaluate)
    model = build_model(env, planner, evaluate, gamma=config.gamma)
    return PlanningActor(_player_planner(config, planner, simulations), model)


def _training_env(config: Config) -> Monsters:
    """The environment of training, with a time limit that truncates."""
    return _world(config, time_limit=config.time_limit, truncate=True)


def _world(config: Config, **limits: Any) -> Monsters:
    observation = "tokens" if config.network == "original" else "planes"
    return Monsters(moving=config.world == "moving", observation=observation, **limits)


def _model(
    config: Config, env: Monsters, evaluate: Evaluator, *, gamma: float
) -> AbstractPriorModel:
    return build_model(env, config.planner, evaluate, gamma=gamma)


def _explorer(config: Config, updates: Int[Array, ""]) -> AbstractPlanner:
    """The planner of self-play: with noise at the root and a temperature that falls."""
    done = updates.astype(jnp.float32) / (config.steps * config.updates)
    fall = config.temperature_end / config.temperature
    return build_planner(
        config.planner,
        config.simulations,
        selection=_selection(config),
        noise=DirichletNoise(config.noise, config.alpha) if config.noise else None,
        readout=SoftmaxQ(config.temperature * fall**done),
        outcomes=config.outcomes,
    )


def _selection(config: Config) -> PUCT:
    if config.first_play is None:
        return PUCT(config.exploration)
    return PUCT(config.exploration, PlainQ(config.first_play))


def _optimiser(config: Config) -> optax.GradientTransformation:
    adam = optax.adamw(learning_rate(config), weight_decay=config.weight_decay)
    return optax.chain(optax.clip_by_global_norm(config.clip), adam) if config.clip else adam
