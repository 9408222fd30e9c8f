"""Configurations of runs of earlier commits, in tests/configurations.json as these wrote them: for
each app that of its `quick`, `default` or `tuned` preset."""

import dataclasses
import json
from typing import Any

import pytest

from zero_app import load_config, UsageError
from zero_cli._apps import APPS

from . import workspace


STORED: dict[str, dict[str, Any]] = json.loads(
    (workspace.ROOT / "tests" / "configurations.json").read_text(encoding="utf-8")
)
#: What newer fields are in these runs: as they were trained before there was a choice.
ADDED = {
    "init": "",
    "actor_devices": 0,
    "schedule": "cosine",
    "warmup": 0,
    "env_engine": "pgx",
    "lines": False,
    "disc_weight": 0.0,
    "model_steps": 5,
    "reward_weight": 1.0,
    "temperature": 0.0,
    "normalise_observations": True,
    "reanalyse": 0.0,
    "consistency": 0.0,
    "value_prefix": 0,
    "correction": 0,
    "candidates": 20,
    "entropy_bonus": 0.0,
    "entropy_decay": 1.0,
    "value_scale": 0.0,
    "decay": 1.0,
    "memory": False,
    "memory_steps": 16,
    "player_exploration": 1.25,
    "prior_temperature": 1.0,
    "decisive_moves": False,
    "opening_plies": 0,
    "step_penalty": 0.0,
}


@pytest.mark.parametrize("app", list(APPS))
@pytest.mark.parametrize("commit", list(STORED))
def test_a_run_of_an_earlier_commit_is_loaded_or_refused(app, commit, tmp_path):
    """Every stored value is kept, or one line says by name what is in the way."""
    stored = STORED[commit][app]
    (tmp_path / "config.json").write_text(json.dumps(stored))
    if "ladder_every" in stored:
        with pytest.raises(UsageError, match="it lacks evaluate_every, and has ladder_every"):
            load_config(APPS[app].config, tmp_path, app)
        return
    config = dataclasses.asdict(load_config(APPS[app].config, tmp_path, app))
    newer = {name: value for name, value in config.items() if name not in stored}
    # Players of Othello were measured to be stronger so, whenever they were trained.
    stronger = {"player_exploration": 2.5, "prior_temperature": 2.0, "decisive_moves": True}
    added = ADDED | (stronger if app == "othello" else {})
    assert newer == {name: added[name] for name in newer} and "init" in newer
    assert {name: config[name] for name in stored} == stored
