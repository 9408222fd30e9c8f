"""The search itself: against a slow reference, exact values, and its laws."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from zero_search import (
    AbstractPriorModel,
    DirichletNoise,
    PriorRoot,
    PUCT,
    SoftmaxQ,
    Temperature,
    TreeSearch,
    UCB1,
)
from zero_search._root import ImprovedPolicy, SequentialHalving
from zero_search._rules import ImprovedPolicySelection

from .helpers import (
    check_laws,
    exact_values,
    Jitted,
    Nim,
    Node,
    Noise,
    quick_jit,
    RandomTree,
    Reference,
)


SLOW = pytest.mark.slow


# Fast are both rules at the root and both inside. In pairs of the same kind test_reuse.py and
# test_any_game.py find the trees of the reference.
@pytest.mark.parametrize(
    "planner",
    [
        pytest.param(TreeSearch.alphazero(60, c=1.5, max_nodes=12), marks=SLOW),
        pytest.param(
            TreeSearch.gumbel(60, max_num_considered_actions=3, gumbel_scale=0.0, max_nodes=12),
            marks=SLOW,
        ),
        TreeSearch(60, PUCT(1.5), SequentialHalving(3, gumbel_scale=0.0), max_nodes=12),
        TreeSearch(60, ImprovedPolicySelection(), max_nodes=12),
    ],
    ids=["puct", "gumbel", "puct inside", "gumbel inside"],
)
def test_equals_a_slow_reference(planner):
    # Truncated and final states, moving twice, gamma below 1; with 12 nodes the tree fills up
    # after a fifth of the simulations and every later leaf must still be counted.
    model = RandomTree(num_actions=4, truncate=0.1, gamma=0.9)
    state = model.start(12)
    plan = Jitted(planner, model).fresh(state)
    oracle = Reference(planner, model)
    for row in range(12):
        root = oracle.agrees(plan, state, row)
        if isinstance(planner.readout, ImprovedPolicy):
            assert np.allclose(plan.weights[row], oracle.improved(root), atol=1e-5)


def test_finds_the_exact_best_action():
    # Players who may move twice; all 1 + 3 + 9 + 27 nodes fit. The evaluator knows nothing: one
    # that misleads is corrected in the end, but not always soon.
    planner = TreeSearch(2000, max_nodes=41)
    model = RandomTree(3, (1.0, -1.0), horizon=3, sharpness=0.0, noise=0.0, gamma=0.8)
    state = model.start(64)

    @quick_jit
    def run(state):
        keys = jr.split(jr.key(0), 64)
        plan, _ = planner.plan(model, state, planner.init(model, state), key=keys)
        return exact_values(model, state, levels=3), plan.action

    exact, action = map(np.asarray, run(state))
    ranked = np.sort(exact, axis=1)
    lead = ranked[:, -1] - ranked[:, -2]
    # With one legal action there is nothing to find.
    clear = np.isfinite(lead) & (lead >= 0.2)
    assert clear.sum() >= 15
    assert np.array_equal(action[clear], np.argmax(exact, axis=1)[clear])


@pytest.mark.parametrize(
    "planner",
    [pytest.param(TreeSearch.uct(400), marks=SLOW), TreeSearch.gumbel(400, gumbel_scale=0.0)],
    ids=["ucb1", "gumbel"],
)
def test_wins_nim(planner):
    heaps = np.asarray([1, 2, 3, 5, 6, 7, 9, 10], np.int32)
    plan = Jitted(planner, Nim()).fresh(heaps)
    assert np.array_equal(plan.action, heaps % 4 - 1)


def test_ucb1_is_the_textbook_bandit():
    # One step deep, rewards known: the visits are those of UCB1 on win rates (r + 1) / 2.
    model = RandomTree(num_actions=5, discounts=(0.0,), illegal=0.0)
    state = model.start(6)
    plan = Jitted(TreeSearch.uct(100), model).fresh(state)
    q = np.asarray(quick_jit(lambda s: exact_values(model, s, levels=1))(state))
    for row in range(6):
        visits = np.ones(5)
        while visits.sum() < 100:
            score = (q[row] + 1) / 2 + np.sqrt(2 * np.log(visits.sum()) / visits)
            visits[np.argmax(score)] += 1
        assert np.array_equal(plan.visits[row], visits)
        assert np.allclose(plan.weights[row], visits / 100)


PLANNERS = {
    "reuse": TreeSearch.alphazero(20, noise=DirichletNoise(alpha=0.3), reuse=True, max_nodes=30),
    "greedy": TreeSearch.alphazero(20, c=0.0, temperature=1.0, max_nodes=5),
    "muzero": TreeSearch.muzero(20, temperature=Temperature()),
    "gumbel": TreeSearch.gumbel(20, reuse=True),
    "puct below halving": TreeSearch(20, PUCT(), SequentialHalving(3), num_leaves=2),
    "gumbel below puct's root": TreeSearch(
        20, ImprovedPolicySelection(), PriorRoot(Noise()), SoftmaxQ(0.3), reuse=True
    ),
}
#: What others here and the readouts of test_hindsight.py have among them.
RARE = ("muzero", "gumbel below puct's root")


class Filler(AbstractPriorModel[Node]):
    """A tree in which a final state has no legal action."""

    tree: RandomTree

    def root(self, state, obs, *, key):
        return self.tree.root(state, obs, key=key)

    def step(self, node, action, *, key):
        return self.tree.step(node, action, key=key)

    def predict(self, node, *, key):
        logits, value = self.tree.predict(node, key=key)
        return jnp.where(node.done[:, None], -jnp.inf, logits), value


@pytest.mark.parametrize(
    "name", [pytest.param(x, marks=SLOW) if x in RARE else x for x in PLANNERS]
)
def test_laws_of_a_plan(name, getkey):
    # Weights are a distribution over legal actions; filler rows give no NaN; traced once. Visits
    # are those of the root.
    tree = RandomTree(num_actions=5, illegal=0.6)
    planner, model = PLANNERS[name], Filler(tree)
    run = Jitted(planner, model)
    predict = quick_jit(lambda s: model.predict(s, key=jr.split(jr.key(0), 16))[0])
    carry = run.fresh_carry(tree.start(16))
    for seed in (0, 1):
        root = tree.start(16, seed)
        state = Node(root.name, root.depth, np.arange(16) % 2 == 0)
        plan, carry = run.plan(state, carry, getkey())
        action, plan = plan.action, jax.tree.map(np.asarray, plan)
        legal = np.isfinite(predict(state))
        check_laws(plan, legal, state.done)
        assert np.array_equal(plan.stats["depth"] >= 1, ~state.done)
        new = np.sum(plan.visits, axis=1) - plan.stats["reused"]
        assert not np.any((plan.visits > 0) & ~legal)
        # Of several leaves that are evaluated together at least one is new.
        assert np.all(np.where(state.done, new == 0, new >= 20 / planner.num_leaves))
        assert np.all(new <= 20)
        assert np.any(np.sum(legal, axis=1) == 1)
        last = np.zeros((16,), bool)
        carry = run.advance(carry, action, last)
        assert np.all(np.asarray(carry.ply) == seed + 1)
    assert not np.any(run.advance(carry, action, ~last).ply)
    assert run.traces == 1


def test_rows_do_not_depend_on_their_batch():
    # What splitting the batch over devices relies on.
    model, planner = RandomTree(), TreeSearch.alphazero(8, temperature=1.0)

    @quick_jit
    def plan(seeds):
        state, keys = model.start(6), jax.vmap(jr.key)(seeds)
        state = jax.tree.map(lambda x: x[-seeds.shape[0] :], state)
        return planner.plan(model, state, planner.init(model, state), key=keys)[0]

    seeds = np.arange(6, dtype=np.uint32)
    whole, half = (jax.tree.map(np.asarray, plan(x)) for x in (seeds, seeds[3:]))
    assert np.array_equal(whole.weights[3:], half.weights)
    assert np.array_equal(whole.action[3:], half.action)


def test_a_part_replaces_that_of_a_known_search():
    rule, readout = PUCT(3.0), SoftmaxQ(0.5)
    for make in (TreeSearch.alphazero, TreeSearch.muzero, TreeSearch.gumbel, TreeSearch.uct):
        planner = make(4, selection=rule, readout=readout)
        assert planner.selection is rule and planner.readout is readout
    assert TreeSearch.uct(4, c=2.0).selection == UCB1(2.0)
    assert TreeSearch.muzero(4, c=2.0, c_base=50.0).selection == PUCT(2.0, c_base=50.0)
