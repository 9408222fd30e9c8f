"""`zero gtp`: the Go Text Protocol for Go."""

import dataclasses
import importlib.metadata

from zero_train.app import AbstractGameCommand, App, serve_gtp, Sgf, Trained, UsageError

from ._board import Board
from ._config import Config
from ._worlds import world_of_two


@dataclasses.dataclass(frozen=True)
class Gtp(AbstractGameCommand):
    """Serve a player of Go over the Go Text Protocol, version 2, on stdin and stdout."""

    def board(self, trained: Trained[Config]) -> Board:
        world = world_of_two(trained.config.env, self.run)
        board = Board(world, self.folder / "play.svg")
        if not isinstance(board.record, Sgf):
            raise UsageError(
                f"GTP is for Go and Othello; `zero play {self.run}` plays {world.name}."
            )
        return board

    def __call__(self, app: App[Config]) -> None:
        start = self.start(self.load(app), 0)
        serve_gtp(start, "zero", importlib.metadata.version("zero-games"))
