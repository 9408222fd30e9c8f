"""`monsters plan`: what it measures is what the exact oracle says, and bad input ends in a line."""

import json
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from zero_app import UsageError
from zero_envs import Monsters
from zero_monsters._measure import measure
from zero_monsters._names import PlannerName
from zero_monsters._planners import planning_actor
from zero_search import AbstractChanceModel, Hindsight
from zero_train import RandomActor


@pytest.fixture(scope="module")
def stationary(oracle_of):
    env = Monsters(moving=False)
    return env, oracle_of(env)


def test_a_random_player_gets_what_the_oracle_says(stationary):
    env, oracle = stationary
    measured, _ = measure(env, oracle, RandomActor(), rollouts=3000, key=jr.key(0))
    exact = oracle.episode(32, "random")
    four_errors = 4 * measured["return_se"]
    assert 0.01 < four_errors < 0.3
    assert abs(measured["return_mean"] - oracle.rollout(32, "random")) < four_errors
    for rate, truth in (
        (measured["win_rate"], exact.win_rate),
        (measured["loss_rate"], exact.loss_rate),
    ):
        assert abs(rate - truth) < 4 * np.sqrt(truth * (1 - truth) / 3000)


def test_regret_and_rates_do_not_depend_on_how_rollouts_are_dealt_out(stationary, monkeypatch):
    env, oracle = stationary
    # Dealt out as in the test above, whose program this is.
    whole, _ = measure(env, oracle, RandomActor(), rollouts=260, key=jr.key(3))
    monkeypatch.setattr("zero_monsters._measure._ROLLOUTS_AT_ONCE", 100)
    dealt, _ = measure(env, oracle, RandomActor(), rollouts=260, key=jr.key(3))
    same = dealt | {"moves_per_second": whole["moves_per_second"]}
    assert same == whole
    assert whole["regret_mean"] > 0


def test_chance_nodes_lose_less_than_a_frozen_future(monsters):
    words = ("plan", "--planners", "frozen", "chance", "--simulations", "16", "--rollouts", "60")
    code, out, _ = monsters(*words, "--json")
    assert code == 0
    frozen, chance = (json.loads(line) for line in out.splitlines())
    assert set(frozen) == {
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
    }
    assert (frozen["planner"], chance["planner"]) == ("frozen", "chance")
    assert chance["regret_mean"] < 0.7 * frozen["regret_mean"]
    assert chance["return_mean"] > frozen["return_mean"] + 2 * frozen["return_se"]


def test_the_table_names_the_optimum_and_what_was_left_out(monsters):
    words = ("plan", "--world", "stationary", "--planners", "hindsight-3", "chance")
    code, out, complaints = monsters(*words, "--simulations", "6", "--rollouts", "2")
    assert code == 0
    assert "of 32 steps; ± is a 95 % interval" in out
    assert "best return is 5.404, a random one -1.763" in out
    assert len(out.splitlines()) == 4
    assert complaints == (
        "monsters: left out: 6 simulations for the 3 trees of hindsight-3: give at least 15, 5 in "
        "each.\n"
    )


@pytest.mark.parametrize(
    "words, complaint",
    [
        (["plan", "--planners", "fast"], "planner 'fast' is unknown; choose frozen, chance, or"),
        (["plan", "--planners", "hindsight-0"], "planner 'hindsight-0' is unknown"),
        (["plan", "--planners"], "--planners is empty; give at least one"),
        (["plan", "--simulations"], "--simulations is empty; give at least one"),
        (["plan", "--seed", "4294967296"], "--seed 4294967296 was given; give 0 to 4294967295."),
        (["plan", "--rollouts", "1"], "monsters: --rollouts 1 was given; give 2 to 100000000."),
        (["plan", "--simulations", "50", "4"], "--simulations 4 was given; give at least 5"),
        (
            ["plan", "--world", "flat"],
            "monsters: --world flat was given; give one of moving, stationary.",
        ),
        (["plan", "--simulation", "9"], "--simulation is no flag of monsters plan"),
    ],
)
def test_bad_input_is_one_line(monsters, words, complaint):
    code, out, complaints = monsters(*words)
    assert (code, out) == (2, "")
    assert complaint in complaints
    assert complaints.startswith("monsters: ") and complaints.count("\n") == 1


@pytest.mark.parametrize(
    "name, trees, number, outcomes",
    [("frozen", 1, 40, False), ("hindsight-4", 4, 10, False), ("chance", 1, 40, True)],
)
def test_simulations_are_those_of_all_trees(name, trees, number, outcomes):
    assert PlannerName.parse(f"{name}+playout").trees == trees
    actor = planning_actor(Monsters(), name, 40)
    planner, model = actor.planner, actor.model
    assert isinstance(model, AbstractChanceModel) and model.num_outcomes > 0
    assert isinstance(planner, Hindsight) and planner.num_trees == trees
    assert (planner.planner.outcomes != "frozen") == outcomes
    assert planner.planner.num_simulations == number


def test_playouts_judge_leaves_and_nothing_else_does():
    models: list[Any] = [
        planning_actor(Monsters(), name, 10).model for name in ("chance", "chance+playout")
    ]

    @jax.jit
    def predicted():
        state = Monsters().init(key=jr.key(0))
        states = jax.tree.map(lambda x: jnp.broadcast_to(x, (64, *x.shape)), state)
        return [model.predict(states, key=jr.split(jr.key(1), 64)) for model in models]

    assert all(isinstance(model, AbstractChanceModel) for model in models)
    (plain_logits, plain), (logits, played) = jax.device_get(predicted())
    np.testing.assert_array_equal(plain_logits, logits)
    assert np.abs(plain).max() == 0 and -1 <= played.mean() < 0


def test_too_few_simulations_name_how_many_there_must_be():
    with pytest.raises(UsageError, match="at least 160, 5 in each"):
        planning_actor(Monsters(), "hindsight-32", 159)
