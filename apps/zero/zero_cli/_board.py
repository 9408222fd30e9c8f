"""Boards in the terminal, and what moves are called."""

import math
import pathlib
import string
from typing import Any

import numpy as np
import scipy.ndimage

from zero_app import AbstractBoard, Game, Sgf, write_whole

from ._pgn import Pgn
from ._pieces import PIECES
from ._worlds import World


#: Games whose first two planes are the stones of the player to move and those of the opponent, who
#: take turns.
_STONES = {
    "pgx/tic_tac_toe": (3, 3),
    "pgx/connect_four": (6, 7),
    "pgx/hex": (11, 11),
    "pgx/go_9x9": (9, 9),
    "pgx/go_19x19": (19, 19),
}
#: What the sides are called: whoever moves first, and the other one.
_SIDES = {
    "pgx/tic_tac_toe": ("X", "O"),
    "pgx/connect_four": ("red", "yellow"),
    "pgx/hex": ("red", "blue"),
    **dict.fromkeys(("pgx/go_9x9", "pgx/go_19x19"), ("black", "white")),
    **dict.fromkeys(("pgx/chess", "pgx/gardner_chess"), ("white", "black")),
    **dict.fromkeys(("pgx/shogi", "pgx/animal_shogi"), ("black", "white")),
}
#: Moves that open games whose first action does not.
_EXAMPLES = {
    "pgx/chess": "a2a3",
    "pgx/gardner_chess": "a2a3",
    "pgx/shogi": "7fu",
    "pgx/animal_shogi": "2c2b",
    "pgx/backgammon": "24-3",
}
_SIGNS = ("X", "O")
_LETTERS = string.ascii_lowercase
#: Columns of Go, of which none is called i.
_GO_LETTERS = _LETTERS.replace("i", "")


class Board(AbstractBoard):
    """How the states of an environment are shown, and its moves called: by a cell such as b3, a
    column, two squares such as e2e4, a point and a die, or a number. Cells of Go are called as its
    books do: a1 is the lower left one, and no column is called i.

    **Attributes:**

    - `shape`: rows and columns of a board of stones, `None` for others.
    - `pieces`: how the board of a game of pieces is shown, `None` for others.
    - `render`: draws a state as an SVG, where the environment can, else `None`.
    - `drawn`: whether a page can show it.
    """

    def __init__(self, world: World, picture: pathlib.Path):
        """**Arguments:**

        - `world`: the environment.
        - `picture`: the file, or a pattern for the number of the move, that pictures are drawn into
            where there is no board for a terminal.
        """
        env: Any = world.env
        self.render, self._picture = getattr(env, "render", None), picture
        self.sides = _SIDES.get(world.name, ("first", "second"))
        self._hex = world.name == "pgx/hex"
        self._go = world.name.startswith("pgx/go_")
        self.chance = world.name == "pgx/backgammon"
        self.pieces = PIECES.get(world.name)
        self.shape = _STONES.get(world.name)
        self.drawn = not (self.pieces is self.shape is self.render is None)
        # A move is the column that a stone falls into.
        self._falls = self.shape is not None and env.num_actions == self.shape[1]
        if self._go and self.shape is not None:
            self.record = Sgf(self.shape[0], 1, _area_margin, env.game._game.komi)
        if world.name == "pgx/chess" and self.pieces is not None:
            self.record = Pgn(self.pieces)
        # By whether whoever moves first makes them.
        self._actions = {
            first: {self.name(action, first): action for action in range(env.num_actions)}
            for first in (True, False)
        }
        self.example = _EXAMPLES.get(world.name, self.name(0))
        self.about = "play that move"

    def name(self, action: int, first: bool = True) -> str:
        if self.pieces is not None:
            return self.pieces.name(action, first)
        if self.chance:
            return _backgammon_move(action)
        if self.shape is None:
            return str(action)
        rows, columns = self.shape
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
        if self.shape is not None:
            return self._stones(game, *self.shape)
        if self.pieces is not None:
            return self.pieces.draw(game)
        if self.chance:
            return _backgammon(game)
        if self.render is None:
            return "This environment cannot be drawn."
        path = self._picture.with_name(self._picture.name.format(game.num_plies))
        path.parent.mkdir(exist_ok=True)
        write_whole(path, self.render(game.state))
        return f"The board is drawn in {path}."

    def result(self, game: Game) -> str:
        lead = self.record.lead(game) if isinstance(self.record, Sgf) else game.total
        if lead == 0:
            return "draw"
        counted = isinstance(self.record, Sgf) and math.isfinite(lead)
        return f"{self.sides[0 if lead > 0 else 1]} wins{f' by {abs(lead):g}' * counted}"

    def _stones(self, game: Game, rows: int, columns: int) -> str:
        """The board in lines, X for whoever moved first, and which signs are whose."""
        mine, theirs = _SIGNS if game.num_plies % 2 == 0 else _SIGNS[::-1]
        letters = _GO_LETTERS if self._go else _LETTERS
        head = [str(i + 1) if self._falls else letters[i] for i in range(columns)]
        lines = ["   " + " ".join(head)]
        for row, cells in enumerate(game.features[..., :2].astype(bool)):
            signs = [mine if own else theirs if other else "." for own, other in cells]
            indent = " " * row if self._hex else ""
            number = "  " if self._falls else f"{rows - row if self._go else row + 1:2}"
            lines.append(f"{indent}{number} {' '.join(signs)}")
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
    planes = game.features[..., :2].astype(bool)
    black, white = (planes[..., (i + game.num_plies) % 2] for i in range(2))
    labelled: Any = scipy.ndimage.label(~(black | white))
    regions, number = labelled
    margin = float(black.sum()) - float(white.sum())
    for region in range(1, number + 1):
        inside = regions == region
        edge = scipy.ndimage.binary_dilation(inside) & ~inside
        margin += inside.sum() * (int((edge & black).any()) - int((edge & white).any()))
    return float(margin)
