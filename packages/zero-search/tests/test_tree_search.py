"""The search itself: against a slow reference, exact values, and its laws."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from zero_search import (
    AbstractPriorModel,
    DirichletNoise,
    GumbelSearch,
    MctxSearch,
    MuZeroPUCT,
    PUCT,
    Temperature,
    TreeSearch,
    UCB1,
)

from .helpers import exact_values, Jitted, Nim, Node, RandomTree, Reference


TURNS = {
    "one player": (1.0,),
    "alternating": (-1.0,),
    "moving twice": (1.0, -1.0),
}


@pytest.mark.parametrize("max_nodes", [61, 12])
def test_equals_a_slow_reference(max_nodes):
    # Truncated and final states, moving twice, gamma below 1; with 12 nodes the tree fills up
    # after a fifth of the simulations and every later leaf must still be counted.
    model = RandomTree(num_actions=4, truncate=0.1)
    planner = TreeSearch(60, PUCT(1.5), gamma=0.9, max_nodes=max_nodes)
    state = model.root(12)
    plan = Jitted(planner, model).fresh(state)
    oracle = Reference(planner, model)
    for row in range(12):
        root = oracle.search(oracle.node(jax.tree.map(lambda x, i=row: x[i : i + 1], state)))
        visits = np.asarray(plan.weights[row]) * 60
        assert np.array_equal(np.round(visits), root["visits"])
        seen = root["visits"] > 0
        assert np.allclose(plan.qvalues[row][seen], root["q"][seen], atol=1e-5)
        assert np.allclose(plan.value[row], root["mean"], atol=1e-5)
        assert int(plan.stats["nodes"][row]) == oracle.size(root)


@pytest.mark.parametrize("turns", TURNS)
def test_finds_the_exact_best_action(turns):
    model = RandomTree(num_actions=3, discounts=TURNS[turns], horizon=3, sharpness=0.0)
    state = model.root(32)
    exact = exact_values(model, state, gamma=0.8)
    # All 1 + 3 + 9 + 27 nodes fit.
    plan = Jitted(TreeSearch(2000, PUCT(2.0), gamma=0.8, max_nodes=41), model).fresh(state)
    chosen = exact[np.arange(32), np.asarray(plan.action)]
    assert np.allclose(chosen, np.nanmax(exact, axis=1), atol=5e-2)


@pytest.mark.parametrize("selection", [PUCT(), MuZeroPUCT(), UCB1()])
def test_wins_nim(selection):
    heaps = jnp.asarray([1, 2, 3, 5, 6, 7, 9, 10], jnp.int32)
    plan = Jitted(TreeSearch(400, selection), Nim()).fresh(heaps)
    assert jnp.array_equal(plan.action, heaps % 4 - 1)


def test_gumbel_wins_nim():
    heaps = jnp.asarray([1, 2, 3, 5, 6, 7, 9, 10], jnp.int32)
    plan = Jitted(GumbelSearch(400, gumbel_scale=0.0), Nim()).fresh(heaps)
    assert jnp.array_equal(plan.action, heaps % 4 - 1)


def test_regret_falls_with_simulations():
    model = RandomTree(num_actions=4, horizon=4, sharpness=1.0)
    state = model.root(128)
    exact = exact_values(model, state, gamma=1.0)
    regret = []
    for num_simulations in (2, 24, 240):
        plan = Jitted(TreeSearch(num_simulations), model).fresh(state)
        chosen = exact[np.arange(128), np.asarray(plan.action)]
        regret.append(np.mean(np.nanmax(exact, axis=1) - chosen))
    assert regret[0] > regret[1] > regret[2] and regret[0] > 2 * regret[2]


def test_ucb1_is_the_textbook_bandit():
    # One step deep, rewards known: the visits are those of UCB1 on win rates (r + 1) / 2.
    model = RandomTree(num_actions=5, discounts=(0.0,), illegal=0.0)
    state = model.root(6)
    plan = Jitted(TreeSearch(100, UCB1()), model).fresh(state)
    q = exact_values(model, state, gamma=1.0)
    for row in range(6):
        visits = np.ones(5)
        while visits.sum() < 100:
            score = (q[row] + 1) / 2 + np.sqrt(2 * np.log(visits.sum()) / visits)
            visits[np.argmax(score)] += 1
        assert np.array_equal(np.round(np.asarray(plan.weights[row]) * 100), visits)


PLANNERS = {
    "puct": TreeSearch(20, noise=DirichletNoise(), temperature=1.0),
    "reuse": TreeSearch(20, noise=DirichletNoise(alpha=0.3), reuse=True, max_nodes=30),
    "ucb": TreeSearch(20, UCB1(), max_nodes=5),
    "gumbel": GumbelSearch(20),
    "mctx": MctxSearch(20, noise=DirichletNoise(), temperature=Temperature()),
    "mctx gumbel": MctxSearch(20, "gumbel"),
}


class Filler(AbstractPriorModel[Node]):
    """A tree in which a final state has no legal action."""

    tree: RandomTree

    def step(self, state, action, *, key):
        return self.tree.step(state, action, key=key)

    def predict(self, state, *, key):
        logits, value = self.tree.predict(state, key=key)
        return jnp.where(state.done[:, None], -jnp.inf, logits), value


@pytest.mark.parametrize("name", PLANNERS)
def test_laws_of_a_plan(name, getkey):
    # Weights are a distribution over legal actions; filler rows give no NaN; traced once.
    tree = RandomTree(num_actions=5, illegal=0.6)
    planner, model = PLANNERS[name], Filler(tree)
    run = Jitted(planner, model)
    carry = planner.init(model, tree.root(16))
    for seed in (0, 1):
        root = tree.root(16, seed)
        state = Node(root.name, root.depth, jnp.arange(16) % 2 == 0)
        plan, carry = run.plan(state, carry, getkey())
        legal = jnp.isfinite(model.predict(state, key=jr.split(getkey(), 16))[0])
        assert all(bool(jnp.all(jnp.isfinite(x))) for x in jax.tree.leaves(plan))
        assert jnp.allclose(jnp.sum(plan.weights, axis=1), jnp.where(state.done, 0.0, 1.0))
        assert not jnp.any((plan.weights > 0) & ~legal)
        assert jnp.all(legal[jnp.arange(16), plan.action] | state.done)
        assert jnp.all(plan.stats["depth"][1::2] >= 1)
        last = jnp.zeros((16,), bool)
        after, _, _, _ = run.step(state, plan.action)
        carry = run.advance(carry, plan.action, after, last)
        assert jnp.all(carry.ply == seed + 1)
    assert jnp.all(run.advance(carry, plan.action, after, ~last).ply == 0)
    assert run.traces == 1


def test_one_legal_action_takes_every_visit():
    model = RandomTree(num_actions=4, illegal=1.1)
    plan = Jitted(TreeSearch(16, noise=DirichletNoise()), model).fresh(model.root(4))
    assert jnp.array_equal(plan.weights, jnp.eye(4)[jnp.zeros((4,), jnp.int32)])
    assert jnp.all(plan.stats["depth"] >= 1)


def test_rows_do_not_depend_on_their_batch(getkey):
    # What splitting the batch over devices relies on.
    model, planner = RandomTree(), TreeSearch(20, noise=DirichletNoise(), temperature=1.0)
    state, key = model.root(6), getkey()

    def plan(state, key, first):
        keys = jr.split(key, 6)[first:]
        state = jax.tree.map(lambda x: x[first:], state)
        return planner.plan(model, state, planner.init(model, state), key=keys)[0]

    whole = jax.jit(plan, static_argnums=2)(state, jr.clone(key), 0)
    half = jax.jit(plan, static_argnums=2)(state, jr.clone(key), 3)
    assert jnp.array_equal(whole.weights[3:], half.weights)
    assert jnp.array_equal(whole.action[3:], half.action)


class Bad(AbstractPriorModel[Node]):
    """A model with a value too many."""

    tree: RandomTree

    def step(self, state, action, *, key):
        return self.tree.step(state, action, key=key)

    def predict(self, state, *, key):
        logits, value = self.tree.predict(state, key=key)
        return logits, value[:, None]


@pytest.mark.parametrize("planner", [TreeSearch(4), TreeSearch(4, reuse=True), GumbelSearch(4)])
def test_wrong_prediction_shape_says_what_is_allowed(planner):
    # Under the import hook's eyes too: `predict` of a user's own model is not annotated.
    tree = RandomTree()
    with pytest.raises(ValueError, match=r"they must be \(3, actions\) and \(3,\)"):
        Jitted(planner, Bad(tree)).fresh(tree.root(3))


@pytest.mark.parametrize(
    "build, message",
    [
        (lambda: TreeSearch(0), "num_simulations=0"),
        (lambda: GumbelSearch(-1), "num_simulations=-1"),
        (lambda: TreeSearch(4, max_nodes=0), "max_nodes=0"),
        (lambda: GumbelSearch(4, max_num_considered_actions=0), "considered_actions=0"),
        (lambda: MctxSearch(4, "alphazero"), "policy='alphazero'"),
        (lambda: DirichletNoise(fraction=1.5), "fraction=1.5"),
        (lambda: DirichletNoise(alpha=0.0), "alpha=0.0"),
        (lambda: DirichletNoise(total=-1.0), "total=-1.0"),
        (lambda: Temperature(moves=-1), "moves=-1"),
    ],
)
def test_bad_hyperparameters_are_named(build, message):
    with pytest.raises(ValueError, match=message):
        build()
