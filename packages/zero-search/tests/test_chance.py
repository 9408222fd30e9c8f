"""Chance nodes: against expectimax, mctx and the search without chance; reuse and laws."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import mctx
import numpy as np
import pytest

from zero_search import (
    AbstractChanceModel,
    ChanceSearch,
    check_plan,
    MuZeroPUCT,
    PUCT,
    read_tree,
    TreeSearch,
)
from zero_search._tree import COUNT

from .dice import expectimax, JudgedDice, RandomDice
from .helpers import Jitted, Node, Noise, quick_jit, RandomTree


# chex dataclasses hide their constructors from type checkers.
ENGINE: Any = mctx
# The models here draw nothing when they predict.
UNUSED: Any = None
TURNS = {
    "one player": (1.0, 1.0),
    "alternating": (-1.0, -1.0),
    "moving twice": (1.0, -1.0),
}


@pytest.fixture(
    scope="module",
    params=[
        ("proportional", 1),
        ("weighted", 1),
        pytest.param(("sampled", 1), marks=pytest.mark.slow),
        pytest.param(("proportional", 8), marks=pytest.mark.slow),
        pytest.param(("weighted", 8), marks=pytest.mark.slow),
    ],
    ids=lambda given: "-".join(map(str, given)),
)
def thorough(request):
    """Exact Q-values and a long search of games of two moves, in which every node fits.

    Luck has to be outweighed by more exploration.
    """
    outcomes, leaves = request.param
    rule = PUCT(4.0 if outcomes == "sampled" else 1.0)
    inner = TreeSearch(3000, rule, gamma=0.8, max_nodes=57, num_leaves=leaves)
    planner = ChanceSearch(inner, outcomes)

    @quick_jit
    def run(discounts):
        tree = RandomTree(2, discounts, horizon=2, sharpness=0.0, noise=0.0, illegal=0.2)
        model = RandomDice(tree, certain=0.2)
        state = tree.root(48)
        carry = planner.init(model, state)
        plan, _ = planner.plan(model, state, carry, key=jr.split(jr.key(0), 48))
        return expectimax(model, state, 0.8, levels=2), plan

    return run


@pytest.mark.parametrize("turns", TURNS)
def test_converges_to_expectimax(turns, thorough):
    exact, plan = thorough(jnp.asarray(TURNS[turns], jnp.float32))
    ranked = jnp.sort(exact, axis=1)
    lead = ranked[:, 1] - ranked[:, 0]
    clear = np.asarray(jnp.isfinite(lead) & (lead >= 0.1))
    assert clear.sum() >= 15
    best = jnp.argmax(exact, axis=1)
    assert jnp.array_equal(plan.action[clear], best[clear])
    # Visits to worse actions below still weigh on the means.
    error = jnp.abs(plan.qvalues[jnp.arange(48), best] - ranked[:, 1])
    assert jnp.mean(error) < 0.02 and jnp.max(error) < 0.2


def test_pure_chance_is_an_expectation():
    # Nothing to choose, so no visit is wasted: after n visits the mean of proportional outcomes
    # is off by 1/n or so, that of sampled ones by 1/sqrt(n). Walks that wait for their leaves
    # count as visits: only those to an afterstate that none has stored yet are lost.
    tree = RandomTree(1, (0.0,))
    model, state = RandomDice(tree, 5), tree.root(48)

    @quick_jit
    def run(state):
        searches = (("proportional", 1), ("proportional", 4), ("sampled", 1))
        plans = []
        for outcomes, leaves in searches:
            planner = ChanceSearch(TreeSearch(100, num_leaves=leaves), outcomes)
            carry, keys = planner.init(model, state), jr.split(jr.key(0), 48)
            plans.append(planner.plan(model, state, carry, key=keys)[0].qvalues[:, 0])
        exact = expectimax(model, state, 1.0, levels=1)[:, 0]
        return [jnp.abs(value - exact) for value in plans]

    proportional, together, sampled = run(state)
    assert proportional.max() < 5 / 100 and together.max() < 5 / 97
    assert 0.5 / 10 < sampled.mean() * 4 < 3 / 10


@pytest.mark.parametrize("model", [RandomDice, pytest.param(JudgedDice, marks=pytest.mark.slow)])
def test_outcomes_are_visited_by_their_probabilities(model):
    # Apportionment by largest `p / (n + 1)` never gives an outcome less than its quota's floor.
    tree = RandomTree(2)
    dice = RandomDice(tree, 4)
    model = dice if model is RandomDice else JudgedDice(dice)
    planner = ChanceSearch(TreeSearch(200, reuse=True))
    run, state = Jitted(planner, model), tree.root(32)
    _, carry = run.plan(state, planner.init(model, state), jr.key(0))
    grown = carry.tree
    assert grown is not None
    node = grown.state
    flat = lambda x: jax.tree.map(lambda y: y.reshape(-1), x)
    probs = jax.nn.softmax(dice.outcome_logits(flat(node.afterstate)))
    visits = grown.edge[:, :, 0, 2:].reshape(-1, 4)
    first = jax.nn.one_hot(jnp.argmax(probs, axis=1), 4) if model is dice else 0.0
    counted = visits + first
    chance = flat(node.chance)
    assert jnp.sum(chance) > 500
    quota = probs * jnp.sum(counted, axis=1, keepdims=True)
    assert jnp.all((counted > quota - 1) | ~chance[:, None])
    assert jnp.all(grown.edge[:, :, 0, :2].reshape(-1, 2)[chance] == 0)


def test_visits_equal_mctx(monkeypatch):
    simulations, gamma = 48, 0.9
    tree = RandomTree(3, (1.0, -1.0, -1.0), illegal=0.3)
    model, state = JudgedDice(RandomDice(tree, 4)), tree.root(100)
    planner = ChanceSearch(TreeSearch(simulations, MuZeroPUCT(), gamma=gamma))
    plan = Jitted(planner, model).fresh(state)

    def decide(_, key, action, state):
        after = model.afterstate(state, action)
        value = model.afterstate_value(after, key=key)
        return ENGINE.DecisionRecurrentFnOutput(
            chance_logits=model.outcome_logits(after), afterstate_value=value
        ), after

    def chance(_, key, outcome, afterstate):
        state, reward, discount, _ = model.resolve(afterstate, outcome)
        logits, value = model.predict(state, key=key)
        return ENGINE.ChanceRecurrentFnOutput(
            action_logits=logits, value=value, reward=reward, discount=gamma * discount
        ), state

    def run(state):
        logits, value = model.predict(state, key=UNUSED)
        root = ENGINE.RootFnOutput(prior_logits=logits, value=value, embedding=state)
        invalid = jnp.isneginf(logits)
        return mctx.stochastic_muzero_policy(
            (), jr.PRNGKey(0), root, decide, chance, simulations, invalid, dirichlet_fraction=0.0
        ).search_tree.summary()

    monkeypatch.setattr(jr, "uniform", lambda key, shape=(), *_, **__: jnp.zeros(shape))
    with jax.debug_key_reuse(False), jax.numpy_dtype_promotion("standard"):
        with jax.numpy_rank_promotion("allow"):
            summary = quick_jit(run)(state)
    visits = np.round(plan.weights * simulations)
    assert jnp.array_equal(visits.astype(int), summary.visit_counts.astype(jnp.int32))
    assert jnp.allclose(plan.value, summary.value, atol=1e-5)
    assert jnp.allclose(jnp.where(visits > 0, plan.qvalues - summary.qvalues, 0.0), 0.0, atol=1e-5)


@pytest.mark.parametrize("leaves", [1, pytest.param(4, marks=pytest.mark.slow)])
def test_without_chance_it_is_the_given_search(leaves):
    tree = RandomTree(4, truncate=0.1)
    model = RandomDice(tree, 3, certain=1.0)
    planner = TreeSearch(40, PUCT(1.3), Noise(), gamma=0.9, num_leaves=leaves)
    state = tree.root(64)
    plain = Jitted(planner, model).fresh(state)
    chance = Jitted(ChanceSearch(planner), model).fresh(state)
    for x, y in zip(jax.tree.leaves(plain), jax.tree.leaves(chance), strict=True):
        assert jnp.array_equal(x, y)


@pytest.fixture(scope="module")
def moved():
    """A planner that reuses, a plan, the outcomes that really happened and where they led.

    Every fourth row was given an outcome that no search knows.
    """
    tree = RandomTree(2, (1.0, -1.0), truncate=0.05)
    run = Jitted(ChanceSearch(TreeSearch(60, reuse=True)), RandomDice(tree, certain=0.3))
    state = tree.root(40)
    state = state._replace(depth=jnp.full((40,), jnp.nan))  # as good a stored number as any
    plan, carry = run.plan(state, run.planner.init(run.model, state), jr.key(0))
    after, _, _, last = run.step(state, plan.action)
    strange = jnp.where(jnp.arange(40) % 4 == 0, after.name + jnp.uint32(1), after.name)
    after = Node(strange, after.depth, after.done)
    return run, plan, carry, after, last, run.advance(carry, plan.action, after, last)


def counts(tree, row):
    """Visits of every node that decides, by its state's name."""
    size = int(tree.size[row])
    node = ~tree.state.chance[row, :size]
    names, visits = tree.state.state.name[row, :size], tree.node[row, :size, COUNT]
    return dict(zip(names[node], visits[node], strict=True))


