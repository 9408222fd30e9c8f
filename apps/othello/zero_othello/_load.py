"""Loads a trained player from the folder of its run."""

import dataclasses
import pathlib

import equinox as eqx
import jax.random as jr
from jaxtyping import Array, PyTree

from zero_envs import PgxEnvironment
from zero_train import AbstractActor, ExpertIteration
from zero_train.app import load_config, load_parameters

from ._build import build_agent, build_env
from ._config import Config
from ._ladder import build_actor


@dataclasses.dataclass(frozen=True)
class Trained:
    """A trained player.

    **Attributes:**

    - `config`: the configuration of the run.
    - `env`, `agent`: the environment and the agent of the configuration.
    - `params`: the parameters of the player.
    - `step`: the number of training steps so far.
    """

    config: Config
    env: PgxEnvironment
    agent: ExpertIteration
    params: PyTree[Array]
    step: int

    def actor(self, simulations: int) -> AbstractActor:
        """The player with this number of simulations per move, 0 for the network without a
        search."""
        return build_actor(self.config, self.agent, self.params, simulations)


def load(run: str | pathlib.Path, env: PgxEnvironment | None = None) -> Trained:
    """The newest player of a run.

    **Raises:** `UsageError` if the folder has no run; [`zero_train.CheckpointError`][] if all its
    parameters are damaged or do not fit config.json.
    """
    folder = pathlib.Path(run)
    config = load_config(Config, folder, "othello")
    env = build_env() if env is None else env
    agent = build_agent(config, env)
    like = eqx.filter_eval_shape(lambda: agent.init(key=jr.key(0))).target
    step, params = load_parameters(folder, like)
    return Trained(config, env, agent, params, step)
