"""The leaderboard: its page is what its lines say, and what a speedrun counts."""

import json
import os
import sys
from typing import Any

import pytest

from . import workspace


@pytest.fixture
def board():
    return workspace.module("docs/_leaderboard.py")


def line(first: float | None = 50.0, second: float | None = 60.0, **changes: Any) -> dict[str, Any]:
    """Of a seed that passed two bars after so many minutes, or missed them."""
    bars = [
        {"flags": flags, "figure": "score", "bar": 0.5, "value": 0.25, "step": 9, "minutes": taken}
        for flags, taken in (("--opponent a", first), ("--opponent b", second))
    ]
    row = dict(player="zero", game="othello", level="hour", seed=1, bars=bars, commit="0123456789",
               date="2026-11-27", command="zero train", hardware="2 cores of one")  # fmt: skip
    return row | changes


def test_the_page_is_up_to_date(board):
    rows = board.read(board.LINES.read_text(encoding="utf-8"))
    said = "run: python docs/_leaderboard.py"
    assert board.PAGE.read_text(encoding="utf-8") == board.page(rows), said


def test_seeds_are_one_row_and_who_passes_more_comes_first(board):
    rows = [line(5, minutes, seed=seed) for seed, minutes in ((1, 50), (2, 20), (3, 40.0))]
    rows += [line(1, None, player="fast"), line(6, 30, player="other")]
    table = [x for x in board.page(rows).splitlines() if x.startswith("| ")]
    assert table[0].startswith("| `--opponent a`: score 0.5 | `--opponent b`: score 0.5 | player |")
    assert [row.split(" | ")[:4] for row in table[1:]] == [
        ["| 6.0", "30.0", "other", "1"],
        ["| 5.0", "40.0", "zero", "3"],
        ["| 1.0", "(0.25)", "fast", "1"],
    ]


def test_a_bar_is_missed_where_half_of_the_seeds_miss_it(board):
    rows = [line(5, x, seed=seed) for seed, x in ((1, 50), (2, None), (3, 60))]
    assert "| 5.0 | 60.0 | zero | 3 |" in board.page(rows)
    assert "| 5.0 | (0.25) | zero | 2 |" in board.page(rows[:2])


def test_a_line_that_lacks_something_is_named(board):
    lacks = line()
    del lacks["commit"]
    with pytest.raises(ValueError, match="line 2 .* has no commit of str"):
        board.read(f"{json.dumps(line())}\n{json.dumps(lacks)}")
    lacks = line()
    del lacks["bars"][1]["value"]
    with pytest.raises(ValueError, match="line 1 .* has no value of float"):
        board.read(json.dumps(lacks))
    del (lacks := line())["bars"][0]["minutes"]
    with pytest.raises(ValueError, match="line 1 .* has no minutes of float . None"):
        board.read(json.dumps(lacks))
    other = line()
    other["bars"][0]["bar"] = 0.4
    with pytest.raises(ValueError, match="line 2 .* has other bars than those before it"):
        board.read(f"{json.dumps(line())}\n{json.dumps(other)}")
    for wrong in ("[]", "{", ""):
        with pytest.raises(ValueError, match="line 2 of leaderboard.jsonl is no JSON object"):
            board.read(f"{json.dumps(line())}\n{wrong}\n{json.dumps(line())}")


def test_a_speedrun_finds_the_first_player_above_each_bar(monkeypatch, tmp_path):
    """By bisection, and equal flags of a player are measured once. A quarter of the games is
    enough where its interval does not hold the bar."""
    speedrun, asked = workspace.module("benchmarks/_speedrun.py"), []
    strength = {0: 0.1, 100: 0.4, 200: 0.8, 300: 0.9}

    def eval_says(app, words):
        asked.append(words)
        step = int(words[1].rpartition("@")[2])
        score = strength[step]
        said = {"score": score, "score_low": score - 0.2, "score_high": score + 0.2}
        print(json.dumps(said | {"kept": score, "loss_mean": 2.0}))

    monkeypatch.setattr(speedrun, "run", eval_says)
    monkeypatch.setattr(speedrun, "app_of", lambda player: ("app", player))
    for step in strength:
        folder = tmp_path / "parameters" / f"{step:08d}"
        folder.mkdir(parents=True)
        os.utime(folder, (step, step))
    bars = [("--opponent random", "score", 0.5), ("--suite a", "kept", 0.9),
            ("--suite a", "loss_mean", 1.5), ("--suite a", "loss_mean", 2.0)]  # fmt: skip
    found = speedrun.passed(tmp_path, 0.0, bars, 40)
    assert [(x["value"], x["step"], x["minutes"]) for x in found] == [
        (0.8, 200, 3.3),
        (0.9, 300, 5.0),
        (2.0, 300, None),
        (2.0, 0, 0.0),
    ]
    assert [(words[2], words[1].rpartition("@")[2]) for words in asked] == [
        ("--opponent", "200"),
        ("--opponent", "100"),
        ("--opponent", "100"),
        ("--suite", "200"),
        ("--suite", "300"),
        ("--suite", "100"),
        ("--suite", "0"),
    ]
    games = [words[words.index("--games") + 1] for words in asked if "--games" in words]
    assert games == ["10", "10", "40"]


@pytest.mark.parametrize(
    "flags, said",
    [
        (["--cores", "4096"], "--cores 4096 was given, and there are "),
        (["--games", "401"], "--games 401 was given; give an even number, 2 or more"),
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
