"""Depth limits, kept Gumbel trees, regret, and models that return what is not finite."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from zero_search import AbstractPriorModel, Plan, PUCT, SoftmaxQ, TreeSearch, UCB1
from zero_search._model import masked_prediction
from zero_search._root import ImprovedPolicy, SequentialHalving

from .helpers import exact_values, Jitted, Node, quick_jit, RandomTree, Reference


ROWS = 10


def single(state, row):
    return jax.tree.map(lambda x: np.asarray(x)[row : row + 1], state)


def depth(tree) -> np.ndarray:
    """Of the deepest node of every tree."""
    parent, size = np.asarray(tree.parent), np.asarray(tree.size)
    found = np.zeros(parent.shape, int)
    for node in range(1, parent.shape[1]):
        found[:, node] = np.take_along_axis(found, parent[:, [node]], axis=1)[:, 0] + 1
    return np.where(np.arange(parent.shape[1]) < size[:, None], found, 0).max(axis=1)


@pytest.fixture(scope="module", params=[pytest.param("puct", marks=pytest.mark.slow), "gumbel"])
def limited(request):
    """A planner with little depth that keeps its tree, and its jitted methods."""
    if request.param == "puct":
        planner = TreeSearch(40, PUCT(1.5), max_depth=3, reuse=True)
    else:
        options: Any = dict(max_num_considered_actions=3, gumbel_scale=0.0)
        planner = TreeSearch.gumbel(40, **options, max_depth=3, reuse=True)
    model = RandomTree(num_actions=3, discounts=(1.0, -1.0, -1.0), truncate=0.05, gamma=0.9)
    run = Jitted(planner, model)

    def grow(state, carry, key):
        return planner.grow(model, state, carry, key=jr.split(key, ROWS))

    return run, quick_jit(grow)


def test_game_with_little_depth_equals_the_reference(limited):
    # Four moves with reuse. A leaf at the limit is revisited with its first value until the game
    # has moved on. Sequential halving shares out the new simulations alone, while Q-values and
    # weights rest on the kept ones too.
    run, grow = limited
    planner, oracle = run.planner, Reference(run.planner, run.model)
    state = run.model.start(ROWS)
    carry = run.fresh_carry(state)
    roots = [oracle.node(single(state, i)) for i in range(ROWS)]
    playing, reused, deepest = np.ones(ROWS, bool), 0, []
    for move in range(4):
        plan, carry, tree = grow(state, carry, jr.key(move))
        action, (plan, tree) = plan.action, jax.tree.map(np.asarray, (plan, tree))
        deepest += depth(tree)[playing].tolist()
        for i in np.flatnonzero(playing):
            root, kept = roots[i], roots[i]["visits"].copy()
            oracle.search(root)
            assert float(plan.stats["reused"][i]) == kept.sum()
            assert np.array_equal(tree.edge[i, 0, 0], root["visits"])
            seen = root["visits"] > 0
            assert np.allclose(plan.qvalues[i][seen], root["q"][seen], atol=1e-5)
            assert np.allclose(plan.value[i], root["mean"], atol=1e-5)
            if isinstance(planner.readout, ImprovedPolicy):
                assert np.allclose(plan.weights[i], oracle.improved(root), atol=1e-5)
                assert int(plan.action[i]) == np.argmax(oracle.halving(root))
            reused += kept.sum() if move else 0
        state, _, _, last = run.step(state, action)
        carry = run.advance(carry, action, last)
        playing &= ~np.asarray(last)
        for i in np.flatnonzero(playing):
            child = roots[i]["children"].get(int(plan.action[i]), [None])[0]
            roots[i] = child or oracle.node(single(state, i))
    assert playing.sum() >= 3 and reused > 100
    # Without a limit these trees go deeper: the reference in test_tree_search.py reaches 6.
    assert max(deepest) == 3


class Bandit(AbstractPriorModel[jax.Array]):
    """One move; its arms pay 1 with the state's probabilities and else -1."""

    def root(self, state, obs, *, key):
        return state

    def step(self, node, action, *, key):
        chance = jnp.take_along_axis(node, action[:, None], axis=1)[:, 0]
        win = jax.vmap(jr.bernoulli)(key, chance)
        return node, jnp.where(win, 1.0, -1.0), jnp.zeros_like(chance), jnp.ones_like(win)

    def predict(self, node, *, key):
        del key
        return jnp.zeros_like(node), jnp.zeros(node.shape[:1], jnp.float32)


