"""`zero serve`: a game against a trained player in the browser."""

import dataclasses
from typing import Any

from zero_train.app import AbstractServe, Page, Trained, UsageError

from ._board import Board
from ._config import Config
from ._worlds import world_of_two


#: What the sides of games are called whose stones have colours, and how their cells look.
_LOOKS: dict[str, dict[str, Any]] = {
    "pgx/tic_tac_toe": {},
    "pgx/connect_four": {"sides": ("red", "yellow"), "style": "holes"},
    "pgx/hex": {"sides": ("red", "blue"), "style": "hexagons"},
    "pgx/go_9x9": {"sides": ("black", "white"), "style": "points"},
    "pgx/go_19x19": {"sides": ("black", "white"), "style": "points"},
    "pgx/chess": {"sides": ("white", "black")},
    "pgx/gardner_chess": {"sides": ("white", "black")},
}


@dataclasses.dataclass(frozen=True)
class Serve(AbstractServe):
    """Play against a trained player in the browser."""

    def page(self, trained: Trained[Config]) -> Page:
        world = world_of_two(trained.config.env, self.run)
        board = Board(world, self.folder / "play.svg")
        env: Any = world.env  # of which some can draw a state
        if board.shape is None and not hasattr(env, "render"):
            raise UsageError(f"{world.name} cannot be drawn; `zero play {self.run}` may do.")
        return Page(
            title=world.name.removeprefix("pgx/").replace("_", " ").capitalize(),
            board=board,
            shape=board.shape,
            svg=getattr(env, "render", None),
            chance=world.name == "pgx/backgammon",
            **_LOOKS.get(world.name, {"sides": ("first", "second")}),
        )
