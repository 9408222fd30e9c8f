"""Searches that keep what finished games prove: against exact values, and its laws."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from zero_search import TreeSearch
from zero_search._proof import Bounds
from zero_search._tree import COUNT

from .dice import RandomDice
from .helpers import exact_values, quick_jit, RandomTree


LEVELS, ROWS = 4, 32
# Rewards on the way, players who move twice, illegal actions and ends at different depths.
TREE = RandomTree(3, (1.0, -1.0, -1.0, 0.0), horizon=LEVELS, gamma=1.0)
MOST = float(LEVELS)


def planner(kind, number, **parts):
    if kind == "gumbel":
        return TreeSearch.gumbel(number, gumbel_scale=0.0, **parts)
    return TreeSearch.alphazero(number, c=10.0, **parts)


def run(search, model: Any = TREE, rows=ROWS):
    """The plan and the tree from each state, with PRNG keys of their own."""
    grow = lambda s, k: search.grow(model, s, search.init(model, s), key=k)[::2]
    keys = jr.split(jr.key(0), rows)
    return jax.tree.map(np.asarray, quick_jit(grow)(TREE.start(rows), keys))


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
    shape = (-1, *tree.edge.shape[2:])
    bounds, visits = Bounds.of(jnp.asarray(tree.edge.reshape(shape)), MOST), tree.edge[:, :, 0]
    qvalues, seen = tree.edge[:, :, 1].reshape(-1, 3), visits.reshape(-1, 3) > 0
    assert (np.asarray(bounds.low) - 1e-5 <= qvalues)[seen].all()
    assert (qvalues <= np.asarray(bounds.high) + 1e-5)[seen].all()


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


def test_a_move_that_loses_is_not_played():
    """With so few simulations that the network's first choice is still the most visited."""
    trap = RandomTree(3, (0.0, -1.0), horizon=2, sharpness=6.0, noise=0.0)
    exact = np.asarray(quick_jit(lambda s: exact_values(trap, s, levels=2))(trap.start(ROWS)))
    for number in (4, 8, 16):
        plan, tree = run(planner("puct", number, max_return=2.0), trap)
        bounds = Bounds.of(jnp.asarray(tree.edge[:, 0]), 2.0)
        low, high = np.asarray(bounds.low), np.asarray(bounds.high)
        best = np.where(np.isfinite(exact), low, -np.inf).max(axis=1)
        rows = np.arange(ROWS)
        others = ((plan.visits > 0) & (high > best[:, None])).any(axis=1)
        worse = high[rows, plan.action] < best
        assert not (worse & others).any()


def test_refusals():
    with pytest.raises(ValueError, match=r"max_return=0.0"):
        TreeSearch.alphazero(4, max_return=0.0)
    with pytest.raises(ValueError, match="rounds prove nothing"):
        TreeSearch.gumbel(4, in_rounds=True, max_return=1.0)
    with pytest.raises(ValueError, match="proves nothing at chance nodes"):
        run(TreeSearch.alphazero(4, max_return=1.0), RandomDice(TREE))
    with pytest.raises(ValueError, match="proves nothing at chance nodes"):
        run(TreeSearch.alphazero(4, max_return=1.0, kernels="pallas"))
