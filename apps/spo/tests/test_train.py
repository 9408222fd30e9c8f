"""A run from start to finish: what it logs, and its player."""

import dataclasses
import json
import math
import re
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from zero_app import load, Options, plus_minus, read_lines, train
from zero_nets import CNN
from zero_spo._app import APP
from zero_spo._build import build_env, build_loop
from zero_spo._config import presets
from zero_spo._eval import describe
from zero_spo._network import build_critic, build_policy
from zero_train import data_mesh


def test_positions_are_counted(tiny_run, small_config):
    lines = read_lines(tiny_run / "metrics.jsonl")
    assert [line["step"] for line in lines] == [1, 2, 3, 4]
    for line in lines:
        assert all(math.isfinite(x) for x in line.values())
    # Nothing ends within 16 steps, so that all rows are steps; these are rounded up to blocks.
    assert [line["positions"] for line in lines] == [32, 64, 96, 128]
    assert small_config.steps == 123


def check_metrics(folder, parts) -> None:
    names = {"temperature", "kl_nonparametric", "kl_nonparametric_relative", "value_loss", "loss"}
    names |= {"effective_sample_size", "temperature_loss", "value_mean", "improvement", "invalid"}
    by_depth = ("ess_fraction", "entropy", "gain", "alive", "resampled", "kl_search")
    names |= {f"{name}_{depth}" for name in by_depth for depth in (1, 2)}
    by_part = ("alpha", "kl", "kl_relative", "policy_loss", "kl_loss", "alpha_loss")
    names |= {f"{name}{part}" for name in by_part for part in parts}
    for line in read_lines(folder / "metrics.jsonl"):
        assert names <= set(line)
        assert 0.25 <= line["ess_fraction_2"] <= 1 and line["resampled_2"] == 1
        assert line["kl_search_1"] >= -1e-6 and line["temperature"] > 0


def test_metrics_of_search_and_learning_are_complete(tiny_run):
    check_metrics(tiny_run, ("_mean", "_stddev"))


@pytest.mark.slow
def test_discrete_actions_are_learned_and_reported_as_well(discrete_config, tmp_path):
    folder = tmp_path / "discrete"
    train(APP, discrete_config, Options(out=folder))
    check_metrics(folder, ("",))
    rows = read_lines(folder / "evaluations.jsonl")
    assert all(row["return_mean"] == row["length_mean"] > 5 for row in rows)
    page = (folder / "report.html").read_text()
    assert "nothing yet" not in page and ">stddev</text>" not in page


@pytest.mark.parametrize(
    "env, agent, memory, chart",
    [
        ("pendulum", "ppo", True, "Ratios"),
        ("jumanji/Minesweeper-v0", "vmpo", False, "KL of the policy, over its bound"),
    ],
)
def test_what_learns_without_a_search(env, agent, memory, chart, spo, tmp_path):
    """A run, its report, and its player: exported, or with a memory measured, watched, and learned
    from by another run. A world may hide a part of its state."""
    config = dataclasses.replace(presets(env, agent)["tiny"], memory=memory)
    folder, other = tmp_path / "run", tmp_path / "other"
    train(APP, config, Options(out=folder))
    assert [line["step"] for line in read_lines(folder / "metrics.jsonl")] == [1, 2]
    page = (folder / "report.html").read_text()
    assert "nothing yet" not in page and f">{chart}<" in page and ">Particles alive<" not in page
    code, _, err = spo("export", folder, "--out", tmp_path / "exported")
    if not memory:
        assert code == 0 and (tmp_path / "exported" / "network.stablehlo").exists()
        return
    assert code == 2 and "has a memory, and only networks without are exported" in err
    code, out, _ = spo("eval", folder, "--episodes", 2, "--json")
    assert code == 0 and json.loads(out)["length_mean"] == 200
    code, out, _ = spo("watch", folder)
    assert code == 0 and f"{agent} on pendulum, the policy alone" in out
    train(APP, dataclasses.replace(config, init=str(folder), steps=64), Options(out=other))
    assert load(APP, other).step == 1


def test_images_are_seen_by_convolutions():
    """By every agent; vectors are not. An action joins what is behind the convolutions."""

    def layers(build: Any, agent: str, env: str) -> list[str]:
        config = presets(env, agent)["tiny"]
        network = eqx.filter_eval_shape(build, config, build_env(config), key=jax.random.key(0))
        return [type(layer).__name__ for layer in network.layers]

    image = "pgx/minatar-breakout"
    for agent in ("ppo", "vmpo", "spo", "mpo"):
        assert layers(build_policy, agent, image) == ["CNN", "CategoricalHead"]
    assert layers(build_policy, "spo", "cartpole") == ["Concatenate", "MLP", "CategoricalHead"]
    assert layers(build_critic, "spo", image) == ["CNN", "LinearHead"]
    for env in (image, "cartpole"):
        assert layers(build_critic, "mpo", env) == ["_WithAction", "MLP", "LinearHead"]
    config = presets(image, "mpo")["tiny"]
    env: Any = build_env(config)
    critic: Any = build_critic(config, env, key=jax.random.key(0))
    # Of 10 x 10 cells the second convolution leaves 5 x 5 of 32 channels, and there are 3 actions.
    assert isinstance(critic.layers[0].embed, CNN)
    assert critic.layers[1].in_size == 5 * 5 * 32 + env.num_actions
    values = [critic(jnp.ones((10, 10, 4)), jnp.int32(action)) for action in (0, 1)]
    assert values[0].shape == () and values[0] != values[1]