def regrets(planner, model, state, exact):
    """A function of the exploration constant and of numbers of calls: mean regret of all visits so
    far, and of the action recommended, after so many calls of a planner that keeps its tree and
    goes on where it was.
    """
    batch = exact.shape[0]
    loss = exact.max(axis=1, keepdims=True) - np.where(np.isfinite(exact), exact, exact.max())

    @quick_jit
    def again(c, carry, seed):
        explorer = eqx.tree_at(lambda p: p.selection.c, planner, c)
        return explorer.plan(model, state, carry, key=jr.split(jr.key(seed), batch))

    def run(c, times) -> tuple[np.ndarray, np.ndarray]:
        carry, found = planner.init(model, state), []
        for call in range(max(times)):
            plan, carry = again(np.float32(c), carry, np.uint32(call))
            if call + 1 in times:
                visits = np.asarray(carry.tree.edge)[:, 0, 0]
                simple = loss[np.arange(batch), np.asarray(plan.action)]
                found.append(((visits * loss).sum(axis=1).mean(), simple.mean()))
        cumulative, simple = np.asarray(found).T
        return cumulative, simple

    return run


def growth(cumulative) -> float:
    """How much more regret a fourfold number of simulations adds than the fourfold before it.

    In the limit 1 if regret is logarithmic; 2 if it goes with the root, 4 if linearly.
    """
    steps = np.diff(cumulative)
    return steps[-1] / steps[-2]


def test_regret_on_bandits_grows_logarithmically():
    # Without room for a leaf every visit draws anew. Auer et al. 2002, theorem 1, bounds UCB1's
    # regret of win rates: 8 ln n / gap and 1 + pi^2 / 3 gaps for every arm but the best.
    rng = np.random.default_rng(0)
    gaps = np.pad(rng.uniform(0.2, 0.5, (128, 3)).astype(np.float32), ((0, 0), (1, 0)))
    gaps = rng.permuted(gaps, axis=1)
    planner = TreeSearch(50, UCB1(), max_nodes=1, reuse=True)
    run = regrets(planner, Bandit(), jnp.asarray(0.8 - gaps), 0.8 - gaps)
    cumulative, simple = run(2**0.5, (4, 16, 64))
    wrong = gaps[gaps > 0]
    bound = 8 * np.log(50 * 64) / wrong + (1 + np.pi**2 / 3) * wrong
    assert cumulative[-1] <= bound.sum() / 128
    assert growth(cumulative) < 1.7
    assert simple[-1] == 0
    # What never explores keeps a wrong arm, what always explores pays for it for ever. That is
    # seen soon.
    for broken in (0.0, 1e3):
        cumulative, simple = run(broken, (1, 4, 16))
        assert growth(cumulative) > 3.5
        assert (simple[-1] > 0.05) or broken


@pytest.mark.slow
@pytest.mark.parametrize("selection", [UCB1(), PUCT()], ids=["ucb1", "puct"])
def test_regret_on_trees_grows_logarithmically(selection):
    # Kocsis and Szepesvari 2006, theorem 6. Two players, rewards on the way, a noisy evaluator;
    # all 1 + 3 + 9 + 27 nodes fit. Greed sticks to what first looked good.
    model = RandomTree(3, (1.0, -1.0, -1.0), illegal=0.2, horizon=3, sharpness=0.0)
    state = model.start(128)
    exact = np.asarray(quick_jit(lambda s: exact_values(model, s, levels=3))(state))
    planner = TreeSearch(100, selection, max_nodes=41, reuse=True)
    run, times = regrets(planner, model, state, exact), (1, 4, 16, 64)
    cumulative, simple = run(selection.c, times)
    assert growth(cumulative) < 1.8
    # Faster than the root: 64 times the simulations, less than an eighth of the regret.
    assert simple[-1] < simple[0] / 8
    cumulative, simple = run(0.0, times)
    assert growth(cumulative) > 3.5
    assert simple[-1] > 0.8 * simple[0] > 0


