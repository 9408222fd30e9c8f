"""`zero watch`: a trained player alone, or against itself."""

import dataclasses
import pathlib
from collections.abc import Iterator

from jaxtyping import PRNGKeyArray

from zero_train.app import AbstractWatch, Frame, game_frames, Trained

from ._board import Board
from ._config import Config
from ._worlds import build_world


@dataclasses.dataclass(frozen=True)
class Watch(AbstractWatch):
    """Watch a trained player alone, or against itself. Pictures that a terminal cannot show become
    numbered files in the folder `watch` of the run."""

    def board(self, trained: Trained[Config]) -> Board:
        return Board(build_world(trained.config.env), self.folder / "watch" / "{:04}.svg")


def episode(trained: Trained[Config], key: PRNGKeyArray) -> Iterator[Frame]:
    """The pictures of a game for the report."""
    world = build_world(trained.config.env)
    return game_frames(trained, Board(world, pathlib.Path("{:04}.svg")), key)
