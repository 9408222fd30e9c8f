"""A trained player, back from its run folder."""

import dataclasses
import pathlib
from collections.abc import Sequence

import equinox as eqx
import jax.random as jr
from jaxtyping import Array, PyTree

from zero_envs import Minesweeper
from zero_train import AbstractActor, FeatureEvaluator
from zero_train.app import load_config, load_player, UsageError

from ._agents import build_agent, PLANNING
from ._build import build_env, build_learner
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
        return build_learner(self.config).evaluator(self.params)


def load(run: str | pathlib.Path) -> Trained:
    """The newest player of a run.

    **Raises:** [`zero_train.app.UsageError`][] where the folder holds no run;
    [`zero_train.CheckpointError`][] where all its players are damaged, or of another
    configuration than config.json says.
    """
    folder = pathlib.Path(run)
    config = load_config(Config, folder, "minesweeper")
    agent = build_learner(config)
    like = eqx.filter_eval_shape(lambda: agent.init(key=jr.key(0))).params
    step, params = load_player(folder, like)
    return Trained(config, params, step)


@dataclasses.dataclass(frozen=True)
class Table:
    """Where agents sit down to play: a board, and a trained player or none.

    **Attributes:**

    - `env`: the board.
    - `config`: how agents play there.
    - `trained`: who has a network, if anybody.
    - `layouts`, `simulations`: what was asked for; `None` for what is usual.
    """

    env: Minesweeper
    config: Config = Config()
    trained: Trained | None = None
    layouts: int | None = None
    simulations: int | None = None

    @classmethod
    def of(
        cls,
        run: str | None,
        *,
        rows: int | None = None,
        columns: int | None = None,
        mines: int | None = None,
        max_states: int | None = None,
        layouts: int | None = None,
        simulations: int | None = None,
    ) -> "Table":
        """With what was given, else what the run was configured for, else the usual board.

        **Raises:** as [`load`][zero_minesweeper._load.load], and
        [`zero_train.app.UsageError`][] for a board that there is not.
        """
        trained = None if run is None else load(run)
        usual = Config() if trained is None else trained.config
        given = {
            "rows": rows,
            "columns": columns,
            "mines": mines,
            "max_states": max_states,
            "layouts": layouts,
            "player_simulations": simulations,
        }
        chosen = {name: value for name, value in given.items() if value is not None}
        config = dataclasses.replace(usual, **chosen)
        return cls(build_env(config), config, trained, layouts, simulations)

    @property
    def usual_agent(self) -> str:
        """Who plays if nobody is named."""
        return "tiebreak" if self.trained is None else "belief"

    def agents(self, names: Sequence[str]) -> dict[str, AbstractActor]:
        """The agents of these names.

        **Raises:** as [`build_agent`][zero_minesweeper._agents.build_agent], and
        [`zero_train.app.UsageError`][] where something was asked for that none of them does.
        """
        evaluate = None if self.trained is None else self.trained.evaluator()
        build = lambda name: build_agent(
            name, self.env, config=self.config, layouts=self.layouts, evaluate=evaluate
        )
        players = {name: build(name) for name in names}
        for flag, agents in PLANNING.items():
            if getattr(self, flag) is not None and not set(agents) & set(players):
                raise UsageError(
                    f"--{flag} means nothing to {', '.join(players)}; it is for "
                    f"{', '.join(agents)}."
                )
        return players

    def agent(self, name: str) -> AbstractActor:
        """One of them."""
        return self.agents([name])[name]
