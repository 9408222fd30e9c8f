"""`othello play`: a person against a trained player, in the terminal."""

import dataclasses

from rich.console import Console

from zero_train.app import AbstractGameCommand, App, Session, Trained

from ._board import Board, Colour
from ._config import Config


@dataclasses.dataclass(frozen=True)
class Play(AbstractGameCommand):
    """Play against a trained player in the terminal."""

    colour: Colour = "black"
    """Your colour; black moves first."""
    seed: int = 0
    """The seed of the player's search."""

    def board(self, trained: Trained[Config]) -> Board:
        return Board()

    def __call__(self, app: App[Config]) -> None:
        start = self.start(self.load(app), self.seed)
        Session(start, Console(), first=self.colour == "black").run()
