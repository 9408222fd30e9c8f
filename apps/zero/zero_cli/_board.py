"""Boards in the terminal, and what moves are called."""

import math
import pathlib
import string
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.ndimage
from jaxtyping import PRNGKeyArray

from zero_app import (
    AbstractBoard,
    AbstractCommand,
    App,
    Frame,
    Game,
    game_frames,
    Page,
    Sgf,
    Trained,
    write_whole,
)

from ._config import Config
from ._pgn import Pgn
from ._pieces import PIECES
from ._worlds import build_world, World


class _Look(NamedTuple):
    """What is known of how a game is shown.

    **Attributes:**

    - `sides`: whoever moves first, and the other one.
    - `style`: how the cells of its board look.
    - `stones`: rows and columns of a board of stones, where the first two planes are those of the
        player to move and those of the opponent, who take turns.
    - `example`: a move that opens the game, where its first action does not.
    """

    sides: tuple[str, str] = ("first", "second")
    style: Any = "squares"
    stones: tuple[int, int] | None = None
    example: str | None = None


_LOOKS = {
    "pgx/tic_tac_toe": _Look(("X", "O"), stones=(3, 3)),
    "pgx/connect_four": _Look(("red", "yellow"), "holes", (6, 7)),
    "pgx/hex": _Look(("red", "blue"), "hexagons", (11, 11)),
    "pgx/go_9x9": _Look(("black", "white"), "points", (9, 9)),
    "pgx/go_19x19": _Look(("black", "white"), "points", (19, 19)),
    "pgx/chess": _Look(("white", "black"), "pieces", example="a2a3"),
    "pgx/gardner_chess": _Look(("white", "black"), "pieces", example="a2a3"),
    "pgx/shogi": _Look(("black", "white"), "wood", example="7fu"),
    "pgx/animal_shogi": _Look(("black", "white"), "wood", example="2c2b"),
    "pgx/backgammon": _Look(example="24-3"),
}
_SIGNS = ("X", "O")
_LETTERS = string.ascii_lowercase
#: Columns of Go, of which none is called i.
_GO_LETTERS = _LETTERS.replace("i", "")


class Board(AbstractBoard):
    """How the states of an environment are shown, and its moves called: by a cell such as b3, a
    column, two squares such as e2e4, a point and a die, or a number. Cells of Go are called as its
    books do: a1 is the lower left one, and no column is called i."""

    about = "play that move"

    def __init__(self, world: World, picture: pathlib.Path = pathlib.Path("board.svg")):
        """Where there is no board for a terminal, pictures are drawn into the file `picture`, or
        into one for each move, whose number its name is a pattern for."""
        env: Any = world.env
        look = _LOOKS.get(world.name, _Look())
        self.sides, self.chance = look.sides, world.name == "pgx/backgammon"
        self._render, self._picture = getattr(env, "render", None), picture
        self._pieces, self._shape = PIECES.get(world.name), look.stones
        self._hex, self._go = look.style == "hexagons", look.style == "points"
        # A move is the column that a stone falls into.
        self._falls = look.style == "holes"
        if look.stones is not None and self._go:
            self.record = Sgf(look.stones[0], 1, _area_margin, env.game._game.komi)
        if self._pieces is not None and world.name == "pgx/chess":
            self.record = Pgn(self._pieces)
        # By whether whoever moves first makes them; continuous ones have no names.
        num_actions = getattr(env, "num_actions", 0)
        self._actions = {
            first: {self.name(action, first): action for action in range(num_actions)}
            for first in (True, False)
        }
        self.example = look.example or self.name(0)
        title = world.name.removeprefix("pgx/").replace("_", " ").capitalize()
        if self._pieces is not None:
            self.page = self._pieces.page(title, self, look.style)
        elif self._shape is not None:
            self.page = Page(title, self, shape=self._shape, style=look.style)
        elif self._render is not None:
            self.page = Page(title, self, svg=self._render)

    def name(self, action: int, first: bool = True) -> str:
        if self._pieces is not None:
            return self._pieces.name(action, first)
        if self.chance:
            return _backgammon_move(action)
        if self._shape is None:
            return str(action)
        rows, columns = self._shape
        if self._falls:
            return str(action + 1)
        row, column = divmod(action, columns)
        if row == rows:
            return "swap" if self._hex else "pass"
        return f"{_GO_LETTERS[column]}{rows - row}" if self._go else f"{_LETTERS[column]}{row + 1}"

    def action(self, name: str, first: bool = True) -> int:
        action = self._actions[first].get(name.lower())
        if action is None:
            raise ValueError(f'"{name}" is no move here; "moves" lists the legal ones')
        return action

    def draw(self, game: Game, *, plain: bool) -> str:
        if self._shape is not None:
            return self._stones(game, *self._shape)
        if self._pieces is not None:
            return self._pieces.draw(game)
        if self.chance:
            return _backgammon(game)
        if self._render is None:
            return "This environment cannot be drawn."
        path = self._picture.with_name(self._picture.name.format(game.num_plies))
        path.parent.mkdir(exist_ok=True)
        write_whole(path, self._render(game.state))
        return f"The board is drawn in {path}."

    def result(self, game: Game) -> str:
        if isinstance(self.record, Sgf):
            return self.record.result(game)
        return "draw" if game.total == 0 else f"{self.sides[0 if game.total > 0 else 1]} wins"

    def _stones(self, game: Game, rows: int, columns: int) -> str:
        """The board in lines, X for whoever moved first, and which signs are whose."""
        signs = {0: ".", 1: _SIGNS[0], -1: _SIGNS[1]}
        letters = _GO_LETTERS if self._go else _LETTERS
        head = [str(i + 1) if self._falls else letters[i] for i in range(columns)]
        lines = ["   " + " ".join(head)]
        for row, stones in enumerate(game.stones.tolist()):
            indent = " " * row if self._hex else ""
            number = "  " if self._falls else f"{rows - row if self._go else row + 1:2}"
            lines.append(f"{indent}{number} {' '.join(signs[stone] for stone in stones)}")
        if self.sides != _SIGNS:
            lines.append(f"   {_legend(self.sides)}")
        return "\n".join(lines)


