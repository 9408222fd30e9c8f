"""The command line: one JSON line, and one clear line for bad input."""

import json
import sys

import pytest

from zero_minesweeper.__main__ import main


def run(monkeypatch, capsys, *words: object) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["minesweeper", *map(str, words)])
    code = 0
    try:
        main()
    except SystemExit as stop:
        code = int(stop.code or 0)
    said = capsys.readouterr()
    return code, said.out, said.err


SMALL = ["--rows", 3, "--columns", 4, "--mines", 2, "--boards", 20]


def test_one_line_of_json(monkeypatch, capsys):
    code, out, _ = run(monkeypatch, capsys, "eval", "--agent", "rules", *SMALL, "--json")
    row = json.loads(out)
    assert code == 0 and out.count("\n") == 1
    assert list(row) == [
        "agent",
        "boards",
        "win_rate",
        "win_se",
        "win_rate_raw",
        "return_mean",
        "return_se",
        "needless_risks",
        "moves_per_second",
    ]
    assert row["agent"] == "rules" and row["boards"] == 20 and row["moves_per_second"] > 0


def test_figures_to_read(monkeypatch, capsys):
    code, out, _ = run(monkeypatch, capsys, "eval", "--agent", "random", *SMALL)
    assert code == 0 and "random, 20 boards of 3 x 4 with 2 mines:" in out
    assert "wins" in out and "of 10" in out and "needless risks" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["evaluate"], "no command is called 'evaluate'; choose one of eval."),
        (["eval", "--agent", "cheat"], "--agent cheat is unknown; choose one of tiebreak,"),
        (["eval", "--boards", 1], "--boards 1 was given; give at least 2."),
        (["eval", "--mines", 100], "100 cells hold 0 to 99 mines"),
        (["eval", "--rows", 1], "--rows 1 was given; give at least 2."),
        (["eval", "--layouts", 0], "--layouts 0 was given; give at least 1."),
        (["eval", "--board", 10], "--board is no flag of minesweeper eval; did you mean --boards?"),
        (["eval", "--seed", -1], "--seed -1 was given; give 0 to 4294967295."),
    ],
)
def test_bad_input_gets_one_line(monkeypatch, capsys, words, message):
    code, out, err = run(monkeypatch, capsys, *words)
    assert code == 2 and message in err and err.count("\n") == 1 and out == ""
