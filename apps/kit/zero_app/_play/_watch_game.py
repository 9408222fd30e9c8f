"""A trained player of a game with a board, alone or against itself."""

import abc
import dataclasses
import pathlib
from collections.abc import Iterator
from typing import Any

from jaxtyping import PRNGKeyArray
from rich.console import Console, Group, RenderableType

from zero_envs import AbstractEnvironment

from .._command._config import Count, Delay, Seed
from .._run._app import App, Trained
from .._run._evaluation import MOST_MOVES, num_players
from .._run._film import check_path, drawn, Frame, scalable
from ._game import AbstractBoard, Game
from ._game_command import AbstractGameCommand
from ._watch import is_plain, screen


@dataclasses.dataclass(frozen=True)
class AbstractWatch(AbstractGameCommand):
    """The command `watch` of an app, which says how its game is shown.

    In a terminal the board is updated in place. Elsewhere the boards are printed one after another.
    """

    max_moves: Count = MOST_MOVES
    """Moves after which the game is cut off."""
    delay: Delay = 0.5
    """Seconds between two moves."""
    seed: Seed = 0
    """The seed of the game and of the player's search."""
    save: pathlib.Path | None = None
    """Write the pictures into this file, which ends with .gif or .html, and show none."""

    @abc.abstractmethod
    def board(self, app: App[Any], trained: Trained[Any]) -> AbstractBoard:
        """How the game of a player is shown."""

    def __call__(self, app: App[Any]) -> None:
        check_path(self.save)
        trained, console = self.load(app), Console(highlight=False)
        env, start = trained.loop.env, self.start(trained, self.board(app, trained), self.seed)

        def frame(moment: _Moment) -> Frame:
            return moment.frame(env, seconds(moment))

        seconds = lambda moment: self.delay * (4 if moment.game.over else 1)
        with screen(console, _Moment.draw, seconds, save=self.save, frame=frame) as show:
            for moment in _moments(env, start, self.max_moves):
                show(moment)


@dataclasses.dataclass(frozen=True, eq=False)
class _Moment:
    """A position, and what led to it."""

    game: Game
    said: str

    def draw(self, console: Console) -> RenderableType:
        board = self.game.board.draw(self.game, plain=is_plain(console))
        return Group(board, f"   {self.said}\n")

    def frame(self, env: Any, seconds: float) -> Frame:
        """The picture that the environment renders, or else the board."""
        render = getattr(env, "render", None)
        board = self.game.board
        if render is None:
            svg = drawn(lambda console: board.draw(self.game, plain=is_plain(console)))
        else:
            svg = scalable(render(self.game.state))
        return Frame(svg, self.said, seconds)


def _moments(env: AbstractEnvironment, game: Game, most: int) -> Iterator[_Moment]:
    """The positions of a game in which the player moves for all sides, up to so many moves."""
    alone = num_players(env) == 1
    yield _Moment(game, "the start")
    while not game.over and game.num_plies < most:
        plan = game.plan
        action, side = int(plan.action), "" if alone else f"{game.mover} "
        value = round(float(plan.value), 2) + 0.0  # no -0.00
        said = f"{game.num_plies + 1}. {side}{game.name(action)}, value {value:+z.2f}"
        game = game.play(action)
        if game.over:
            said += f"; return {game.total:g}" if alone else f"; {game.board.result(game)}"
        yield _Moment(game, said)


def game_frames(trained: Trained[Any], board: AbstractBoard, key: PRNGKeyArray) -> Iterator[Frame]:
    """The pictures of a game that a player plays alone, or against itself: the `episode` of an
    [`zero_app.App`][] with a board."""
    env = trained.loop.env
    start = Game.start(env, trained.player, board, key=key)
    for moment in _moments(env, start, MOST_MOVES):
        yield moment.frame(env, 0.5)
