"""`monsters watch`: its pictures say what is so."""

import io
import json
import re
import shutil
import types

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from rich.console import Console

from zero_app import load, Moment, UsageError
from zero_envs import Monsters, MonstersState
from zero_monsters import _watch
from zero_monsters._app import APP
from zero_monsters._build import build_actor, build_env
from zero_monsters._scene import COLOURS, draw, ending, MOVES, Scene


ROW = re.compile(r"^(> |  )(\w+) +([=.]{20}|wall)(?: +(.*))?$")
HELD = ("nothing", "y", "n")


def watched(run, **options) -> str:
    out = io.StringIO()
    settings = {"force_terminal": False, "width": 100} | options.pop("settings", {})
    arguments = {"planner": "chance", "simulations": None, "episodes": 2, "delay": 0.0, "seed": 0}
    console = Console(file=out, highlight=False, **settings)
    _watch.Watch(str(run), **(arguments | options))(APP, console)
    return out.getvalue()


def pictures(text: str) -> list[tuple[MonstersState, dict[str, tuple[bool, list[str]]]]]:
    """The states that are drawn, each with its rows by move: is it marked, and the numbers."""
    found = []
    for picture in re.split(r"^#(?: +#){5}\n(?=# +[^ #])", text, flags=re.M)[1:]:
        cells = " ".join(re.findall(r"^#((?: +[^ #\n]+){4}) +#$", picture, re.M)).split()
        (held,) = re.findall(r"holds (\w+)", picture)
        assert len(cells) == 16
        places = [[i for i, cell in enumerate(cells) if sign in cell] for sign in "@!?yn"]
        one = state_of([place[0] if place else -1 for place in places], HELD.index(held))
        state = jax.tree.map(lambda x: x[None], one)
        rows = [match.groups() for line in picture.splitlines() if (match := ROW.match(line))]
        named = {name: (mark == "> ", (rest or "").split()) for mark, name, _, rest in rows}
        found.append((state, named))
    return found


def decisions(text: str) -> list[tuple[MonstersState, dict[str, tuple[bool, list[str]]]]]:
    return [(state, rows) for state, rows in pictures(text) if rows]


def test_without_a_discount_values_are_those_of_gamma_099(tiny_run, tmp_path, oracle_of):
    """Undiscounted ones need a time limit, which the exact solution leaves out."""
    folder = tmp_path / "undiscounted"
    shutil.copytree(tiny_run, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"gamma": 1.0, "step_penalty": 0.0}))
    state, rows = decisions(watched(folder, planner="network", episodes=1))[0]
    exact = oracle_of(Monsters()).qvalues(state, gamma=0.99)[0]
    shown = [rows[name][1][1] for name, value in zip(MOVES, exact, strict=True) if value > -2]
    assert shown == [f"{value:+.2f}" for value in exact[exact > -2]]


@pytest.fixture(scope="module")
def planned(tiny_run):
    return watched(tiny_run)


def test_what_is_exact_is(planned, oracle_of, small_config):
    """Every move of every picture, at the run's discount and penalty; walls are where they are."""
    known = {name: getattr(small_config, name) for name in ("gamma", "step_penalty")}
    seen = decisions(planned)
    assert len(seen) > 3
    for state, rows in seen:
        assert list(rows) == list(MOVES)
        exact = oracle_of(Monsters()).qvalues(state, **known)[0]
        for truth, (_, numbers) in zip(exact, rows.values(), strict=True):
            if truth == -np.inf:
                assert numbers == []
            else:
                assert float(numbers[-2]) == pytest.approx(truth, abs=0.0051)


def test_the_move_that_is_played_is_marked(planned):
    """One, of the highest value that the plan found; visits add up."""
    for _, rows in decisions(planned):
        (played,) = [name for name, (mark, _) in rows.items() if mark]
        values = {name: float(n[0]) for name, (_, n) in rows.items() if len(n) == 3}
        assert values[played] == max(values.values())
        shares = [int(numbers[-1][:-1]) for _, numbers in rows.values() if numbers]
        assert sum(shares) == pytest.approx(100, abs=3)


