"""Boards in the terminal, and what moves are called."""

import dataclasses
import functools as ft
from typing import Any

import numpy as np

from ._worlds import World


#: Games whose first two planes are the stones of the player to move and those of the opponent.
_STONES = {
    "pgx/tic_tac_toe": (3, 3),
    "pgx/connect_four": (6, 7),
    "pgx/hex": (11, 11),
    "pgx/go_9x9": (9, 9),
    "pgx/go_19x19": (19, 19),
}
#: Games of chess, and the rows of their boards.
_CHESS = {"pgx/chess": 8, "pgx/gardner_chess": 5}
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclasses.dataclass(frozen=True)
class Board:
    """How the states of an environment are shown, and its moves called.

    **Attributes:**

    - `world`: the environment.
    - `shape`: rows and columns of a board of stones, or `None`.
    """

    world: World
    shape: tuple[int, int] | None

    @classmethod
    def of(cls, world: World) -> "Board":
        """The board of an environment."""
        return cls(world, _STONES.get(world.name))

    @property
    def num_actions(self) -> int:
        env: Any = self.world.env
        return env.num_actions

    def name(self, action: int, first_moves: bool = True) -> str:
        """What a move is called: a cell such as b3, a column, two squares such as e2e4, or a
        number. In chess that depends on whether whoever moved first makes it."""
        if self.world.name in _CHESS:
            return _chess_move(action, _CHESS[self.world.name], first_moves)
        if self.shape is None:
            return str(action)
        rows, columns = self.shape
        if self.num_actions == columns:
            return str(action + 1)
        if action < rows * columns:
            return f"{_LETTERS[action % columns]}{action // columns + 1}"
        return "swap" if self.world.name == "pgx/hex" else "pass"

    def action(self, name: str, first_moves: bool = True) -> int | None:
        """The move of this name, or `None`."""
        names = {self.name(action, first_moves): action for action in range(self.num_actions)}
        return names.get(name.strip().lower())

    def text(self, features: Any, first_moves: bool) -> str | None:
        """The board in lines, X for whoever moved first; `None` where there is only a picture."""
        if self.shape is None:
            return None
        x = np.asarray(features)
        mine, theirs = ("X", "O") if first_moves else ("O", "X")
        rows, columns = self.shape
        head = [str(i + 1) if self.num_actions == columns else _LETTERS[i] for i in range(columns)]
        lines = ["   " + " ".join(head)]
        for row in range(rows):
            cells = [
                mine if x[row, column, 0] else theirs if x[row, column, 1] else "."
                for column in range(columns)
            ]
            indent = " " * row if self.world.name == "pgx/hex" else ""
            number = "  " if self.num_actions == columns else f"{row + 1:2}"
            lines.append(f"{indent}{number} {' '.join(cells)}")
        return "\n".join(lines)

    def svg(self, state: Any) -> str | None:
        """A picture of a state, where the environment can draw one."""
        env: Any = self.world.env
        return env.render(state) if hasattr(env, "render") else None


def _chess_move(action: int, size: int, white: bool) -> str:
    """The squares of a move such as e2e4, with the piece of an underpromotion. pgx numbers squares
    column by column from the mover's side, and from each has 9 underpromotions, the queen's moves
    and the knight's. Moves that leave the board have a number only."""
    square, plane = divmod(action, 8 * (size - 1) + 17)
    if plane < 9:
        rows, columns, piece = 1, (0, 1, -1)[plane % 3], "rbn"[plane // 3]
    else:
        (rows, columns), piece = _chess_steps(size)[plane - 9], ""
    column, row = divmod(square, size)
    to_column, to_row = column + columns, row + rows
    if not (0 <= to_column < size and 0 <= to_row < size) or (piece and row != size - 2):
        return str(action)
    if not white:
        row, to_row = size - 1 - row, size - 1 - to_row
    return f"{_LETTERS[column]}{row + 1}{_LETTERS[to_column]}{to_row + 1}{piece}"


@ft.cache
def _chess_steps(size: int) -> list[tuple[int, int]]:
    """Rows and columns of the queen's and the knight's moves, as pgx numbers them."""
    ups, downs = list(range(1, size)), list(range(1 - size, 0))
    still = [0] * (size - 1)
    rows = [*downs, *ups, *still, *still, *downs, *ups, *ups[::-1], *downs[::-1]]
    columns = [*still, *still, *downs, *ups, *downs, *ups, *downs, *ups]
    knight = [(-1, -2), (1, -2), (-2, -1), (2, -1), (-1, 2), (1, 2), (-2, 1), (2, 1)]
    return [*zip(rows, columns, strict=True), *knight]
