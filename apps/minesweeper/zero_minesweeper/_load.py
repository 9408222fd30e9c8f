"""A trained player, back from its run folder."""

import dataclasses
import pathlib

import equinox as eqx
import jax
import jax.random as jr
from jaxtyping import Array, PyTree

from zero_train import Checkpoints, FeatureEvaluator
from zero_train.app import load_config

from ._build import build_agent
from ._config import Config


@dataclasses.dataclass(frozen=True)
class Trained:
    """What a run folder holds of its player.

    **Attributes:**

    - `config`: what it was trained with.
    - `params`: the parameters that play.
    - `step`: how many steps they were trained for.
    """

    config: Config
    params: PyTree[Array]
    step: int

    def evaluator(self) -> FeatureEvaluator:
        """The network, on boards of any size."""
        return build_agent(self.config).evaluator(self.params)


def load(run: str | pathlib.Path) -> Trained:
    """The newest player of a run.

    **Raises:** [`zero_train.app.UsageError`][] where the folder holds no run;
    [`zero_train.CheckpointError`][] where its player is missing, damaged or of another
    configuration than config.json says.
    """
    folder = pathlib.Path(run)
    config = load_config(Config, folder, "minesweeper")
    agent = build_agent(config)
    players = Checkpoints(folder / "players", keep=None)
    like = eqx.filter_eval_shape(lambda: agent.init(key=jr.key(0))).params
    return Trained(config, jax.device_put(players.restore(like)), players.steps()[-1])
