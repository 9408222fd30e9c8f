"""Boards in the terminal, and what moves are called."""

import dataclasses
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

    def name(self, action: int) -> str:
        """What a move is called: a cell such as b3, a column, or a number."""
        if self.shape is None:
            return str(action)
        rows, columns = self.shape
        if self.num_actions == columns:
            return str(action + 1)
        if action < rows * columns:
            return f"{_LETTERS[action % columns]}{action // columns + 1}"
        return "swap" if self.world.name == "pgx/hex" else "pass"

    def action(self, name: str) -> int | None:
        """The move of this name, or `None`."""
        names = {self.name(action): action for action in range(self.num_actions)}
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
