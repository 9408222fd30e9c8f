"""The commands of an app with a board: games with a trained player, and of one by itself."""

import dataclasses
import pathlib
from typing import Annotated, Any

import tyro
from rich.console import Console

from zero_train import AbstractActor

from .._command._config import Seconds, Seed
from .._command._errors import UsageError, warn
from .._run._app import App, Trained
from .._run._evaluation import num_players
from .._run._players import AbstractPlayerCommand
from ._game import AbstractBoard
from ._game_command import AbstractGameCommand
from ._gtp import serve_gtp
from ._play import Session
from ._serve import AbstractServe
from ._service import Service
from ._sgf import Sgf
from ._thinking import Thinker
from ._watch_game import AbstractWatch


@dataclasses.dataclass(frozen=True)
class AbstractTimedCommand(AbstractGameCommand):
    """A command that plays against somebody."""

    seconds: Seconds | None = None
    """Think for so many seconds per move, or less where more cannot change it; with --simulations
    for so many at most."""
    ponder: bool = False
    """Think in the opponent's time too."""

    def pace(self, player: AbstractActor) -> dict[str, Any]:
        """How long a player thinks, as [`zero_app.serve_gtp`][] is told."""
        _check_timed(player, self.seconds, self.ponder)
        return {"seconds": self.seconds, "most": self.simulations, "ponder": self.ponder}


@dataclasses.dataclass(frozen=True)
class Play(AbstractTimedCommand):
    """Play against a trained player in the terminal."""

    seat: Annotated[str, tyro.conf.arg(aliases=["--colour"])] = "first"
    """Your side: first or second, or by its name, such as black."""
    seed: Seed = 0
    """The seed of the game and of the player's search."""

    def __call__(self, app: App[Any]) -> None:
        trained = self.load(app)
        board = _board_of_two(self, app, trained)
        names = ("first", "second", *board.sides)
        if self.seat not in names:
            raise UsageError(f"--seat {self.seat} was given; give one of {', '.join(names)}.")
        if hasattr(trained.config, "env"):
            print(trained.config.env)
        start, first = self.start(trained, board, self.seed), self.seat in names[::2]
        pace = self.pace(start.actor)
        Session(start, Console(), first=first, seed=self.seed, **pace).run()


@dataclasses.dataclass(frozen=True)
class Serve(AbstractServe):
    """Play against a trained player in the browser."""

    seconds: Seconds | None = None
    """Offer a search of so many seconds per move, too."""

    def services(self, app: App[Any]) -> list[Service]:
        trained = self.load(app)
        page = _board_of_two(self, app, trained).page
        if page is None:
            raise UsageError(f"{_game(app, trained)} cannot be drawn; `{app.command} play` may do.")
        _check_timed(trained.player, self.seconds)
        env: Any = trained.loop.env  # whose actions are discrete
        return [Service.of_search(env, trained.player, page, self.seconds)]


@dataclasses.dataclass(frozen=True)
class Gtp(AbstractTimedCommand):
    """Serve a player of Go or Othello over the Go Text Protocol, version 2, on stdin and stdout.

    A clock of the controller takes the place of --seconds.
    """

    def __call__(self, app: App[Any]) -> None:
        trained = self.load(app)
        board = _board_of_two(self, app, trained)
        if not isinstance(board.record, Sgf):
            raise UsageError(
                f"GTP is for Go and Othello; `{app.command} play {self.run}` plays "
                f"{_game(app, trained)}."
            )
        start = self.start(trained, board, 0)
        serve_gtp(start, *app.program, **self.pace(start.actor))


@dataclasses.dataclass(frozen=True)
class Watch(AbstractWatch):
    """Watch a trained player alone, or against itself. Pictures that a terminal cannot show become
    numbered files in the folder `watch` of the run."""

    def board(self, app: App[Any], trained: Trained[Any]) -> AbstractBoard:
        return _board(app, trained, self.folder / "watch" / "{:04}.svg")


def _check_timed(player: AbstractActor, *given: object) -> None:
    """Refuses flags that would have no effect."""
    if any(given) and not Thinker(player).grows:
        raise UsageError(
            "--seconds and --ponder are for a search whose tree can go on growing. This player has "
            "none, as without simulations or over a learned model; leave them out."
        )


def _board_of_two(
    command: AbstractPlayerCommand, app: App[Any], trained: Trained[Any]
) -> AbstractBoard:
    """How the game of a player is shown that somebody may play against."""
    if num_players(trained.loop.env) != 2:
        raise UsageError(
            f"{_game(app, trained)} has one player; `{app.command} watch {command.run}` shows how "
            "it plays."
        )
    board = _board(app, trained, command.folder / "play.svg")
    if board.unsolved is not None:
        warn(board.unsolved)
    return board


def _board(app: App[Any], trained: Trained[Any], picture: pathlib.Path) -> AbstractBoard:
    if app.board is None:
        raise TypeError(f"App(name={app.name!r}) has GAME_COMMANDS and no `board`; give it one.")
    return app.board(trained, picture)


def _game(app: App[Any], trained: Trained[Any]) -> str:
    return getattr(trained.config, "env", app.name)
