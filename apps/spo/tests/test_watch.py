"""`spo watch`: its pictures and numbers say what is so."""

import base64
import dataclasses
import io
import json
import math
import re
import zlib
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from rich.console import Console
from rich.text import Text

from zero_envs import CartPole, CartPoleState, Pendulum, PendulumState
from zero_search import Plan
from zero_spo import _watch
from zero_spo._board import board
from zero_spo._load import load
from zero_spo._picture import _BODY, _FORCE, _ROD, picture
from zero_spo._scene import draw, Scene


NUMBER = r"([+-]?\d+(?:\.\d+)?)"


def watched(run, **options) -> str:
    out = io.StringIO()
    settings = {"force_terminal": False, "width": 100} | options.pop("settings", {})
    arguments = {"episodes": 2, "delay": 0.0, "seed": 0}
    console = Console(file=out, highlight=False, **settings)
    _watch.watch(str(run), **(arguments | options), console=console)
    return out.getvalue()


def numbers(pattern: str, text: str) -> list[float]:
    return [float(x) for x in re.findall(pattern, text, re.M)]


@pytest.fixture(scope="module")
def pendulum(tiny_run):
    return watched(tiny_run)


@pytest.fixture(scope="module")
def cartpole(cartpole_run):
    return watched(cartpole_run)


def test_every_twentieth_step_is_shown(pendulum):
    """In plain letters."""
    assert pendulum.isascii()
    assert numbers(r"^step (\d+)", pendulum) == 2 * [*range(0, 201, 20)]
    assert "spo on pendulum, 4 particles, 2 deep" in pendulum.splitlines()[0]


def test_each_episode_and_the_mean_have_a_line(pendulum, cartpole):
    for text in (pendulum, cartpole):
        line = rf"^episode \d: return {NUMBER}, (\d+) steps, (over|cut off there)$"
        ends = re.findall(line, text, re.M)
        returns, steps = ([float(end[i]) for end in ends] for i in (0, 1))
        assert len(ends) == 2
        (mean,) = re.findall(rf"^mean of 2: return {NUMBER}, {NUMBER} steps$", text, re.M)
        assert float(mean[0]) == pytest.approx(np.mean(returns), abs=0.011)
        assert float(mean[1]) == np.mean(steps)
        assert len(re.findall(r"^end +(?:over|cut off there)$", text, re.M)) == 2
    # It ends by itself only where it can.
    assert pendulum.count(", 200 steps, cut off there") == 2
    assert "cut off" not in cartpole


def test_the_plan_is_shown(pendulum, cartpole):
    for text in (pendulum, cartpole):
        counts = numbers(rf"^[12] [=.]{{10}} +{NUMBER} +\d+%", text)
        assert len(counts) == 2 * len(numbers(r"^step (\d+)", text))
        assert all(1 <= count <= 4 for count in counts)
        assert all(x > 0 for x in numbers(rf"^temperature +{NUMBER}$", text))
        assert text.count("drawn anew") == len(counts) / 2  # after the second of two steps


def test_the_action_that_is_played_is_marked(cartpole):
    """Shares of particles and of weight add up, and nothing without weight is played."""
    frames = re.split(r"^step ", cartpole, flags=re.M)[1:]
    for frame in frames:
        row = rf"^(>?) *(left|right) +[=.]{{10}} +(\d+)% +(\d+)% +{NUMBER}?$"
        rows = [
            (mark, name, int(d), int(p)) for mark, name, d, p, _ in re.findall(row, frame, re.M)
        ]
        assert [name for _, name, *_ in rows] == ["left", "right"]
        assert sum(drawn for *_, drawn, _ in rows) == 100 == sum(plan for *_, plan in rows)
        ((name, plan),) = [(name, plan) for mark, name, _, plan in rows if mark]
        assert plan > 0
        assert re.search(rf"^(action +{name}|end .*)$", frame, re.M)


def test_scenes_follow_the_rules(tiny_run):
    """Each state comes of the one before by the action that was shown, and so does the return."""
    trained = load(tiny_run)
    actor = _watch._telling(trained.actor())
    *scenes, end = _watch._scenes(trained.env, actor, jr.key(3))
    assert [scene.step for scene in scenes] == list(range(200)) and end.step == 200
    state, gained = jax.device_put(scenes[0].state), 0.0
    for now, then in zip(scenes[:20], scenes[1:], strict=False):
        state, transition = trained.env.step(state, jnp.asarray(now.action), key=jr.key(0))
        gained += float(transition.reward)
        assert then.gained == pytest.approx(gained, abs=1e-3)
        assert float(then.state.angle) == pytest.approx(float(state.angle), abs=1e-3)
        assert now.plan is not None and now.action in now.plan.candidates
    assert (end.end, end.plan) == ("cut off there", scenes[-1].plan)
    assert end.gained == pytest.approx(sum(scene.reward for scene in [*scenes, end]), rel=1e-6)