def test_the_subtree_of_the_realised_outcome_stays(moved):
    run, _, carry, after, last, kept = moved
    grown, left, stayed = *jax.tree.map(np.asarray, (carry.tree, kept.tree)), 0
    for row in range(40):
        old, new = counts(grown, row), counts(left, row)
        name = int(after.name[row])
        known = name in old and not bool(last[row])
        assert bool(new) == known
        if known:
            assert new[name] == old[name] == left.edge[row, 0, 0].sum() + 1
            assert new.items() <= old.items()
            stayed += new[name] > 2
    assert stayed > 10 and jnp.all(kept.tree.size[::4] == 0)
    again, _ = run.plan(after, kept, jr.key(1))
    assert jnp.array_equal(again.stats["reused"], jnp.sum(kept.tree.edge[:, 0, 0], axis=1))
    assert jnp.array_equal(kept.ply, jnp.where(last, 0, 1))


def test_a_reused_tree_is_consistent(moved):
    # As in a fresh tree: a child that is stored is visited as often as its edge.
    run, _, _, after, _, kept = moved
    _, carry = run.plan(after, kept, jr.key(1))
    tree = carry.tree
    lane = jnp.arange(40)[:, None, None]
    stored = tree.child >= 0
    count = tree.node[lane, jnp.maximum(tree.child, 0), COUNT]
    assert jnp.all(jnp.where(stored, count == tree.edge[:, :, 0], True))
    assert jnp.sum(stored) > 40 * 60


