"""Chance nodes that weigh outcomes by their probabilities: order of visits, values, exactness."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from zero_search import AbstractChanceModel, PlainQ, PUCT, sampled_step, TreeSearch
from zero_search._tree import RAW, VALUE

from .dice import expectimax, judged, RandomDice
from .helpers import fresh, quick_jit, RandomTree


NUM_ACTIONS, NUM_OUTCOMES = 2, 4
DICE = RandomDice(RandomTree(NUM_ACTIONS, (1.0, -1.0), gamma=0.9), NUM_OUTCOMES, certain=0.2)


@pytest.fixture(scope="module", params=[DICE, judged(DICE)], ids=["through", "judged"])
def afterstates(request):
    """All afterstates of some trees, one a row: probabilities, visits and Q-values of outcomes;
    own value, searched value; and whether the own value stands for the likeliest outcome."""
    planner, model = TreeSearch(120, outcomes="weighted"), request.param

    @quick_jit
    def run(key):
        tree = fresh(planner, model, DICE.tree.start(32), key)[1]
        tree = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), tree)
        return tree, jax.nn.softmax(DICE.outcome_logits(tree.state.afterstate))

    tree, probs = jax.tree.map(np.asarray, run(jr.split(jr.key(0), 32)))
    chance = tree.state.chance > 0
    probs = probs[chance].astype(np.float64)
    visits, qvalues = tree.edge[:, :2].astype(np.float64)[chance].swapaxes(0, 1)
    own, value = (tree.node[:, x].astype(np.float64)[chance] for x in (RAW, VALUE))
    assert chance.sum() > 300
    return probs, visits, qvalues, own, value, model is DICE


def test_each_outcome_comes_once_before_any_comes_twice(afterstates):
    probs, visits, *_, through = afterstates
    counted = visits.copy()
    if through:
        counted[np.arange(len(probs)), probs.argmax(axis=1)] += 1
    twice = counted.max(axis=1) > 1
    assert 30 < twice.sum() < len(probs)
    assert np.all(counted[twice] >= 1)
    for p, n in zip(probs[~twice], counted[~twice], strict=True):
        likeliest = np.argsort(-p)
        assert np.all(np.diff(n[likeliest]) <= 0)


def test_the_value_is_weighted_by_probabilities(afterstates):
    probs, visits, qvalues, own, value, through = afterstates
    for p, n, q, raw, found in zip(probs, visits, qvalues, own, value, strict=True):
        if through:
            q, n, first = q.copy(), n.copy(), p.argmax()
            if n[first] == 0:
                q[first], n[first] = raw, 1
            expected = np.sum((p * q)[n > 0]) / np.sum(p[n > 0])
        else:
            expected = np.sum((p * q)[n > 0]) + np.sum(p[n == 0]) * raw
        assert found == pytest.approx(expected, abs=1e-5)


def test_with_every_outcome_visited_once_it_is_exact():
    # Nothing to choose: one visit for the afterstate and one for every other outcome.
    tree = RandomTree(1, (0.0,))
    model, state = RandomDice(tree, 5), tree.start(48)

    @quick_jit
    def error(state):
        planner = TreeSearch(5, outcomes="weighted")
        keys = jr.split(jr.key(0), 48)
        plan, _ = planner.plan(model, state, planner.init(model, state), key=keys)
        return jnp.abs(plan.qvalues[:, 0] - expectimax(model, state, levels=1)[:, 0])

    assert np.max(error(state)) < 1e-5


def test_it_decides_better_where_leaves_hold_the_truth():
    """Games of one move: with each outcome visited once the best action is known for sure. Visits
    in proportion to the odds, as many, leave some unseen."""
    tree = RandomTree(2, (0.0,), sharpness=0.0, illegal=0.0)
    model, state, rows = RandomDice(tree, 8), tree.start(256), jnp.arange(256)

    @quick_jit
    def regrets(state):
        exact = expectimax(model, state, levels=1)

        def regret(outcomes):
            planner = TreeSearch(16, PUCT(9.0, PlainQ()), outcomes=outcomes)
            keys = jr.split(jr.key(0), 256)
            plan, _ = planner.plan(model, state, planner.init(model, state), key=keys)
            return jnp.max(exact, axis=1) - exact[rows, jnp.argmax(plan.qvalues, axis=1)]

        return regret("weighted"), regret("proportional")

    weighted, proportional = (float(np.mean(x)) for x in regrets(state))
    assert weighted < 0.25 * proportional, (weighted, proportional)


ODDS = np.asarray([0.905] + [0.005] * 19, np.float32)


class Gamble(AbstractChanceModel):
    """At node 0 action 0 leads to node 1 and action 1 pays 0.5 and ends. At node 1 there is one
    action, which pays 1 with the first of `ODDS` and else -1: it is worth 0.81, as the evaluator
    knows."""

    @property
    def num_outcomes(self):
        return len(ODDS)

    def root(self, state, obs, *, key):
        return state

    def step(self, node, action, *, key):
        return sampled_step(self, node, action, key=key)

    def afterstate(self, node, action):
        return node, action

    def outcome_logits(self, afterstate):
        possible = (afterstate[0] == 1)[:, None] | (jnp.arange(self.num_outcomes) == 0)[None]
        return jnp.where(possible, jnp.log(ODDS)[None], -jnp.inf)

    def afterstate_value(self, afterstate, *, key):
        return None

    def resolve(self, afterstate, outcome):
        node, action = afterstate
        gambled, stopped = node == 1, (node == 0) & (action == 1)
        ends, paid = gambled | stopped, jnp.where(outcome == 0, 1.0, -1.0)
        reward = jnp.where(gambled, paid, jnp.where(stopped, 0.5, 0.0))
        return node + 1, reward, jnp.where(ends, 0.0, 1.0), ends

    def predict(self, node, *, key):
        one = (node == 1)[:, None] & (jnp.arange(2) == 1)[None]
        return jnp.where(one, -jnp.inf, 0.0), jnp.where(node == 1, 0.81, 0.0)


@pytest.mark.parametrize("parts", [{}, {"num_leaves": 4}])
def test_what_is_above_a_chance_node_is_an_expectation_too(parts):
    """The rare outcomes, each of which is visited as early as the likely one, do not count as
    much."""
    planner = TreeSearch(200, PUCT(1.0, PlainQ()), outcomes="weighted", **parts)
    state = jnp.asarray([0, 1], jnp.int32)
    plan, _ = quick_jit(lambda key: fresh(planner, Gamble(), state, key))(jr.split(jr.key(0), 2))
    assert plan.action.tolist() == [0, 0]
    assert float(plan.qvalues[0, 0]) == pytest.approx(0.81, abs=0.02)
    assert float(plan.value[1]) == pytest.approx(0.81, abs=0.03)
