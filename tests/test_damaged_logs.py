"""Whatever an entry of a log is: reports and `compare` can read it, or name the file and line."""

import itertools
import json
import pathlib
import re
from typing import Any

import pytest

from zero_app import App, ratings, RunError, StoredRun, write_report
from zero_app._run._compare import last_evaluation
from zero_app._run._curves import evaluation_charts, training_charts
from zero_cli._apps import APPS


_RETURN = {"return_mean": 2.0, "return_se": 0.5, "length_mean": 9.0}
_SCORE = {"score": 0.5, "score_low": 0.4, "score_high": 0.6, "games": 100}
_COUNTS = {"wins": 40, "draws": 20, "losses": 40}
_WON = {"win_rate": 0.5, "loss_rate": 0.25}
#: A row of each app's evaluations.
_ROWS: dict[str, dict[str, Any]] = {
    "zero": {**_SCORE, **_COUNTS},
    "spo": {**_RETURN, "episodes": 40},
    "othello": {"opponent": "random", "simulations": 0, **_SCORE, **_COUNTS},
    "minesweeper": {"agent": "belief", "boards": 9, "win_se": 0.1, "needless_risks": 0}
    | {**_RETURN, **_WON},
    "monsters": {"planner": "chance", "simulations": 9, "leaf": "network", "rollouts": 9}
    | {**_RETURN, **_WON, "regret_mean": 0.1},
}
_METRICS = {"positions": 9, "games": 1, "policy_loss": 1.0, "gradient_norm": 2.0}
_TIMINGS = {"seconds": 1.0, "host_bytes": 9, "positions_per_second": 3.0}
_NOT_SO: list[Any] = ["x", [1], {}, None, -2, True, float("inf"), float("nan"), 10**400]


def _write(folder: pathlib.Path, name: str, row: dict[str, Any], damaged: dict[str, Any]) -> None:
    lines = [{"step": 1, **row}, {"step": 2, **damaged}, {"step": 3, **row}]
    (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.mark.parametrize("name", APPS)
def test_an_entry_that_is_something_else_or_missing_is_named(tmp_path, monkeypatch, name):
    monkeypatch.setattr("zero_app._run._chart.draw", lambda series, **_: "<svg/>")
    logs = {"metrics": _METRICS, "timings": _TIMINGS, "evaluations": _ROWS[name]}
    refused = 0
    for log, row in logs.items():
        for entry in ("step", *row):
            without = {key: value for key, value in row.items() if key != entry}
            for damaged in (without, *({**row, entry: value} for value in _NOT_SO)):
                for other in logs:
                    _write(tmp_path, f"{other}.jsonl", logs[other], logs[other])
                _write(tmp_path, f"{log}.jsonl", row, damaged)
                try:
                    write_report(APPS[name], tmp_path)
                    runs = {name: [StoredRun.read(tmp_path)] for name in "ab"}
                    last_evaluation(runs, None)
                    for chart in (*evaluation_charts(runs, None), *training_charts(runs)):
                        list(chart.pictures())
                except RunError as e:
                    refused += 1
                    assert f"ine 2 of {tmp_path / f'{log}.jsonl'} " in str(e), (entry, damaged)
                    assert "\n" not in str(e)
    assert refused > 30


@pytest.mark.parametrize(
    ("entry", "wrong"),
    [*itertools.product(["step", "name", "elo", "se"], [["x"], True]), ("step", 2.5)],
)
def test_a_rating_that_is_something_else_is_named(tmp_path, monkeypatch, entry, wrong):
    monkeypatch.setattr("zero_app._run._chart.draw", lambda series, **_: "<svg/>")
    row = {"step": 3, "name": "step 3", "elo": 9.0, "se": 2.0}
    players = [{**row, "step": None, "name": "random"}, {**row, entry: wrong}]
    (tmp_path / "elo.json").write_text(json.dumps({"players": players}))
    for read in (ratings, lambda folder: write_report(APPS["othello"], folder)):
        said = re.escape(f"elo.json has {json.dumps(wrong)} as its {entry}")
        with pytest.raises(RunError, match=f"Player 2 of .*{said}"):
            read(tmp_path)


def test_a_mistake_of_a_page_is_not_said_to_be_one_of_the_logs(tmp_path):
    def page(run: StoredRun) -> Any:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        write_report(App("any", "Any.", {}, lambda config: pytest.fail(), page=page), tmp_path)
