"""Loads a trained player from the folder of its run."""

import dataclasses
import pathlib

import equinox as eqx
import jax.random as jr
from jaxtyping import Array, PyTree

from zero_envs import Monsters
from zero_train import AbstractActor
from zero_train.app import load_config, load_parameters

from ._build import build_actor, build_agent, build_env
from ._config import Config


@dataclasses.dataclass(frozen=True)
class Trained:
    """A trained player.

    **Attributes:**

    - `config`: the configuration of the run.
    - `env`: the environment of evaluations.
    - `params`: the parameters of the player.
    - `step`: the number of training steps so far.
    """

    config: Config
    env: Monsters
    params: PyTree[Array]
    step: int

    def simulations(self, planner: str, given: int | None) -> int:
        """The number of simulations per move: the given one, or that of the configuration; 0 for
        `"network"`."""
        if planner == "network":
            return 0
        return self.config.player_simulations if given is None else given

    def actor(self, planner: str, simulations: int) -> AbstractActor:
        """The actor with the named planner; see `build_actor`."""
        return build_actor(self.config, self.params, planner, simulations)


def load(run: str | pathlib.Path) -> Trained:
    """The newest player of a run.

    **Raises:** [`zero_train.app.UsageError`][] if the folder has no run;
    [`zero_train.CheckpointError`][] if all its parameters are damaged or do not fit config.json.
    """
    folder = pathlib.Path(run)
    config = load_config(Config, folder, "monsters")
    agent = build_agent(config)
    like = eqx.filter_eval_shape(lambda: agent.init(key=jr.key(0))).params
    step, params = load_parameters(folder, like)
    return Trained(config, build_env(config), params, step)
