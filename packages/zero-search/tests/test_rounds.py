"""Sequential halving in rounds: against a slow reference that simulates actions in turn."""

import dataclasses
from collections import Counter
from typing import Any

import jax
import jax.random as jr
import numpy as np
import pytest
from mctx._src.seq_halving import get_sequence_of_considered_visits

from zero_search import CompletedByMixedValue, MaxBackup, TreeSearch
from zero_search._root import SequentialHalving

from .dice import RandomDice
from .helpers import Jitted, Nim, quick_jit, RandomTree, Reference


BATCH, SIMULATIONS = 8, 21


class InRounds(Reference):
    """A reference that chooses the survivors at the start of a phase, and simulates one of them
    after another."""

    def search(self, root) -> dict:
        root["kept"] = root["visits"].copy()
        rule, left = self.planner.root, np.flatnonzero(root["legal"])
        for width, rounds in rule.phases(self.planner.num_simulations, len(root["legal"])):
            scores = root["logits"] + self.transformed(root, rule.qtransform)
            left = sorted(left, key=lambda a, s=scores: (-s[a], a))[:width]
            for action in left * rounds:
                self.forced = action
                self.simulate(root, root, 1)
        return root

    def select(self, root, node) -> int:
        return self.forced if node is root else super().select(root, node)


def highest(node, outcome) -> float:
    del outcome
    return float(node["q"][node["visits"] > 0].max())


@pytest.mark.parametrize(
    "parts, backup",
    [
        ({"max_nodes": 12, "max_depth": 3}, None),
        pytest.param({}, None, marks=pytest.mark.slow),
        pytest.param({"backup": MaxBackup()}, highest, marks=pytest.mark.slow),
    ],
)
def test_equals_a_slow_reference(parts, backup):
    # Final states, players who move twice, roots with few legal actions, and a tree that fills up.
    planner = TreeSearch.gumbel(
        SIMULATIONS, max_num_considered_actions=4, gumbel_scale=0.0, in_rounds=True, **parts
    )
    model = RandomTree(truncate=0.1, gamma=0.9, illegal=0.6)
    state = model.start(BATCH)
    plan, _, tree = quick_jit(
        lambda s, k: planner.grow(model, s, planner.init(model, s), key=jr.split(k, BATCH))
    )(state, jr.key(0))
    oracle = InRounds(planner, model, backup)
    for row in range(BATCH):
        oracle.agrees(plan, state, row)
    simulations = np.asarray(plan.visits).sum(axis=1)
    assert simulations.max() == SIMULATIONS > simulations.min()
    assert np.array_equal(np.asarray(tree.node)[:, 0, 0], 1 + simulations)


@pytest.mark.parametrize("considered", [1, 2, 3, 5, 8, 16])
@pytest.mark.parametrize("simulations", [1, 7, 32, 100])
def test_the_phases_are_those_of_mctx(considered, simulations):
    phases = SequentialHalving(considered).phases(simulations, 30)
    assert sum(width * rounds for width, rounds in phases) == simulations
    turns = [width for width, rounds in phases for _ in range(rounds)]
    due = get_sequence_of_considered_visits(considered, simulations)
    assert turns == [number for _, number in sorted(Counter(due).items())]


def test_more_actions_than_there_are_is_all_of_them():
    assert SequentialHalving(16).phases(8, 3) == SequentialHalving(3).phases(8, 3)


def test_leaves_are_evaluated_together():
    """Of 32 simulations of 16 actions: one call of the model for each width, in 4 rounds."""
    assert SequentialHalving(16).phases(32, 65) == [(16, 1), (8, 1), (4, 2)]
    sizes = []

    class Counted(RandomTree):
        def predict(self, node, *, key):
            sizes.append(node.name.shape[0])
            return super().predict(node, key=key)

    model = Counted(num_actions=20)
    planner = TreeSearch.gumbel(32, in_rounds=True)
    state = model.start(2)
    keys = jr.split(jr.key(0), 2)
    jax.eval_shape(lambda s: planner.plan(model, s, planner.init(model, s), key=keys), state)
    assert set(sizes) == {2, 2 * 16, 2 * 8, 2 * 4}


def equal_in_turns(plan, other) -> None:
    """With two survivors from the first to the last, one by one takes them in turns: the same
    simulations in another order."""
    assert np.array_equal(plan.visits, other.visits)
    seen = np.asarray(plan.visits) > 0
    assert np.allclose(plan.qvalues[seen], other.qvalues[seen], atol=1e-5)
    assert np.allclose(plan.value, other.value, atol=1e-5)
    assert np.array_equal(plan.stats["nodes"], other.stats["nodes"])
    assert np.allclose(plan.stats["depth"], other.stats["depth"], rtol=1e-6)


def test_kept_trees_are_searched_on():
    model, plans = RandomTree(num_actions=4, illegal=0.0), []
    # One by one, the first of two simulations would change which action is the second best.
    by_prior = CompletedByMixedValue(value_scale=0.0)
    for in_rounds in (True, False):
        parts: dict[str, Any] = {"max_num_considered_actions": 2, "gumbel_scale": 0.0}
        parts |= {"qtransform": by_prior, "reuse": True}
        planner = TreeSearch.gumbel(12, in_rounds=in_rounds, **parts)
        jitted, state = Jitted(planner, model), model.start(6)
        plan, carry = jitted.plan(state, jitted.fresh_carry(state), jr.key(0))
        state, _, _, last = jitted.step(state, plan.action)
        plan, _ = jitted.plan(state, jitted.advance(carry, plan.action, last), jr.key(1))
        plans.append(jax.tree.map(np.asarray, plan))
    assert np.all(plans[0].stats["reused"] > 0)
    assert np.array_equal(np.sum(plans[0].visits, axis=1), plans[0].stats["reused"] + 12)
    equal_in_turns(*plans)


def test_chance_nodes_are_searched_in_rounds():
    model, plans = RandomDice(RandomTree(num_actions=4, illegal=0.0)), []
    for in_rounds in (True, False):
        parts = {"max_num_considered_actions": 2, "gumbel_scale": 0.0}
        planner = TreeSearch.gumbel(24, in_rounds=in_rounds, **parts)
        plan = Jitted(planner, model).fresh(model.tree.start(6))
        plans.append(jax.tree.map(np.asarray, plan))
    assert np.all(np.sum(plans[0].visits, axis=1) == 24)
    equal_in_turns(*plans)


def test_a_root_without_legal_actions_is_filler():
    planner = TreeSearch.gumbel(8, max_num_considered_actions=2, in_rounds=True)
    model = Nim()
    plan = Jitted(planner, model).fresh(np.asarray([0, 4], np.int32))
    plan = jax.tree.map(np.asarray, plan)
    assert not np.any(plan.weights[0]) and not np.any(plan.visits[0])
    assert plan.stats["depth"][0] == 0 and plan.stats["depth"][1] > 0


def test_rounds_and_several_leaves_are_refused_together():
    with pytest.raises(ValueError, match=r"`TreeSearch\(num_leaves=4\)` with `in_rounds=True`"):
        TreeSearch.gumbel(8, in_rounds=True, num_leaves=4)
    one = TreeSearch.gumbel(8, in_rounds=True)
    with pytest.raises(ValueError, match="in_rounds"):
        dataclasses.replace(one, num_leaves=2)
