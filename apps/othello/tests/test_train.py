"""A run from start to finish: what it logs, resuming it, and runs of before."""

import dataclasses
import json
import math
import os
import shutil
import signal
from typing import Any

import equinox as eqx
import jax.random as jr
import pytest

from zero_app import (
    Checkpoints,
    ladder_of,
    Launch,
    load,
    Options,
    read_lines,
    read_of_run,
    RunError,
    train,
    View,
)
from zero_othello.__main__ import main
from zero_othello._app import APP
from zero_othello._build import build_loop
from zero_othello._config import PRESETS
from zero_search import LowerBound


def test_positions_are_counted_and_players_rated(tiny_run, small_config, check_episodes):
    check_episodes(tiny_run)
    lines = read_lines(tiny_run / "metrics.jsonl")
    assert [line["step"] for line in lines] == list(range(1, 25))
    for line in lines:
        assert all(math.isfinite(x) for x in line.values())
    # Cumulative counts; every row is a position or the end of a game.
    collected = small_config.envs * small_config.unroll * 24
    assert lines[-1]["positions"] + lines[-1]["games"] == collected
    elo = {p["name"]: p["elo"] for p in json.loads((tiny_run / "elo.json").read_text())["players"]}
    assert elo.keys() == {"random", "positional", "step 12", "step 24"} and elo["random"] == 0
    fixed = ladder_of(APP, small_config)
    assert fixed is not None and elo["positional"] == fixed.known["positional"]
    opponents = [x["opponent"] for x in read_lines(tiny_run / "evaluations.jsonl")]
    assert opponents == ["random", "positional", "random", "positional", "step 12"]


def test_a_stopped_run_resumes_bitwise(
    tiny_run, small_config, tmp_path, monkeypatch, without_charts
):
    """SIGTERM after step 4; resumed, the next 20 lines are those of the undisturbed run."""
    folder = tmp_path / "stopped"
    update = View.update

    def stop_at_four(view, number, metrics, timings):
        update(view, number, metrics, timings)
        if number == 4:
            os.kill(os.getpid(), signal.SIGTERM)

    with without_charts(), monkeypatch.context() as patch:
        patch.setattr(View, "update", stop_at_four)
        train(APP, small_config, Options(out=folder))
    assert len((folder / "metrics.jsonl").read_bytes().splitlines()) == 4
    assert Checkpoints(folder / "checkpoints").latest == 4

    with without_charts():
        train(APP, small_config, Options(out=folder, resume=True))
    expected = (tiny_run / "metrics.jsonl").read_bytes().splitlines()
    resumed = (folder / "metrics.jsonl").read_bytes().splitlines()
    assert len(expected) == 24
    assert resumed[4:] == expected[4:] and resumed[:4] == expected[:4]
    for name in ("evaluations.jsonl", "episodes.jsonl"):
        assert (folder / name).read_bytes() == (tiny_run / name).read_bytes()
    assert read_of_run(folder / "elo.json") == read_of_run(tiny_run / "elo.json")


def test_a_run_of_before_has_pgxs_engine(tiny_run, small_config, tmp_path, run_main):
    """Its config.json names none. It can be loaded, and play against a run with ours, which then
    plans with its engine."""
    stored = json.loads((tiny_run / "config.json").read_text())
    assert stored.pop("env_engine") == "zero" and not stored.pop("lines")
    (tmp_path / "config.json").write_text(json.dumps(stored))
    shutil.copytree(tiny_run / "parameters", tmp_path / "parameters")
    before = load(APP, tmp_path)
    assert before.config == dataclasses.replace(small_config, env_engine="pgx")
    words = ["eval", tmp_path, "--opponent", tiny_run, "--games", 2, "--simulations", 2, "--json"]
    code, out, _ = run_main(main, "othello")(*words)
    assert code == 0 and json.loads(out.splitlines()[-1])["games"] == 2
    shutil.rmtree(tmp_path / "parameters")  # which say that they are no older ones
    with pytest.raises(RunError, match=r'env_engine "zero" \(stored: "pgx"\)\. Give the stored'):
        train(APP, small_config, Options(out=tmp_path, resume=True))


def test_tables_of_lines_are_learned(small_config):
    """They are the default's, and come with more channels of the heads."""
    assert PRESETS["quick"].lines
    agent = build_loop(dataclasses.replace(small_config, lines=True, blocks=0, channels=2)).agent
    network: Any = eqx.filter_eval_shape(agent.init, key=jr.key(0)).params
    assert network.lines.table.shape == (36_072, 8, 2) and not network.blocks
    assert network.policy_conv.weight.shape[-1] == 8


def test_the_player_searches_by_its_own_constants(small_config):
    given = {"search": "puct", "exploration": 0.5, "player_exploration": 3.0, "disc_weight": 1.0}
    agent: Any = build_loop(dataclasses.replace(small_config, **given)).agent
    assert (agent.explorer.selection.c, agent.planner.selection.c) == (0.5, 3.0)
    other: Any = build_loop(dataclasses.replace(small_config, **given | {"search": "muzero"})).agent
    assert other.explorer.selection.c == 0.5
    assert agent.planner.readout == LowerBound(2.0)  # a win by all discs is worth 2


@pytest.mark.slow
def test_both_engines_train_the_same(tiny_run, small_config, tmp_path):
    """And a run of before is resumed with pgx."""
    config = dataclasses.replace(small_config, env_engine="pgx")
    train(APP, config, Options(out=tmp_path))
    theirs, ours = (read_lines(x / "metrics.jsonl") for x in (tmp_path, tiny_run))
    for line, other in zip(theirs, ours, strict=True):
        assert line == pytest.approx(other, rel=1e-3)
    stored = json.loads((tmp_path / "config.json").read_text())
    del stored["env_engine"]
    (tmp_path / "config.json").write_text(json.dumps(stored))
    train(APP, config, Options(out=tmp_path, resume=True))
    assert json.loads((tmp_path / "config.json").read_text())["env_engine"] == "pgx"


@pytest.mark.slow
def test_tiny_runs_whole(tmp_path, scalars):
    """The hello-world preset as `othello train --preset tiny` runs it, on eight devices."""
    train(APP, PRESETS["tiny"], Options(out=tmp_path / "tiny", launch=Launch(devices=8)))
    lines = read_lines(tmp_path / "tiny" / "metrics.jsonl")
    assert len(lines) == PRESETS["tiny"].steps
    shown = scalars(tmp_path / "tiny")
    for line in lines:
        # An Elo after every epoch, and the loss is the sum of its printed parts.
        assert math.isfinite(shown["elo"][line["step"]]) and shown["elo_se"][line["step"]] > 0
        parts = line["policy_loss"] + line["value_loss"] + line.get("l2_loss", 0)
        assert line["loss"] == pytest.approx(parts, rel=1e-5)


@pytest.mark.parametrize("given", [{}, {"decisive_moves": False, "prior_temperature": 1.0}])
def test_the_player_alone_sees_decisive_moves_proves_and_has_a_flatter_policy(small_config, given):
    agent = build_loop(dataclasses.replace(small_config, **given)).agent
    actor: Any = lambda explore: agent.actor(agent.init(key=jr.key(0)), explore=explore)
    player, explorer = (eqx.filter_eval_shape(actor, explore) for explore in (False, True))
    found = player.model.decisive_moves, player.planner.selection.prior_temperature
    assert found == ((False, 1.0) if given else (True, 2.0))
    assert player.planner.max_return == (None if given else 1.0)
    assert not explorer.model.decisive_moves and explorer.planner.max_return is None
