"""Drawn outcomes of worlds whose odds are not known: against expectimax and loops in NumPy."""

import dataclasses
import functools as ft
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from zero_search import AbstractPriorModel, PUCT, TreeSearch, Widening
from zero_search._chance import DrawnOutcomes
from zero_search._tree import COUNT, RAW, VALUE

from .dice import expectimax, RandomDice
from .helpers import equal, fresh, Node, quick_jit, RandomTree


ROWS, SIMULATIONS = 48, 600
TREE = RandomTree(2, (1.0, -1.0), 0.0, 0.2, horizon=2, sharpness=0.0, noise=0.0, gamma=0.8)
DICE = RandomDice(TREE)
PLANNER = TreeSearch(SIMULATIONS, PUCT(1.0))


class Thrower(AbstractPriorModel[Node]):
    """Dice that are thrown in `step`, which tells no odds."""

    dice: RandomDice = DICE
    random: bool = True

    def root(self, state, obs, *, key):
        return state

    def step(self, node, action, *, key):
        return self.dice.step(node, action, key=key)

    def predict(self, node, *, key):
        return self.dice.predict(node, key=key)


@ft.cache
def searched() -> tuple[Any, ...]:
    """Plans and trees with drawn outcomes and with frozen ones, and the exact Q-values."""
    frozen, state = dataclasses.replace(PLANNER, outcomes="frozen"), TREE.start(ROWS)

    @quick_jit
    def run(state):
        found = [fresh(x, Thrower(), state, jr.split(jr.key(0), ROWS)) for x in (PLANNER, frozen)]
        return *found, expectimax(DICE, state, levels=2)

    return jax.tree.map(np.asarray, run(state))


def test_converges_to_expectimax():
    (drawn, _), (frozen, _), exact = searched()
    best = np.argmax(exact, axis=1)
    rows = np.arange(ROWS)
    error = lambda plan: plan.qvalues[rows, best] - exact[rows, best]
    assert np.mean(np.abs(error(frozen))) > 0.3
    # Visits to worse actions below still weigh on the means.
    assert abs(np.mean(error(drawn))) < 0.05 and np.mean(np.abs(error(drawn))) < 0.1
    ranked = np.sort(exact, axis=1)
    clear = ranked[:, 1] - ranked[:, 0] >= 0.4
    assert clear.sum() >= 10 and np.array_equal(drawn.action[clear], best[clear])


def test_outcomes_widen_with_the_visits_and_are_visited_in_turn():
    (_, tree), _, _ = searched()
    row, at = np.nonzero((tree.state.chance > 0) & (tree.node[..., COUNT] > 0))
    assert row.size > 1000
    widths = set()
    for count, value, raw, visits, qvalues in zip(
        *(tree.node[row, at, column] for column in (COUNT, VALUE, RAW)),
        tree.edge[row, at, 0],
        tree.edge[row, at, 1],
        strict=True,
    ):
        assert visits.sum() == count - 1
        # The afterstate's own evaluation is that of the node behind the first outcome.
        counted = visits + (np.arange(visits.size) == 0)
        number = np.count_nonzero(counted)
        assert number <= 2 * np.sqrt(count) + 1e-3
        assert np.all(counted[:number] > 0)
        # Those that came first were visited more often until the others had caught up.
        assert np.all(np.diff(counted[:number]) <= 0)
        means = np.where(visits > 0, qvalues, raw)[:number]
        assert value == pytest.approx(means.mean(), abs=1e-4)
        widths.add(number)
    assert max(widths) > 20


def test_one_draw_is_the_frozen_search():
    """An afterstate with one outcome, as `k = 1` and `alpha = 0` keep, gets no node. Dice that
    always fall alike, so that both draw the same."""
    thrower, state = Thrower(RandomDice(TREE, certain=1.0)), TREE.start(ROWS)
    one, planner = DrawnOutcomes(thrower, 1), TreeSearch(64, PUCT(1.0))
    frozen = dataclasses.replace(planner, outcomes="frozen")

    @quick_jit
    def run(state):
        keys = lambda: jr.split(jr.key(0), ROWS)
        return fresh(planner, one, state, keys()), fresh(frozen, thrower, state, keys())

    (drawn, tree), (plain, alone) = jax.tree.map(np.asarray, run(state))
    assert not np.any(tree.state.chance) and equal(drawn, plain)
    for name in ("step", "node", "edge", "child", "parent", "size"):
        assert np.array_equal(getattr(tree, name), getattr(alone, name)), name


