"""Loads a trained player from the folder of its run, and the board that agents play."""

import dataclasses
import pathlib
from collections.abc import Sequence

import equinox as eqx
import jax.random as jr
from jaxtyping import Array, PyTree

from zero_envs import Minesweeper
from zero_train import AbstractActor, FeatureEvaluator
from zero_train.app import load_config, load_parameters, UsageError

from ._agents import build_agent, PLANNING
from ._build import build_env, build_learner
from ._config import Config


@dataclasses.dataclass(frozen=True)
class Trained:
    """A trained player.

    **Attributes:**

    - `config`: the configuration of the run.
    - `params`: the parameters of the player.
    - `step`: the number of training steps so far.
    """

    config: Config
    params: PyTree[Array]
    step: int

    def evaluator(self) -> FeatureEvaluator:
        """The network, for boards of any size."""
        return build_learner(self.config).evaluator(self.params)


def load(run: str | pathlib.Path) -> Trained:
    """The newest player of a run.

    **Raises:** [`zero_train.app.UsageError`][] if the folder has no run;
    [`zero_train.CheckpointError`][] if all its parameters are damaged or do not fit config.json.
    """
    folder = pathlib.Path(run)
    config = load_config(Config, folder, "minesweeper")
    agent = build_learner(config)
    like = eqx.filter_eval_shape(lambda: agent.init(key=jr.key(0))).params
    step, params = load_parameters(folder, like)
    return Trained(config, params, step)


@dataclasses.dataclass(frozen=True)
class Table:
    """A board, the configuration of agents, and a trained player or none.

    **Attributes:**

    - `env`: the environment.
    - `config`: the configuration of agents.
    - `trained`: the trained player, or `None`.
    - `layouts`, `simulations`: the flags of these names, or `None` for the defaults.
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
        """Uses the given arguments, and for others the run's configuration or `Config()`.

        **Raises:** see [`load`][zero_minesweeper._load.load]; also
        [`zero_train.app.UsageError`][] for an impossible board.
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
        """The default agent."""
        return "tiebreak" if self.trained is None else "belief"

    def agents(self, names: Sequence[str]) -> dict[str, AbstractActor]:
        """The agents of these names.

        **Raises:** see [`build_agent`][zero_minesweeper._agents.build_agent]; also
        [`zero_train.app.UsageError`][] if a flag applies to none of them.
        """
        evaluate = None if self.trained is None else self.trained.evaluator()
        build = lambda name: build_agent(
            name, self.env, config=self.config, layouts=self.layouts, evaluate=evaluate
        )
        players = {name: build(name) for name in names}
        for flag, agents in PLANNING.items():
            if getattr(self, flag) is not None and not set(agents) & set(players):
                raise UsageError(
                    f"--{flag} does not apply to {', '.join(players)}; it is for "
                    f"{', '.join(agents)}."
                )
        return players

    def agent(self, name: str) -> AbstractActor:
        """The agent of a name; see `agents`."""
        return self.agents([name])[name]
