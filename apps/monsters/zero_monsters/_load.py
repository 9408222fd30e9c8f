"""A trained player, back from its run folder."""

import dataclasses
import pathlib

import equinox as eqx
import jax.random as jr
from jaxtyping import Array, PyTree

from zero_envs import Monsters
from zero_train import AbstractActor
from zero_train.app import load_config, load_player

from ._build import build_agent, build_env, build_player
from ._config import Config


@dataclasses.dataclass(frozen=True)
class Trained:
    """What a run folder holds of its player.

    **Attributes:**

    - `config`: what it was trained with.
    - `env`: the world it is measured in.
    - `params`: the parameters that play.
    - `step`: how many steps they were trained for.
    """

    config: Config
    env: Monsters
    params: PyTree[Array]
    step: int

    def simulations(self, planner: str, given: int | None) -> int:
        """How many a move: those given, or else as configured; none for the bare `network`."""
        if planner == "network":
            return 0
        return self.config.player_simulations if given is None else given

    def actor(self, planner: str, simulations: int) -> AbstractActor:
        """The player with a planner by name, or `network`, and so many simulations a move."""
        return build_player(self.config, self.params, planner, simulations)


def load(run: str | pathlib.Path) -> Trained:
    """The newest player of a run.

    **Raises:** [`zero_train.app.UsageError`][] where the folder holds no run;
    [`zero_train.CheckpointError`][] where all its players are damaged, or of another
    configuration than config.json says.
    """
    folder = pathlib.Path(run)
    config = load_config(Config, folder, "monsters")
    agent = build_agent(config)
    like = eqx.filter_eval_shape(lambda: agent.init(key=jr.key(0))).params
    step, params = load_player(folder, like)
    return Trained(config, build_env(config), params, step)
