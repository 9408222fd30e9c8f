"""Boards in the terminal, and what moves are called."""

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
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


class Board(AbstractBoard):
    """How the states of an environment are shown, and its moves called."""

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
        self._shape = _STONES.get(world.name)
        # A move is the column that a stone falls into.
        self._falls = self._shape is not None and env.num_actions == self._shape[1]
        self._names = [self._named(action) for action in range(env.num_actions)]
        self.example, self.about = self._names[0], "play that move"

    def _named(self, action: int) -> str:
        if self._shape is None:
            return str(action)
        rows, columns = self._shape
        if self._falls:
            return str(action + 1)
        if action < rows * columns:
            return f"{_LETTERS[action % columns]}{action // columns + 1}"
        return "swap" if self._hex else "pass"

    def name(self, action: int) -> str:
        return self._names[action]

    def action(self, name: str) -> int:
        if name.lower() not in self._names:
            raise ValueError(f'"{name}" is no move here; "moves" lists the legal ones')
        return self._names.index(name.lower())

    def draw(self, game: Game, *, plain: bool) -> str:
        if self._shape is not None:
            return self._stones(game, *self._shape)
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
