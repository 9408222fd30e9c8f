"""Afterstates judged by all of their outcomes: the sum by hand, and what one visit then tells."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from zero_search import PlainQ, PUCT, TreeSearch
from zero_search._chance import ChanceNodes

from .dice import branches, RandomDice, UNUSED
from .helpers import quick_jit, RandomTree


TREE = RandomTree(3, (1.0, -1.0), illegal=0.3, gamma=0.7)
DICE = RandomDice(TREE, 4, certain=0.2)


@pytest.fixture(scope="module")
def expected():
    """Q-values one step ahead, `[batch, actions]`, by a loop over what can happen."""
    state = TREE.start(64)
    landed, *facts, legal = quick_jit(lambda s: branches(DICE, s))(state)
    reward, discount, probs = (np.asarray(x, np.float64) for x in facts)
    value = np.asarray(DICE.predict(landed, key=UNUSED)[1]).reshape(reward.shape)
    table = np.full(legal.shape, -np.inf)
    for row, action in np.argwhere(np.asarray(legal)):
        total = 0.0
        for outcome in np.flatnonzero(probs[row, action]):
            at = row, action, outcome
            total += probs[at] * (reward[at] + discount[at] * value[at])
        table[row, action] = total
    return table


def test_an_afterstate_is_worth_the_mean_of_its_outcomes(expected):
    state, model = TREE.start(64), ChanceNodes(DICE, 3, 4, sampled=False, expected=True)

    @quick_jit
    def judged(taken):
        after = DICE.afterstate(state, taken)
        return model.value(after, key=jr.split(jr.key(0), 64))

    for action in range(3):
        value = judged(jnp.full((64,), action, jnp.int32))
        possible = np.isfinite(expected[:, action])
        assert 20 < possible.sum()
        np.testing.assert_allclose(value[possible], expected[possible, action], atol=1e-6)


def test_one_visit_tells_all_that_is_one_step_ahead(expected):
    """Untried actions first: after a visit each, Q-values are exact expectations. Without the
    option a visit tells of the likeliest outcome alone."""
    state = TREE.start(64)

    def qvalues(whole):
        planner = TreeSearch(3, PUCT(1.0, PlainQ(100.0)), evaluate_outcomes=whole)
        plan = lambda s: (
            planner.plan(DICE, s, planner.init(DICE, s), key=jr.split(jr.key(0), 64))[0].qvalues
        )
        return np.asarray(quick_jit(plan)(state))

    # Where an action is illegal another one is visited twice, and sees further.
    whole = np.all(np.isfinite(expected), axis=1)
    assert 10 < whole.sum()
    np.testing.assert_allclose(qvalues(True)[whole], expected[whole], atol=1e-5)
    assert np.abs(qvalues(False)[whole] - expected[whole]).mean() > 0.1


def test_impossible_outcomes_and_ends_may_be_judged_anyhow():
    """Neither a NaN of an impossible outcome's state nor one behind an end gets into the mean."""

    class Spoilt(RandomDice):
        def predict(self, node, *, key):
            logits, value = DICE.predict(node, key=key)
            return logits, jnp.where(node.done, jnp.nan, value)

    short = RandomTree(3, (1.0,), horizon=1, gamma=0.7)
    state = short.start(32)
    spoilt = Spoilt(short, 4, certain=0.5)
    model = ChanceNodes(spoilt, 3, 4, sampled=False, expected=True)

    @quick_jit
    def judged(state):
        after = spoilt.afterstate(state, jnp.zeros(32, jnp.int32))
        return model.value(after, key=jr.split(jr.key(0), 32))

    assert np.all(np.isfinite(judged(state)))
