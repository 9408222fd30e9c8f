"""What is done with a trained player of any game: `zero play|serve|watch|gtp`."""

import dataclasses
import importlib.metadata
import pathlib
from collections.abc import Iterator
from typing import Any, Literal

from jaxtyping import PRNGKeyArray
from rich.console import Console

from zero_app import (
    AbstractGameCommand,
    AbstractServe,
    AbstractWatch,
    App,
    Frame,
    game_frames,
    Page,
    serve_gtp,
    Service,
    Session,
    Sgf,
    Trained,
    UsageError,
)

from ._board import Board
from ._config import Config
from ._worlds import build_world, World, world_of_two


#: How the cells of boards look that are not of squares.
_STYLES: dict[str, Any] = {
    "pgx/connect_four": "holes",
    "pgx/hex": "hexagons",
    **dict.fromkeys(("pgx/go_9x9", "pgx/go_19x19"), "points"),
    **dict.fromkeys(("pgx/chess", "pgx/gardner_chess"), "pieces"),
    **dict.fromkeys(("pgx/shogi", "pgx/animal_shogi"), "wood"),
}


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


@dataclasses.dataclass(frozen=True)
class Serve(AbstractServe):
    """Play against a trained player in the browser."""

    def services(self, app: App[Config]) -> list[Service]:
        trained = self.load(app)
        world = world_of_two(trained.config.env, self.run)
        env: Any = world.env
        return [Service.of_search(env, trained.player, page_of(world, self.folder))]


@dataclasses.dataclass(frozen=True)
class Watch(AbstractWatch):
    """Watch a trained player alone, or against itself. Pictures that a terminal cannot show become
    numbered files in the folder `watch` of the run."""

    def board(self, trained: Trained[Config]) -> Board:
        return Board(build_world(trained.config.env), self.folder / "watch" / "{:04}.svg")


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


def episode(trained: Trained[Config], key: PRNGKeyArray) -> Iterator[Frame]:
    """The pictures of a game for the report."""
    world = build_world(trained.config.env)
    return game_frames(trained, Board(world, pathlib.Path("{:04}.svg")), key)


def page_of(world: World, folder: pathlib.Path) -> Page:
    """How a game is shown in the browser.

    **Arguments:**

    - `folder`: where a picture is drawn in, for the terminal's board.

    **Raises:** [`zero_app.UsageError`][] where it cannot be drawn.
    """
    board = Board(world, folder / "play.svg")
    if not board.drawn:
        raise UsageError(f"{world.name} cannot be drawn; `zero play` may do.")
    page = Page(
        title=world.name.removeprefix("pgx/").replace("_", " ").capitalize(),
        board=board,
        shape=board.shape,
        style=_STYLES.get(world.name, "squares"),
    )
    pieces = board.pieces
    if pieces is None:
        return dataclasses.replace(page, svg=board.render)
    return dataclasses.replace(
        page,
        shape=(pieces.rows, pieces.columns),
        names=pieces.names,
        cells=pieces.cells,
        places=pieces.places,
        glyphs=pieces.signs(board.sides),
        note=None if pieces.hand is None else pieces.in_hand,
    )
