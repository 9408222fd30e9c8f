"""The presets hold what was published, and what is asked for is rounded up to whole blocks."""

import dataclasses

import pytest

from zero_app import UsageError
from zero_spo._config import Config, has_known_presets, presets


# What the reference implementation (Stoix) and the paper (arXiv 2402.07963) have in common, and
# what is the same for all actions.
SHARED = {
    "policy_rate": 3e-4,
    "critic_rate": 3e-4,
    "target_rate": 0.005,
    "replay": 65_536,
    "gamma": 0.99,
    "critic_lambda": 0.95,
    "clip": 0.5,
    "particles": 16,
    "depth": 4,
    "period": 4,
    "resample": "period",
    "resampling": "multinomial",
    "search_gamma": 1.0,
    "search_lambda": 1.0,
    "adaptive": True,
    "player_readout": "sampled",
    "normalise_observations": False,
}
CONTINUOUS = {
    "dual_rate": 1e-3,
    "unroll": 32,
    "updates": 128,
    "batch": 32,
    "length": 33,  # the last row is bootstrapped from
    "epsilon": 0.2,
    "epsilon_mean": 0.05,
    "epsilon_stddev": 5e-4,
    "temperature": 10.0,
    "multiplier_mean": 10.0,
    "multiplier_stddev": 500.0,
    "per_dimension": True,
    "noise": 0.0,
    "width": 256,
    "layers": 4,
    "activation": "silu",
}
DISCRETE = {
    "dual_rate": 1e-3,
    "unroll": 32,
    "updates": 128,
    "batch": 32,
    "length": 33,
    "epsilon": 0.5,
    "epsilon_policy": 1e-3,
    "temperature": 3.048587351573742,  # softplus(3)
    "multiplier": 3.048587351573742,
    "noise": 0.0,
    "alpha": 1.0,
    "width": 256,
    "layers": 2,
    "activation": "relu",
}
PAPER_DISCRETE = DISCRETE | {
    "dual_rate": 3e-4,
    "unroll": 21,
    "updates": 16,
    "batch": 64,
    "length": 18,
    "temperature": 0.5,
    "multiplier": 0.5,
    "noise": 0.25,
    "alpha": 0.03,
}


@pytest.mark.parametrize("agent", ["spo", "mpo"])
@pytest.mark.parametrize(
    "env, preset, envs, steps, rest",
    [
        ("pendulum", "reference", 16, 51_200, CONTINUOUS),
        ("pendulum", "paper", 16, 51_200, CONTINUOUS),
        ("brax/ant", "reference", 1024, 10_000_000, CONTINUOUS),
        ("brax/ant", "paper", 1024, 100_000_000, CONTINUOUS),
        ("cartpole", "reference", 16, 51_200, DISCRETE),
        ("cartpole", "paper", 16, 51_200, PAPER_DISCRETE),
        ("jumanji/Snake-v1", "reference", 1024, 10_000_000, DISCRETE),
        ("jumanji/Snake-v1", "paper", 768, 100_000_000, PAPER_DISCRETE),
        ("playground/WalkerRun", "paper", 1024, 100_000_000, CONTINUOUS),
    ],
)
def test_published_hyperparameters(agent, env, preset, envs, steps, rest):
    config = dataclasses.asdict(presets(env, agent)[preset])
    expected = SHARED | rest | {"env": env, "agent": agent, "envs": envs, "steps": steps}
    assert {name: config[name] for name in expected} == expected


@pytest.mark.parametrize(
    "env", ["pendulum", "cartpole", "brax/ant", "jumanji/Snake-v1", "playground/WalkerRun"]
)
@pytest.mark.parametrize("agent", ["spo", "mpo", "ppo", "vmpo"])
def test_every_environment_has_every_preset(env, agent):
    found = presets(env, agent)
    published = ["reference", "paper"] if agent in ("spo", "mpo") else []
    assert list(found) == ["tuned", "quick", "tiny", *published]
    assert {(config.env, config.agent) for config in found.values()} == {(env, agent)}


@pytest.mark.parametrize("env, updates", [("jumanji/Snake-v1", 16), ("cartpole", 128)])
def test_images_have_fewer_updates(env, updates):
    """`quick` has the number of the paper there; other presets keep theirs."""
    assert presets(env, "spo")["quick"].updates == updates
    assert presets(env, "spo")["reference"].updates == 128


def test_continuous_environments_that_may_show_images_are_looked_at():
    assert has_known_presets("brax/ant") and has_known_presets("pendulum")
    assert not has_known_presets("gymnasium/CarRacing-v3")


@pytest.mark.parametrize(
    "steps, blocks", [(51_200, 100), (51_201, 101), (1, 1), (512, 1), (513, 2)]
)
def test_steps_are_rounded_up_to_whole_blocks(steps, blocks):
    assert Config(steps=steps, envs=16, unroll=32).blocks == blocks


def test_replay_is_divided_over_the_environments():
    assert Config().capacity == 4096
    assert Config(replay=16 * 33, envs=16, length=33, unroll=32).capacity == 33
    with pytest.raises(UsageError, match="give at least 528"):
        Config(replay=16 * 33 - 1, envs=16, length=33, unroll=32)
    with pytest.raises(UsageError, match="give at least 1024"):
        Config(replay=1023, unroll=64)


def test_a_period_matters_only_where_there_is_one():
    with pytest.raises(UsageError, match="--period 4 is longer than --depth 2"):
        Config(depth=2)
    for resample in ("ess", "never"):
        assert Config(depth=2, resample=resample).depth == 2
