"""Pictures and numbers of one moment, by hand."""

import dataclasses
import io
import math
import re
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console
from rich.text import Text

from zero_app import Moment
from zero_envs import CartPole, CartPoleState, Pendulum, PendulumState
from zero_search import Plan
from zero_spo._picture import _BODY, _FORCE, _ROD, board, picture
from zero_spo._scene import draw


def places(text: Text | None, colour: str) -> np.ndarray:
    """The line and the column of each letter of a colour."""
    assert text is not None
    before = [text.plain[: span.start].split("\n") for span in text.spans if span.style == colour]
    return np.asarray([(len(lines) - 1, len(lines[-1])) for lines in before])


@pytest.mark.parametrize(
    "angle, up, left", [(0.0, 1, 0), (math.pi, -1, 0), (math.pi / 2, 0, 1), (-math.pi / 2, 0, -1)]
)
def test_a_pendulum_hangs_where_it_is(angle, up, left):
    """Upright is up; positive angles are to the left."""
    state = PendulumState(jnp.float32(angle), jnp.float32(0), jnp.int32(0))
    seen = picture(Pendulum(), state, np.zeros(1, np.float32), plain=False)
    line, column = places(seen, _ROD).mean(axis=0)
    # A letter is twice as high as wide; the rod's middle is a quarter of the picture away.
    assert (line - 5.5) / 3 == pytest.approx(-up, abs=0.25)
    assert (column - 11.5) / 6 == pytest.approx(-left, abs=0.25)
    plain = picture(Pendulum(), state, np.zeros(1, np.float32), plain=True)
    assert plain is not None and plain.plain.isascii() and len(plain.plain.splitlines()) <= 12


@pytest.mark.parametrize("torque, side", [(1.0, 1), (-1.0, -1)])
def test_a_torque_has_the_direction_in_which_it_turns(torque, side):
    """To the left is to the left of a rod that stands."""
    state = PendulumState(jnp.float32(0), jnp.float32(0), jnp.int32(0))
    seen = picture(Pendulum(), state, np.asarray([torque], np.float32), plain=False)
    columns = places(seen, _FORCE)[:, 1]
    assert len(columns) > 2 and (side * (11.5 - columns) > 0).all()


@pytest.mark.parametrize("position, angle, action", [(-1.2, 0.2, 1), (0.0, 0.1, 0), (2.0, -0.2, 0)])
def test_a_cart_is_where_it_is(position, angle, action):
    motion = jnp.asarray([position, 0.0, angle, 0.0])
    seen = picture(CartPole(), CartPoleState(motion, jnp.int32(0)), np.asarray(action), plain=False)
    cart, pole, push = (places(seen, colour) for colour in (_BODY, _ROD, _FORCE))
    # 27 dots a metre, two dots a column; the pole's foot takes letters of the cart.
    lowest = cart[cart[:, 0] == cart[:, 0].max(), 1]
    assert lowest.mean() == pytest.approx(37.5 + 13.5 * position, abs=0.6)
    top, foot = (pole[pole[:, 0] == end, 1].mean() for end in (pole[:, 0].min(), 7))
    assert (top - foot) / 13.5 == pytest.approx(math.sin(angle), abs=0.06)
    # It is pushed from the other side.
    assert np.sign(lowest.mean() - push[:, 1].mean()) == (1 if action == 1 else -1)


def scene(candidates, weights, action, env) -> Moment:
    numbers = jnp.arange(len(weights), dtype=jnp.float32)
    plan = Plan(
        action=jnp.asarray(action),
        candidates=jnp.asarray(candidates),
        weights=jnp.asarray(weights, jnp.float32),
        visits=jnp.ones(len(weights), jnp.float32),
        qvalues=numbers - 1.5,
        advantages=numbers,
        value=jnp.float32(-1.5),
        stats={
            "improvement": jnp.float32(2.0),
            "ess_fraction": jnp.linspace(1, 0.5, 8, dtype=jnp.float32),
            "resampled": jnp.asarray([False] * 7 + [True]),
            "alive": jnp.full(8, 0.75, jnp.float32),
        },
    )
    plan = jax.device_get(plan)
    return Moment(env, None, 7, -3.0, -0.25, np.asarray(action), plan)


def drawn(one: Moment, width: int = 80, **settings) -> str:
    out = io.StringIO()
    console = Console(file=out, width=width, highlight=False, **settings)
    console.print(draw(one, 0.125, width=width, plain=not settings))
    return out.getvalue()


