"""The leaderboard: its page is what its lines say, and what a speedrun counts."""

import json
import sys
from typing import Any

import pytest

from . import workspace


@pytest.fixture
def board():
    return workspace.module("docs/_leaderboard.py")


def line(**changes: Any) -> dict[str, Any]:
    row = dict(player="zero", game="othello", level="hour", seed=1, minutes=50.0, step=9, passed=7,
               bars=7, figures={}, commit="0123456789", date="2026-11-27", command="zero train",
               hardware="2 cores of one")  # fmt: skip
    return row | changes


def test_the_page_is_up_to_date(board):
    rows = board.read(board.LINES.read_text(encoding="utf-8"))
    said = "run: python docs/_leaderboard.py"
    assert board.PAGE.read_text(encoding="utf-8") == board.page(rows), said


def test_seeds_are_one_row_and_who_passes_more_comes_first(board):
    rows = [line(seed=seed, minutes=minutes) for seed, minutes in ((1, 50), (2, 20), (3, 40.0))]
    rows += [line(player="fast", minutes=1, passed=6), line(player="other", minutes=30)]
    table = [x for x in board.page(rows).splitlines() if x.startswith("| ")][1:]
    assert [row.split(" | ")[:4] for row in table] == [
        ["| other", "7 of 7", "30.0", "1"],
        ["| zero", "7 of 7", "40.0", "3"],
        ["| fast", "6 of 7", "1.0", "1"],
    ]


def test_minutes_of_a_seed_that_misses_a_bar_are_no_fast_ones(board):
    """Two of three pass: the middle one is the slower of these, as a speedrun itself says."""
    rows = [
        line(seed=seed, minutes=m, passed=p) for seed, m, p in ((1, 50, 7), (2, 9, 6), (3, 60, 7))
    ]
    assert "| zero | 7 of 7 | 60.0 | 3 |" in board.page(rows)
    assert "| zero | 6 of 7 | 9.0 | 2 |" in board.page(rows[:2])


def test_a_line_that_lacks_something_is_named(board):
    lacks = line()
    del lacks["commit"]
    with pytest.raises(ValueError, match="line 2 .* has no commit of str"):
        board.read(f"{json.dumps(line())}\n{json.dumps(lacks)}")
    for wrong in ("[]", "{", ""):
        with pytest.raises(ValueError, match="line 2 of leaderboard.jsonl is no JSON object"):
            board.read(f"{json.dumps(line())}\n{wrong}\n{json.dumps(line())}")


def test_a_speedrun_counts_the_first_player_that_passes(monkeypatch, tmp_path):
    """Bars are tried in order until one is missed, and equal flags are measured once."""
    speedrun, asked = workspace.module("benchmarks/_speedrun.py"), []
    strength = {100: 0.4, 200: 0.8, 300: 0.9}

    def eval_says(app, words):
        asked.append(words)
        step = int(words[1].rpartition("@")[2])
        print(json.dumps({"score": strength[step], "kept": strength[step], "loss_mean": 2.0}))

    monkeypatch.setattr(speedrun, "run", eval_says)
    monkeypatch.setattr(speedrun, "app_of", lambda player: ("app", player))
    monkeypatch.setattr(speedrun, "load", lambda app, player: type("", (), {"origin": {}}))
    for step in strength:
        (tmp_path / "parameters" / f"{step:08d}").mkdir(parents=True)
    bars = [("--opponent random", "score", 0.5), ("--suite a", "kept", 0.7),
            ("--suite a", "loss_mean", 2.5)]  # fmt: skip
    row = speedrun.first(tmp_path, 0.0, bars, 40)
    assert (row["step"], row["passed"], row["bars"]) == (200, 3, 3)
    assert [words[1][-3:] for words in asked] == ["100", "200", "200"]
    assert ["--games" in words for words in asked] == [True, True, False]
    row = speedrun.first(tmp_path, 0.0, [*bars, ("--suite a", "loss_mean", 1.5)], 40)
    assert (row["step"], row["passed"], row["bars"]) == (200, 3, 4)
    assert row["figures"]["--suite a: loss_mean"] == 2.0
    # Where none passes it is no untrained player, which was kept first.
    row = speedrun.first(tmp_path, 0.0, [("--opponent random", "score", 0.95)], 40)
    assert (row["step"], row["passed"], row["figures"]) == (
        300,
        0,
        {"--opponent random: score": 0.9},
    )


@pytest.mark.parametrize(
    "flags, said",
    [
        (["--cores", "4096"], "--cores 4096 was given, and there are "),
        (["--cores", "0"], "--cores 0 was given, and there are "),
        (["--", "--resume"], "--resume is set for each seed; leave it out after --"),
        (["--", "--out=x"], "--out is set for each seed; leave it out after --"),
    ],
)
def test_what_would_make_a_wrong_line_is_refused(flags, said, monkeypatch, capsys):
    """Before a minute is trained."""
    speedrun = workspace.module("benchmarks/_speedrun.py")
    monkeypatch.setattr(speedrun, "trained", lambda words: pytest.fail("it trained"))
    monkeypatch.setattr(sys, "argv", ["speedrun", "short", *flags])
    with pytest.raises(SystemExit) as stopped:
        speedrun.speedrun("nim", {"short": (1, [])}, None)
    assert stopped.value.code == 2 and said in capsys.readouterr().err


def test_a_training_that_fails_says_so_in_its_own_words(monkeypatch, capfd):
    speedrun = workspace.module("benchmarks/_speedrun.py")
    monkeypatch.setattr(sys, "executable", "false")
    with pytest.raises(SystemExit) as stopped:
        speedrun.trained(["train", "othello"])
    assert stopped.value.code == 1 and capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", ["othello_speedrun", "connect_four_speedrun"])
def test_a_speedrun_is_explained(name, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    monkeypatch.syspath_prepend(str(workspace.ROOT / "benchmarks"))
    import runpy

    with pytest.raises(SystemExit):
        runpy.run_path(str(workspace.ROOT / "benchmarks" / f"{name}.py"), run_name="__main__")
    assert "ten-minutes" in (out := capsys.readouterr().out) or "hour" in out
