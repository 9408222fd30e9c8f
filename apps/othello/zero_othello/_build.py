"""Builds environment, agent and loop from a configuration."""

import functools as ft
from typing import Any

import jax.numpy as jnp
import jax.random as jr
import optax
from jax.sharding import Mesh
from jaxtyping import Array, PRNGKeyArray

from zero_envs import PgxEnvironment
from zero_memory import EpisodeBuffer
from zero_nets import AlphaZeroNet, BoardSymmetries
from zero_search import (
    AbstractPlanner,
    DirichletNoise,
    Temperature,
    TreeSearch,
)
from zero_train import EnvironmentModel, Experience, ExpertIteration, Loop, PlanRecord
from zero_train.app import UsageError

from ._config import Config
from ._mctx import MctxSearch


def build_env() -> PgxEnvironment:
    """Othello."""
    return PgxEnvironment("othello")


def build_agent(config: Config, env: PgxEnvironment) -> ExpertIteration:
    """The AlphaZero agent of a configuration."""
    return ExpertIteration.alphazero(
        network=ft.partial(
            AlphaZeroNet,
            board_shape=(8, 8, 2),
            num_actions=env.num_actions,
            channels=config.channels,
            blocks=config.blocks,
        ),
        optimiser=_optimiser(config),
        model=ft.partial(EnvironmentModel, env),
        explorer=_explorer(config),
        planner=player_planner(config, config.player_simulations),
        value_weight=config.value_weight,
        value_mix=config.value_mix,
        l2=config.l2,
        average_decay=config.average,
    )


def build_loop(config: Config, mesh: Mesh) -> Loop:
    """The training loop of a configuration.

    **Raises:** `UsageError` if the shards cannot be divided evenly over the devices.
    """
    devices = mesh.shape["data"]
    if config.shards % devices:
        raise UsageError(
            f"--shards {config.shards} does not divide over --devices {devices}; give a multiple "
            f"of {devices} that divides --envs and --batch, or other --devices."
        )
    env = build_env()
    return Loop(
        env=env,
        agent=build_agent(config, env),
        buffer=EpisodeBuffer(
            capacity=config.capacity,
            num_envs=config.envs,
            batch_size=config.batch,
            num_players=2,
            num_shards=config.shards,
        ),
        augment=random_symmetry if config.symmetries else None,
        unroll_length=config.unroll,
        num_updates=config.updates,
        mesh=mesh,
    )


def learning_rate(config: Config) -> optax.Schedule:
    """The learning rate of each gradient update."""
    total = config.steps * config.updates
    if config.decay == 1.0 and config.warmup == 0:
        return optax.constant_schedule(config.learning_rate)
    return optax.warmup_cosine_decay_schedule(
        init_value=config.learning_rate / max(config.warmup, 1),
        peak_value=config.learning_rate,
        warmup_steps=config.warmup,
        decay_steps=max(total, config.warmup + 1),
        end_value=config.learning_rate * config.decay,
    )


def player_planner(config: Config, simulations: int) -> AbstractPlanner:
    """The planner of matches: without noise, it plays the most visited move and keeps the
    subtree."""
    return TreeSearch.alphazero(simulations, c=config.exploration, reuse=True)


def random_symmetry(row: Experience, *, key: PRNGKeyArray) -> Experience:
    """Applies a uniformly drawn symmetry of the board to a row."""
    symmetries = BoardSymmetries(rows=8, columns=8, num_actions=65)
    index = jr.randint(key, (), 0, symmetries.size)
    turn = ft.partial(symmetries.actions, index=index)
    moved: Array = turn(jnp.arange(65) == row.action)
    assert row.obs.legal is not None
    return Experience(
        obs=type(row.obs)(symmetries.features(row.obs.features, index), turn(row.obs.legal)),
        action=jnp.argmax(moved).astype(row.action.dtype),
        reward=row.reward,
        discount=row.discount,
        last=row.last,
        record=PlanRecord(turn(row.record.weights), row.record.value),
    )


def _optimiser(config: Config) -> optax.GradientTransformation:
    adam = optax.adamw(learning_rate(config), weight_decay=config.weight_decay)
    return optax.chain(optax.clip_by_global_norm(config.clip), adam) if config.clip else adam


def _explorer(config: Config) -> AbstractPlanner:
    noise = DirichletNoise(config.noise, total=config.concentration) if config.noise else None
    temperature = Temperature(first=1.0, then=0.0, moves=config.temperature_moves)
    if config.engine == "mctx":
        if config.search == "gumbel":
            return MctxSearch(config.simulations, considered=config.considered)
        return MctxSearch(config.simulations, noise=noise, temperature=temperature)
    if config.search == "gumbel":
        considered = config.considered
        return TreeSearch.gumbel(config.simulations, max_num_considered_actions=considered)
    parts: dict[str, Any] = {"noise": noise, "temperature": temperature}
    parts |= {"max_nodes": config.nodes, "reuse": True}
    if config.search == "muzero":
        return TreeSearch.muzero(config.simulations, **parts)
    return TreeSearch.alphazero(config.simulations, c=config.exploration, **parts)
