"""Bad input to the command line: one clear line, exit code 2, nothing written."""

import dataclasses

import pytest

from zero_monsters._config import Config


@pytest.mark.parametrize(
    "words, message",
    [
        (["trian"], "no command is called 'trian'; choose one of train, sweep, plan, eval, watch,"),
        (["train", "--preset", "slow"], "--preset slow is unknown; choose one of tiny, default,"),
        (["train", "--envs", "many"], "--envs many was given; give a whole number."),
        (["train", "--simulation", "8"], "--simulation is no flag of monsters train; did you"),
        (["train", "--world", "flat"], "--world flat was given; give one of moving, stationary."),
        (["train", "--planner", "fast"], "planner 'fast' is unknown; choose frozen, chance, or"),
        (["train", "--planner", "hindsight-32"], "32 simulations for the 32 trees of"),
        (["train", "--planner", "hindsight-0"], "planner 'hindsight-0' is unknown"),
        (
            ["train", "--simulations", "64", "--planner", "hindsight-12"],
            "50 simulations for the 12",
        ),
        (["train", "--noise", "3"], "--noise 3.0 was given; give 0 to 1."),
        (["train", "--noise", "0", "--alpha", "2"], "--alpha has no effect with --noise 0.0; lea"),
        (["train", "--network", "original", "--width", "8"], "--width has no effect with --networ"),
        (["train", "--capacity", "9"], "--capacity 9 holds no window of --length 17"),
        (["train", "--batch", "100"], "--batch 100 does not divide into --shards 8"),
        (["train", "--devices", "3"], "--shards 8 does not divide over 3 devices"),
        (["train", "--first-play", "nan"], "must be finite"),
        (["train", "--temperature", "inf"], "--temperature inf was given; it must be finite."),
        (["train", "--seed", 2**32], "--seed 4294967296 was given; give 0 to 4294967295."),
        (
            ["train", "--devices", "8", "--actor-devices", "3"],
            "--envs 64 does not divide into --actor-devices 3; give a multiple of 3",
        ),
        (
            ["train", "--devices", "8", "--actor-devices", "1"],
            "--shards 8 does not divide over the 7 of 8 devices that learn; give",
        ),
        (["train", "--devices", "2", "--actor-devices", "2"], "--actor-devices 2 of 2 device(s)"),
        (["eval", "nowhere"], "nowhere holds no run (no config.json); give the folder of a run"),
        (
            ["eval", "nowhere", "--rollouts", "1"],
            "monsters: --rollouts 1 was given; give 2 to 100000000.",
        ),
        (["plan", "--rollouts", 10**18], f"--rollouts {10**18} was given; give 2 to 100000000."),
        (["plan", "--simulations", 50, 10**20], f"--simulations {10**20} was given; give 1 to 10"),
        (["watch", "nowhere"], "nowhere holds no run (no config.json)"),
        (
            ["watch", "nowhere", "--episodes", "0"],
            "monsters: --episodes 0 was given; give at least 1.",
        ),
        (["watch", "nowhere", "--delay", "-1"], "--delay -1.0 was given; give 0 to 3600."),
        (["watch", "nowhere", "--delay", "nan"], "--delay nan was given"),
        (["watch", "nowhere", "--delay", "inf"], "monsters: --delay inf was given"),
        (["watch", "nowhere", "--seed", "-1"], "--seed -1 was given; give 0 to 4294967295."),
        (["eval", "nowhere", "--seed", 2**64], "was given; give 0 to 4294967295."),
    ],
)
def test_bad_input_gets_one_line(monsters, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    code, out, err = monsters(*words)
    assert code == 2
    assert message in err
    assert err.count("\n") == 1 and out == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["eval", "watch"])
@pytest.mark.parametrize(
    "words, message",
    [
        (["--planner", "best"], "planner 'best' is unknown; choose frozen, chance, or"),
        (["--planner", "hindsight-0"], "planner 'hindsight-0' is unknown"),
        (["--planner", "hindsight-8"], "5 simulations for the 8 trees of hindsight-8: give at "),
        (["--simulations", "4"], "4 simulations for the tree of chance: give at least 5"),
    ],
)
def test_a_player_needs_a_planner_that_there_is(monsters, tiny_run, command, words, message):
    code, out, err = monsters(command, tiny_run, *words)
    assert (code, out) == (2, "")
    assert message in err and err.count("\n") == 1


def test_help_lists_every_hyperparameter(monsters):
    code, out, _ = monsters("train", "--help")
    assert code == 0
    for field in dataclasses.fields(Config):
        assert f"--{field.name.replace('_', '-')}" in out


def test_no_field_takes_what_cannot_be_computed_with(check_every_field):
    from zero_monsters._config import PRESETS

    check_every_field(PRESETS["tiny"])


@pytest.mark.parametrize("command", ["plan", "eval", "watch"])
def test_no_flag_takes_a_number_that_cannot_be(check_every_number, monsters, command):
    from zero_monsters._app import APP

    kind = APP.commands[command]
    check_every_number(monsters, command, kind)
