"""Boards in the terminal, and what moves are called."""

import functools as ft
import pathlib
from typing import Any

from zero_train.app import AbstractBoard, Game

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
#: Games of chess, and the rows of their boards.
_CHESS = {"pgx/chess": 8, "pgx/gardner_chess": 5}
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


class Board(AbstractBoard):
    """How the states of an environment are shown, and its moves called: by a cell such as b3, a
    column, two squares such as e2e4, or a number.

    **Attributes:**

    - `shape`: rows and columns of a board of stones, `None` for others.
    """

    sides = ("X", "O")

    def __init__(self, world: World, picture: pathlib.Path):
        """**Arguments:**

        - `world`: the environment.
        - `picture`: the file, or a pattern for the number of the move, that pictures are drawn into
            where there is no board for a terminal.
        """
        env: Any = world.env
        self._env, self._picture = env, picture
        self._hex = world.name == "pgx/hex"
        self.shape = _STONES.get(world.name)
        # A move is the column that a stone falls into.
        self._falls = self.shape is not None and env.num_actions == self.shape[1]
        chess = _CHESS.get(world.name)
        # By whether whoever moves first makes them.
        self._names = {
            first: [self._named(action, chess, first) for action in range(env.num_actions)]
            for first in (True, False)
        }
        self._actions = {
            first: {name: action for action, name in enumerate(names)}
            for first, names in self._names.items()
        }
        self.example = "a2a3" if chess else self._names[True][0]
        self.about = "play that move"

    def _named(self, action: int, chess: int | None, first: bool) -> str:
        if chess is not None:
            return _chess_move(action, chess, first)
        if self.shape is None:
            return str(action)
        rows, columns = self.shape
        if self._falls:
            return str(action + 1)
        if action < rows * columns:
            return f"{_LETTERS[action % columns]}{action // columns + 1}"
        return "swap" if self._hex else "pass"

    def name(self, action: int, first: bool = True) -> str:
        return self._names[first][action]

    def action(self, name: str, first: bool = True) -> int:
        action = self._actions[first].get(name.lower())
        if action is None:
            raise ValueError(f'"{name}" is no move here; "moves" lists the legal ones')
        return action

    def draw(self, game: Game, *, plain: bool) -> str:
        if self.shape is not None:
            return self._stones(game, *self.shape)
        if not hasattr(self._env, "render"):
            return "This environment cannot be drawn."
        path = self._picture.with_name(self._picture.name.format(game.num_plies))
        path.parent.mkdir(exist_ok=True)
        path.write_text(self._env.render(game.state))
        return f"The board is drawn in {path}."

    def result(self, game: Game) -> str:
        return "X wins" if game.total > 0 else "O wins" if game.total < 0 else "draw"

    def _stones(self, game: Game, rows: int, columns: int) -> str:
        """The board in lines, X for whoever moved first."""
        mine, theirs = self.sides if game.num_plies % 2 == 0 else self.sides[::-1]
        head = [str(i + 1) if self._falls else _LETTERS[i] for i in range(columns)]
        lines = ["   " + " ".join(head)]
        for row, cells in enumerate(game.features[..., :2].astype(bool)):
            signs = [mine if own else theirs if other else "." for own, other in cells]
            indent = " " * row if self._hex else ""
            number = "  " if self._falls else f"{row + 1:2}"
            lines.append(f"{indent}{number} {' '.join(signs)}")
        return "\n".join(lines)


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
