"""Chance nodes: against expectimax, mctx and the search without chance; reuse and laws."""

import dataclasses
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
    AbstractPriorModel,
    CompletedByMixedValue,
    PUCT,
    read_tree,
    sampled_step,
    TreeSearch,
    Widening,
)
from zero_search._chance import chance_nodes, ChanceNodes
from zero_search._tree import COUNT, keep

from .dice import expectimax, judged, RandomDice
from .helpers import (
    check_laws,
    chi_squared,
    equal,
    fresh,
    Jitted,
    Node,
    Noise,
    quick_jit,
    RandomTree,
)


# chex dataclasses hide their constructors from type checkers.
ENGINE: Any = mctx
# The models here draw nothing when they predict.
UNUSED: Any = None


@pytest.mark.parametrize(
    "outcomes, leaves",
    [
        ("proportional", 1),
        ("weighted", 1),
        pytest.param("sampled", 1, marks=pytest.mark.slow),
        pytest.param("proportional", 8, marks=pytest.mark.slow),
        pytest.param("weighted", 8, marks=pytest.mark.slow),
    ],
)
def test_converges_to_expectimax(outcomes, leaves):
    # Games of two moves, in which every node fits, of players who may move twice. Luck has to be
    # outweighed by more exploration and more simulations.
    number, c = (12_000, 4.0) if outcomes == "sampled" else (3_000, 1.0)
    planner = TreeSearch(number, PUCT(c), outcomes=outcomes, max_nodes=57, num_leaves=leaves)
    tree = RandomTree(2, (1.0, -1.0), 0.0, 0.2, horizon=2, sharpness=0.0, noise=0.0, gamma=0.8)
    model, state = RandomDice(tree, certain=0.2), tree.start(48)

    @quick_jit
    def run(state):
        carry = planner.init(model, state)
        plan, _ = planner.plan(model, state, carry, key=jr.split(jr.key(0), 48))
        return expectimax(model, state, levels=2), plan.action, plan.qvalues

    exact, action, qvalues = map(np.asarray, run(state))
    ranked = np.sort(exact, axis=1)
    lead = ranked[:, 1] - ranked[:, 0]
    clear = np.isfinite(lead) & (lead >= 0.1)
    assert clear.sum() >= 15
    best = np.argmax(exact, axis=1)
    assert np.array_equal(action[clear], best[clear])
    # Visits to worse actions below still weigh on the means.
    error = np.abs(qvalues[np.arange(48), best] - ranked[:, 1])
    assert np.mean(error) < 0.02 and np.max(error) < 0.2


def test_pure_chance_is_an_expectation():
    # Nothing to choose, so no visit is wasted: after n visits the mean of proportional outcomes
    # is off by 1/n or so. Walks that wait for their leaves count as visits: only those to an
    # afterstate that none has stored yet are lost.
    tree = RandomTree(1, (0.0,))
    model, state = RandomDice(tree, 5), tree.start(48)

    @quick_jit
    def run(state):
        plans = []
        for leaves in (1, 4):
            planner = TreeSearch(100, num_leaves=leaves)
            carry, keys = planner.init(model, state), jr.split(jr.key(0), 48)
            plans.append(planner.plan(model, state, carry, key=keys)[0].qvalues[:, 0])
        exact = expectimax(model, state, levels=1)[:, 0]
        return [jnp.abs(value - exact) for value in plans]

    alone, together = run(state)
    assert np.max(alone) < 5 / 100 and np.max(together) < 5 / 97


