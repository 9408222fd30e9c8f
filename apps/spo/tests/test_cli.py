"""Bad input to the command line: one clear line, exit code 2, nothing written."""

import dataclasses
from typing import Any

import pytest

from zero_spo._config import Config


REFERENCE = ["train", "--preset", "reference"]


@pytest.mark.parametrize(
    "words, message",
    [
        (
            ["trian"],
            "no command is called 'trian'; choose one of train, sweep, eval, watch, compare,",
        ),
        (["train", "--env", "pendulm"], "no such environment. Did you mean pendulum"),
        (
            ["train", "--env", "chess"],
            "monsters, othello, pendulum, pgx/NAME, playground/NAME, rocksample",
        ),
        (["train", "--env", "jumanj/Snake-v1"], "Did you mean jumanji/Snake-v1?"),
        (["train", "--env", "brax/"], "no such environment. Allowed: brax/ant, brax/fast"),
        (["train", "--preset", "slow"], "--preset slow is unknown; choose one of tuned, quick"),
        (["train", "--envs", "many"], "--envs many was given; give a whole number."),
        (["train", "--particle", "8"], "--particle is no flag of spo train; did you mean --parti"),
        (["train", "--agent", "dqn"], "--agent dqn was given; give one of spo, mpo, ppo, vmpo."),
        (["train", "--memory"], "--memory has no effect with --agent spo; leave it out."),
        (["train", "--samples", "4"], "--samples has no effect with --agent spo; leave it out."),
        (["train", "--backend", "mjx"], "--backend has no effect with --env pendulum; leave it"),
        (["train", "--multiplier", "2"], "--multiplier has no effect with --env pendulum; leave"),
        (["train", "--period", "2", "--resample", "ess"], "no effect with --resample ess; leave"),
        (["train", "--ess-threshold", "0.2"], "has no effect with --resample period; leave it"),
        (["train", "--agent", "mpo", "--depth", "2"], "--depth has no effect with --agent mpo;"),
        (["train", "--agent", "mpo", "--no-adaptive"], "--no-adaptive has no effect with --agent"),
        (["train", "--agent", "ppo", "--replay", "64"], "--replay has no effect with --agent ppo"),
        (["train", "--agent", "ppo", "--epsilon-mean", "1"], "-mean has no effect with --agent p"),
        (["train", "--entropy-bonus", "1"], "--entropy-bonus has no effect with --agent spo; le"),
        (["train", "--alpha", "2"], "--alpha has no effect with --env pendulum; leave it out."),
        (["train", "--env", "cartpole", "--alpha", "2"], "--alpha has no effect with --noise 0.0"),
        (
            ["train", "--agent", "ppo", "--unroll", "100"],
            "--length 41 was given with --unroll 100, which --agent ppo cuts into windows; give",
        ),
        (
            ["train", "--agent", "vmpo", "--batch", "24"],
            "--batch 24 was given for the 80 windows of a block; --agent vmpo learns from each",
        ),
        ([*REFERENCE, "--particles", "0"], "--particles 0 was given; give at least 1."),
        ([*REFERENCE, "--steps", "0"], "--steps 0 was given; give 1 to 1000000000000."),
        ([*REFERENCE, "--length", "1"], "--length 1 was given; give at least 2."),
        ([*REFERENCE, "--period", "5"], "--period 5 is longer than --depth 4; give at most that"),
        ([*REFERENCE, "--envs", "12"], "--envs 12 does not divide into --shards 8; give"),
        ([*REFERENCE, "--batch", "9"], "--batch 9 does not divide into --shards 8"),
        ([*REFERENCE, "--replay", "512"], "--length 33 or --unroll 32; give at least 528."),
        ([*REFERENCE, "--devices", "3"], "--shards 8 does not divide over 3 devices"),
        ([*REFERENCE, "--temperature", "nan"], "--temperature nan was given"),
        ([*REFERENCE, "--epsilon", "0"], "--epsilon 0.0 was given; give at least 1e-09."),
        ([*REFERENCE, "--gamma", "1.5"], "--gamma 1.5 was given; give 0 to 1."),
        (["train", "--seed", 2**32], "--seed 4294967296 was given; give 0 to 4294967295."),
        (
            ["train", "--env", "cartpole", "--player-readout", "mean"],
            "--player-readout mean was given for --env cartpole, whose actions are discrete",
        ),
        (["eval", "nowhere"], "nowhere holds no run (no config.json); give the folder of a run"),
        (["eval", "nowhere", "--episodes", "1"], "--episodes 1 was given; give at least 2."),
        (["watch", "nowhere"], "nowhere holds no run (no config.json)"),
        (["watch", "nowhere", "--episodes", "0"], "--episodes 0 was given; give at least 1."),
        (["watch", "nowhere", "--delay", "-1"], "--delay -1.0 was given; give 0 to 3600."),
        (["watch", "nowhere", "--delay", "inf"], "--delay inf was given"),
        (["watch", "nowhere", "--seed", "-1"], "--seed -1 was given; give 0 to 4294967295."),
    ],
)
def test_bad_input_gets_one_line(spo, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    code, out, err = spo(*words)
    assert code == 2
    assert message in err
    assert err.count("\n") == 1 and out == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "env, message",
    [
        ("brax/antt", "no such environment. Did you mean brax/ant"),
        ("jumanji/Snak-v1", "no such environment. Did you mean jumanji/Snake-v1"),
        ("jumanji/Minesweeper-v0", "has a state that the player cannot fully observe"),
    ],
)
def test_environments_of_others_have_near_names_too(spo, tmp_path, monkeypatch, env, message):
    test_bad_input_gets_one_line(spo, tmp_path, monkeypatch, ["train", "--env", env], message)


def test_a_backend_that_brax_does_not_have(spo, tmp_path, monkeypatch):
    words = ["train", "--env", "brax/ant", "--backend", "fast"]
    message = "no such backend; allowed: generalized, mjx, positional, spring."
    test_bad_input_gets_one_line(spo, tmp_path, monkeypatch, words, message)


def test_the_usual_backend_is_one_that_the_environment_supports():
    """brax's swimmer has no `spring`, which is the default of all others."""
    from zero_spo._config import Config
    from zero_spo._worlds import build_world

    assert Config.backend == "auto"
    for name, backend in (("swimmer", "generalized"), ("inverted_pendulum", "spring")):
        env: Any = build_world(f"brax/{name}", "auto")
        assert env.env.backend == backend


@pytest.mark.parametrize("words", [[], ["--env", "cartpole", "--agent", "mpo"]])
def test_help_lists_every_hyperparameter(spo, words):
    code, out, _ = spo("train", *words, "--help")
    assert code == 0
    for field in dataclasses.fields(Config):
        assert f"--{field.name.replace('_', '-')}" in out


def test_no_field_takes_what_cannot_be_computed_with(check_every_field):
    from zero_spo._config import presets

    check_every_field(presets("pendulum", "spo")["reference"])


@pytest.mark.parametrize("command", ["eval", "watch"])
def test_no_flag_takes_a_number_that_cannot_be(check_every_number, spo, command):
    from zero_spo._app import APP

    kind = APP.commands[command]
    check_every_number(spo, command, kind)
