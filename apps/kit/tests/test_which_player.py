"""Players of a run by their steps, and the best of those that were evaluated."""

import dataclasses
import json
import pathlib
import shutil
from collections.abc import Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from zero_app import AbstractConfig, App, CheckpointError, Checkpoints, load, RunError, UsageError
from zero_app._run._players import has_player, player_shapes

from .nim import shared_loop


@dataclasses.dataclass(frozen=True)
class Config(AbstractConfig):
    pass


LOOP = shared_loop()
APP = App("nim", "Nim.", {"tiny": Config()}, lambda config: LOOP)


def saved_run(folder: pathlib.Path, steps: Iterable[int]) -> pathlib.Path:
    """A run in `folder`. Its player of a step has this number everywhere."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(dataclasses.asdict(Config())))
    saved = Checkpoints(folder / "parameters", keep=None)
    for step in steps:
        full = lambda x, step=step: jnp.full(x.shape, step, x.dtype)
        saved.save(step, jax.tree.map(full, player_shapes(LOOP)))
    return folder


@pytest.fixture
def run(tmp_path) -> pathlib.Path:
    return saved_run(tmp_path / "run", (0, 3, 6, 8))


def evaluated(run: pathlib.Path, rows: Iterable[tuple[int, Mapping[str, Any]]]) -> None:
    lines = [json.dumps({"step": step, **row}) + "\n" for step, row in rows]
    (run / "evaluations.jsonl").write_text("".join(lines))


def test_a_player_goes_by_its_step(run):
    for name, step in ((f"{run}@0", 0), (f"{run}@6", 6), (f"{run}@000003", 3), (f"{run}", 8)):
        found: Any = load(APP, name)
        assert found.step == step and has_player(APP, name)
        np.testing.assert_array_equal(found.player.model.evaluate.network.hidden.weight, step)
    for which, said in (
        ("7", "Checkpoint 7 was not found in .*; it has 0, 3, 6, 8"),
        ("beast", "after .*run@ give the number of a step, or best"),
        ("", "after .*run@ give the number of a step, or best"),
    ):
        with pytest.raises((UsageError, CheckpointError), match=said):
            load(APP, f"{run}@{which}")
    # What exists is meant before a step.
    shutil.copytree(run, f"{run}@6")
    assert load(APP, f"{run}@6").step == 8


def test_where_the_newest_player_is_damaged_the_one_before_it_plays(run, capsys):
    for step, before in ((8, 6), (6, 3), (3, 0)):
        (run / "parameters" / f"{step:08d}" / "manifest.json").unlink()
        assert load(APP, run).step == before
        said = capsys.readouterr().err.splitlines()
        assert f"{step:08d} is damaged" in said[-1] and f"checkpoint {before} is used" in said[-1]
    (run / "parameters" / "00000000" / "manifest.json").unlink()
    with pytest.raises(CheckpointError, match="00000008 is damaged.*no other") as raised:
        load(APP, run)
    assert "\n" not in str(raised.value)


def test_an_earlier_player_that_is_damaged_is_refused(run):
    (run / "parameters" / "00000006" / "manifest.json").unlink()
    with pytest.raises(CheckpointError, match="00000006 is damaged: manifest.json cannot be read"):
        load(APP, f"{run}@6")


@pytest.mark.parametrize(
    ("rows", "best"),
    [
        # Of equals the later one, by the first line of each evaluation.
        ([(3, {"score": 0.5}), (6, {"score": 0.7}), (6, {"score": 0.1}), (8, {"score": 0.7})], 8),
        ([(3, {"win_rate": 0.2, "return_mean": 1}), (6, {"win_rate": 0.1, "return_mean": 2})], 3),
        ([(3, {"return_mean": -1}), (6, {"return_mean": -2.5}), (8, {"return_mean": None})], 3),
    ],
)
def test_the_best_is_found(run, rows, best):
    evaluated(run, rows)
    assert load(APP, f"{run}@best").step == best


def test_the_best_is_that_of_the_ratings_where_there_are_any(run):
    with pytest.raises(UsageError, match="@best was given, and no player of .*run was evaluated"):
        load(APP, f"{run}@best")
    evaluated(run, [(3, {"score": 0.5}), (6, {"score": 0.9})])
    ratings = [("random", None, 50.0), ("step 3", 3, 20.0), ("step 6", 6, 10.0)]
    players = [{"name": name, "step": step, "elo": elo} for name, step, elo in ratings]
    (run / "elo.json").write_text(json.dumps({"players": players}))
    assert load(APP, f"{run}@best").step == 3
    for damaged in ({}, {"players": [{"step": 3}]}, [1]):
        (run / "elo.json").write_text(json.dumps(damaged))
        with pytest.raises(
            RunError, match=r"elo.json (is damaged|has no elo).* --resume writes it"
        ):
            load(APP, f"{run}@best")
    (run / "elo.json").unlink()
    evaluated(run, [(3, {"score": 0.5}), (6, {"score": "x"})])
    with pytest.raises(RunError, match=r'line 2 of .*evaluations.jsonl has "x" as its score, not'):
        load(APP, f"{run}@best")