@pytest.mark.parametrize("own_value", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_outcomes_are_visited_by_their_probabilities(own_value):
    # Apportionment by largest `p / (n + 1)`: no visit was due to another outcome more than to that
    # which has it.
    tree = RandomTree(2)
    dice = RandomDice(tree, 4)
    model = judged(dice) if own_value else dice
    planner = TreeSearch(200)

    @quick_jit
    def run(key):
        _, grown = fresh(planner, model, tree.start(32), key)
        after = jax.tree.map(lambda x: x.reshape(-1), grown.state.afterstate)
        probs = jax.nn.softmax(dice.outcome_logits(after))
        return probs, grown.edge[:, :, 0].reshape(-1, 4), grown.state.chance.reshape(-1) > 0

    probs, visits, chance = map(np.asarray, run(jr.split(jr.key(0), 32)))
    first = np.eye(4)[np.argmax(probs, axis=1)] if model is dice else 0.0
    counted = visits + first
    assert np.sum(chance) > 500
    last = np.min(np.where(counted > 0, probs / np.maximum(counted, 1), np.inf), axis=1)
    following = np.max(probs / (counted + 1), axis=1)
    assert np.all(last[chance] >= following[chance] * (1 - 1e-5))
    # A decision has no third or fourth action.
    assert np.all(visits[~chance, 2:] == 0)


def test_visits_equal_mctx(monkeypatch):
    simulations, gamma = 48, 0.9
    tree = RandomTree(3, (1.0, -1.0, -1.0), illegal=0.3, gamma=gamma)
    model, state = judged(RandomDice(tree, 4)), tree.start(100)
    planner = TreeSearch.muzero(simulations)
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
            action_logits=logits, value=value, reward=reward, discount=discount
        ), state

    def run(state):
        logits, value = model.predict(state, key=UNUSED)
        root = ENGINE.RootFnOutput(prior_logits=logits, value=value, embedding=state)
        invalid = jnp.isneginf(logits)
        return mctx.stochastic_muzero_policy(
            (), jr.PRNGKey(0), root, decide, chance, simulations, invalid, dirichlet_fraction=0.0
        ).search_tree.summary()

    monkeypatch.setattr(jr, "uniform", lambda key, shape=(), *_, **__: jnp.zeros(shape))
    monkeypatch.setattr(jax, "tree_map", jax.tree.map, raising=False)  # its name in mctx 0.0.5
    with jax.debug_key_reuse(False), jax.numpy_dtype_promotion("standard"):
        with jax.numpy_rank_promotion("allow"):
            summary = quick_jit(run)(state)
    visits = np.round(plan.weights * simulations)
    assert np.array_equal(visits, summary.visit_counts)
    assert np.allclose(plan.value, summary.value, atol=1e-5)
    ours, theirs = (np.asarray(x.qvalues)[visits > 0] for x in (plan, summary))
    assert np.allclose(ours, theirs, atol=1e-5)


PARTS = {
    "puct": TreeSearch(40, PUCT(3.0)),
    "gumbel": TreeSearch.gumbel(40, max_num_considered_actions=5),
}


@pytest.mark.parametrize(
    "name, leaves, actions, outcomes",
    [
        ("puct", 1, 3, 5),
        ("gumbel", 1, 5, 2),
        pytest.param("puct", 4, 3, 5, marks=pytest.mark.slow),
        pytest.param("gumbel", 4, 5, 2, marks=pytest.mark.slow),
        pytest.param("gumbel", 4, 3, 5, marks=pytest.mark.slow),
    ],
)
def test_without_chance_it_is_the_plain_search_edge_by_edge(name, leaves, actions, outcomes):
    """No column that a node has no use for may reach what a rule makes of its Q-values."""
    tree = RandomTree(actions, truncate=0.1, illegal=0.0, sharpness=0.5, gamma=0.9)
    model, planner = RandomDice(tree, outcomes, certain=1.0), PARTS[name]
    planner = dataclasses.replace(planner, num_leaves=leaves)
    frozen = dataclasses.replace(planner, outcomes="frozen")

    @quick_jit
    def run(state, key):
        return [fresh(x, model, state, jr.clone(key)) for x in (frozen, planner)]

    found = run(tree.start(64), jr.split(jr.key(0), 64))
    (plain, alone), (chance, grown) = jax.tree.map(np.asarray, found)
    assert equal(plain, chance)
    assert alone.child.shape[2] == actions and grown.child.shape[2] == max(actions, outcomes)
    for x in ("step", "node", "parent", "size"):
        assert np.array_equal(getattr(alone, x), getattr(grown, x)), x
    assert equal(alone.state, grown.state.node)
    for x in ("edge", "child", "prior"):
        assert np.array_equal(getattr(alone, x), getattr(grown, x)[..., :actions]), x
    visits = np.sum(grown.edge[:, :, 0], axis=1)
    assert np.all(visits[:, actions:] == 0)
    # There are nodes all of whose actions were visited: no unvisited one had hidden a column.
    assert np.sum(np.all(alone.edge[:, :, 0] > 0, axis=2)) > 64


