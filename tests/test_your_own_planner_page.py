"""The page on planners: it runs, prints what it says, and its searches are what it claims."""

import functools

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from zero_search import AbstractPriorModel, PlainQ, PUCT, TreeSearch, VisitCounts

from . import workspace


GAMES, ACTIONS, SIMULATIONS, C, K = 12, 5, 120, 0.4, 2.0


@pytest.fixture(scope="module")
def page():
    return workspace.run_page("your-own-planner")


def test_the_page_prints_what_it_says(page):
    _, printed, said = page
    assert len(said) == 5 and printed == said


class Bandits(AbstractPriorModel):
    """One move, then the end: the rewards and the logits of each game."""

    reward: jax.Array
    logits: jax.Array

    def root(self, state, obs, *, key):
        return state

    def step(self, node, action, *, key):
        zero = jnp.zeros(node.shape)
        return node, self.reward[node, action], zero, zero == 0

    def predict(self, node, *, key):
        return self.logits[node], jnp.zeros(node.shape)


@pytest.fixture(scope="module")
def bandits() -> Bandits:
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(GAMES, ACTIONS))
    logits[rng.random(logits.shape) < 0.2] = -np.inf
    logits[0] = -np.inf  # filler
    f32 = lambda x: jnp.asarray(x, jnp.float32)
    return Bandits(f32(rng.uniform(-1, 1, (GAMES, ACTIONS))), f32(logits))


def forced_visits(reward, prior):
    """KataGo's search of one bandit, one simulation after the other."""
    visits = np.zeros(ACTIONS)
    for _ in range(SIMULATIONS):
        behind = np.where(visits > 0, np.sqrt(K * prior * visits.sum()) - visits, 0)
        score = np.where(visits > 0, reward, 0) + C * prior * np.sqrt(1 + visits.sum()) / (
            visits + 1
        )
        score = np.where(prior > 0, score, -np.inf)
        visits[np.argmax(behind) if behind.max() > 0 else np.argmax(score)] += 1
    return visits


def pruned_visits(visits, reward, prior):
    """The policy target of one bandit, one visit taken away after the other."""
    left, best = visits.copy(), int(np.argmax(visits))
    bonus = C * prior * np.sqrt(1 + visits.sum())
    top = reward[best] + bonus[best] / (visits[best] + 1)
    for action in set(range(ACTIONS)) - {best}:
        for _ in range(int(np.sqrt(K * prior[action] * visits.sum()))):
            if left[action] > 0 and reward[action] + bonus[action] / left[action] < top:
                left[action] -= 1
        if left[action] <= 1:
            left[action] = 0
    return left


def test_forced_playouts_equal_a_search_in_numpy(page, bandits):
    rules, selection = page[0], PUCT(C, PlainQ())
    readout = rules.PrunedVisits(selection, temperature=0.0)
    planner = TreeSearch(SIMULATIONS, selection, rules.ForcedPlayouts(), readout)
    state = jnp.arange(GAMES, dtype=jnp.int32)
    carry, key = planner.init(bandits, state), jr.split(jr.key(0), GAMES)
    planned = workspace.quick_jit(planner.plan)(bandits, state, carry, key=key)
    (plan, _), bandits = jax.device_get((planned, bandits))
    assert not np.any(plan.weights[0]) and np.all(np.isfinite(plan.value))
    changed = 0
    for game in range(1, GAMES):
        reward = np.asarray(bandits.reward[game], np.float64)
        prior = np.exp(np.asarray(bandits.logits[game], np.float64))
        prior /= prior.sum()
        visits = forced_visits(reward, prior)
        assert np.array_equal(plan.visits[game], visits)
        left = pruned_visits(visits, reward, prior)
        assert np.allclose(plan.weights[game], left / left.sum(), atol=1e-6)
        assert int(plan.action[game]) == int(np.argmax(visits))
        changed += not np.array_equal(left, visits)
    assert changed > GAMES // 2


def test_playouts_are_forced_with_several_leaves_too(page, bandits):
    rules, selection, leaves = page[0], PUCT(C, PlainQ()), 4
    planner = TreeSearch(SIMULATIONS, selection, rules.ForcedPlayouts(), num_leaves=leaves)
    state = jnp.arange(GAMES, dtype=jnp.int32)
    carry, key = planner.init(bandits, state), jr.split(jr.key(0), GAMES)
    plan = workspace.quick_jit(planner.plan)(bandits, state, carry, key=key)[0]
    # No action that was tried is more than the last few playouts short.
    prior, visits = jax.nn.softmax(bandits.logits[1:], axis=1), plan.visits[1:]
    total = jnp.sum(visits, axis=1, keepdims=True) - ACTIONS
    assert np.all((visits == 0) | (visits >= jnp.sqrt(K * prior * total) - leaves))


def test_a_decided_move_is_that_of_the_full_search(page):
    rules, heaps = page[0], jnp.array([5, 6, 7, 9, 0])
    model = rules.Nim()

    def plan(planner):
        carry, keys = planner.init(model, heaps), jr.split(jr.key(1), 5)
        planned = workspace.quick_jit(planner.plan)(model, heaps, carry, key=keys)
        return jax.device_get(planned)[0]

    tree = functools.partial(TreeSearch, selection=PUCT(1.0), readout=VisitCounts())
    early, full = plan(rules.UntilDecided()), plan(tree(800))
    done = int(early.stats["simulations"][0])
    assert 400 < done < 800
    assert np.array_equal(early.action, full.action)
    # Rounds are one search, and the last of them was needed.
    same = plan(tree(done))
    assert np.array_equal(early.visits, same.visits) and np.allclose(early.value, same.value)
    assert np.allclose(early.qvalues, same.qvalues) and np.allclose(early.weights, same.weights)
    first, second = np.sort(plan(tree(done - 20)).visits[:4], axis=1)[:, :0:-1].T[:2]
    assert np.any(first - second <= 800 - (done - 20))
    assert not np.any(early.weights[4]) and np.all(np.isfinite(early.qvalues))
