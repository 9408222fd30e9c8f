"""Builds network, agent and loop from a configuration."""

import functools as ft
import importlib
import sys
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jax.sharding import Mesh
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from zero_memory import EpisodeBuffer, TrajectoryBuffer
from zero_nets import AlphaZeroNet, BoardSymmetries, Concatenate, MLP, ValueSupport
from zero_search import AbstractPlanner, DirichletNoise, Temperature, TreeSearch
from zero_train import (
    AbstractActor,
    EnvironmentModel,
    Experience,
    ExpertIteration,
    Loop,
    NStepReturns,
    PlanningActor,
    PlanRecord,
    PolicyActor,
)
from zero_train.app import UsageError

from ._config import Config
from ._worlds import SYMMETRIC, World


def build_agent(config: Config, world: World) -> ExpertIteration:
    """The agent of a configuration."""
    parts: dict[str, Any] = {
        "network": ft.partial(build_network, config, world),
        "optimiser": _optimiser(config),
        "model": ft.partial(EnvironmentModel, world.env),
        "explorer": _explorer(config),
        "planner": player_planner(config, config.player_simulations),
        "value_weight": config.value_weight,
        "value_mix": config.value_mix,
    }
    if config.agent == "alphazero":
        return ExpertIteration.alphazero(**parts, l2=0.0, average_decay=config.average)
    return ExpertIteration(
        **parts,
        gamma=config.gamma,
        value_target=NStepReturns(config.n_steps),
        value_code=_SUPPORT,
        target_rate=1 - config.average,
    )


def build_loop(config: Config, world: World, mesh: Mesh) -> Loop:
    """The training loop of a configuration.

    **Raises:** `UsageError` if the shards cannot be divided evenly over the devices.
    """
    devices = mesh.shape["data"]
    if config.shards % devices:
        raise UsageError(
            f"--shards {config.shards} does not divide over --devices {devices}; give a multiple "
            f"of {devices} that divides --envs and --batch, or other --devices."
        )
    shared: dict[str, Any] = {
        "capacity": config.capacity,
        "num_envs": config.envs,
        "batch_size": config.batch,
        "num_shards": config.shards,
    }
    if config.agent == "alphazero":
        buffer = EpisodeBuffer(num_players=world.players, **shared)
    else:
        buffer = TrajectoryBuffer(length=config.window, **shared)
    return Loop(
        env=world.env,
        agent=build_agent(config, world),
        buffer=buffer,
        augment=_augmentation(config, world),
        unroll_length=config.unroll,
        num_updates=config.updates,
        mesh=mesh,
    )


def learning_rate(config: Config) -> optax.Schedule:
    """The learning rate of each gradient update."""
    return optax.warmup_cosine_decay_schedule(
        init_value=config.learning_rate / max(config.warmup, 1),
        peak_value=config.learning_rate,
        warmup_steps=config.warmup,
        decay_steps=max(config.steps * config.updates, config.warmup + 1),
        end_value=config.learning_rate * config.decay,
    )


def build_actor(
    config: Config, agent: ExpertIteration, params: PyTree[Array], simulations: int
) -> AbstractActor:
    """A player with so many simulations a move, 0 for the network without a search."""
    evaluator = agent.evaluator(params)
    if simulations == 0:
        return PolicyActor(evaluator)
    model = agent.model(evaluator, gamma=agent.gamma)
    return PlanningActor(player_planner(config, simulations), model)


def player_planner(config: Config, simulations: int) -> AbstractPlanner:
    """The planner of matches: without noise, it plays the most visited move."""
    return TreeSearch.alphazero(simulations, c=config.exploration)