@pytest.mark.parametrize("actions, outcomes", [(2, 5), pytest.param(4, 2, marks=pytest.mark.slow)])
def test_gumbel_search_approaches_expectimax(actions, outcomes):
    tree = RandomTree(
        actions, (1.0, -1.0), 0.0, 0.2, horizon=2, sharpness=0.0, noise=0.0, gamma=0.8
    )
    model, state, rows = RandomDice(tree, outcomes, certain=0.2), tree.start(32), np.arange(32)
    # So soft a policy that inside the tree, too, everything is tried.
    parts: dict[str, Any] = dict(gumbel_scale=0.0, qtransform=CompletedByMixedValue(0.02))
    planner = TreeSearch.gumbel(1024, **parts)

    @quick_jit
    def run(state):
        plan, _ = fresh(planner, model, state, jr.split(jr.key(0), 32))
        return expectimax(model, state, levels=2), plan.qvalues, plan.action

    exact, qvalues, action = map(np.asarray, run(state))
    best = np.argmax(exact, axis=1)
    # The evaluator, which says 0 of everything, is wrong by far more. (With values of nothing but
    # the best test_belief.py finds them exactly.)
    assert np.mean(np.abs(exact[rows, best])) > 4 * 0.04
    assert 0 <= np.mean(exact[rows, best] - exact[rows, action]) < 0.01
    assert np.mean(np.abs(qvalues - exact)[rows, best]) < 0.04


@pytest.fixture(scope="module")
def moved():
    """A planner that reuses, its carry, the outcomes that really happened and where they led.

    Every fourth row was given an outcome that no search knows.
    """
    tree = RandomTree(2, (1.0, -1.0), truncate=0.05)
    run = Jitted(TreeSearch(60, reuse=True), RandomDice(tree, certain=0.3))
    state = tree.start(40)
    # As good a stored number as any.
    state = state._replace(depth=np.full((40,), np.nan, np.float32))
    plan, carry = run.plan(state, run.fresh_carry(state), jr.key(0))
    after, _, _, last = jax.tree.map(np.asarray, run.step(state, plan.action))
    strange = after.name + (np.arange(40) % 4 == 0).astype(np.uint32)
    after = Node(strange, after.depth, after.done)
    return run, carry, after, last, run.advance(carry, plan.action, last)


def counts(tree, row):
    """Visits of every node that decides, by its state's name."""
    size = int(tree.size[row])
    node = tree.state.chance[row, :size] == 0
    names, visits = tree.state.node.name[row, :size], tree.node[row, :size, COUNT]
    return dict(zip(names[node], visits[node], strict=True))


def test_the_subtree_of_the_realised_outcome_stays(moved):
    # No new simulation, so that what is left is what was kept.
    run, carry, after, last, advanced = moved
    below = quick_jit(lambda c, s: keep(c.tree, c.reached, ChanceNodes.decision(world(run), s)))
    grown, left, stayed = *jax.tree.map(np.asarray, (carry.tree, below(advanced, after))), 0
    for row in range(40):
        old, new = counts(grown, row), counts(left, row)
        name = int(after.name[row])
        known = name in old and not bool(last[row])
        assert bool(new) == known
        if known:
            assert new[name] == old[name] == left.edge[row, 0, 0].sum() + 1
            assert new.items() <= old.items()
            stayed += new[name] > 2
    assert stayed > 10 and np.all(left.size[::4] == 0)
    again, _ = run.plan(after, advanced, jr.key(1))
    assert np.array_equal(again.stats["reused"], np.sum(left.edge[:, 0, 0], axis=1))
    assert np.array_equal(advanced.ply, ~last)


