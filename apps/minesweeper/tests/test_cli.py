"""The command line: one JSON line, and one clear line for bad input."""

import json

import pytest


#: So that their programs are those of test_measure.py.
SMALL = ["--rows", 3, "--columns", 4, "--mines", 2, "--max-states", 32, "--boards", 50]


def test_one_line_of_json(minesweeper):
    code, out, _ = minesweeper("eval", "--agent", "rules", *SMALL, "--json")
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
    assert row["agent"] == "rules" and row["boards"] == 50 and row["moves_per_second"] > 0


def test_figures_to_read(minesweeper):
    code, out, _ = minesweeper("eval", "--agent", "random", *SMALL)
    assert code == 0 and "random, 50 boards of 3 x 4 with 2 mines; ± is a 95 % interval:" in out
    assert "wins" in out and " ± " in out and "of 10" in out and "needless risks" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["evaluate"], "no command is called 'evaluate'; choose one of train, sweep, eval"),
        (["eval", "--agent", "cheat"], "agent 'cheat' is unknown; choose one of network,"),
        (["eval", "--boards", 1], "--boards 1 was given; give 2 to 100000000."),
        (["eval", "--agent", "rules", "--mines", 100], "give 0 to 99, as one cell is safe"),
        (["eval", "--rows", 1], "--rows 1 was given; give 2 to 100."),
        (["eval", "--rows", 100000, "--columns", 100000], "--rows 100000 was given; give 2 to"),
        (["train", "--rows", 100000, "--columns", 100000], "--rows 100000 was given; give 2 to"),
        (["eval", "--agent", "rules", "--max-states", 100], "max_states=100"),
        (["eval", "nowhere"], "nowhere holds no run (no config.json)"),
        (["compare", "--agents", "tiebreak", "cheat"], "agent 'cheat' is unknown"),
        (["train", "--mines", 200], "give 0 to 99, as one cell is safe"),
        (["train", "--batch", 5], "--batch 5 does not divide into --shards 8"),
        (["train", "--capacity", 5], "--capacity 5 holds no window of --length 33"),
        (["train", "--devices", 3], "--shards 8 does not divide over 3 devices"),
        (["eval", "--layouts", 0], "--layouts 0 was given; give 1 to 65536."),
        (["eval", "--boards", 10**12], "--boards 1000000000000 was given; give 2 to 100000000."),
        (
            ["eval", "--agent", "tiebreak", "--layouts", 8],
            "--layouts does not apply to tiebreak; it is for belief,",
        ),
        (
            ["compare", "--agents", "rules", "hindsight-8", "--simulations", 8],
            "--simulations does not apply to rules, hindsight-8; it is for belief, belief-constant",
        ),
        (
            ["eval", "--agent", "belief-constant", "--layouts", 65536],
            "over 65536 layouts of 100 cells would take 54 GB; give fewer --simulations or",
        ),
        (["eval", "--agent", "hindsight-1000000"], "agent 'hindsight-1000000' is unknown"),
        (["watch", "--delay", 1e10], "--delay 10000000000.0 was given; give 0 to 3600."),
        (["eval", "--board", 10], "--board is no flag of minesweeper eval; did you mean --boards?"),
        (["eval", "--seed", -1], "--seed -1 was given; give 0 to 4294967295."),
    ],
)
def test_bad_input_gets_one_line(minesweeper, words, message):
    code, out, err = minesweeper(*words)
    assert code == 2 and message in err and err.count("\n") == 1 and out == ""


def test_agents_beside_each_other(minesweeper):
    """The yardstick first, whoever else is named; the others' wins beside it, board by board."""
    words = ["compare", "--agents", "random", "rules", "tiebreak", *SMALL]
    code, out, _ = minesweeper(*words, "--json")
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 0 and [row["agent"] for row in rows] == ["tiebreak", "random", "rules"]
    for row in rows[1:]:
        more = row["win_rate"] - rows[0]["win_rate"]
        assert row["wins_more"] == pytest.approx(more, abs=1e-6) and row["wins_more_se"] > 0
    code, out, _ = minesweeper(*words)
    assert code == 0 and "50 boards of 3 x 4 with 2 mines" in out
    assert [line.split()[0] for line in out.splitlines()[3:]] == ["tiebreak", "random", "rules"]


def test_two_that_lose_all_boards_differ_by_an_error_too(minesweeper):
    size = ("--rows", 4, "--columns", 4, "--mines", 11, "--max-states", 4096, "--boards", 8)
    code, out, _ = minesweeper("compare", "--agents", "tiebreak", "random", *size, "--json")
    row = json.loads(out.splitlines()[-1])
    assert code == 0 and row["win_rate"] == row["wins_more"] == 0 and row["wins_more_se"] > 0.05


@pytest.mark.parametrize("words", [["eval", "--agent", "rules"], ["compare", "--agents", "rules"]])
def test_risks_that_do_not_fit_are_told(minesweeper, words):
    code, out, err = minesweeper(*words, *SMALL, "--max-states", 1)
    assert code == 0 and "wins" in out and "moves of rules" in err
    assert "the posterior needs more than 1 states" in err and err.count("\n") == 1


def test_no_field_takes_what_cannot_be_computed_with(check_every_field):
    from zero_minesweeper._config import PRESETS

    check_every_field(PRESETS["tiny"])


@pytest.mark.parametrize("command", ["eval", "compare", "watch", "play", "serve"])
def test_no_flag_takes_a_number_that_cannot_be(check_every_number, minesweeper, command):
    from zero_minesweeper._app import APP

    kind = APP.commands[command]
    check_every_number(minesweeper, command, kind)