def build_network(config: Config, world: World, *, key: PRNGKeyArray) -> Any:
    """The network of the observation's shape: convolutions for a board of `[rows, columns,
    channels]`, and a perceptron of all numbers of any other."""
    obs = jax.eval_shape(lambda: world.env.observe(world.env.init(key=jr.key(0))))
    num_actions: int = world.env.num_actions  # pyright: ignore[reportAttributeAccessIssue]
    if config.network != "auto":
        return _own(config.network)(obs.features, num_actions, key=key)
    num_values = None if config.agent == "alphazero" else _SUPPORT.num_atoms
    shape = getattr(obs.features, "shape", ())
    if config.agent == "alphazero" and len(shape) == 3 and min(shape[:2]) > 1:
        return AlphaZeroNet(
            shape, num_actions, channels=config.channels, blocks=config.blocks, key=key
        )
    return Perceptron(world.size, num_actions, num_values, config, key=key)


class Perceptron(eqx.Module):
    """Policy and value of observations of any structure. The value is in [-1, 1], or logits over
    `num_values` atoms."""

    torso: MLP
    policy: MLP
    value: MLP
    num_values: int | None = eqx.field(static=True)

    def __init__(
        self,
        size: int,
        num_actions: int,
        num_values: int | None,
        config: Config,
        *,
        key: PRNGKeyArray,
    ):
        tkey, pkey, vkey = jr.split(key, 3)
        width = 4 * config.channels
        self.torso = MLP(size, (width,) * config.blocks, activation=jax.nn.silu, key=tkey)
        self.policy = MLP(width, (num_actions,), activate_final=False, key=pkey)
        self.value = MLP(width, (num_values or 1,), activate_final=False, key=vkey)
        self.num_values = num_values

    def __call__(
        self, features: PyTree[Array], *, key: PRNGKeyArray | None = None
    ) -> tuple[Float[Array, " actions"], Float[Array, "*atoms"]]:
        del key
        x = self.torso(Concatenate()(features))
        value = self.value(x)
        return self.policy(x), jnp.tanh(value[0]) if self.num_values is None else value


#: Values of any size, compressed as in MuZero.
_SUPPORT = ValueSupport(301, transform=True)


def _own(name: str) -> Any:
    module, _, attribute = name.partition(":")
    if "" not in sys.path:  # a module beside which the program was started
        sys.path.insert(0, "")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as e:
        raise UsageError(f"--network {name}: {e}; give module:Class.") from e


def _augmentation(config: Config, world: World) -> Any:
    if not config.symmetries or world.name not in SYMMETRIC:
        return None
    num_actions: int = world.env.num_actions  # pyright: ignore[reportAttributeAccessIssue]
    rows, columns = SYMMETRIC[world.name]
    return ft.partial(_random_symmetry, BoardSymmetries(rows, columns, num_actions))


def _random_symmetry(
    symmetries: BoardSymmetries, row: Experience, *, key: PRNGKeyArray
) -> Experience:
    """Applies a uniformly drawn symmetry of the board to a row."""
    index = jr.randint(key, (), 0, symmetries.size)
    turn = ft.partial(symmetries.actions, index=index)
    assert row.obs.legal is not None
    obs = type(row.obs)(symmetries.features(row.obs.features, index), turn(row.obs.legal))
    record = PlanRecord(turn(row.record.weights), row.record.value)
    action = symmetries.action(row.action, index)
    return Experience(obs, action, row.reward, row.discount, row.last, record)


def _optimiser(config: Config) -> optax.GradientTransformation:
    adam = optax.adamw(learning_rate(config), weight_decay=config.weight_decay)
    return optax.chain(optax.clip_by_global_norm(config.clip), adam) if config.clip else adam


def _explorer(config: Config) -> AbstractPlanner:
    if config.search == "gumbel":
        considered = config.considered
        return TreeSearch.gumbel(config.simulations, max_num_considered_actions=considered)
    noise = DirichletNoise(config.noise, total=config.concentration) if config.noise else None
    temperature = Temperature(first=1.0, then=0.0, moves=config.temperature_moves)
    c = config.exploration
    return TreeSearch.alphazero(config.simulations, c=c, noise=noise, temperature=temperature)
