"""A trained player, back from its run folder."""

import dataclasses
import pathlib

import equinox as eqx
import jax.random as jr
from jaxtyping import Array, PyTree

from zero_envs import PgxEnvironment
from zero_train import AbstractActor, ExpertIteration
from zero_train.app import load_config, load_player

from ._build import build_agent, build_env
from ._config import Config
from ._ladder import build_actor


@dataclasses.dataclass(frozen=True)
class Trained:
    """What a run folder holds of its player.

    **Attributes:**

    - `config`: what it was trained with.
    - `env`, `agent`: the parts built from it.
    - `params`: the parameters that play.
    - `step`: how many steps they were trained for.
    """

    config: Config
    env: PgxEnvironment
    agent: ExpertIteration
    params: PyTree[Array]
    step: int

    def actor(self, simulations: int) -> AbstractActor:
        """The player with so many simulations a move; 0 is the bare network."""
        return build_actor(self.config, self.agent, self.params, simulations)


def load(run: str | pathlib.Path, env: PgxEnvironment | None = None) -> Trained:
    """The newest player of a run.

    **Raises:** `UsageError` where the folder holds no run;
    [`zero_train.CheckpointError`][] where all its players are damaged, or of another
    configuration than config.json says.
    """
    folder = pathlib.Path(run)
    config = load_config(Config, folder, "othello")
    env = build_env() if env is None else env
    agent = build_agent(config, env)
    like = eqx.filter_eval_shape(lambda: agent.init(key=jr.key(0))).target
    step, params = load_player(folder, like)
    return Trained(config, env, agent, params, step)
