"""Builds environment, agent and loop from a configuration."""

import functools as ft
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Int

from zero_app import loop_of, UsageError
from zero_envs import Monsters
from zero_memory import TrajectoryBuffer
from zero_nets import BoardSymmetries, ValueSupport
from zero_search import AbstractPlanner, DirichletNoise, PlainQ, PUCT, SoftmaxQ
from zero_train import (
    AbstractActor,
    ExpertIteration,
    Loop,
    NStepReturns,
    PlanningActor,
    PolicyActor,
)

from ._config import Config
from ._network import build_network
from ._planners import build_model, build_planner


def build_env(config: Config, **limits: Any) -> Monsters:
    """The environment, in evaluations without `limits` of the time and what a move costs."""
    observation = "tokens" if config.network == "original" else "planes"
    return Monsters(moving=config.world == "moving", observation=observation, **limits)


def build_loop(config: Config) -> Loop:
    """The training loop of a configuration. A time limit truncates its episodes."""
    penalty = config.step_penalty
    env = build_env(config, time_limit=config.time_limit, truncate=True, step_penalty=penalty)
    # The worst returns are to die at once, or to pay for every move forever.
    most = max(1.0, penalty / (1 - config.gamma)) if penalty else 1.0
    agent = ExpertIteration(
        network=ft.partial(build_network, config, env),
        optimiser=config.optimiser(),
        model=ft.partial(build_model, env, config.planner),
        explorer=ft.partial(_explorer, config),
        planner=_planner(config, config.planner, config.player_simulations),
        gamma=config.gamma,
        value_target=NStepReturns(config.n_steps),
        value_code=ValueSupport(config.atoms, maximum=most),
        value_mix=config.value_mix,
        value_weight=config.value_weight,
        entropy_bonus=config.entropy_bonus,
        target_period=config.target_period,
        target_rate=config.target_rate,
    )
    buffer = ft.partial(TrajectoryBuffer, length=config.length)
    # The moves are stay, up, down, left and right.
    moves = ((1, 1), (0, 1), (2, 1), (1, 0), (1, 2))
    symmetries = BoardSymmetries(env.size, env.size, 5, moves) if config.symmetries else None
    return loop_of(config, env, agent, buffer, symmetries)


def build_actor(
    config: Config, player: AbstractActor, planner: str, simulations: int | None = None
) -> tuple[AbstractActor, int]:
    """A trained player with another planner (see `PlannerName`), and its simulations per move, by
    default those of the configuration. `"network"` is the network without a search, with 0
    simulations."""
    assert isinstance(player, PlanningActor)
    trained: Any = player.model
    if planner == "network":
        if simulations is not None:
            raise UsageError(
                f"--simulations {simulations} was given with --planner network, which does not "
                "search; leave it out."
            )
        return PolicyActor(trained.evaluate), 0
    number = config.player_simulations if simulations is None else simulations
    env = build_env(config, step_penalty=config.step_penalty)
    model = build_model(env, planner, trained.evaluate, gamma=config.gamma)
    return PlanningActor(_planner(config, planner, number), model), number


def _explorer(config: Config, updates: Int[Array, ""]) -> AbstractPlanner:
    """The planner of self-play: with noise at the root and a temperature that falls."""
    done = updates.astype(jnp.float32) / (config.steps * config.updates)
    fall = config.temperature_end / config.temperature
    return _planner(
        config,
        config.planner,
        config.simulations,
        noise=DirichletNoise(config.noise, config.alpha) if config.noise else None,
        readout=SoftmaxQ(config.temperature * fall**done),
    )


def _planner(config: Config, planner: str, simulations: int, **parts: Any) -> AbstractPlanner:
    """A planner by name with the rules of a configuration. By default it is that of evaluations:
    without noise, it plays the highest Q-value."""
    rule = PUCT(config.exploration)
    if config.first_play is not None:
        rule = PUCT(config.exploration, PlainQ(config.first_play))
    return build_planner(planner, simulations, selection=rule, outcomes=config.outcomes, **parts)