def test_it_says_how_every_episode_ended(planned):
    ends = re.findall(
        r"^episode (\d): (won|lost|not over).*; its moves lost \d\.\d+$", planned, re.M
    )
    assert [number for number, _ in ends] == ["1", "2"]
    won = sum(how == "won" for _, how in ends)
    assert planned.endswith(f"{won} of 2 won\n")
    # One more picture than decisions an episode.
    assert len(pictures(planned)) == len(decisions(planned)) + 2


def test_a_network_shows_its_policy_and_no_values(tiny_run):
    text = watched(tiny_run, planner="network", episodes=1)
    assert "the network alone" in text and "policy" in text and "visits" not in text
    for _, rows in decisions(text):
        shares = {name: int(numbers[0][:-1]) for name, (_, numbers) in rows.items() if numbers}
        assert sum(shares.values()) == pytest.approx(100, abs=3)
        (played,) = [name for name, (mark, _) in rows.items() if mark]
        assert shares[played] == max(shares.values())


def test_a_film_has_the_same_episode(tiny_run, planned, tmp_path):
    """In a file, and in the report: a picture for each decision, and one for the end."""
    file, decided = tmp_path / "film.html", len(decisions(watched(tiny_run, episodes=1)))
    said = watched(tiny_run, episodes=1, save=file)
    assert (
        f"{decided + 1} pictures are in {file}" in said
        and file.read_text().count("<template>") == 1
    )
    frames = list(_watch.episode(load(APP, tiny_run), jr.fold_in(jr.key(0), 0)))
    assert len(frames) == decided + 1 and frames[-1].caption in planned
    assert all(frame.svg.count("stay") >= 1 for frame in frames)


def test_scenes_follow_the_rules(tiny_run, oracle_of):
    """Each state comes of the one before by the move that was shown, and the end of its rewards."""
    trained = load(APP, tiny_run)
    actor = build_actor(trained.config, trained.player, "network")[0]
    with pytest.raises(UsageError, match="--simulations 8 was given with --planner network"):
        build_actor(trained.config, trained.player, "network", 8)
    env = build_env(trained.config)
    moved = jax.jit(lambda state, move: (env.afterstate(state, move), env.observe(state).legal))
    for episode in range(3):
        key = jr.fold_in(jr.key(7), episode)
        scenes = list(_watch._scenes(oracle_of(env), actor, trained.config, key))
        *before, last = scenes
        for now, then in zip(before, scenes[1:], strict=True):
            after, legal = moved(now.now.state, jnp.int32(now.now.action))
            assert then.now.state.pieces[0] in (int(after.pieces[0]), -1)
            assert int(then.now.state.time) == int(now.now.state.time) + 1
            assert now.now.gained == 0 and now.end is None
            np.testing.assert_array_equal(now.exact > -np.inf, legal)
        over = bool(last.now.state.over)
        assert last.end is not None
        assert last.now.gained == (0 if not over else 1 if last.end.startswith("won") else -1)
        assert over or len(before) == 32


@pytest.mark.parametrize(
    "pieces, said",
    [
        ([3, -1, 4, -1, 2], "won"),
        ([-1, 3, 4, -1, 2], "lost: a monster got it"),
        ([-1, -1, 4, -1, 2], "lost: the target is beaten, but"),
        ([3, 5, -1, 1, -1], "lost: it beat the distractor"),
        ([3, 5, 6, 1, -1], "lost: the time is up"),
    ],
)
def test_an_end_is_told_as_it_was(pieces, said):
    assert ending(state_of(pieces)).startswith(said)


def state_of(pieces, held=0) -> MonstersState:
    return MonstersState(
        jnp.asarray(pieces, jnp.int16),
        jnp.asarray(held, jnp.int8),
        jnp.asarray(3, jnp.int32),
        jnp.asarray(False),
    )


