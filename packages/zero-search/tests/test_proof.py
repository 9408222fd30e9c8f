"""Searches that keep what finished games prove: against exact values, and its laws."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from zero_search import (
    AbstractPriorModel,
    ByMinMax,
    ByParentAndSiblings,
    CompletedByMixedValue,
    FirstPlayUrgency,
    Hindsight,
    LowerBound,
    NodeStatistics,
    PlainQ,
    PUCB,
    PUCT,
    SampledSearch,
    SoftmaxQ,
    TreeSearch,
    UCB1,
    VisitCounts,
)
from zero_search._proof import among, Bounds
from zero_search._tree import COUNT

from .dice import RandomDice
from .helpers import exact_values, Jitted, Nim, quick_jit, RandomTree
from .hidden import Tiger


LEVELS, ROWS = 4, 32
# Rewards on the way, players who move twice, illegal actions and ends at different depths.
TREE = RandomTree(3, (1.0, -1.0, -1.0, 0.0), horizon=LEVELS, gamma=1.0)
MOST = float(LEVELS)


def planner(kind, number, **parts):
    if kind == "gumbel":
        return TreeSearch.gumbel(number, gumbel_scale=0.0, **parts)
    return TreeSearch.alphazero(number, c=10.0, **parts)


def run(search, model: Any = TREE, rows=ROWS, start=TREE.start):
    """The plan and the tree from each state, with PRNG keys of their own."""
    grow = lambda s, k: search.grow(model, s, search.init(model, s), key=k)[::2]
    keys = jr.split(jr.key(0), rows)
    return jax.tree.map(np.asarray, quick_jit(grow)(start(rows), keys))


@pytest.fixture(scope="module")
def exact():
    return np.asarray(quick_jit(lambda s: exact_values(TREE, s, levels=LEVELS))(TREE.start(ROWS)))


@pytest.fixture(scope="module", params=["puct", "gumbel"])
def searched(request):
    return request.param, *run(planner(request.param, 150, max_return=MOST))


def test_bounds_hold_the_exact_values(searched, exact):
    kind, plan, tree = searched
    bounds = Bounds.of(jnp.asarray(tree.edge[:, 0]), MOST)
    low, high, legal = np.asarray(bounds.low), np.asarray(bounds.high), np.isfinite(exact)
    assert (low <= exact + 1e-5)[legal].all() and (high >= exact - 1e-5)[legal].all()
    known = np.asarray(bounds.known) & legal
    assert np.allclose(low[known], exact[known], atol=1e-5) and known.any()
    proven = plan.stats["proven"]
    # Gumbel's search seldom tries what it believes to be worse.
    assert proven.mean() > (0.9 if kind == "puct" else 0.1)
    assert np.allclose(plan.value[proven], exact[proven].max(axis=1), atol=1e-5)
    chosen = exact[np.arange(ROWS), plan.action]
    assert np.allclose(chosen[proven], exact[proven].max(axis=1), atol=1e-5)


def test_values_in_the_tree_stay_within_the_bounds(searched):
    *_, tree = searched
    edge = jnp.asarray(tree.edge.reshape(-1, *tree.edge.shape[2:]))
    bounds, qvalues, seen = Bounds.of(edge, MOST), np.asarray(edge[:, 1]), edge[:, 0] > 0
    assert (np.asarray(bounds.low) - 1e-5 <= qvalues)[seen].all()
    assert (qvalues <= np.asarray(bounds.high) + 1e-5)[seen].all()


def test_the_plan_tells_the_q_values_of_losing_moves(searched):
    _, plan, tree = searched
    visited = plan.visits > 0
    assert np.array_equal(plan.qvalues[visited], tree.edge[:, 0, 1][visited])


def test_no_simulation_goes_below_what_is_proven():
    """The first simulations of a longer search are those of a shorter one."""
    (_, short), (_, long) = (run(planner("puct", n, max_return=MOST)) for n in (20, 60))
    room = short.parent.shape[1]
    edge = jnp.asarray(short.edge.reshape(-1, *short.edge.shape[2:]))
    known = np.asarray(Bounds.of(edge, MOST).known).reshape(ROWS, room, -1)
    row, node, action = np.nonzero(known & (short.child >= 0))
    child, count = short.child[row, node, action], lambda tree: tree.node[..., COUNT]
    assert np.array_equal(long.child[:, :room][short.child >= 0], short.child[short.child >= 0])
    assert len(row) > ROWS and np.array_equal(count(short)[row, child], count(long)[row, child])
    others = np.ones_like(count(short), bool)
    others[row, child] = False
    assert (count(long)[:, :room] > count(short))[others].any()


@pytest.mark.parametrize("kind", ["puct", "gumbel"])
def test_without_ends_nothing_changes(kind):
    endless = RandomTree(3, (1.0, -1.0, -1.0))
    with_proofs, without = (
        run(planner(kind, 24, **parts), endless)[0] for parts in (dict(max_return=100.0), {})
    )
    assert not with_proofs.stats["proven"].any()
    assert np.array_equal(with_proofs.visits, without.visits)
    assert np.array_equal(with_proofs.action, without.action)


@pytest.mark.parametrize("parts", [dict(num_leaves=4), dict(max_nodes=20)])
def test_other_parts_prove_the_same(parts, exact):
    plan, _ = run(planner("puct", 200, max_return=MOST, **parts))
    proven = plan.stats["proven"]
    assert proven.any()
    assert np.allclose(plan.value[proven], exact[proven].max(axis=1), atol=1e-5)


def test_it_stops_once_all_roots_are_proven():
    whole, stopped = (
        run(planner("puct", 400, max_return=MOST, stop_early=early), rows=4)[0]
        for early in (False, True)
    )
    assert whole.stats["proven"].all() and stopped.stats["proven"].all()
    assert (stopped.visits.sum(axis=1) < 400).all()
    assert np.array_equal(stopped.action, whole.action)


class Trap(AbstractPriorModel):
    """Action 2, of which the network is sure, is refuted by the reply 0; the others draw."""

    def root(self, state, obs, *, key):
        return state

    def step(self, node, action, *, key):
        replied, trapped = node >= 10, node == 12
        reward = jnp.where(trapped & (action == 0), 1.0, 0.0)
        return 10 + action, reward, jnp.where(replied, 0.0, -1.0), replied

    def predict(self, node, *, key):
        first = jnp.where(
            (node < 10)[:, None], jnp.asarray([0.0, 0.0, 4.0]), jnp.asarray([-4.0, 0, 0])
        )
        return first, jnp.where(node == 12, -0.5, 0.0)


@pytest.mark.parametrize("kind", ["puct", "gumbel", "highest"])
def test_a_move_that_loses_is_not_played(kind):
    """The refutation is found last, when most visits have gone to the move."""
    plans = []
    for most in (None, 1.0):
        parts: Any = dict(max_return=most)
        if kind == "highest":
            parts["readout"] = SoftmaxQ()
        search = planner("puct" if kind == "highest" else kind, 14, **parts)
        state = jnp.zeros((1,), jnp.int32)
        grow = lambda k, search=search, s=state: search.plan(
            Trap(), s, search.init(Trap(), s), key=k
        )
        plans.append(quick_jit(grow)(jr.split(jr.key(0), 1))[0])
    unproven, proven = plans
    assert proven.action[0] != 2 and float(proven.weights[0, 2]) == 0
    assert float(proven.qvalues[0, 2]) == -1
    if kind == "puct":
        assert unproven.action[0] == 2


def test_a_plan_takes_no_untried_move_beside_a_proven_win():
    bounds = Bounds(jnp.asarray([[1.0, -1, -1]]), jnp.asarray([[1.0, 1, -1]]), 1.0)
    legal, visits = jnp.ones((1, 3), bool), jnp.asarray([[2.0, 0, 1]])
    playable = bounds.playable(legal, jnp.asarray([[1.0, 0, -1]]), visits)
    assert playable.tolist() == [[True, False, False]]
    draw = Bounds(jnp.asarray([[0.0, -1, -1]]), jnp.asarray([[0.0, 1, 1]]), 1.0)
    playable = draw.playable(legal, jnp.asarray([[0.0, 0.3, -0.3]]), visits + 1)
    assert playable.tolist() == [[True, True, False]]


def test_a_known_move_gives_way_to_one_that_cannot_be_worse():
    legal, visits = jnp.ones((1, 3), bool), jnp.asarray([[9.0, 1, 0]])
    lost = Bounds(jnp.asarray([[-1.0, -1, -1]]), jnp.asarray([[-1.0, 1, 1]]), 1.0)
    playable = lost.playable(legal, jnp.asarray([[-1.0, -0.9, 0]]), visits)
    assert playable.tolist() == [[False, True, True]]
    # Nothing is known of the others yet.
    playable = lost.playable(legal, jnp.asarray([[-1.0, 0, 0]]), jnp.asarray([[9.0, 0, 0]]))
    assert playable.tolist() == [[True, True, True]]


class Ends(AbstractPriorModel):
    """Games of four plies, which only their ends pay: 1 or -1."""

    tree: RandomTree = RandomTree(4, (-1.0,), horizon=4)

    def root(self, state, obs, *, key):
        return state

    def step(self, node, action, *, key):
        after, reward, discount, last = self.tree.step(node, action, key=key)
        ends = last & ~node.done
        return after, jnp.where(ends, jnp.where(reward > 0, 1.0, -1.0), 0.0), discount, last

    def predict(self, node, *, key):
        return self.tree.predict(node, key=key)


@pytest.mark.parametrize("readout", [VisitCounts(), LowerBound(), SoftmaxQ()], ids=repr)
def test_no_lost_move_is_played_while_another_may_not_be(readout):
    search = TreeSearch.alphazero(40, c=2.0, max_return=1.0, readout=readout)
    plan, tree = run(search, Ends(), rows=256, start=Ends().tree.start)
    bounds = Bounds.of(jnp.asarray(tree.edge[:, 0]), 1.0)
    lost, played = np.asarray(bounds.high) == -1, plan.action[:, None]
    other = ((plan.visits > 0) & ~lost).any(axis=1)
    assert not np.take_along_axis(lost, played, 1)[other].any()
    assert (lost & (plan.visits > 0)).any(axis=1)[other].sum() > 50
    assert not plan.weights[other][lost[other]].any()


def test_rounded_returns_stay_within_the_greatest_one():
    """Ten rewards of 0.1 are more than 1 in single precision."""
    most, none = np.float32(1), Bounds.of(jnp.zeros((1, 4, 3)), 1.0)
    taken, total = jnp.asarray([[True, False, False]]), jnp.asarray([np.nextafter(most, 2 * most)])
    for sign in (1, -1):
        found = none.told(taken, sign * total, sign * total)
        assert found.low[0, 0] == found.high[0, 0] == sign and found.known[0, 0]


def test_a_lost_position_is_played_as_without_proofs():
    """Moves that all lose differ in their visits, and no one is preferred for its number."""
    nim = Nim()
    state = jnp.full((1,), 4, jnp.int32)  # whatever is taken, the other player takes the last
    search = TreeSearch.alphazero(60, c=1.0, max_return=1.0)
    grow = lambda k: search.plan(nim, state, search.init(nim, state), key=k)[0]
    plan = quick_jit(grow)(jr.split(jr.key(0), 1))
    assert plan.stats["proven"][0] and float(plan.value[0]) == -1
    assert (np.asarray(plan.weights[0]) > 0.05).all()


@pytest.mark.parametrize(
    "model, parts",
    [
        (RandomTree(3, (0.9, -1.0, -1.0, 0.0), horizon=LEVELS, gamma=0.9), {}),
        (RandomTree(3, (1.0, -1.0, 0.0), horizon=LEVELS, truncate=0.3), {}),
        (TREE, dict(max_depth=2)),
    ],
    ids=["discounted", "cut off", "max_depth"],
)
def test_nothing_is_proven_that_does_not_hold(model, parts):
    """Truncated episodes and what lies below `max_depth` prove nothing."""
    state = model.start(ROWS)
    exact = np.asarray(quick_jit(lambda s: exact_values(model, s, levels=LEVELS))(state))
    plan, tree = run(planner("puct", 150, max_return=MOST, **parts), model)
    bounds = Bounds.of(jnp.asarray(tree.edge[:, 0]), MOST)
    low, high, legal = np.asarray(bounds.low), np.asarray(bounds.high), np.isfinite(exact)
    cut = model.truncate > 0
    if not cut:  # where an episode is cut off, the exact value is the evaluator's
        assert (low <= exact + 1e-5)[legal].all() and (high >= exact - 1e-5)[legal].all()
    proven = plan.stats["proven"]
    assert proven.any() and (not proven.all() or not (cut or parts))
    assert np.allclose(plan.value[proven], exact[proven].max(axis=1), atol=1e-5)


def test_proofs_are_kept_between_moves(exact):
    search = planner("puct", 60, max_return=MOST, reuse=True)
    game = Jitted(search, TREE)
    state = TREE.start(ROWS)
    plan, carry = game.plan(state, game.fresh_carry(state), jr.key(0))
    after, _, _, last = game.step(state, plan.action)
    again, _ = game.plan(after, game.advance(carry, plan.action, last), jr.key(1))
    values = quick_jit(lambda s: exact_values(TREE, s, levels=LEVELS - 1))(after)
    going = ~np.asarray(last)
    proven = np.asarray(again.stats["proven"]) & going
    assert proven.sum() >= np.asarray(plan.stats["proven"])[going].sum() and proven.any()
    best = np.asarray(values).max(axis=1)
    assert np.allclose(np.asarray(again.value)[proven], best[proven], atol=1e-5)


def test_refusals():
    with pytest.raises(ValueError, match=r"max_return=0.0"):
        TreeSearch.alphazero(4, max_return=0.0)
    with pytest.raises(ValueError, match="what is proven in one guess"):
        Hindsight(TreeSearch.alphazero(4, max_return=1.0), 2)
    with pytest.raises(ValueError, match="rounds prove nothing"):
        TreeSearch.gumbel(4, in_rounds=True, max_return=1.0)
    with pytest.raises(ValueError, match="need not hold for all actions, so nothing is proven"):
        SampledSearch(TreeSearch.alphazero(4, max_return=1.0))
    # Chance nodes, a draw that is taken for certain, and a guess at what is hidden.
    for model, start in ((RandomDice(TREE), TREE.start), (Tiger(), Tiger().start)):
        for outcomes in ("proportional", "frozen"):
            search = TreeSearch.alphazero(4, max_return=1.0, outcomes=outcomes)
            with pytest.raises(ValueError, match="is random or hides something, so that nothing"):
                run(search, model, start=start)
    # Chance nodes over a model that says nothing of chance.
    with pytest.raises(ValueError, match="which prove nothing"):
        run(TreeSearch.alphazero(4, max_return=1.0, outcomes="drawn"))
    refused = "which prove nothing" if jax.__version_info__ >= (0, 10) else "needs jax 0.10"
    with pytest.raises(ValueError, match=refused):
        run(TreeSearch.alphazero(4, max_return=1.0, kernels="pallas"))


@pytest.mark.parametrize("rule", [PUCT, UCB1, PUCB])
@pytest.mark.parametrize(
    "transform",
    [
        ByMinMax(-1.0, 1.0),
        ByParentAndSiblings(),
        CompletedByMixedValue(),
        FirstPlayUrgency(),
        FirstPlayUrgency(0.2),
        PlainQ(),
    ],
    ids=repr,
)
def test_other_actions_have_a_score_beside_a_visited_one_that_is_ruled_out(rule, transform):
    one = lambda *x: jnp.asarray([x], jnp.float32)
    prior = jnp.repeat(one(0.5, 0.3, 0.2)[:, None], 2, axis=1)
    node = NodeStatistics(
        prior, one(1, 1, 0), one(-1, -0.5, 0), jnp.ones(1) * 3, jnp.ones(1) * -0.5, jnp.zeros(1)
    )
    within = among(node, jnp.asarray([[False, True, True]]))
    score = np.asarray(rule(qtransform=transform).score(within))
    assert np.isfinite(score[0, 2]) and not np.isnan(score[0, 1])


class Poisoned(RandomTree):
    """Nearly half of its steps have a reward or a discount that cannot be, and its evaluator says
    NaN of what is over."""

    def step(self, node, action, *, key):
        after, reward, discount, last = super().step(node, action, key=key)
        ill = after.name % 9
        reward = jnp.where(ill == 0, jnp.nan, jnp.where(ill == 1, jnp.inf, reward))
        discount = jnp.where(ill == 2, jnp.nan, jnp.where(ill == 3, 2.0, discount))
        return after, reward, discount, last

    def predict(self, node, *, key):
        logits, value = super().predict(node, key=key)
        return logits, jnp.where(node.done, jnp.nan, value)


@pytest.mark.parametrize("kind", ["puct", "gumbel"])
def test_steps_that_break_the_rules_prove_nothing(kind):
    model = Poisoned(3, (1.0, -1.0, -1.0, 0.0), horizon=LEVELS, gamma=1.0)
    _, tree = run(planner(kind, 60, max_return=MOST), model)
    known = np.asarray(Bounds.of(jnp.asarray(tree.edge[:, 0]), MOST).known)
    step = lambda action: model.step(model.start(ROWS), jnp.full(ROWS, action), key=None)
    told = np.stack([np.stack(step(action)[1:3]) for action in range(3)], axis=-1)
    ill = ~(np.isfinite(told[0]) & (np.abs(told[1]) <= 1))
    seen, over = tree.edge[:, 0, 0] > 0, ~ill & (told[1] == 0)
    assert not known[ill].any() and (ill & seen).sum() > 3
    assert known[over & seen].all() and (over & seen).any()
