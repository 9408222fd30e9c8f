"""Searches that stop once their move is certain: after which simulation, and with which move."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from zero_search import DirichletNoise, LowerBound, SoftmaxQ, Temperature, TreeSearch

from .dice import RandomDice
from .helpers import Jitted, quick_jit, RandomTree


SIMULATIONS, ROWS = 48, 24
# Nothing ends, so that every simulation adds a node.
TREE = RandomTree(4, discounts=(1.0, -1.0, -1.0))


def stopped_after(parents, first, legal):
    """After how many simulations of full trees the most visited root action is certain: a plain
    count over the nodes in the order in which they were added."""
    visits = np.zeros(len(legal), int)
    actions, whose = np.flatnonzero(legal), np.full(len(parents), -1)
    for node in range(1, len(parents)):
        whose[node] = first[node] if parents[node] == 0 else whose[parents[node]]
        visits[whose[node]] += 1
        leader = max(actions, key=lambda a: (visits[a], -a))
        left = len(parents) - 1 - node
        rivals = [(visits[a] + left, -a) for a in actions if a != leader]
        if all(rival < (visits[leader], -leader) for rival in rivals):
            return node, visits
    raise AssertionError("the last simulation decides")


@pytest.fixture(scope="module")
def batches():
    """A stopping search of every row alone, and one of all together, beside the full trees."""
    full = TreeSearch.alphazero(SIMULATIONS, noise=DirichletNoise())
    early = TreeSearch.alphazero(SIMULATIONS, noise=DirichletNoise(), stop_early=True)
    state, keys = TREE.start(ROWS), lambda: jr.split(jr.key(1), ROWS)
    grow = lambda p: quick_jit(lambda s, k: p.grow(TREE, s, p.init(TREE, s), key=k)[::2])
    run, stop = grow(full), grow(early)
    row = lambda i: jax.tree.map(lambda x: x[i : i + 1], (state, keys()))
    rows = [stop(*row(i)) for i in range(ROWS)]
    alone = jax.tree.map(lambda *x: np.concatenate(x), *[plan for plan, _ in rows])
    return run(state, keys()), alone, stop(state, keys())[0]


def test_it_stops_when_the_move_is_certain_and_no_later(batches):
    (plan, tree), alone, together = batches
    legal = np.asarray(TREE.predict(TREE.start(ROWS), key=None)[0]) > -np.inf
    child, numbers = np.asarray(tree.child), []
    for row in range(ROWS):
        first = np.zeros(SIMULATIONS + 1, int)
        first[child[row, 0][child[row, 0] > 0]] = np.flatnonzero(child[row, 0] > 0)
        number, visits = stopped_after(np.asarray(tree.parent[row]), first, legal[row])
        assert np.array_equal(alone.visits[row], visits)
        numbers.append(number)
    assert 1 == min(numbers) < max(numbers) < SIMULATIONS
    # Together they go on until the last row is certain, of which the trees are one by one the same.
    assert (np.sum(together.visits, axis=1) == max(numbers)).all()
    assert np.array_equal(plan.action, alone.action)
    assert np.array_equal(plan.action, together.action)


@pytest.mark.parametrize(
    "parts", [dict(num_leaves=4), dict(max_nodes=9)], ids=lambda parts: next(iter(parts))
)
@pytest.mark.parametrize("model", [TREE, RandomDice(RandomTree(4))], ids=["tree", "dice"])
def test_moves_are_those_of_all_simulations(parts, model):
    full, early = (
        Jitted(TreeSearch.uct(SIMULATIONS, stop_early=stop, **parts), model)
        for stop in (False, True)
    )
    saved = []
    for seed in range(8):
        state = TREE.start(1, seed)
        plan, sooner = full.fresh(state), early.fresh(state)
        assert plan.action[0] == sooner.action[0]
        saved.append(float(jnp.sum(plan.visits - sooner.visits)))
    assert min(saved) >= 0 and max(saved) > 0


def test_without_a_legal_action_it_does_not_run():
    planner = TreeSearch.alphazero(8, stop_early=True)
    plan = Jitted(planner, RandomTree(3, illegal=1.1)).fresh(RandomTree(3).start(2))
    assert not np.isnan(np.asarray(plan.value)).any()


@pytest.mark.parametrize(
    "make",
    [
        lambda: TreeSearch.gumbel(8, stop_early=True),
        lambda: TreeSearch.alphazero(8, temperature=1.0, stop_early=True),
        lambda: TreeSearch.alphazero(8, temperature=Temperature(), stop_early=True),
        lambda: TreeSearch(8, readout=SoftmaxQ(), stop_early=True),
        lambda: TreeSearch(8, readout=LowerBound(), stop_early=True),
    ],
    ids=["gumbel", "drawn", "drawn at first", "highest", "bound"],
)
def test_refuses_what_is_not_certain(make):
    with pytest.raises(ValueError, match="only the most visited action is certain"):
        make()
