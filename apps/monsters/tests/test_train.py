"""A run from start to finish: what it logs, and its player."""

import json
import math
from typing import Any

import jax
import jax.random as jr
import numpy as np
import pytest

from zero_app import load, read_lines
from zero_monsters._app import APP
from zero_monsters._build import build_actor, build_env
from zero_search import read_tree

from .positions import played


def test_the_loss_is_the_sum_of_its_parts_and_the_rate_falls(tiny_run, small_config):
    lines = read_lines(tiny_run / "metrics.jsonl")
    assert [line["step"] for line in lines] == [1, 2, 3, 4]
    for line in lines:
        assert all(math.isfinite(x) for x in line.values())
        parts = line["policy_loss"] + line["value_loss"]
        assert line["loss"] == pytest.approx(parts, rel=1e-5)
    rates = [line["learning_rate"] for line in lines]
    assert rates == sorted(rates, reverse=True) and rates[0] <= small_config.learning_rate


def test_the_last_evaluation_compares_what_was_learned(tiny_run, scalars, check_episodes):
    """The planner it learned from and others that have enough simulations, the network alone, and
    the same planner without the network."""
    check_episodes(tiny_run)
    rows = read_lines(tiny_run / "evaluations.jsonl")
    who = [(row["step"], row["planner"], row["leaf"], row["simulations"]) for row in rows]
    assert who == [
        (2, "chance", "network", 5),
        (2, "network", "network", 0),
        (4, "chance", "network", 5),
        (4, "frozen", "network", 5),
        (4, "network", "network", 0),
        (4, "chance", "zero", 5),
    ]
    assert [row["rollouts"] for row in rows] == [4, 4, 16, 16, 16, 16]
    shown = scalars(tiny_run)
    for name, first, last in (("return", 0, 2), ("network_return", 1, 4)):
        means = {2: rows[first]["return_mean"], 4: rows[last]["return_mean"]}
        assert shown[name] == pytest.approx(means)


def test_a_player_plays_the_highest_value(tiny_run):
    trained = load(APP, tiny_run)
    actor: Any = build_actor(trained.config, trained.player, "hindsight-3", 15)[0]
    states = jax.device_put(played(build_env(trained.config), games=8, steps=3))
    keys = jr.split(jr.key(1), 24)
    grow = jax.jit(lambda: actor.planner.grow(actor.model, states, actor.init(states), key=keys))
    plan, _, tree = jax.device_get(grow())
    visits = [sum(read_tree(tree, 3 * row + k).visits[0] for k in range(3)) for row in range(24)]
    values = np.where(np.asarray(visits) > 0, plan.qvalues, -np.inf)
    chosen = np.argmax(values, axis=1)
    assert len(set(chosen.tolist())) > 2
    np.testing.assert_array_equal(plan.action, chosen)
    np.testing.assert_array_equal(plan.weights, np.eye(5)[chosen])


@pytest.mark.parametrize(
    "words, planner, simulations",
    [
        ([], "chance", 5),
        (["--planner", "frozen", "--simulations", "6"], "frozen", 6),
        (["--planner", "network"], "network", 0),
    ],
)
def test_eval_prints_one_json_line(monsters, tiny_run, words, planner, simulations):
    code, out, _ = monsters("eval", tiny_run, "--rollouts", 4, *words, "--json")
    assert code == 0 and out.count("\n") == 1
    row = json.loads(out)
    assert list(row) == [
        "world",
        "planner",
        "simulations",
        "rollouts",
        "return_mean",
        "return_se",
        "win_rate",
        "loss_rate",
        "regret_mean",
        "moves_per_second",
    ]
    assert row["world"] == "moving" and row["rollouts"] == 4 and row["moves_per_second"] > 0
    assert (row["planner"], row["simulations"]) == (planner, simulations)
    assert -32 <= row["return_mean"] <= 8 and row["regret_mean"] >= 0
