"""Drawings of the state of an environment for a terminal."""

import itertools
import math
from typing import Any

import numpy as np
from jaxtyping import Int
from rich.text import Text

from zero_envs import (
    AbstractEnvironment,
    CartPole,
    CartPoleState,
    JumanjiEnvironment,
    Pendulum,
    PendulumState,
)

from ._canvas import Canvas


# The colours of zero-envs' drawings, with greys that are visible on black and on white.
_ROD, _BODY, _FAINT, _FORCE = "#cd5a0a", "#949494", "#6c6c6c", "#2876be"
# In dots; the rod is 1 m long.
_REACH, _MIDDLE = 21.0, (24.0, 24.0)
_TRACK, _METRE = 2.4, 27.0

# Jumanji's boards, which are drawn with letters.
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


def picture(
    env: AbstractEnvironment, state: Any, action: np.ndarray, *, plain: bool
) -> Text | None:
    """A drawing of one state of NumPy arrays, or `None` if there is none for the environment. The
    next action is drawn as an arrow if it is a force. `plain` is ASCII without colours."""
    if isinstance(env, Pendulum):
        return _pendulum(state, float(action[0]), plain)
    if isinstance(env, CartPole):
        return _cart_pole(state, int(action), plain)
    if isinstance(env, JumanjiEnvironment):
        return board(type(env.env).__name__, state.observation, plain=plain)
    return None


def action_names(env: AbstractEnvironment) -> tuple[str, ...] | None:
    """The names of the discrete actions, or `None` if they have none."""
    if isinstance(env, CartPole):
        return ("left", "right")
    if not isinstance(env, JumanjiEnvironment):
        return None
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


def _pendulum(state: PendulumState, torque: float, plain: bool) -> Text:
    """The pendulum. Positive angles and torques turn to the left."""
    canvas = Canvas(24, 12)
    angle = float(state.angle)
    tip = (_MIDDLE[0] - _REACH * math.sin(angle), _MIDDLE[1] - _REACH * math.cos(angle))
    for mark in range(12):
        canvas.arc(_MIDDLE, 23.0, mark * math.pi / 6 - 0.03, 0.06, _FAINT)
    canvas.stroke(_MIDDLE, tip, _ROD, width=3.0)
    # The motor's turn, from where the rod is.
    canvas.arc(_MIDDLE, 9.0, angle, torque * math.pi / 2, _FORCE)
    canvas.stroke(_MIDDLE, _MIDDLE, _BODY, width=5.0)
    return canvas.text(plain=plain)


def _cart_pole(state: CartPoleState, action: int, plain: bool) -> Text:
    """The whole track, the cart with its pole, and the push."""
    canvas = Canvas(76, 10)
    position, _, angle, _ = np.asarray(state.motion, np.float64)
    middle, floor = 76.0, 37.5
    canvas.stroke((middle - _TRACK * _METRE, floor), (middle + _TRACK * _METRE, floor), _FAINT)
    for end in (-_TRACK, _TRACK):
        x = middle + end * _METRE
        canvas.stroke((x, floor - 6.0), (x, floor), _FAINT)
    cart, top, axle = middle + position * _METRE, floor - 9.5, floor - 5.5
    canvas.stroke((cart - 4.0, axle), (cart + 4.0, axle), _BODY, width=8.0)
    tip = (cart + _METRE * math.sin(angle), top - _METRE * math.cos(angle))
    canvas.stroke((cart, top), tip, _ROD, width=2.0)
    side = 1.0 if action == 1 else -1.0
    head = cart - 10.0 * side
    canvas.stroke((cart - 20.0 * side, axle), (head, axle), _FORCE)
    for lift in (-2.0, 2.0):
        canvas.stroke((head - 2.0 * side, axle + lift), (head, axle), _FORCE)
    return canvas.text(plain=plain)


def board(name: str, observation: Any, *, plain: bool) -> Text | None:
    """A drawing of Jumanji's observation, of NumPy arrays, by the name of the environment's class;
    `None` for others than the four drawn here. `plain` has no colours."""
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
            rows[-1] += ["  " if face is None else f"{_COLOURS[colour]} " for colour in seen]
            rows[-1].append(" ")
    return rows