class Filler(AbstractChanceModel[Node, Node]):
    """Dice in which a final state has no legal action."""

    dice: RandomDice

    def afterstate(self, state, action):
        return self.dice.afterstate(state, action)

    def outcome_logits(self, afterstate):
        return self.dice.outcome_logits(afterstate)

    def resolve(self, afterstate, outcome):
        return self.dice.resolve(afterstate, outcome)

    def predict(self, state, *, key):
        logits, value = self.dice.predict(state, key=key)
        return jnp.where(state.done[:, None], -jnp.inf, logits), value


@pytest.mark.parametrize(
    "outcomes",
    ["proportional", *(pytest.param(x, marks=pytest.mark.slow) for x in ("weighted", "sampled"))],
)
def test_laws_of_a_plan(outcomes, getkey):
    # Weights are a distribution over legal actions alone; filler gives no NaN; traced once.
    tree = RandomTree(5, illegal=0.6)
    model = Filler(RandomDice(tree, certain=0.3))
    inner = TreeSearch(20, noise=Noise(), temperature=1.0, reuse=True, max_nodes=30)
    run = Jitted(ChanceSearch(inner, outcomes), model)
    carry = run.planner.init(model, tree.root(16))
    for seed in (0, 1):
        root = tree.root(16, seed)
        state = Node(root.name, root.depth, jnp.arange(16) % 2 == 0)
        plan, carry = run.plan(state, carry, getkey())
        legal = jnp.isfinite(model.predict(state, key=UNUSED)[0])
        assert plan.weights.shape == plan.qvalues.shape == plan.candidates.shape == (16, 5)
        assert all(bool(jnp.all(jnp.isfinite(x))) for x in jax.tree.leaves(plan))
        assert jnp.allclose(jnp.sum(plan.weights, axis=1), jnp.where(state.done, 0.0, 1.0))
        assert not jnp.any((plan.weights > 0) & ~legal)
        assert jnp.all(legal[jnp.arange(16), plan.action] | state.done)
        grown = read_tree(carry.tree, 1)
        for node in grown.nodes():
            edges = grown.actions(node.node)
            assert not any(edge.legal for edge in edges[5 + 3 :])
            if any(edge.legal for edge in edges):
                assert sum(edge.prior for edge in edges) == pytest.approx(1.0, abs=1e-5)
        after, _, _, _ = run.step(state, plan.action)
        carry = run.advance(carry, plan.action, after, jnp.zeros((16,), bool))
        assert jnp.all(carry.ply == seed + 1)
    assert run.traces == 1
    again = [run.plan(state, carry, jr.key(i))[0].weights for i in (3, 3)]
    assert jnp.array_equal(*again)


