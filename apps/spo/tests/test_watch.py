"""`spo watch`: its pictures and numbers say what is so."""

import base64
import io
import json
import re
import zlib
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from rich.console import Console

from zero_app import load
from zero_spo import _watch
from zero_spo._app import APP


NUMBER = r"([+-]?\d+(?:\.\d+)?)"


def watched(run, **options) -> str:
    out = io.StringIO()
    settings = {"force_terminal": False, "width": 100} | options.pop("settings", {})
    arguments = {"episodes": 2, "delay": 0.0, "seed": 0}
    console = Console(file=out, highlight=False, **settings)
    _watch.Watch(str(run), **(arguments | options))(APP, console)
    return out.getvalue()


def numbers(pattern: str, text: str) -> list[float]:
    return [float(x) for x in re.findall(pattern, text, re.M)]


@pytest.fixture(scope="module")
def pendulum(tiny_run):
    return watched(tiny_run, episodes=1)


@pytest.fixture(scope="module")
def cartpole(cartpole_run):
    return watched(cartpole_run)


def test_every_twentieth_step_is_shown(pendulum):
    """In plain letters."""
    assert pendulum.isascii()
    assert numbers(r"^step (\d+)", pendulum) == [*range(0, 201, 20)]
    assert "spo on pendulum, 4 particles, 2 deep" in pendulum.splitlines()[0]


def test_each_episode_and_the_mean_have_a_line(pendulum, cartpole):
    for text, number in ((pendulum, 1), (cartpole, 2)):
        line = rf"^episode \d: return {NUMBER}, (\d+) steps, (terminated|truncated)$"
        ends = re.findall(line, text, re.M)
        returns, steps = ([float(end[i]) for end in ends] for i in (0, 1))
        assert len(ends) == number
        (mean,) = re.findall(rf"^mean of {number}: return {NUMBER}, {NUMBER} steps$", text, re.M)
        assert float(mean[0]) == pytest.approx(np.mean(returns), abs=0.011)
        assert float(mean[1]) == np.mean(steps)
        assert len(re.findall(r"^end +(?:terminated|truncated)$", text, re.M)) == number
    # It ends by itself only where it can.
    assert pendulum.count(", 200 steps, truncated") == 1
    assert "cut off" not in cartpole


def test_the_plan_is_shown(pendulum, cartpole):
    for text in (pendulum, cartpole):
        counts = numbers(rf"^[12] [=.]{{10}} +{NUMBER} +\d+%", text)
        assert len(counts) == 2 * len(numbers(r"^step (\d+)", text))
        assert all(1 <= count <= 4 for count in counts)
        assert all(x > 0 for x in numbers(rf"^temperature +{NUMBER}$", text))
        assert text.count("resampled") == len(counts) / 2  # after the second of two steps


def test_the_action_that_is_played_is_marked(cartpole):
    """Shares of particles and of weight add up, and nothing without weight is played."""
    frames = re.split(r"^step ", cartpole, flags=re.M)[1:]
    for frame in frames:
        row = rf"^(>?) *(left|right) +[=.]{{10}} +(\d+)% +(\d+)% *{NUMBER}?$"
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
    trained = load(APP, tiny_run)
    env: Any = trained.loop.env
    *scenes, end = _watch._moments(trained, jr.key(3))
    assert [scene.step for scene in scenes] == list(range(200)) and end.step == 200
    state, gained = jax.device_put(scenes[0].state), 0.0
    step = jax.jit(lambda state, action: env.step(state, action, key=jr.key(0)))
    for now, then in zip(scenes[:20], scenes[1:], strict=False):
        state, transition = step(state, jnp.asarray(now.action))
        gained += float(transition.reward)
        assert then.gained == pytest.approx(gained, abs=1e-3)
        assert float(then.state.angle) == pytest.approx(float(state.angle), abs=1e-3)
        assert now.plan is not None and now.action in now.plan.candidates
    assert (end.end, end.plan) == ("truncated", scenes[-1].plan)
    assert end.gained == pytest.approx(sum(scene.reward for scene in [*scenes, end]), rel=1e-6)


def test_a_policy_alone_shows_what_it_plays(first_player):
    text = watched(first_player("cartpole", "mpo"), episodes=1)
    assert "mpo on cartpole, the policy alone" in text.splitlines()[0]
    assert re.search(r"^action +(left|right)$", text, re.M)
    assert "particles" not in text and "temperature" not in text and "alive" not in text


def test_a_film_has_every_step(cartpole, cartpole_run, tmp_path):
    """In a file, and in the report."""
    steps = [int(n) for n in numbers(r"^episode \d+: return .*, (\d+) steps", cartpole)]
    said = watched(cartpole_run, episodes=1, save=tmp_path / "film.gif")
    assert f"{steps[0] + 1} pictures are in {tmp_path}" in said
    frames = list(_watch.episode(load(APP, cartpole_run), jr.fold_in(jr.key(0), 0)))
    assert len(frames) == steps[0] + 1 and all("left" in frame.svg for frame in frames)
    assert [frame.caption for frame in frames[:-1]] == [""] * steps[0] and frames[-1].caption


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


@pytest.mark.slow
def test_an_episode_of_brax_is_a_page(first_player, spo):
    """brax's viewer with every state, in real time; what is there already stays."""
    run = first_player("brax/inverted_pendulum")
    (run / "episode-0.html").write_text("mine")
    code, out, _ = spo("watch", run, "--episodes", 2)
    assert code == 0 and (run / "episode-0.html").read_text() == "mine"
    line = rf"^episode \d: return {NUMBER}, (\d+) steps, (?:terminated|truncated); (.*)$"
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
    (gained, steps) = re.findall(
        rf"^episode 1: return {NUMBER}, (\d+) steps, terminated$", text, re.M
    )[0]
    assert float(gained) > 0 and int(steps) > 20
