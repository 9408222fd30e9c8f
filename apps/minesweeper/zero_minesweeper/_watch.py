"""`minesweeper watch`: shows the play of an agent in the terminal."""

import dataclasses
import functools as ft
import pathlib
from collections.abc import Iterator
from typing import Annotated

import jax.random as jr
import tyro
from annotated_types import Interval
from jaxtyping import PRNGKeyArray
from rich.console import Console, Group, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from zero_app import (
    AbstractPlayerCommand,
    App,
    check_path,
    Delay,
    drawn,
    Frame,
    is_plain,
    screen,
    Seed,
    Trained,
)
from zero_train import AbstractActor

from ._build import build_env
from ._config import Config
from ._game import Advice, ending, Game, luck, outcome, reasons
from ._scene import draw, legend, Picture, width_of
from ._table import Table, TableArguments


_PANEL = 42  # columns of the text beside the board
# What is shown: a title and a game, before a move or, without advice, at its end.
_Moment = tuple[str, Game, Advice | None]


@dataclasses.dataclass(frozen=True)
class Watch(AbstractPlayerCommand):
    """Watch an agent play, with the probability of a mine in each cell.

    In a terminal the picture is updated in place. Otherwise guesses and ends are printed one after
    another, as plain text and without delay.
    """

    agent: str = "belief"
    """As for eval."""
    boards: Annotated[int, Interval(ge=1, le=10**8)] = 5
    """The number of boards: the first ones that eval plays with this seed."""
    delay: Delay = 1.0
    """Seconds for which a guess is shown; safe moves are shown for a fifth of it."""
    seed: Seed = 0
    """The seed of the boards and of the agents. The randomness of belief trees depends on the board
    only."""
    save: pathlib.Path | None = None
    """Write the pictures into this file, which ends with .gif or .html, and show none."""
    table: tyro.conf.OmitArgPrefixes[TableArguments] = TableArguments()

    def __call__(self, app: App[Config]) -> None:
        check_path(self.save)
        self.look_on(self.table.at(app, self, [self.agent]), Console(highlight=False))

    def look_on(self, table: Table, console: Console) -> None:
        actor, won = table.agent(self.agent), 0
        about = f"{table.about(self.agent)}, seed {self.seed}"
        console.print(about, soft_wrap=True, markup=False)
        console.print("Compiling, which takes a while the first time ...\n")
        seconds = lambda moment: _seconds(moment, self.delay)
        write = lambda moment: _write(console, moment)
        with screen(console, _scene, seconds, write, save=self.save) as show:
            for number in range(self.boards):
                game = Game(table.env, number, key=jr.key(self.seed))
                title = f"board {number + 1} of {self.boards}"
                for moment in _moments(title, game, actor):
                    show(moment)
                won += game.won
                said = "; ".join([f"{title}: {outcome(game)}", *luck(game)])
                console.print(said, soft_wrap=True, markup=False)
        console.print(f"{won} of {self.boards} won")


def episode(trained: Trained[Config], key: PRNGKeyArray) -> Iterator[Frame]:
    """The pictures of a game for the report."""
    table = Table(build_env(trained.config), trained.config, trained)
    game = Game(table.env, 0, key=key)
    for moment in _moments("board", game, table.agent("belief")):
        picture = drawn(ft.partial(_scene, moment), columns=_PANEL)
        yield Frame(picture, "" if moment[2] else str(outcome(game)))


def _moments(title: str, game: Game, actor: AbstractActor) -> Iterator[_Moment]:
    """A moment for each move of a game, and one for its end."""
    while not game.over:
        advice = game.ask(actor)
        yield title, game, advice
        game.open(advice.cell)
    yield title, game, None


def _seconds(moment: _Moment, delay: float) -> float:
    """How long a move or an end is shown in a terminal."""
    _, game, advice = moment
    if advice is None:
        return 2 * delay
    return delay / 5 if game.heat.flat[advice.cell] == 0 else delay


def _write(console: Console, moment: _Moment) -> None:
    """Prints a guess or an end as plain text; safe moves are left out."""
    title, game, advice = moment
    if advice is not None and game.heat.flat[advice.cell] == 0:
        return
    picture = _picture(game, advice)
    board = draw(picture, width=console.width, plain=True)
    if advice is None:
        lines = [Text(f"{title}, the end"), board, Text(legend(picture))]
    else:
        first, *rest = _said(title, game, advice)
        lines = [first, board, *rest]
    for line in (Text(), *lines):
        console.print(line, soft_wrap=True)


def _scene(moment: _Moment, console: Console) -> RenderableType:
    """The board, and the text beside it or, in a narrow terminal, below."""
    (title, game, advice), plain = moment, is_plain(console)
    width, height = console.size
    picture, said = _picture(game, advice), _said(title, game, advice)
    rows, columns = game.board.shape
    wide = 4 if plain else 3
    beside = width - _PANEL - 2
    fits = width_of(columns, rows, wide) <= beside
    # If the picture would be cut off below, narrower cells leave room for the text beside.
    if fits or (rows + len(said) + 3 > height and width_of(columns, rows, 1) <= beside):
        grid = Grid.grid(padding=(0, 2))
        grid.add_row(draw(picture, width=beside, plain=plain), Group(*said))
        return grid
    board = draw(picture, width=width, plain=plain)
    room = max(2, height - 1 - len(board.plain.splitlines()))
    return Group(board, *said[:room])


def _picture(game: Game, advice: Advice | None) -> Picture:
    if advice is None:
        return Picture(game.board, last=game.last, mines=game.mines)
    return Picture(game.board, game.heat, mark=advice.cell, last=game.last)


def _said(title: str, game: Game, advice: Advice | None) -> list[Text]:
    first = Text(f"{title}, move {game.moves + (advice is not None)}", "bold")
    return [first, *(ending(game) if advice is None else reasons(game, advice))]
