"""The commands of an app with a board: games with a trained player, and of one by itself."""

import abc
import dataclasses
import pathlib
import secrets
import socket
from collections.abc import Sequence
from typing import Annotated, Any

import jax.random as jr
import tyro
from annotated_types import Interval
from rich.console import Console

from zero_train import AbstractActor

from .._command._config import Count, Delay, Seconds, Seed, Simulations
from .._command._errors import UsageError, warn
from .._run._app import App, Trained
from .._run._evaluation import MOST_MOVES, num_players, with_simulations
from .._run._film import check_path
from .._run._players import AbstractPlayerCommand
from ._game import AbstractBoard, Game
from ._gtp import serve_gtp
from ._play import Session
from ._service import Question, Service
from ._sgf import Sgf
from ._thinking import Thinker
from ._watch import screen
from ._watch_game import Scene, scenes


@dataclasses.dataclass(frozen=True)
class AbstractGameCommand(AbstractPlayerCommand):
    """A command that plays a game with a trained player, move by move."""

    simulations: Simulations | None = None
    """Simulations per move, 0 for the network without a search; by default those of the run's
    configuration."""

    def start(self, trained: Trained[Any], board: AbstractBoard, seed: int) -> Game:
        """A new game, in which the player has so many simulations."""
        actor = with_simulations(trained.player, self.simulations)
        return Game.start(trained.loop.env, actor, board, key=jr.key(seed))


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
class AbstractServe(AbstractPlayerCommand):
    """The command `serve` of an app, which says how its game is shown.

    Bound to another address than the machine's own it demands a token, which is a part of the
    address that it prints. Needs the extra `serve` of zero-app.
    """

    host: str = "127.0.0.1"
    """The address to listen at: by default this machine alone; 0.0.0.0 for the network,
    :: for IPv6 too."""
    port: Annotated[int, Interval(ge=0, le=65535)] = 8000
    """The port to listen at; 0 for any that is free."""

    @abc.abstractmethod
    def services(self, app: App[Any]) -> Sequence[Service]:
        """The games that are served, the usual one first.

        **Raises:** [`zero_app.UsageError`][] where there are none, or they cannot be drawn.
        """

    def __call__(self, app: App[Any]) -> None:
        try:
            from ._http import addresses, application, is_loopback, server
        except ModuleNotFoundError as e:
            raise UsageError(f"serve needs {e.name}: install zero-app[serve].") from e
        services = self.services(app)
        with self._listening() as listening:
            port = listening.getsockname()[1]
            token = None if is_loopback(self.host) else secrets.token_urlsafe(16)
            print("Compiling the rules ...", flush=True)
            usual = services[0]
            first = next(iter(usual.answer(Question())["legal"]))
            usual.answer(Question((first,)))
            shown = " or ".join(addresses(self.host, port, token))
            print(f"{usual.page.title}: open {shown} (Ctrl-C stops it)", flush=True)
            server(application(services, self.host, port, token)).run(sockets=[listening])

    def _listening(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        try:
            self.host.encode(
                "idna"
            )  # `create_server` would raise a `TypeError` and leak its socket
            # `::` is for IPv4 too, which the machine's name may lead to.
            both = self.host == "::" and socket.has_dualstack_ipv6()
            return socket.create_server((self.host, self.port), family=family, dualstack_ipv6=both)
        except (OSError, UnicodeError) as e:
            # Python appends the address.
            why = str(getattr(e, "strerror", e)).partition(" (while attempting")[0]
            raise UsageError(
                f"cannot listen at --host {self.host} --port {self.port} ({why}); give another, or "
                "--port 0 for any free one."
            ) from e


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
class Watch(AbstractGameCommand):
    """Watch a trained player alone, or against itself.

    In a terminal the board is updated in place. Elsewhere the boards are printed one after another.
    Where actions are no single numbers there is no board, and each step is a line. Of a player that
    learned a model, what it had expected of each move is shown too. Pictures that a terminal cannot
    show become numbered files in the folder `watch` of the run.
    """

    max_moves: Count = MOST_MOVES
    """Moves after which the game is cut off."""
    delay: Delay = 0.5
    """Seconds between two moves."""
    seed: Seed = 0
    """The seed of the game and of the player's search."""
    save: pathlib.Path | None = None
    """Write the pictures into this file, which ends with .gif or .html, and show none."""

    def __call__(self, app: App[Any]) -> None:
        check_path(self.save)
        trained, console = self.load(app), Console(highlight=False)
        actor = with_simulations(trained.player, self.simulations)
        board = lambda: _board(app, trained, self.folder / "watch" / "{:04}.svg")
        shown = scenes(trained.loop.env, actor, board, self.max_moves, key=jr.key(self.seed))
        seconds = lambda scene: self.delay * (4 if scene.over else 1)
        frame = lambda scene: scene.frame(seconds(scene))
        with screen(console, Scene.draw, seconds, save=self.save, frame=frame) as show:
            for scene in shown:
                show(scene)


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