def test_numbers_by_hand(monkeypatch):
    monkeypatch.setattr("zero_spo._scene.picture", lambda *_, **__: None)
    text = drawn(scene([0, 1, 1, 0], [0.1, 0.2, 0.3, 0.4], 1, CartPole()))
    assert re.search(r"^step 7 +return -3\.00 *$", text, re.M)
    assert re.search(r"^reward +-0\.25 *$", text, re.M)
    assert re.search(r"^action +right *$", text, re.M)
    assert re.search(r"^value +-1\.50, by plan 0\.50 *$", text, re.M)
    assert re.search(r"^temperature +0\.125 *$", text, re.M)
    # Advantages are 0, 1, 2, 3: those of left 0 and 3.
    assert re.search(r"^  left  =====\.{5} +50%  50% +\+1\.50$", text, re.M)
    assert re.search(r"^> right =====\.{5} +50%  50% +\+1\.50$", text, re.M)
    # Of eight depths six, the first and the last among them.
    assert re.findall(r"^(\d) [=.]{10}", text, re.M) == list("124578")
    assert re.search(r"^1 ={10} +4\.0 +75% *$", text, re.M)
    assert re.search(r"^8 =====\.{5} +2\.0 +75% resampled$", text, re.M)


def test_a_histogram_by_hand(monkeypatch):
    monkeypatch.setattr("zero_spo._scene.picture", lambda *_, **__: None)
    candidates = np.asarray([[-0.99], [0.99], [0.99], [0.01]], np.float32)
    one = scene(candidates, [0.0, 0.5, 0.5, 0.0], np.asarray([0.99], np.float32), Pendulum())
    text = drawn(one)
    assert re.search(r"^drawn = {11}= {10}@ \+0\.25 \+- 0\.82 *$", text, re.M)
    assert re.search(r"^plan   {23}@ \+0\.99 \+- 0\.00 *$", text, re.M)
    assert re.search(r"^ {6}-1 {21}\^", text, re.M)


def test_a_picture_fits_a_terminal(monkeypatch):
    """80 columns and 24 lines, one of which is the title."""
    colourless = {"force_terminal": True, "color_system": None, "no_color": True}
    state = PendulumState(jnp.float32(1), jnp.float32(0), jnp.int32(0))
    one = scene(np.zeros((4, 1), np.float32), [0.25] * 4, np.zeros(1, np.float32), Pendulum())
    cart = CartPoleState(jnp.zeros(4), jnp.int32(0))
    other = scene([0, 1, 1, 0], [0.25] * 4, 1, CartPole())
    for made in (dataclasses.replace(one, state=state), dataclasses.replace(other, state=cart)):
        for width, height in ((80, 22), (50, 40)):
            lines = drawn(made, width, **colourless).splitlines()
            assert len(lines) <= height and max(map(len, lines)) <= width
            assert not any("\u2026" in line for line in lines)


def test_boards_of_jumanji():
    tiles = SimpleNamespace(board=np.asarray([[0, 1], [11, 3]]))
    assert str(board("Game2048", tiles, plain=True)) == "     .     2\n  2048     8"
    cube = SimpleNamespace(cube=np.arange(6)[:, None, None] * np.ones((1, 2, 2), np.int8))
    assert [line.rstrip() for line in str(board("RubiksCube", cube, plain=True)).split("\n")] == [
        "     W W",
        "     W W",
        "O O  G G  R R  B B",
        "O O  G G  R R  B B",
        "     Y Y",
        "     Y Y",
    ]
    fixed = np.asarray([[1, 1, 1, 1], [1, 2, 0, 2], [1, 2, 0, 1]])
    moving = np.asarray([[0, 0, 0, 0], [0, 4, 4, 0], [0, 3, 0, 0]])
    sokoban = SimpleNamespace(grid=np.stack([moving, fixed], axis=-1))
    assert str(board("Sokoban", sokoban, plain=True)) == "# # # # \n# * $ . \n# +   # "
    snake = np.zeros((2, 3, 5))
    snake[0, :2, 0] = snake[0, 0, 1] = snake[1, 2, 3] = 1
    grid = SimpleNamespace(grid=snake)
    assert str(board("Snake", grid, plain=True)) == "@ o . \n. . * "
    assert board("Maze", None, plain=True) is None
    for name, seen in (("Game2048", tiles), ("RubiksCube", cube), ("Sokoban", sokoban)):
        coloured, plain = (board(name, seen, plain=plain) for plain in (False, True))
        assert coloured is not None and coloured.spans
        assert set(str(plain)) - set(" .\n") <= set(str(coloured))
