"""Drawings of Jumanji's boards with letters."""

from typing import Any

import numpy as np
from jaxtyping import Int
from rich.style import Style
from rich.text import Text

from zero_envs import JumanjiEnvironment


_WAYS = ("up", "right", "down", "left")
# In Jumanji's order: up, front, right, back, left, down.
_FACES = "UFRBLD"
_COLOURS = "WGRBOY"
_STICKERS = ("#eeeeee", "#008700", "#d70000", "#005fd7", "#ff8700", "#ffd700")
# The net of the cube: the face at each line and column.
_NET = ((None, 0, None, None), (4, 1, 2, 3), (None, 5, None, None))
# The colours of tiles from 2 to 2048 and above.
_TILES = ("#d7d7af", "#d7d787", "#ffd787", "#ffaf5f", "#ff875f", "#ff5f5f", "#d75f87", "#af5faf")
_EMPTY = ("#303030", "#3a3a3a")
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
        return _tiles(observation.board, plain)
    if name == "RubiksCube":
        return _cube(observation.cube, plain)
    if name == "Snake":
        return _lettered(_snake(observation.grid), _SNAKE, plain)
    if name == "Sokoban":
        return _lettered(_sokoban(observation.grid), _SOKOBAN, plain)
    return None


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


def _lettered(cells: np.ndarray, colours: dict[str, str], plain: bool) -> Text:
    """Two columns for each cell, which are about square."""
    lines = []
    for row in cells:
        letters = ((f"{cell} ", "" if plain else colours.get(cell, "dim")) for cell in row)
        lines.append(Text.assemble(*letters))
    return Text("\n").join(lines)


def _snake(grid: np.ndarray) -> np.ndarray:
    """Body, head and fruit."""
    cells = np.full(grid.shape[:2], ".")
    for plane, letter in ((0, "o"), (3, "*"), (1, "@")):
        cells[grid[..., plane] > 0] = letter
    return cells


def _sokoban(grid: Int[np.ndarray, "rows columns 2"]) -> np.ndarray:
    """The usual letters of level files: `*` is a box on a target, and `+` the player on one."""
    moving, fixed = grid[..., 0], grid[..., 1]
    target = fixed == 2
    cells = np.where(fixed == 1, "#", np.where(target, ".", " "))
    cells = np.where(moving == 3, np.where(target, "+", "@"), cells)
    return np.where(moving == 4, np.where(target, "*", "$"), cells)


def _tiles(exponents: Int[np.ndarray, "rows columns"], plain: bool) -> Text:
    if plain:
        rows = [[f"{2 ** int(k) if k else '.':>6}" for k in row] for row in exponents]
        return Text("\n".join("".join(row) for row in rows))
    lines = []
    for y, row in enumerate(exponents):
        styles = [_tile(int(k), (x + y) % 2) for x, k in enumerate(row)]
        blank = Text.assemble(*((" " * 7, style) for style in styles))
        numbers = (f"{2 ** int(k) if k else '':^7}" for k in row)
        lines += [blank, Text.assemble(*zip(numbers, styles, strict=True)), blank]
    return Text("\n").join(lines)


def _tile(exponent: int, shade: int) -> Style:
    if not exponent:
        return Style(bgcolor=_EMPTY[shade])
    colour = _TILES[min((exponent - 1) * len(_TILES) // 11, len(_TILES) - 1)]
    return Style(color="#1c1c1c", bgcolor=colour, bold=True)


def _cube(stickers: Int[np.ndarray, "6 rows columns"], plain: bool) -> Text:
    """The net of the cube, with the upper face above the front."""
    size = stickers.shape[1]
    lines = []
    for faces in _NET:
        for row in range(size):
            parts = [_stickers(stickers, face, row, plain) for face in faces]
            lines.append(Text(" ").join(parts))
    return Text("\n").join(lines)


def _stickers(stickers: np.ndarray, face: int | None, row: int, plain: bool) -> Text:
    size = stickers.shape[1]
    if face is None:
        return Text(" " * 2 * size)
    found = Text()
    for colour in stickers[face, row].tolist():
        style = "" if plain else Style(color="#1c1c1c", bgcolor=_STICKERS[colour])
        found.append(f"{_COLOURS[colour]} ", style)
    return found