def scene_of(state: MonstersState) -> Scene:
    record = types.SimpleNamespace(value=np.float32(0.4))
    now = Moment(Monsters(), state, 0, 0.0, 0.0, np.asarray(3, np.int32), record)
    return Scene(
        env=Monsters(),
        now=now,
        shares=np.asarray([0.1, 0.0, 0.2, 0.7, 0.0]),
        qvalues=np.asarray([-0.4, np.nan, 0.6, 0.7, np.nan]),
        exact=np.asarray([-0.2, -0.5, 0.9, 0.5, -np.inf]),
    )


def drawn(scene: Scene, width: int = 80, height: int = 25, **settings) -> str:
    out = io.StringIO()
    console = Console(file=out, width=width, highlight=False, **settings)
    console.print(draw(scene, width=width, height=height, plain=not settings))
    return out.getvalue()


def test_a_wrong_move_is_said_to_be_wrong():
    text = drawn(scene_of(state_of([5, 0, 10, 3, 15])))
    assert "left: loses 0.400; best is down" in text
    assert re.search(r"^  up    \.{20} +-0\.50 +0%$", text, re.M)  # never tried
    assert re.search(r"^> left  \.{10}=======\.{3} \+0\.70 \+0\.50 +70%$", text, re.M)
    assert re.search(r"^  stay  \.{6}====\.{10} -0\.40", text, re.M)
    assert re.search(r"^  right wall", text, re.M)


@pytest.mark.parametrize(
    "pieces", [[5, 0, 10, 3, 15], [5, 6, 6, 6, 1], [5, 2, 2, 2, 2], [-1, 0, 0, -1, -1]]
)
def test_a_picture_fits_a_terminal(pieces):
    """Board and plan beside each other in 80 x 14, or else below; in few lines without a painted
    board. Every piece is there."""
    scene = scene_of(state_of(pieces))
    colourless = {"force_terminal": True, "color_system": None, "no_color": True}
    for width, height in ((80, 14), (50, 25), (50, 17)):
        lines = drawn(scene, width, height, **colourless)
        assert len(lines.splitlines()) <= height and "\u2026" not in lines
        assert max(map(len, lines.splitlines())) <= width
        signs = {sign for sign, place in zip("@!?yn", pieces, strict=True) if place >= 0}
        assert signs <= set(re.sub(r"[a-mo-xz]+|holds.*", "", lines))


def test_pieces_have_the_colours_of_the_drawing():
    env = Monsters()
    state = env.init(key=jr.key(0))
    svg = env.render(state)
    ansi = drawn(scene_of(state), force_terminal=True, color_system="truecolor")
    for sign, colour in zip("@!?yn", COLOURS, strict=True):
        assert re.search(rf'class="piece {re.escape(sign)}"[^>]*>\s*<\w+[^>]*fill="{colour}"', svg)
        red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
        assert re.search(rf"48;2;{red};{green};{blue}m +{re.escape(sign)} ", ansi)


def test_a_terminal_shows_one_changing_picture(tiny_run, monkeypatch):
    slept = []
    monkeypatch.setattr("time.sleep", slept.append)
    settings = {"force_terminal": True, "color_system": "truecolor", "no_color": False}
    text = watched(
        tiny_run, planner="network", episodes=1, delay=0.25, settings=settings | {"width": 80}
    )
    assert "\x1b[48;2;" in text and "\u25b6" in text
    assert slept[:-1] == [0.25] * (len(slept) - 1) and slept[-1] == 0.5
    assert "\x1b[1A" in text  # back up, over the picture before


def test_ctrl_c_leaves_with_130(monsters, tiny_run, monkeypatch):
    def interrupt(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(_watch, "draw", interrupt)
    code, _, err = monsters("watch", tiny_run, "--planner", "network")
    assert (code, err) == (130, "")