def world(run):
    return chance_nodes(run.model, run.model.tree.start(40), 2, "proportional", False, Widening())[
        0
    ]


def test_a_reused_tree_is_consistent(moved):
    # As in a fresh tree: a child that is stored is visited as often as its edge.
    run, _, after, _, advanced = moved
    _, carry = run.plan(after, advanced, jr.key(1))
    tree = jax.tree.map(np.asarray, carry.tree)
    lane = np.arange(40)[:, None, None]
    stored = tree.child >= 0
    count = tree.node[lane, np.maximum(tree.child, 0), COUNT]
    assert np.array_equal(count[stored], tree.edge[:, :, 0][stored])
    assert np.sum(stored) > 40 * 60


class Filler(AbstractChanceModel[Node, Node]):
    """Dice in which a final state has no legal action."""

    dice: RandomDice

    @property
    def num_outcomes(self):
        return self.dice.num_outcomes

    def root(self, state, obs, *, key):
        return state

    def step(self, node, action, *, key):
        return sampled_step(self, node, action, key=key)

    def afterstate(self, node, action):
        return self.dice.afterstate(node, action)

    def outcome_logits(self, afterstate):
        return self.dice.outcome_logits(afterstate)

    def afterstate_value(self, afterstate, *, key):
        return None

    def resolve(self, afterstate, outcome):
        return self.dice.resolve(afterstate, outcome)

    def predict(self, node, *, key):
        logits, value = self.dice.predict(node, key=key)
        return jnp.where(node.done[:, None], -jnp.inf, logits), value


@pytest.mark.parametrize(
    "outcomes",
    ["proportional", *(pytest.param(x, marks=pytest.mark.slow) for x in ("weighted", "sampled"))],
)
def test_laws_of_a_plan(outcomes, getkey):
    # Weights are a distribution over legal actions alone; filler gives no NaN; traced once.
    tree = RandomTree(5, illegal=0.6)
    model = Filler(RandomDice(tree, certain=0.3))
    parts = dict(reuse=True, max_nodes=30, outcomes=outcomes)
    run = Jitted(TreeSearch.alphazero(20, noise=Noise(), temperature=1.0, **parts), model)
    predict = quick_jit(lambda s: model.predict(s, key=UNUSED)[0])
    carry = run.fresh_carry(tree.start(16))
    for seed in (0, 1):
        root = tree.start(16, seed)
        state = Node(root.name, root.depth, np.arange(16) % 2 == 0)
        plan, carry = run.plan(state, carry, getkey())
        legal, found = np.isfinite(predict(state)), jax.tree.map(np.asarray, plan)
        assert found.weights.shape == found.qvalues.shape == found.candidates.shape == (16, 5)
        check_laws(found, legal, state.done)
        grown = read_tree(jax.tree.map(np.asarray, carry.tree), 1)
        for node in grown.nodes():
            edges = grown.actions(node.node)
            assert len(edges) == 5
            if any(edge.legal for edge in edges):
                assert sum(edge.prior for edge in edges) == pytest.approx(1.0, abs=1e-5)
        carry = run.advance(carry, plan.action, np.zeros((16,), bool))
        assert np.all(np.asarray(carry.ply) == seed + 1)
    assert run.traces == 1
    again = [run.plan(state, carry, jr.key(i))[0].weights for i in (3, 3)]
    assert np.array_equal(*again)


def test_step_draws_from_the_probabilities():
    dice, number = RandomDice(RandomTree(1)), 6000

    @quick_jit
    def run(key):
        state = jax.tree.map(lambda x: jnp.repeat(x, number), dice.tree.start(1))
        first = jnp.zeros((number,), jnp.int32)
        after = dice.step(state, first, key=jr.split(key, number))[0]
        between = dice.afterstate(state, first)
        outcome = jnp.arange(number, dtype=jnp.int32) % dice.num_outcomes
        probs = jax.nn.softmax(dice.outcome_logits(between)[0])
        return after.name, dice.resolve(between, outcome)[0].name, probs

    names, landed, probs = run(jr.key(0))
    shares = np.mean(np.asarray(names)[:, None] == np.asarray(landed)[None, :3], axis=0)
    assert np.all(np.abs(shares - probs) < 5 * np.sqrt(probs * (1 - probs) / number))


