"""Drawings of Jumanji's boards with letters."""

import itertools
from typing import Any

import numpy as np
from jaxtyping import Int
from rich.text import Text

from zero_envs import JumanjiEnvironment


_WAYS = ("up", "right", "down", "left")
# In Jumanji's order: up, front, right, back, left, down.
_FACES = "UFRBLD"
_COLOURS = "WGRBOY"
# The net of the cube: the face at each line and column.
_NET = ((None, 0, None, None), (4, 1, 2, 3), (None, 5, None, None))
# The styles of what is on a cell.
_STICKERS = {
    letter: f"#1c1c1c on {colour}"
    for letter, colour in zip(
        _COLOURS, ("#eeeeee", "#008700", "#d70000", "#005fd7", "#ff8700", "#ffd700"), strict=True
    )
}
_SHADES = ("#d7d7af", "#d7d787", "#ffd787", "#ffaf5f", "#ff875f", "#ff5f5f", "#d75f87", "#af5faf")
_TILES = {
    str(2**k): f"bold #1c1c1c on {_SHADES[min((k - 1) * len(_SHADES) // 11, len(_SHADES) - 1)]}"
    for k in range(1, 18)  # no tile is larger
}
_SNAKE = {"o": "#5faf5f", "@": "bold #afff87", "*": "bold #ff5f5f"}
_SOKOBAN = {"#": "#767676", ".": "#ff5f5f", "$": "#ffaf5f", "*": "#87d75f"}
_SOKOBAN |= dict.fromkeys("@+", "bold #5fafff")


def board(name: str, observation: Any, *, plain: bool) -> Text | None:
    """A drawing of an observation, or `None` for other environments than the four drawn here.

    **Arguments:**

    - `name`: the name of the environment's class.
    - `observation`: Jumanji's observation, with NumPy arrays.
    - `plain`: whether to draw without colours.
    """
    if name == "Game2048":
        styles, numbers = _TILES, np.where(observation.board > 0, 2**observation.board, 0)
        cells = [[f"{number or '.':>6}" for number in row] for row in numbers.tolist()]
    elif name == "RubiksCube":
        styles, cells = _STICKERS, _cube(observation.cube)
    elif name == "Snake":
        styles, cells = _SNAKE, _snake(observation.grid)
    elif name == "Sokoban":
        styles, cells = _SOKOBAN, _sokoban(observation.grid)
    else:
        return None
    styled = lambda cell: (cell, "" if plain else styles.get(cell.strip(), "dim"))
    return Text("\n").join(Text.assemble(*map(styled, row)) for row in cells)


def moves(env: JumanjiEnvironment) -> tuple[str, ...] | None:
    """The names of the actions, or `None` for other environments than the four drawn here."""
    name = type(env.env).__name__
    if name in ("Game2048", "Snake", "Sokoban"):
        return _WAYS
    if name == "RubiksCube":
        layers = env.num_actions // 18
        return tuple(
            f"{face}{turn}" if layers == 1 else f"{layer + 1}{face}{turn}"
            for face in _FACES
            for layer in range(layers)
            for turn in ("", "'", "2")
        )
    return None


def _snake(grid: np.ndarray) -> np.ndarray:
    """Body, head and fruit. A letter takes two columns here, so that cells are about square."""
    cells = np.full(grid.shape[:2], ". ")
    for plane, letter in ((0, "o "), (3, "* "), (1, "@ ")):
        cells[grid[..., plane] > 0] = letter
    return cells


def _sokoban(grid: Int[np.ndarray, "rows columns 2"]) -> np.ndarray:
    """The usual letters of level files: `*` is a box on a target, and `+` the player on one."""
    moving, fixed = grid[..., 0], grid[..., 1]
    target = fixed == 2
    cells = np.where(fixed == 1, "# ", np.where(target, ". ", "  "))
    cells = np.where(moving == 3, np.where(target, "+ ", "@ "), cells)
    return np.where(moving == 4, np.where(target, "* ", "$ "), cells)


def _cube(stickers: Int[np.ndarray, "6 rows columns"]) -> list[list[str]]:
    """The net of the cube, with the upper face above the front."""
    rows = []
    for faces, line in itertools.product(_NET, range(stickers.shape[1])):
        rows.append([])
        for face in faces:
            seen = stickers[face or 0, line].tolist()
            rows[-1] += ["  " if face is None else f"{_COLOURS[colour]} " for colour in seen] + [
                " "
            ]
    return rows