def test_evaluations_are_of_whole_episodes(tiny_run, scalars, check_episodes):
    check_episodes(tiny_run)
    rows = read_lines(tiny_run / "evaluations.jsonl")
    assert [(row["step"], row["episodes"], row["length_mean"]) for row in rows] == [
        (2, 2, 200.0),
        (4, 2, 200.0),
    ]
    # A step costs at most pi^2 + 0.1 * 8^2 + 0.001 * 2^2.
    assert all(-200 * 16.28 <= row["return_mean"] <= 0 for row in rows)
    shown = scalars(tiny_run)
    for name, of in (("return", "return_mean"), ("return_se", "return_se")):
        assert shown[name] == pytest.approx({row["step"]: row[of] for row in rows})


def test_the_player_searches_with_the_temperature_that_was_learned(tiny_run, small_config):
    player: Any = load(APP, tiny_run).player
    heat = float(player.planner.temperature)
    assert heat != small_config.temperature
    line = read_lines(tiny_run / "metrics.jsonl")[-1]
    assert heat == pytest.approx(line["temperature"], rel=1e-2)
    agent = build_loop(dataclasses.replace(small_config, adaptive=False)).agent
    fixed: Any = agent.actor(agent.init(key=jax.random.key(0)), explore=False)
    assert fixed.planner.temperature == small_config.temperature


def test_a_start_says_what_it_is_going_to_do(small_config):
    loop = build_loop(small_config)
    who, much, work = describe(small_config, loop)
    # One hidden layer of 8; 3 observations, 1 action: its mean and deviation; 1 value.
    assert "policy of 50 parameters, critic of 41" in who and "spo on pendulum" in who
    assert much.startswith("4 blocks of 8 environments x 4 rows are 128 (--steps 123 in whole")
    assert re.search(r"2 gradient steps and [\d.]+ [kMG]FLOP of matrix products", work)
    side_by_side = dataclasses.replace(loop, mesh=data_mesh(8), actor_devices=4)
    whole = dataclasses.replace(small_config, steps=128)
    also, even, too = describe(whole, side_by_side)
    assert even.startswith("4 blocks of 8 environments x 4 rows are 128;")
    assert (also, too) == (who, work)


def test_a_run_prints_how_long_compiling_took(tiny_run, printed):
    assert re.search(r"^spo on pendulum: policy of 50 parameters", printed, re.M)
    assert re.search(r"^a block is 2 gradient steps and ", printed, re.M)
    assert re.search(r"^the first step begins after \d+ s$", printed, re.M)
    assert re.search(
        r"^step 4/4 .*KL of improvement \S+ times its bound .*KL of mean ", printed, re.M
    )
    row = read_lines(tiny_run / "evaluations.jsonl")[-1]
    returned = plus_minus(row["return_mean"], row["return_se"], row["episodes"])
    assert f"particles, 2 steps deep: return {returned} (95 % interval) in 2 episodes" in printed


def test_eval_prints_one_json_line(spo, tiny_run):
    code, out, err = spo("eval", tiny_run, "--episodes", 2, "--json")
    assert (code, err) == (0, "") and out.count("\n") == 1
    row = json.loads(out)
    assert list(row) == [
        "env",
        "episodes",
        "return_mean",
        "return_se",
        "length_mean",
        "truncated",
        "failed",
        "steps_trained",
        "train_steps_per_second",
    ]
    assert (row["env"], row["episodes"], row["length_mean"]) == ("pendulum", 2, 200)
    assert row["steps_trained"] == 128 and row["train_steps_per_second"] > 0
    assert row["return_mean"] < 0 < row["return_se"]


def test_eval_says_the_same_in_words(spo, cartpole_run):
    """Also of a player that was not trained at all."""
    code, out, _ = spo("eval", cartpole_run, "--episodes", 3)
    row = json.loads(spo("eval", cartpole_run, "--episodes", 3, "--json")[1])
    assert code == 0 and not {"steps_trained", "train_steps_per_second"} & set(row)
    assert row["return_mean"] == row["length_mean"] > 5
    returned = plus_minus(row["return_mean"], row["return_se"], 3)
    assert f"return {returned} (95 % interval) in 3 episodes of {row['length_mean']:.1f} st" in out


@pytest.mark.parametrize("readout", ["sampled", "argmax", "mean"])
def test_what_is_played_can_be_chosen(small_config, readout):
    loop = build_loop(dataclasses.replace(small_config, player_readout=readout))
    agent: Any = loop.agent
    assert agent.planner.readout == readout and agent.explorer.readout == "sampled"
