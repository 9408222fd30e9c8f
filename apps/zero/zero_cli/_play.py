"""`zero play`: a game against a trained player in the terminal."""

import dataclasses
from typing import Literal

from rich.console import Console

from zero_train.app import AbstractGameCommand, App, Session, Trained

from ._board import Board
from ._config import Config
from ._worlds import world_of_two


@dataclasses.dataclass(frozen=True)
class Play(AbstractGameCommand):
    """Play against a trained player in the terminal."""

    seat: Literal["first", "second"] = "first"
    """Who moves first: you, or the player."""
    seed: int = 0
    """The seed of the game and of the player's search."""

    def board(self, trained: Trained[Config]) -> Board:
        return Board(world_of_two(trained.config.env, self.run), self.folder / "play.svg")

    def __call__(self, app: App[Config]) -> None:
        trained = self.load(app)
        start = self.start(trained, self.seed)
        print(trained.config.env)
        Session(start, Console(), first=self.seat == "first", seed=self.seed).run()
