"""Builds the training loop of a configuration, and what measures its players."""

import functools as ft
from typing import Any

from zero_app import elo_ladder, Evaluate, ladder_of, loop_of, RunFiles
from zero_envs import Othello, PgxEnvironment
from zero_memory import EpisodeBuffer
from zero_nets import AlphaZeroNet, BoardSymmetries
from zero_search import AbstractPlanner
from zero_train import EnvironmentModel, Loop

from ._app import APP
from ._config import Config, LONGEST_GAME, OPENING_PLIES
from ._engines import opponent
from ._mctx import MctxSearch


def build_loop(config: Config) -> Loop:
    ours = Othello(config.disc_weight)
    env = ours if config.env_engine == "zero" else PgxEnvironment("othello")
    network = ft.partial(
        AlphaZeroNet,
        board_shape=(8, 8, 2),
        num_actions=env.num_actions,
        channels=config.channels,
        blocks=config.blocks,
        lines=config.lines,
        max_value=env.max_return,
    )
    model = ft.partial(EnvironmentModel, env)
    parts = {"explorer": _explorer(config), "l2": config.l2}
    agent = config.alphazero(network, model, max_return=env.max_return, **parts)
    augment = BoardSymmetries(8, 8, env.num_actions) if config.symmetries else None
    return loop_of(config, env, agent, ft.partial(EpisodeBuffer, num_players=2), augment)


def build_evaluation(config: Config, loop: Loop, files: RunFiles) -> Evaluate:
    """The Elo ladder of a run."""
    return elo_ladder(
        config,
        loop,
        files,
        baselines={name: opponent(name, loop.env) for name in ("random", "positional")},
        games=config.ladder_games,
        simulations=config.ladder_simulations,
        max_moves=LONGEST_GAME,
        opening_plies=OPENING_PLIES,
        fixed=ladder_of(APP, config),
    )


def _explorer(config: Config) -> AbstractPlanner:
    if config.engine == "zero":
        return config.explorer(max_nodes=config.nodes, reuse=True)
    if config.search == "gumbel":
        return MctxSearch(config.simulations, considered=config.considered)
    own: Any = config.explorer()  # with PriorRoot and VisitCounts
    return MctxSearch(config.simulations, noise=own.root.noise, temperature=own.readout.temperature)
