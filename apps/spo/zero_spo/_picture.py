"""Drawings of the state of an environment for a terminal."""

import math
from typing import Any

import numpy as np
from rich.text import Text

from zero_envs import CartPole, CartPoleState, JumanjiEnvironment, Pendulum, PendulumState

from ._board import board, moves
from ._canvas import Canvas
from ._worlds import World


# The colours of zero-envs' drawings, with greys that are visible on black and on white.
_ROD, _BODY, _FAINT, _FORCE = "#cd5a0a", "#949494", "#6c6c6c", "#2876be"
# In dots; the rod is 1 m long.
_REACH, _MIDDLE = 21.0, (24.0, 24.0)
_TRACK, _METRE = 2.4, 27.0


def picture(env: World, state: Any, action: np.ndarray, *, plain: bool) -> Text | None:
    """A drawing of one state, or `None` if there is none for the environment.

    **Arguments:**

    - `state`: the state, with NumPy arrays.
    - `action`: the next action. If it is a force, it is drawn as an arrow.
    - `plain`: whether to use ASCII without colours.
    """
    if isinstance(env, Pendulum):
        return _pendulum(state, float(action[0]), plain)
    if isinstance(env, CartPole):
        return _cart_pole(state, int(action), plain)
    if isinstance(env, JumanjiEnvironment):
        return board(type(env.env).__name__, state.observation, plain=plain)
    return None


def action_names(env: World) -> tuple[str, ...] | None:
    """The names of the discrete actions, or `None` if they have none."""
    if isinstance(env, CartPole):
        return ("left", "right")
    return moves(env) if isinstance(env, JumanjiEnvironment) else None


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
