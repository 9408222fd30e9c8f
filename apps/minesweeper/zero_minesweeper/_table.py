"""The board that agents play, and the flags that choose it."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from zero_app import AbstractPlayerCommand, App, PRETRAINED, Trained, UsageError
from zero_envs import Minesweeper
from zero_train import AbstractActor, FeatureEvaluator, PlanningActor

from ._agents import build_agent, NETWORKED, PLANNING
from ._build import build_env
from ._config import Config, Layouts, Side, Simulations


@dataclasses.dataclass(frozen=True)
class Table:
    """A board, the configuration of agents, and a trained player or none. `layouts` and
    `simulations` are the flags of these names, if they were given."""

    env: Minesweeper
    config: Config = Config()
    trained: Trained[Config] | None = None
    layouts: int | None = None
    simulations: int | None = None

    @property
    def board(self) -> str:
        """The size of the board in words."""
        return f"{self.env.rows} x {self.env.columns} with {self.env.num_mines} mines"

    def about(self, agent: str) -> str:
        """The agent and the board in words."""
        trained = ""
        if self.trained is not None and agent in NETWORKED:
            trained = f" (trained for {self.trained.step} steps)"
        return f"{agent}{trained} on {self.board}"

    def agents(self, names: Sequence[str]) -> dict[str, AbstractActor]:
        evaluate = None if self.trained is None else network_of(self.trained.player)
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
        return self.agents([name])[name]


def network_of(player: AbstractActor) -> FeatureEvaluator:
    """The network of a trained player, for boards of any size."""
    assert isinstance(player, PlanningActor)
    model: Any = player.model
    return model.evaluate


@dataclasses.dataclass(frozen=True)
class TableArguments:
    """The board and the budget of agents."""

    rows: Side | None = None
    """Rows of the board; by default the run's."""
    columns: Side | None = None
    """Columns of the board; by default the run's."""
    mines: int | None = None
    """Mines on the board; by default the run's. The first cell may be a mine."""
    max_states: int | None = None
    """Maximum number of states of the exact posterior, a power of two; by default the
    run's."""
    layouts: Layouts | None = None
    """hindsight, belief: layouts per move; by default 128 for hindsight, the run's for belief."""
    simulations: Simulations | None = None
    """belief: simulations per searched move; by default the run's."""

    def at(self, app: App[Config], command: AbstractPlayerCommand, agents: Sequence[str]) -> Table:
        """The table of the player of a command: flags that were not given are as in its
        configuration. Where no player is named and no agent needs a network, none is loaded, and
        they are as in `Config()`."""
        needed = command.run != PRETRAINED or set(agents) & set(NETWORKED)
        trained = command.load(app) if needed else None
        usual = Config() if trained is None else trained.config
        given = dataclasses.asdict(self)
        layouts, simulations = given["layouts"], given.pop("simulations")
        given["player_simulations"] = simulations
        chosen = {name: value for name, value in given.items() if value is not None}
        config = dataclasses.replace(usual, **chosen)
        return Table(build_env(config), config, trained, layouts, simulations)
