"""The trained players that come with the apps: what they are, and whether they still play so."""

import contextlib
import io
import json
import math
import pathlib
import re
import shlex
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest
from safetensors import safe_open

import zero_cli
import zero_minesweeper
import zero_monsters
import zero_othello
import zero_spo
from zero_app import load, player_file, RETURN, run, WON
from zero_cli._apps import APPS

from . import workspace


FILES = sorted(workspace.ROOT.glob("apps/*/*/players/**/*.safetensors"))
#: By app and name, each as a user gets it.
PLAYERS = {
    ("othello", "pretrained"): zero_othello.pretrained,
    ("zero", "pgx/connect_four"): zero_cli.pretrained,
    ("minesweeper", "pretrained"): zero_minesweeper.pretrained,
    ("monsters", "pretrained"): zero_monsters.pretrained,
    ("spo", "cartpole"): lambda: zero_spo.pretrained("cartpole"),
    ("spo", "pendulum"): zero_spo.pretrained,
}
EACH = pytest.mark.parametrize("app, name", list(PLAYERS))


def test_every_game_has_one_and_all_are_small():
    assert len(FILES) == len(PLAYERS)
    assert sum(path.stat().st_size for path in FILES) < 8e6


@EACH
def test_a_player_says_what_made_it(app, name):
    """The configuration is that of its app now, and the strength has the command that shows it."""
    trained = PLAYERS[app, name]()
    assert isinstance(trained.config, APPS[app].config) and trained.step > 0
    assert len(trained.origin["commit"]) == 40 and " train " in trained.origin["command"]
    assert not [x for x in shlex.split(trained.origin["command"]) if pathlib.Path(x).is_absolute()]
    assert trained.origin["versions"]["jax"] and trained.strength
    for row in trained.strength:
        assert row["command"].startswith(f"{app} eval {name} ")
        assert agree(row["result"], row["before"]), "16 bits lost some of it"


def test_the_page_has_what_the_files_say():
    """The table of what trained each player, for how long, and what was measured of it."""
    rows = []
    for app, name in PLAYERS:
        with safe_open(player_file(APPS[app], name), "np") as file:
            said = file.metadata()
        command = re.sub(r" --out \S+", "", json.loads(said["origin"])["command"])
        known = f"| `{app if name == 'pretrained' else name}` | `{command}` | {said['step']} |"
        for row in json.loads(said["strength"]):
            rows.append(f"{known} `{row['command']}` | {figures(row['result'])} |")
            known = "| | | |"
    page = (workspace.ROOT / "docs" / "players.md").read_text(encoding="utf-8")
    assert re.findall(r"^\|.* eval .*$", page, flags=re.MULTILINE) == rows


@EACH
def test_its_network_is_finite(app, name):
    trained = PLAYERS[app, name]()
    env: Any = trained.loop.env
    for leaf in jax.tree.leaves(eqx.filter(trained.player, eqx.is_inexact_array)):
        assert np.isfinite(leaf).all()
    states = jax.vmap(lambda key: env.init(key=key))(jax.random.split(jax.random.key(0), 2))
    obs = jax.vmap(env.observe)(states)
    player: Any = trained.player
    outputs = eqx.filter_jit(lambda evaluate, obs: jax.vmap(evaluate)(obs))
    for leaf in jax.tree.leaves(outputs(player.model.evaluate, obs)):
        assert np.isfinite(leaf).all()


@EACH
@pytest.mark.slow
def test_a_player_is_as_strong_as_it_was(app, name):
    """Within the error bars of both measurements, by the same command."""
    for row in load(APPS[app], name).strength:
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            run(APPS[app], [*shlex.split(row["command"])[1:], "--json"])
        assert agree(json.loads(said.getvalue()), row["result"]), row["command"]


def agree(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two measurements are two standard errors of their difference apart, or less."""
    (mean, error), (than, bar) = strength(one), strength(other)
    return abs(mean - than) <= 2 * math.hypot(error, bar) + 1e-6


def strength(row: dict[str, Any]) -> tuple[float, float]:
    """The score, wins or return that `eval --json` prints, and its standard error."""
    if "score" in row:
        return row["score"], (row["score_high"] - row["score_low"]) / 3.92
    if "win_se" in row:
        return row["win_rate"], row["win_se"]
    return row["return_mean"], row["return_se"]


def figures(row: dict[str, Any]) -> str:
    """A measurement as the page has it."""
    if "score" in row:
        score, low, high = (100 * row[name] for name in ("score", "score_low", "score_high"))
        return f"score {score:.1f} % ({low:.1f} to {high:.1f})"
    measure = WON if "win_se" in row else RETURN
    return f"{measure.called} {measure.shown(row)}"