MAX = float(jnp.finfo(jnp.float32).max)
LIMIT = MAX / 2
# What is wrong, its bad value, and what the search documents to put in its place.
SICK = {
    "+inf logit": ("logit", np.inf, LIMIT),
    "NaN logit": ("logit", np.nan, -LIMIT),
    "inf value": ("value", np.inf, 0.0),
    "NaN value": ("value", np.nan, 0.0),
    "huge value": ("value", -MAX, 0.0),
    "NaN reward": ("reward", np.nan, 0.0),
    "inf discount": ("discount", np.inf, 0.0),
    "huge discount": ("discount", 1e30, 0.0),
    "discount above 1": ("discount", -5.0, 0.0),
}
ODD = ("all values equal", "one legal action", "nothing legal below")


class Strange(AbstractPriorModel[Node]):
    """A tree in which a third of the states have what `SICK` says, or all of them what `ODD` says.

    `cured` has the documented replacement in place of what is not finite.
    """

    tree: RandomTree
    kind: jax.Array
    cured: jax.Array

    def root(self, state, obs, *, key):
        return state

    def ill(self, state):
        return state.name % jnp.uint32(3) == 0

    def spoil(self, part, state, x):
        for number, (which, bad, good) in enumerate(SICK.values()):
            if which == part:
                here = self.ill(state) & (self.kind == number)
                x = jnp.where(here, jnp.where(self.cured, good, bad), x)
        return x

    def odd(self, name):
        return self.kind == len(SICK) + ODD.index(name)

    def step(self, node, action, *, key):
        after, reward, discount, last = self.tree.step(node, action, key=key)
        equal = self.odd("all values equal")
        reward = self.spoil("reward", after, jnp.where(equal, 0.0, reward))
        discount = self.spoil("discount", after, jnp.where(equal, 1.0, discount))
        return after, reward, discount, last

    def predict(self, node, *, key):
        logits, value = self.tree.predict(node, key=key)
        logits = logits.at[:, 1].set(self.spoil("logit", node, logits[:, 1]))
        only = jnp.where(jnp.arange(logits.shape[1])[None] == 2, logits, -jnp.inf).at[:, 2].set(0.0)
        logits = jnp.where(self.odd("one legal action"), only, logits)
        filler = self.odd("nothing legal below") & (node.depth > 0)
        logits = jnp.where(filler[:, None], -jnp.inf, logits)
        value = jnp.where(self.odd("all values equal"), 0.5, value)
        return logits, self.spoil("value", node, value)


ENGINES = {
    "puct": TreeSearch(16),
    "gumbel": TreeSearch.gumbel(16, max_num_considered_actions=3),
    "mixed": TreeSearch(16, PUCT(), SequentialHalving(3), SoftmaxQ(0.5), num_leaves=4),
    "muzero": TreeSearch.muzero(16, reuse=True),
}


@pytest.fixture(
    scope="module",
    params=[pytest.param(x, marks=pytest.mark.slow) if x == "muzero" else x for x in ENGINES],
)
def engine(request):
    """A planner's plans on strange models, and how many ill states are in its trees."""
    planner = ENGINES[request.param]
    tree = RandomTree(num_actions=4, discounts=(1.0, -1.0), horizon=9)

    def run(kind, cured):
        model, state = Strange(tree, kind, cured), tree.start(ROWS)
        keys = jr.split(jr.key(0), ROWS)
        plan, _, grown = planner.grow(model, state, planner.init(model, state), key=keys)
        node = jnp.arange(grown.parent.shape[1])[None]
        # No step leads to the root.
        asked = (node < grown.size[:, None]) & ((node > 0) | (kind < 5))
        return plan, jnp.sum(model.ill(grown.state) & asked, axis=1)

    jitted = quick_jit(run)
    return lambda kind, cured=False: jitted(jnp.int32(kind), jnp.asarray(cured))


