"""`zero serve`: a game against a trained player in the browser."""

import dataclasses
import pathlib
from typing import Any

from zero_train.app import AbstractServe, App, Page, Service, UsageError

from ._board import Board
from ._config import Config
from ._worlds import World, world_of_two


#: How the cells of boards look that are not of squares.
_STYLES: dict[str, Any] = {
    "pgx/connect_four": "holes",
    "pgx/hex": "hexagons",
    "pgx/go_9x9": "points",
    "pgx/go_19x19": "points",
    "pgx/chess": "pieces",
    "pgx/gardner_chess": "pieces",
    "pgx/shogi": "wood",
    "pgx/animal_shogi": "wood",
}


@dataclasses.dataclass(frozen=True)
class Serve(AbstractServe):
    """Play against a trained player in the browser."""

    def services(self, app: App[Config]) -> list[Service]:
        trained = self.load(app)
        world = world_of_two(trained.config.env, self.run)
        env: Any = world.env
        return [Service.of_search(env, trained.player, page_of(world, self.folder))]


def page_of(world: World, folder: pathlib.Path) -> Page:
    """How a game is shown.

    **Arguments:**

    - `folder`: where a picture is drawn in, for the terminal's board.

    **Raises:** [`zero_train.app.UsageError`][] where it cannot be drawn.
    """
    board = Board(world, folder / "play.svg")
    if not board.drawn:
        raise UsageError(f"{world.name} cannot be drawn; `zero play` may do.")
    title = world.name.removeprefix("pgx/").replace("_", " ").capitalize()
    style = _STYLES.get(world.name, "squares")
    pieces = board.pieces
    if pieces is not None:
        return Page(
            title=title,
            board=board,
            shape=(pieces.rows, pieces.columns),
            style=style,
            names=pieces.names,
            cells=pieces.cells,
            places=pieces.places,
            glyphs=pieces.signs(board.sides),
            note=None if pieces.hand is None else pieces.in_hand,
        )
    return Page(
        title=title,
        board=board,
        shape=board.shape,
        style=style,
        svg=board.render,
    )
