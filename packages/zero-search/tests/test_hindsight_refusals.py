"""Hindsight: bad input ends in one line that names it."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from zero_search import BeliefModel, Hindsight, ParticleSearch, SoftmaxQ, TreeSearch, VisitCounts

from .dice import RandomDice
from .helpers import RandomTree
from .hidden import Tiger


INNER = TreeSearch(4)
ARGUMENTS: list[tuple[Any, dict[str, Any], str]] = [
    (
        Hindsight,
        dict(planner=INNER, num_trees=0),
        r"`Hindsight\(num_trees=0\)`: must be an integer",
    ),
    (Hindsight, dict(planner=INNER, num_trees=2.0), r"`Hindsight\(num_trees=2.0\)`: must be"),
    (
        Hindsight,
        dict(planner=ParticleSearch(), num_trees=2),
        "instance of `zero_search.TreeSearch`",
    ),
    (
        Hindsight,
        dict(planner=Hindsight(INNER, 2), num_trees=2),
        r"`Hindsight\(planner=Hindsight.*must be an instance of `zero_search.TreeSearch`",
    ),
    (
        Hindsight,
        dict(planner=TreeSearch, num_trees=2),
        r"`Hindsight\(planner=TreeSearch, a class\)`",
    ),
    (
        TreeSearch,
        dict(num_simulations=4, readout=0.5),
        r"`TreeSearch\(readout=0.5\)`: must be an instance",
    ),
    (
        Hindsight,
        dict(planner=INNER, num_trees=2, unvisited="mean"),
        r"`Hindsight\(unvisited='mean'\)`: must be \"masked\" or \"zero\"",
    ),
    (
        Hindsight,
        dict(planner=TreeSearch.alphazero(4, stop_early=True), num_trees=2),
        "the most visited action of a tree need not be that of their mean root",
    ),
    (SoftmaxQ, dict(temperature=-1.0), r"`SoftmaxQ\(temperature=-1.0\)`: must be finite, 0 or"),
    (VisitCounts, dict(temperature=np.inf), r"`VisitCounts\(temperature=inf\)`: must be finite"),
]


@pytest.mark.parametrize("part, fields, message", ARGUMENTS)
def test_bad_arguments_are_named(unhooked, part, fields, message):
    with pytest.raises(ValueError, match=message) as error:
        part(**fields)
    assert "\n" not in str(error.value)


TREE = RandomTree(2)
DICE = RandomDice(TREE)


@pytest.mark.parametrize(
    "inner, model",
    [
        (INNER, TREE),
        (TreeSearch(4, reuse=True), DICE),
        (TreeSearch(4, reuse=True), Tiger(2)),
        (TreeSearch.gumbel(4, num_leaves=2), BeliefModel(Tiger(2), 4)),
        (TreeSearch.gumbel(4, reuse=True, outcomes="frozen"), BeliefModel(Tiger(2), 4)),
    ],
)
def test_any_model_may_be_searched_by_several_trees(inner, model):
    """What used to be refused: models without odds or posterior, and trees that are kept."""
    planner = Hindsight(inner, 3)
    state = (Tiger(2) if model not in (TREE, DICE) else TREE).start(2)

    def moves(state, key):
        def move(carry, _):
            plan, carry = planner.plan(model, state, carry, key=key)
            return planner.advance(carry, plan.action, jnp.zeros((2,), bool)), plan

        return jax.lax.scan(move, planner.init(model, state), None, 2)[1]

    found = jax.eval_shape(moves, state, jr.split(jr.key(0), 2))
    assert found.weights.shape == found.visits.shape and found.action.shape == (2, 2)


def test_what_is_no_model_is_named(unhooked):
    planner, state, model = Hindsight(TreeSearch(4), 3), TREE.start(2), INNER
    carry: Any = planner.init(TREE, state)
    with pytest.raises(ValueError, match=r"`Hindsight.plan\(model=.*must be.*AbstractPriorModel"):
        planner.plan(model, state, carry, key=jr.split(jr.key(0), 2))  # pyright: ignore[reportArgumentType]


def test_carries_and_moves_of_other_games_are_named(unhooked):
    planner, state = Hindsight(TreeSearch(4), 3), TREE.start(2)
    keys = jax.ShapeDtypeStruct((2,), jr.key(0).dtype)

    def plan(carry, key):
        return planner.plan(DICE, state, carry, key=key)[0]

    for wrong in (Hindsight(TreeSearch(4), 2).init(DICE, state), planner.init(DICE, TREE.start(3))):
        with pytest.raises(ValueError, match=r"`carry.ply` is int32\[\d\] for 6 states"):
            jax.eval_shape(plan, wrong, keys)
    carry = planner.init(DICE, state)
    with pytest.raises(ValueError, match=r"`key` is .* for 2 states; it must hold one"):
        jax.eval_shape(plan, carry, jax.ShapeDtypeStruct((6,), jr.key(0).dtype))
    with pytest.raises(ValueError, match=r"`action` is int32\[3\] for a carry of 2 games"):
        action, last = jnp.zeros((3,), jnp.int32), jnp.zeros((3,), bool)
        planner.advance(carry, action, last)
