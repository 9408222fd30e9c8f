"""`othello serve`: a game against a trained player in the browser."""

import dataclasses

from zero_train.app import AbstractServe, Page, Trained

from ._board import Board, SIZE
from ._config import Config


@dataclasses.dataclass(frozen=True)
class Serve(AbstractServe):
    """Play against a trained player in the browser."""

    def page(self, trained: Trained[Config]) -> Page:
        return Page("Othello", Board(), shape=(SIZE, SIZE))