def _backgammon_move(action: int) -> str:
    """The point that a checker leaves, counted down to 1 as its side sees them, and the number of
    the die: `24-3`, `bar-3`; `none-1` where no checker can move."""
    start, die = divmod(action, 6)
    return f"{('none', 'bar')[start] if start < 2 else 26 - start}-{die + 1}"


def _backgammon(game: Game) -> str:
    """The points with the checkers on them, X of whoever moved first, numbered as the side to move
    counts them; then the checkers off the points, and the dice that can be played."""
    board, dice = np.split(game.features, [28])
    mine, theirs = _SIGNS if game.first_moves else _SIGNS[::-1]
    shown = [f"{mine if n > 0 else theirs}{abs(n)}" if n else "." for n in board.tolist()]
    halves = [*range(11, -1, -1)], [*range(12, 24)]  # points 13 to 24, and 12 to 1
    line = lambda entries: " ".join(str(entry).rjust(3) for entry in entries)
    bar, off = ([f"{mine} {abs(a)}", f"{theirs} {abs(b)}"] for a, b in board[24:].reshape(2, 2))
    left = " ".join(str(i + 1) for i, number in enumerate(dice) for _ in range(int(number)))
    lines = [
        line(of) for half in halves for of in ([24 - i for i in half], [shown[i] for i in half])
    ]
    lines.append(f"bar: {', '.join(bar)}; off: {', '.join(off)}; dice: {left or 'none'}")
    return "\n".join([*lines, _legend(game.board.sides)])


def _legend(sides: tuple[str, str]) -> str:
    """Which signs are whose."""
    return "   ".join(f"{sign} {side}" for sign, side in zip(_SIGNS, sides, strict=True))


def _area_margin(game: Game) -> float:
    """Black's stones and the empty points that they alone surround, as Tromp and Taylor count them,
    minus those of white. Who repeats a position has lost without counting."""
    position: Any = game.state.position
    if game.over and position._x.is_psk:
        return math.copysign(math.inf, game.total)
    stones = game.stones
    black, white = stones > 0, stones < 0
    labelled: Any = scipy.ndimage.label(stones == 0)
    regions, number = labelled
    margin = float(stones.sum())
    for region in range(1, number + 1):
        inside = regions == region
        edge = scipy.ndimage.binary_dilation(inside) & ~inside
        margin += inside.sum() * (int((edge & black).any()) - int((edge & white).any()))
    return float(margin)


def board_of(trained: Trained[Config], picture: pathlib.Path = pathlib.Path("board.svg")) -> Board:
    """How the game of a player is shown."""
    return Board(build_world(trained.config.env), picture)


def episode(trained: Trained[Config], key: PRNGKeyArray) -> Iterator[Frame]:
    """The pictures of an episode for the report."""
    return game_frames(trained, board_of(trained), key)


def commands_of(app: App, world: World) -> dict[str, type[AbstractCommand]]:
    """The commands of `zero` that a game has: against a person where two play, in the browser where
    it can be drawn, and GTP where it is Go."""
    has = {"play": False, "serve": False, "gtp": False}
    if world.players == 2:
        board = Board(world)
        has = {"serve": board.page is not None, "gtp": isinstance(board.record, Sgf)}
    return {name: kind for name, kind in app.commands.items() if has.get(name, True)}