def test_step_draws_from_the_probabilities():
    dice, number = RandomDice(RandomTree(1)), 6000

    @quick_jit
    def run(key):
        state = jax.tree.map(lambda x: jnp.repeat(x, number), dice.tree.root(1))
        first = jnp.zeros((number,), jnp.int32)
        after = dice.step(state, first, key=jr.split(key, number))[0]
        between = dice.afterstate(state, first)
        outcome = jnp.arange(number, dtype=jnp.int32) % dice.num_outcomes
        probs = jax.nn.softmax(dice.outcome_logits(between)[0])
        return after.name, dice.resolve(between, outcome)[0].name, probs

    names, landed, probs = run(jr.key(0))
    shares = np.mean(np.asarray(names)[:, None] == np.asarray(landed)[None, :3], axis=0)
    assert np.all(np.abs(shares - probs) < 5 * np.sqrt(probs * (1 - probs) / number))


class Broken(AbstractChanceModel[Node, Node]):
    """Dice with one method's result spoilt."""

    dice: RandomDice
    method: str
    spoil: Any = eqx.field(static=True)

    def _maybe(self, method, result):
        return self.spoil(result) if method == self.method else result

    def afterstate(self, state, action):
        return self.dice.afterstate(state, action)

    def outcome_logits(self, afterstate):
        return self._maybe("outcome_logits", self.dice.outcome_logits(afterstate))

    def resolve(self, afterstate, outcome):
        return self._maybe("resolve", self.dice.resolve(afterstate, outcome))

    def predict(self, state, *, key):
        return self.dice.predict(state, key=key)


@pytest.mark.parametrize(
    "method, spoil, message",
    [
        (
            "outcome_logits",
            lambda x: x[:1],
            r"`model.outcome_logits` returned float32\[1,3\] for 2 afterst",
        ),
        (
            "outcome_logits",
            lambda x: x > 0,
            r"`model.outcome_logits` returned bool\[2,3\] for 2 afterstates",
        ),
        ("resolve", lambda x: (*x[:3], x[1]), r"`model.resolve` returned `last` float32\[2\]"),
        ("resolve", lambda x: (x[0].name, *x[1:]), "`model.resolve` turned a state of structure"),
    ],
)
def test_a_bad_model_is_named(method, spoil, message):
    dice = RandomDice(RandomTree(2))
    model, state = Broken(dice, method, spoil), dice.tree.root(2)
    planner = ChanceSearch(TreeSearch(4))

    def plan(state, key):
        return planner.plan(model, state, planner.init(model, state), key=key)[0]

    with pytest.raises(ValueError, match=message):
        jax.eval_shape(plan, state, jr.split(jr.key(0), 2))


@pytest.mark.parametrize("spoil", [lambda x: x[:, None], lambda x: x > 0])
def test_a_bad_value_of_afterstates_is_named(spoil):
    tree = RandomTree(2)
    model, state = JudgedDice(RandomDice(tree), spoil), tree.root(2)
    planner = ChanceSearch(TreeSearch(4))
    plan = lambda s, k: planner.plan(model, s, planner.init(model, s), key=k)[0]
    with pytest.raises(ValueError, match=r"`model.afterstate_value` returned .* shape \(2,\): one"):
        jax.eval_shape(plan, state, jr.split(jr.key(0), 2))


def test_a_law_that_is_none_is_counted():
    # Rows: NaN; nothing possible; one outcome impossible; infinity; nothing after the end; whole.
    nothing = lambda x, row: x.at[row].set(-jnp.inf)
    spoil = lambda x: nothing(
        nothing(x.at[0, 1].set(jnp.nan).at[2, 1].set(-jnp.inf).at[3, 2].set(jnp.inf), 1), 4
    )
    tree = RandomTree(2, (1.0, -1.0), horizon=50)
    root = tree.root(6)
    state = root._replace(depth=root.depth.at[4].set(49))
    model = Broken(RandomDice(tree), "outcome_logits", spoil)
    plan = Jitted(ChanceSearch(TreeSearch(4)), model).fresh(state)
    assert plan.stats["invalid"].tolist() == [4, 4, 0, 4, 0, 0]
    assert all(bool(jnp.all(jnp.isfinite(x))) for x in jax.tree.leaves(plan))
    with pytest.raises(ValueError, match=r"12 evaluations, in rows \[0, 1, 3\].*outcome_logits"):
        check_plan(plan)


def test_unknown_outcomes_are_refused():
    with pytest.raises(ValueError, match="must be one of 'proportional', 'weighted', 'sampled'"):
        ChanceSearch(TreeSearch(4), "exact")
