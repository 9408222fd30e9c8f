"""A trained player, back from its run folder."""

import dataclasses
import pathlib

import equinox as eqx
import jax.random as jr

from zero_train import AbstractActor, ActorCritic
from zero_train.app import load_config, load_player

from ._build import build_agent, build_env
from ._config import Config
from ._worlds import World


@dataclasses.dataclass(frozen=True)
class Trained:
    """What a run folder holds of its player.

    **Attributes:**

    - `config`: what it was trained with.
    - `env`: the environment it is measured in.
    - `player`: the parameters that play.
    - `block`: after how many blocks.
    """

    config: Config
    env: World
    player: ActorCritic
    block: int

    def actor(self) -> AbstractActor:
        """The player at full strength."""
        return build_agent(self.config, self.env).play(self.player, explore=False)


def load(run: str | pathlib.Path) -> Trained:
    """The newest player of a run.

    **Raises:** [`zero_train.app.UsageError`][] where the folder holds no run;
    [`zero_train.CheckpointError`][] where all its players are damaged, or of another
    configuration than config.json says.
    """
    folder = pathlib.Path(run)
    config = load_config(Config, folder, "spo")
    env = build_env(config)
    agent = build_agent(config, env)
    like = eqx.filter_eval_shape(lambda: agent.init(key=jr.key(0))).player
    step, player = load_player(folder, like)
    return Trained(config, env, player, step)
