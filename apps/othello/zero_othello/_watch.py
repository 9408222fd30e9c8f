"""`othello watch`: a trained player against itself."""

import dataclasses
from collections.abc import Iterator

from jaxtyping import PRNGKeyArray

from zero_train.app import AbstractWatch, Frame, game_frames, Trained

from ._board import Board
from ._config import Config


@dataclasses.dataclass(frozen=True)
class Watch(AbstractWatch):
    """Watch a trained player play against itself."""

    def board(self, trained: Trained[Config]) -> Board:
        return Board()


def episode(trained: Trained[Config], key: PRNGKeyArray) -> Iterator[Frame]:
    """The pictures of a game for the report."""
    return game_frames(trained, Board(), key)