def test_a_policy_alone_shows_what_it_plays(first_player):
    text = watched(first_player("cartpole", "mpo"), episodes=1)
    assert "mpo on cartpole, the policy alone" in text.splitlines()[0]
    assert re.search(r"^action +(left|right)$", text, re.M)
    assert "particles" not in text and "temperature" not in text and "alive" not in text


def test_episodes_differ_and_a_seed_replays_them(cartpole, cartpole_run):
    first, second = re.split(r"^episode \d.*\n", cartpole, flags=re.M)[:2]
    assert first != second
    assert watched(cartpole_run) == cartpole != watched(cartpole_run, seed=1)


def test_a_terminal_shows_one_changing_picture(cartpole_run, monkeypatch):
    slept = []
    monkeypatch.setattr("time.sleep", slept.append)
    settings = {"force_terminal": True, "color_system": "truecolor", "no_color": False, "width": 80}
    text = watched(cartpole_run, episodes=1, delay=0.25, settings=settings)
    assert "\x1b[38;2;205;90;10m" in text and "\u25b6" in text  # the pole, in braille letters
    assert slept[:-1] == [0.25] * (len(slept) - 1) and slept[-1] == 2.5
    assert re.search(r"\x1b\[1A", text)  # back up, over the picture before


def test_ctrl_c_leaves_with_130(spo, cartpole_run, monkeypatch):
    def interrupt(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(_watch, "draw", interrupt)
    code, _, err = spo("watch", cartpole_run)
    assert (code, err) == (130, "")


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


def scene(candidates, weights, action, env) -> Scene:
    numbers = jnp.arange(len(weights), dtype=jnp.float32)
    plan = Plan(
        action=jnp.asarray(action),
        candidates=jnp.asarray(candidates),
        weights=jnp.asarray(weights, jnp.float32),
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
    return Scene(env, None, 7, -3.0, -0.25, np.asarray(action), plan, 0.125)


def drawn(one: Scene, width: int = 80, **settings) -> str:
    out = io.StringIO()
    console = Console(file=out, width=width, highlight=False, **settings)
    console.print(draw(one, width=width, plain=not settings))
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
    assert numbers(r"^(\d) [=.]{10}", text) == [1, 2, 4, 5, 7, 8]
    assert re.search(r"^1 ={10} +4\.0 +75% *$", text, re.M)
    assert re.search(r"^8 =====\.{5} +2\.0 +75% drawn anew$", text, re.M)


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


@pytest.mark.slow
def test_an_episode_of_brax_is_a_page(first_player, spo):
    """brax's viewer with every state, in real time; what is there already stays."""
    run = first_player("brax/inverted_pendulum")
    (run / "episode-0.html").write_text("mine")
    code, out, _ = spo("watch", run, "--episodes", 2)
    assert code == 0 and (run / "episode-0.html").read_text() == "mine"
    line = rf"^episode \d: return {NUMBER}, (\d+) steps, over; (.*)$"
    found = re.findall(line, out, re.M)
    assert [path for _, _, path in found] == [str(run / f"episode-{i}.html") for i in (1, 2)]
    for _, steps, path in found:
        (packed,) = re.findall(r'var system = "(.*)";', Path(path).read_text())
        system = json.loads(zlib.decompress(base64.b64decode(packed)))
        assert len(system["states"]["x"]) == int(steps) + 1
        # Of its physics, which takes four steps for one of the player's, it is 0.005 s.
        assert system["opt"]["timestep"] == pytest.approx(0.02)


@pytest.mark.slow
def test_a_game_of_jumanji_is_played(first_player):
    text = watched(first_player("jumanji/Game2048-v1"), episodes=1)
    rows = re.findall(r"^((?: +(?:\.|\d+)){4})$", text, re.M)
    assert len(rows) == 4 * len(numbers(r"^step (\d+)", text))
    assert re.search(r"^action +(up|right|down|left)$", text, re.M)
    (gained, steps) = re.findall(rf"^episode 1: return {NUMBER}, (\d+) steps, over$", text, re.M)[0]
    assert float(gained) > 0 and int(steps) > 20
