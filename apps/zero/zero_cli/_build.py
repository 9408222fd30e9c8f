"""Builds network, agent and loop from a configuration."""

import functools as ft
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from zero_envs import load_class
from zero_memory import EpisodeBuffer, TrajectoryBuffer
from zero_nets import AlphaZeroNet, Concatenate, MLP, ValueSupport
from zero_train import EnvironmentModel, ExpertIteration, Loop, NStepReturns
from zero_train.app import UsageError

from ._config import Config
from ._worlds import build_world, SYMMETRIES, World


def build_loop(config: Config) -> Loop:
    """The training loop of a configuration."""
    world = build_world(config.env)
    network = ft.partial(build_network, config, world)
    model = ft.partial(EnvironmentModel, world.env)
    shared: dict[str, Any] = {
        "capacity": config.capacity,
        "num_envs": config.envs,
        "batch_size": config.batch,
        "num_shards": config.shards,
    }
    if config.agent == "alphazero":
        agent = config.alphazero(network, model)
        buffer = EpisodeBuffer(num_players=world.players, **shared)
    else:
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
            value_code=_SUPPORT,
            target_rate=1 - config.average,
            target_acts=True,
        )
        buffer = TrajectoryBuffer(length=config.window, **shared)
    return Loop(
        env=world.env,
        agent=agent,
        buffer=buffer,
        augment=SYMMETRIES.get(config.env) if config.symmetries else None,
        unroll_length=config.unroll,
        num_updates=config.updates,
    )


def build_network(config: Config, world: World, *, key: PRNGKeyArray) -> Any:
    """The network of the observation's shape: convolutions for a board of `[rows, columns,
    channels]`, and a perceptron of all numbers of any other."""
    obs = world.observation
    num_actions: int = world.env.num_actions  # pyright: ignore[reportAttributeAccessIssue]
    if config.network != "auto":
        try:
            kind = load_class(config.network)
        except ValueError as e:
            raise UsageError(f"--network {config.network}: {e}") from e
        return kind(obs.features, num_actions, key=key)
    shape, alphazero = getattr(obs.features, "shape", ()), config.agent == "alphazero"
    if alphazero and len(shape) == 3 and min(shape[:2]) > 1:
        return AlphaZeroNet(
            shape,
            num_actions,
            channels=config.channels,
            blocks=config.blocks,
            max_value=world.max_return,
            key=key,
        )
    max_value = world.max_return if alphazero else None
    return Perceptron(world.size, num_actions, max_value, config, key=key)


class Perceptron(eqx.Module):
    """Policy and value of observations of any structure. The value is in
    [-max_value, max_value], or logits over the atoms of `_SUPPORT` without a `max_value`."""

    torso: MLP
    policy: MLP
    value: MLP
    max_value: float | None = eqx.field(static=True)

    def __init__(
        self,
        size: int,
        num_actions: int,
        max_value: float | None,
        config: Config,
        *,
        key: PRNGKeyArray,
    ):
        tkey, pkey, vkey = jr.split(key, 3)
        width = 4 * config.channels
        self.torso = MLP(size, (width,) * config.blocks, activation=jax.nn.silu, key=tkey)
        self.policy = MLP(width, (num_actions,), activate_final=False, key=pkey)
        num_values = 1 if max_value else _SUPPORT.num_atoms
        self.value = MLP(width, (num_values,), activate_final=False, key=vkey)
        self.max_value = max_value

    def __call__(
        self, features: PyTree[Array], *, key: PRNGKeyArray | None = None
    ) -> tuple[Float[Array, " actions"], Float[Array, "*atoms"]]:
        del key
        x = self.torso(Concatenate()(features))
        value = self.value(x)
        return self.policy(x), self.max_value * jnp.tanh(value[0]) if self.max_value else value


#: Values of any size, compressed as in MuZero.
_SUPPORT = ValueSupport(301, transform=True)
