"""`othello gtp`: the Go Text Protocol for Othello.

Unlike in Go, boards are 8 by 8, A1 is the upper left corner, a pass is legal only for a side
without a move, and `final_score` counts discs.
"""

import dataclasses
import importlib.metadata

from zero_train.app import AbstractGameCommand, App, serve_gtp, Trained

from ._board import Board
from ._config import Config


@dataclasses.dataclass(frozen=True)
class Gtp(AbstractGameCommand):
    """Serve a trained player over the Go Text Protocol, version 2, on stdin and stdout."""

    def board(self, trained: Trained[Config]) -> Board:
        return Board()

    def __call__(self, app: App[Config]) -> None:
        start = self.start(self.load(app), 0)
        serve_gtp(start, "zero-othello", importlib.metadata.version("zero-othello"))
