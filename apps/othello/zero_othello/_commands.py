"""What is done with a trained player of Othello: `othello play|serve|watch|gtp`.

Over the Go Text Protocol boards are 8 by 8 and A1 is the upper left corner, unlike in Go. A pass is
legal only for a side without a move, and `final_score` counts discs.
"""

import dataclasses
import importlib.metadata
from collections.abc import Iterator
from typing import Any

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
    Trained,
)

from ._board import Board, Colour, SIZE
from ._config import Config


PAGE = Page("Othello", Board(), shape=(SIZE, SIZE))


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


@dataclasses.dataclass(frozen=True)
class Serve(AbstractServe):
    """Play against a trained player in the browser."""

    def services(self, app: App[Config]) -> list[Service]:
        trained = self.load(app)
        env: Any = trained.loop.env  # whose actions are discrete
        return [Service.of_search(env, trained.player, PAGE)]


@dataclasses.dataclass(frozen=True)
class Watch(AbstractWatch):
    """Watch a trained player play against itself."""

    def board(self, trained: Trained[Config]) -> Board:
        return Board()


@dataclasses.dataclass(frozen=True)
class Gtp(AbstractGameCommand):
    """Serve a trained player over the Go Text Protocol, version 2, on stdin and stdout."""

    def board(self, trained: Trained[Config]) -> Board:
        return Board()

    def __call__(self, app: App[Config]) -> None:
        start = self.start(self.load(app), 0)
        serve_gtp(start, "zero-othello", importlib.metadata.version("zero-othello"))


def episode(trained: Trained[Config], key: PRNGKeyArray) -> Iterator[Frame]:
    """The pictures of a game for the report."""
    return game_frames(trained, Board(), key)
