"""`zero play`: a game against a trained player in the terminal."""

import dataclasses
from typing import ClassVar, Literal

import jax.random as jr
from rich.console import Console

from zero_train.app import AbstractPlayerCommand, App, Bounds, Game, Session, with_simulations

from ._board import Board
from ._config import Config, SIMULATIONS
from ._worlds import world_of_two


@dataclasses.dataclass(frozen=True)
class Play(AbstractPlayerCommand):
    """Play against a trained player in the terminal."""

    simulations: int | None = None
    """Simulations per move, 0 for the network without a search; by default those of the run's
    configuration."""
    seat: Literal["first", "second"] = "first"
    """Who moves first: you, or the player."""
    seed: int = 0
    """The seed of the game and of the player's search."""

    bounds: ClassVar[Bounds] = {"simulations": SIMULATIONS}

    def __call__(self, app: App[Config]) -> None:
        trained = self.load(app)
        world = world_of_two(trained.config.env, self.run)
        actor = with_simulations(trained.player, self.simulations)
        board = Board(world, self.folder / "play.svg")
        start = Game.start(world.env, actor, board, key=jr.key(self.seed))
        print(world.name)
        seed = self.seed if board.chance else None
        Session(start, Console(), first=self.seat == "first", seed=seed).run()
