"""Builds environment, agent and loop from a configuration."""

import dataclasses
import functools as ft

from zero_app import as_usage_error, loop_of
from zero_envs import Minesweeper
from zero_memory import TrajectoryBuffer
from zero_nets import BoardSymmetries
from zero_search import FirstPlayUrgency, MaxBackup, PUCT, TreeSearch
from zero_train import EnvironmentModel, Evaluator, ExpertIteration, Loop, NStepReturns

from ._config import Config
from ._learning import mine_loss, record, rewards_without_luck
from ._network import MineNet
from ._planner import SolverSearch


def build_env(config: Config) -> Minesweeper:
    """The environment of evaluations."""
    with as_usage_error():
        return Minesweeper(config.rows, config.columns, config.mines, max_states=config.max_states)


def build_loop(config: Config) -> Loop:
    env = build_env(config)
    rule = PUCT(config.exploration, FirstPlayUrgency())
    tree = TreeSearch(config.simulations, rule, outcomes="weighted")
    agent = ExpertIteration(
        network=ft.partial(MineNet, config.channels, config.blocks),
        optimiser=config.optimiser(),
        model=ft.partial(build_model, env),
        explorer=SolverSearch(tree, config.layouts, config.temperature),
        planner=build_planner(config),
        gamma=1.0,
        value_target=NStepReturns(config.n_steps, rewards_without_luck),
        value_weight=config.value_weight,
        target_rate=config.target_rate,
        record=record,
        auxiliary=mine_loss,
        auxiliary_weight=config.mine_weight,
    )
    size = env.rows, env.columns, env.num_actions
    return loop_of(
        config,
        dataclasses.replace(env, pays="win"),
        agent,
        ft.partial(TrajectoryBuffer, length=config.length),
        BoardSymmetries(*size) if config.symmetries else None,
    )


def build_planner(config: Config) -> SolverSearch:
    """The planner of evaluations: the solver, and a belief tree if no cell is safe."""
    # By maxima, which leave no exploration in a value. To learn from, means are better: with maxima
    # for an urgency every cell is tried, and visits say little.
    rule = PUCT(config.player_exploration, FirstPlayUrgency())
    tree = TreeSearch(config.player_simulations, rule, backup=MaxBackup(), outcomes="weighted")
    return SolverSearch(tree, config.layouts)


def build_model(env: Minesweeper, evaluate: Evaluator, *, gamma: float = 1.0) -> EnvironmentModel:
    """The model of the planners: the boards of `env` with reward 1 for a win and 0 otherwise."""
    return EnvironmentModel(dataclasses.replace(env, pays="win"), evaluate, gamma)