def test_draws_follow_from_the_key():
    model, state = DrawnOutcomes(Thrower(), 4), TREE.start(2)
    state = jax.tree.map(lambda x: jnp.repeat(x[:1], 64), state)
    keys = jr.split(jr.key(3), 32)
    node = model.seeded(state, jnp.concatenate([keys, keys]))
    action = jnp.zeros(64, jnp.int32)
    draw = lambda outcome: model.resolve(model.afterstate(node, action), outcome)[0]
    first, again, other = (draw(jnp.full(64, i, jnp.int32)) for i in (0, 0, 1))
    assert equal(first, again)
    names = np.asarray(first.node.name)
    assert np.array_equal(names[:32], names[32:]) and len({*names}) == 3
    assert np.any(names != np.asarray(other.node.name))
    assert len({*np.asarray(first.seed)}) == 32


@pytest.mark.parametrize(
    "given, message",
    [
        ((0.5, 0.5), r"`Widening\(k=0.5\)`: must be finite, 1 or more"),
        ((2.0, 1.5), r"`Widening\(alpha=1.5\)`: must be from 0 to 1"),
        ((float("nan"), 0.5), r"`Widening\(k=nan\)`: must be finite"),
        ((1.0, 0.0), r"`Widening\(k=1, alpha=0\)`: never widens in 64.*outcomes=\"frozen\""),
        ((1.0, 0.1), r"`Widening\(k=1, alpha=0.1\)`: never widens in 64 simulations"),
    ],
)
def test_bad_widening_is_named(given, message):
    with pytest.raises(ValueError, match=message):
        TreeSearch(64, outcomes="drawn", widening=Widening(*given))


def test_widening_that_never_widens_is_named_where_the_model_asks_for_it():
    planner, state = TreeSearch(16, widening=Widening(1.0, 0.0)), TREE.start(2)
    run = lambda key: fresh(planner, Thrower(), state, key)
    with pytest.raises(ValueError, match=r"`Widening\(k=1, alpha=0\)`: never widens in 16"):
        jax.eval_shape(run, jr.split(jr.key(0), 2))


def test_widening_of_traced_numbers_is_refused(unhooked):
    with pytest.raises(ValueError, match="a traced number; it decides how large a tree is"):
        jax.eval_shape(lambda k: Widening(k).most(4), jnp.float32(2))


def test_an_action_has_no_more_outcomes_than_visits():
    assert [Widening(2.0, 1.0).most(n) for n in (0, 1, 5)] == [1, 1, 5]
    assert [Widening().most(n) for n in (1, 4, 9, 100)] == [1, 4, 6, 20]


@pytest.mark.parametrize("parts", [{"num_leaves": 4}, {"evaluate_outcomes": True}, {"reuse": True}])
def test_other_parts_of_a_search_know_drawn_outcomes(parts):
    """With `reuse` the second plan of a position goes on with the trees of the first one."""
    planner, state = TreeSearch(64, PUCT(1.0), max_nodes=129, **parts), TREE.start(ROWS)

    @quick_jit
    def run(state):
        carry, found = planner.init(Thrower(), state), []
        for i in range(2):
            keys = jr.split(jr.key(i), ROWS)
            plan, carry, tree = planner.grow(Thrower(), state, carry, key=keys)
            found.append((plan, tree))
        return found, expectimax(DICE, state, levels=2)

    found, exact = jax.tree.map(np.asarray, run(state))
    best, rows = np.argmax(exact, axis=1), np.arange(ROWS)
    for i, (plan, tree) in enumerate(found):
        kept = 64 * (i + 1) if "reuse" in parts else 64
        assert np.all(tree.edge[:, 0, 0].sum(axis=1) <= kept)
        # Of leaves that are walked to together, those of one edge count once.
        least = 0.75 if "num_leaves" in parts else 0.95
        assert np.mean(tree.edge[:, 0, 0].sum(axis=1)) > least * kept
        assert np.all(plan.stats["invalid"] == 0)
        # What there is room for, not what one plan alone would take.
        assert tree.child.shape[2] == Widening().most(128)
        error = plan.qvalues[rows, best] - exact[rows, best]
        assert np.mean(np.abs(error)) < 0.25