@pytest.mark.parametrize("kind", SICK)
def test_what_is_not_finite_is_replaced_and_counted(engine, kind):
    number = list(SICK).index(kind)
    plan, ill = engine(number)
    cured, _ = engine(number, cured=True)
    invalid = np.asarray(plan.stats.pop("invalid"))
    assert not np.any(cured.stats.pop("invalid"))
    for ours, expected in zip(jax.tree.leaves(plan), jax.tree.leaves(cured), strict=True):
        assert np.all(np.isfinite(ours)) and np.array_equal(ours, expected)
    # A final state, which a discount of 0 makes, is asked for again.
    assert np.all(invalid >= ill) and invalid.sum() > 5
    plan.stats["invalid"] = invalid
    with pytest.raises(ValueError, match=rf"NaN or infinity in {invalid.sum()} evaluations") as e:
        plan.check()
    assert "\n" not in str(e.value)


@pytest.mark.parametrize("kind", ODD)
def test_odd_games_give_no_nan(engine, kind):
    plan, _ = engine(len(SICK) + ODD.index(kind))
    assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(plan))
    assert np.allclose(np.sum(plan.weights, axis=1), 1, atol=1e-5)
    plan.check()
    if kind == "all values equal":
        assert np.allclose(plan.value, 0.5) and np.allclose(plan.qvalues, 0.5)
        assert np.allclose(plan.advantages, 0)
    if kind == "one legal action":
        assert np.array_equal(plan.weights, np.eye(4)[np.full(ROWS, 2)])
    if kind == "nothing legal below":
        assert np.all(plan.stats["depth"] == 1)


def test_logits_can_be_subtracted_from_each_other():
    # The search of Gumbel puts the largest at 0: what is legal must not become `-inf` by that.
    given = [[np.inf, np.nan, -np.inf], [MAX, -MAX, 0.0], [1.0, -np.inf, -2.0]]
    given = np.asarray(given, np.float32)
    masked = quick_jit(lambda x: masked_prediction(x, jnp.zeros((3,))))(given)
    logits, _, invalid = map(np.asarray, masked)
    assert np.array_equal(logits > -np.inf, given != -np.inf)
    assert np.array_equal(logits - logits[:, :1] > -np.inf, given != -np.inf)
    assert np.array_equal(logits[2], given[2])
    assert invalid.tolist() == [True, False, False]


def test_without_jit_a_plan_checks_itself():
    zeros, value = jnp.zeros((2, 3)), jnp.zeros((2,))
    numbers = {"visits": zeros, "qvalues": zeros + 0.5, "value": value}
    action = value.astype(jnp.int32)

    def plan(invalid):
        return Plan.over_actions(action, zeros + 1 / 3, stats={"invalid": invalid}, **numbers)

    sound = plan(jnp.asarray([0, 0]))
    assert sound.candidates.tolist() == [[0, 1, 2]] * 2
    assert jnp.array_equal(sound.advantages, sound.qvalues) and sound.extra is None
    jax.eval_shape(plan, jnp.asarray([0, 2]))
    with pytest.raises(ValueError, match=r"in 2 evaluations, in rows \[1\]"):
        plan(jnp.asarray([0, 2]))


@pytest.mark.slow
@pytest.mark.parametrize("name", ENGINES)
def test_without_jit_a_bad_model_is_an_error(name):
    tree = RandomTree(num_actions=4)
    model = Strange(tree, jnp.int32(list(SICK).index("NaN value")), jnp.asarray(False))
    state, planner = tree.start(ROWS), ENGINES[name]
    with pytest.raises(ValueError, match="`model.predict` must return finite values"):
        planner.plan(model, state, planner.init(model, state), key=jr.split(jr.key(0), ROWS))