def test_sampled_outcomes_follow_the_odds():
    # Chi-squared over 400 rows with one afterstate each, and 5 outcomes: 4 degrees of freedom a
    # row. One outcome of a row's 60 is what its afterstate was first resolved to.
    tree, batch = RandomTree(1, (0.0,)), 400
    model, state = RandomDice(tree, 5), tree.start(batch)
    planner = TreeSearch(61, outcomes="sampled")

    @quick_jit
    def run(key):
        plan, grown = fresh(planner, model, state, key)
        after = jax.tree.map(lambda x: x[:, 1], grown.state)
        probs = jax.nn.softmax(model.outcome_logits(after.afterstate))
        error = plan.qvalues - expectimax(model, state, levels=1)
        return grown.edge[:, 1, 0], after.chance, after.node.name, probs, error

    found = jax.tree.map(np.asarray, run(jr.split(jr.key(0), batch)))
    visits, chance, _, probs, error = found
    assert np.all(chance > 0) and np.all(np.sum(visits, axis=1) == 60)
    # The mean of 61 draws is off by 1/sqrt(61) or so, that of proportional outcomes by 1/61.
    assert 0.5 < 4 * np.mean(np.abs(error)) * np.sqrt(61) < 3
    total = chi_squared(visits, 60 * probs)
    freedom = 4 * batch
    assert abs(total - freedom) < 5 * np.sqrt(2 * freedom)
    # Rows do not draw alike: else the same rank would come up in each.
    assert len(np.unique(visits, axis=0)) > batch / 2
    assert equal(run(jr.split(jr.key(0), batch)), found)
    other = run(jr.split(jr.key(1), batch))
    assert np.mean(np.any(np.asarray(other[0]) != visits, axis=1)) > 0.9


class Thrower(AbstractPriorModel[Node]):
    """Dice that are thrown without a look at the odds; the outcomes are equally likely."""

    dice: RandomDice

    def root(self, state, obs, *, key):
        return state

    def step(self, node, action, *, key):
        outcome = jax.vmap(lambda k: jr.randint(k, (), 0, self.dice.num_outcomes))(key)
        return self.dice.resolve(self.dice.afterstate(node, action), outcome)

    def predict(self, node, *, key):
        return self.dice.predict(node, key=key)


class Thrown(AbstractChanceModel[Node, Node]):
    """The same, which knows its odds."""

    thrower: Thrower
    asked: list[int] = eqx.field(static=True)

    @property
    def num_outcomes(self):
        return self.thrower.dice.num_outcomes

    def root(self, state, obs, *, key):
        return state

    def step(self, node, action, *, key):
        return self.thrower.step(node, action, key=key)

    def afterstate(self, node, action):
        return self.thrower.dice.afterstate(node, action)

    def outcome_logits(self, afterstate):
        self.asked.append(1)
        return jnp.zeros((*afterstate.name.shape, self.num_outcomes))

    def afterstate_value(self, afterstate, *, key):
        return None

    def resolve(self, afterstate, outcome):
        return self.thrower.dice.resolve(afterstate, outcome)

    def predict(self, node, *, key):
        return self.thrower.predict(node, key=key)


def test_frozen_dice_are_searched_without_their_odds():
    tree, asked = RandomTree(3, (1.0, -1.0)), []
    thrower, state = Thrower(RandomDice(tree, 4)), tree.start(8)
    model, planner = Thrown(thrower, asked), TreeSearch(16, reuse=True)
    frozen = dataclasses.replace(planner, outcomes="frozen")

    @quick_jit
    def run(key):
        pairs = ((frozen, model), (planner, thrower))
        return [fresh(search, world, state, jr.clone(key)) for search, world in pairs]

    once, plain = run(jr.split(jr.key(0), 8))
    assert equal(once, plain) and not asked
    # Otherwise they are asked for.
    jax.eval_shape(lambda k: fresh(planner, model, state, k), jr.split(jr.key(0), 8))
    assert asked
