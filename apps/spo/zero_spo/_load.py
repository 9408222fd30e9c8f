"""Loads a trained player from the folder of its run."""

import dataclasses
import pathlib

import equinox as eqx
import jax.random as jr

from zero_train import AbstractActor, ActorCritic
from zero_train.app import load_config, load_parameters

from ._build import build_agent, build_env
from ._config import Config
from ._worlds import World


@dataclasses.dataclass(frozen=True)
class Trained:
    """A trained player.

    **Attributes:**

    - `config`: the configuration of the run.
    - `env`: the environment.
    - `parameters`: of the policy and the critic, and the duals.
    - `block`: the number of training blocks so far.
    """

    config: Config
    env: World
    parameters: ActorCritic
    block: int

    def actor(self) -> AbstractActor:
        """The player of evaluations."""
        return build_agent(self.config, self.env).play(self.parameters, explore=False)


def load(run: str | pathlib.Path) -> Trained:
    """The newest player of a run.

    **Raises:** [`zero_train.app.UsageError`][] if the folder has no run;
    [`zero_train.CheckpointError`][] if all its parameters are damaged or do not fit config.json.
    """
    folder = pathlib.Path(run)
    config = load_config(Config, folder, "spo")
    env = build_env(config)
    agent = build_agent(config, env)
    like = eqx.filter_eval_shape(lambda: agent.init(key=jr.key(0))).online
    step, parameters = load_parameters(folder, like)
    return Trained(config, env, parameters, step)
