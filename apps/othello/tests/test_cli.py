"""Bad input to the command line: one clear line, exit code 2, nothing written."""

import json

import pytest

from zero_app import COMMANDS
from zero_othello.__main__ import main
from zero_othello._app import APP


@pytest.fixture
def othello(run_main):
    """Runs `othello WORDS` in this process; returns its exit code, stdout and stderr."""
    return run_main(main, "othello")


@pytest.mark.parametrize(
    "words, message",
    [
        (
            ["trian"],
            "no command is called 'trian'; choose one of train, sweep, play, serve, gtp, watch,",
        ),
        (["train", "--preset", "slow"], "--preset slow is unknown; choose one of tiny, quick,"),
        (["train", "--preset"], "--preset"),
        (["train", "--envs", "many"], "--envs many was given; give a whole number."),
        (["train", "--simulation", "8"], "--simulation is no flag of othello train; did you mean"),
        (["train", "--seed", 2**70], "--seed 1180591620717411303424 was given; give 0 to 4294967"),
        (
            ["train", "--simulations", 10**20],
            f"--simulations {10**20} was given; give 1 to 1000000.",
        ),
        (["train", "--envs", "0"], "--envs 0 was given; give at least 1."),
        (["train", "--noise", "3"], "--noise 3.0 was given; give 0 to 1."),
        (["train", "--learning-rate", "nan"], "--learning-rate nan was given; give 1e-12 to 1."),
        (["train", "--capacity", "64"], "--capacity 64 was given; give at least 256."),
        (["train", "--envs", "8", "--batch", "4096"], "leaves room for 3072 positions"),
        (["train", "--search", "puct", "--nodes", "8"], "--nodes 8 cannot hold the root and"),
        (["train", "--nodes", "99"], "--nodes has no effect with --search gumbel; leave it out."),
        (["train", "--exploration", "1"], "--exploration has no effect with --search gumbel; le"),
        (["train", "--engine", "mctx", "--nodes", "99"], "--nodes has no effect with --engine mct"),
        (["train", "--search", "puct", "--considered", "4"], "has no effect with --search puct;"),
        (
            ["train", "--search", "puct", "--noise", "0", "--concentration", "4"],
            "--concentration has no effect with --noise 0.0; leave it out.",
        ),
        (["train", "--ladder-games", "7"], "--ladder-games 7 is odd"),
        (["train", "--engine", "mctx", "--search", "puct"], "--engine mctx has no --search puct"),
        (["train", "--env-engine", "pgx", "--disc-weight", "1"], "--disc-weight 1 is not for"),
        (["train", "--batch", "100"], "--batch 100 does not divide into --shards 8"),
        (["train", "--envs", "12"], "--envs 12 does not divide into --shards 8"),
        (["train", "--devices", "3"], "--shards 8 does not divide over 3 devices"),
        (["eval", "nowhere"], "nowhere holds no run (no config.json)"),
        (["eval", "--games", "7"], "--games 7 was given; give an even number"),
        (["eval", "nowhere", "--simulations", "-1"], "--simulations -1 was given; give 0"),
        (["play", "nowhere"], "nowhere holds no run"),
        (["gtp", "nowhere"], "nowhere holds no run"),
    ],
)
def test_bad_input_gets_one_line(othello, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    code, out, err = othello(*words)
    assert code == 2
    assert message in err
    assert err.count("\n") == 1 and out == ""
    assert list(tmp_path.iterdir()) == []


def test_a_folder_in_use_is_left_alone(othello, tmp_path):
    (tmp_path / "thesis.txt").write_text("precious")
    code, _, err = othello("train", "--preset", "tiny", "--out", tmp_path)
    assert code == 2 and "is not empty" in err and "--resume" in err
    assert [x.name for x in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_player_is_measured_against_a_fixed_one(othello, tiny_run):
    words = "eval", tiny_run, "--games", 4, "--simulations", 0, "--json", "--opponent"
    code, out, _ = othello(*words, "positional")
    row = json.loads(out)
    assert code == 0 and (row["opponent"], row["games"], row["step"]) == ("positional", 4, 24)
    code, _, err = othello(*words, "edax")
    known = "uct, uct-200, uct-1000, uct-5000, alpha-beta-4, alpha-beta-6, ladder, pretrained"
    assert code == 2 and f"give random, greedy, positional, {known}, or another run" in err


def test_help_lists_every_hyperparameter(othello):
    import dataclasses

    from zero_othello._config import Config

    code, out, _ = othello("train", "--help")
    assert code == 0
    for field in dataclasses.fields(Config):
        assert f"--{field.name.replace('_', '-')}" in out


def test_no_field_takes_what_cannot_be_computed_with(check_every_field):
    from zero_othello._config import PRESETS

    check_every_field(PRESETS["tiny"])


def test_a_player_is_judged_in_solved_positions(othello, tiny_run):
    """By moves that are legal in the position, whichever engine plays it."""
    words = "eval", tiny_run, "--suite", "endgames", "--simulations", 0
    code, out, _ = othello(*words, "--json")
    row = json.loads(out)
    assert code == 0 and (row["suite"], row["positions"], row["step"]) == ("endgames", 500, 24)
    assert 0 < row["best"] < row["kept"] < 1 and row["loss_mean"] > 5  # it has learned nothing
    code, out, _ = othello("eval", "pretrained", *words[2:], "--json")
    assert code == 0 and json.loads(out)["kept_low"] > row["kept_high"]
    code, _, err = othello("eval", tiny_run, "--suite", "begin-easy")
    assert code == 2 and err == "othello: --suite begin-easy is unknown; give endgames or all.\n"


@pytest.mark.parametrize("command", ["eval", "play", "gtp"])
def test_no_flag_takes_a_number_that_cannot_be(check_every_number, othello, command):
    check_every_number(othello, command, {**APP.commands, **COMMANDS}[command])
