"""Loads a trained player from the folder of its run."""

import dataclasses
import pathlib

import equinox as eqx
import jax.random as jr
from jaxtyping import Array, PyTree

from zero_train import AbstractActor, ExpertIteration
from zero_train.app import load_config, load_parameters

from ._build import build_actor, build_agent
from ._config import Config
from ._worlds import build_world, World


@dataclasses.dataclass(frozen=True)
class Trained:
    """A trained player.

    **Attributes:**

    - `config`: the configuration of the run.
    - `world`, `agent`: what was built from it.
    - `params`: the parameters of the player.
    - `step`: the number of training steps so far.
    """

    config: Config
    world: World
    agent: ExpertIteration
    params: PyTree[Array]
    step: int

    def simulations(self, given: int | None) -> int:
        """The number of simulations a move, by default that of the configuration."""
        return self.config.player_simulations if given is None else given

    def actor(self, simulations: int) -> AbstractActor:
        """The player with so many simulations a move, 0 for the network without a search."""
        return build_actor(self.config, self.agent, self.params, simulations)


def load(run: str | pathlib.Path) -> Trained:
    """The newest player of a run.

    **Raises:** `UsageError` if the folder has no run; [`zero_train.CheckpointError`][] if all its
    parameters are damaged or do not fit config.json.
    """
    folder = pathlib.Path(run)
    config = load_config(Config, folder, "zero")
    world = build_world(config.env)
    agent = build_agent(config, world)
    like = eqx.filter_eval_shape(lambda: agent.init(key=jr.key(0))).target
    step, params = load_parameters(folder, like)
    return Trained(config, world, agent, params, step)
