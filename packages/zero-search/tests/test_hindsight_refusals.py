"""Hindsight: bad input ends in one line that names it."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import jaxtyping
import numpy as np
import pytest

from zero_search import ChanceSearch, Hindsight, MctxSearch, SoftmaxQ, TreeSearch, VisitCounts

from .dice import RandomDice
from .helpers import RandomTree


INNER = TreeSearch(4)
ARGUMENTS: list[tuple[Any, dict[str, Any], str]] = [
    (
        Hindsight,
        dict(planner=INNER, num_trees=0),
        r"`Hindsight\(num_trees=0\)`: must be an integer",
    ),
    (Hindsight, dict(planner=INNER, num_trees=2.0), r"`Hindsight\(num_trees=2.0\)`: must be"),
    (Hindsight, dict(planner=MctxSearch(4), num_trees=2), "subclass of .*AbstractTreePlanner`"),
    (
        Hindsight,
        dict(planner=Hindsight(INNER, 2), num_trees=2),
        r"`Hindsight\(planner=Hindsight.*of a subclass of `zero_search.AbstractTreePlanner`",
    ),
    (
        Hindsight,
        dict(planner=TreeSearch, num_trees=2),
        r"`Hindsight\(planner=TreeSearch, a class\)`",
    ),
    (
        Hindsight,
        dict(planner=INNER, num_trees=2, readout=0.5),
        r"`Hindsight\(readout=0.5\)`: must be an instance",
    ),
    (
        Hindsight,
        dict(planner=INNER, num_trees=2, unvisited="mean"),
        r"`Hindsight\(unvisited='mean'\)`: must be \"masked\" or \"zero\"",
    ),
    (SoftmaxQ, dict(temperature=-1.0), r"`SoftmaxQ\(temperature=-1.0\)`: must be finite, 0 or"),
    (VisitCounts, dict(temperature=np.inf), r"`VisitCounts\(temperature=inf\)`: must be finite"),
]


@pytest.mark.parametrize("part, fields, message", ARGUMENTS)
def test_bad_arguments_are_named(unhooked, part, fields, message):
    with pytest.raises(ValueError, match=message) as error:
        part(**fields)
    assert "\n" not in str(error.value)


@pytest.fixture
def unhooked():
    """As in a user's program: the import hook of these tests would complain first."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


TREE = RandomTree(2)
DICE = RandomDice(TREE)


@pytest.mark.parametrize(
    "planner, model, message",
    [
        (
            ChanceSearch(TreeSearch(4)),
            TREE,
            "`ChanceSearch` got a `RandomTree`, which does not know",
        ),
        (
            Hindsight(ChanceSearch(TreeSearch(4)), 2),
            TREE,
            "`ChanceSearch` got a `RandomTree`, which does not know the probabilities",
        ),
        (
            Hindsight(TreeSearch(4), 2, resample=True),
            TREE,
            r"`Hindsight\(resample=True\)` got a `RandomTree`, which cannot `resample`",
        ),
        (
            Hindsight(TreeSearch(4, reuse=True), 2, resample=True),
            TREE,
            r"`Hindsight\(resample=True\)` got a planner with `reuse=True`",
        ),
    ],
)
def test_bad_models_are_named(unhooked, planner, model, message):
    def plan(state, key):
        return planner.plan(model, state, planner.init(model, state), key=key)[0]

    with pytest.raises(ValueError, match=message) as error:
        jax.eval_shape(plan, TREE.root(2), jr.split(jr.key(0), 2))
    assert "\n" not in str(error.value)


def test_carries_and_moves_of_other_games_are_named(unhooked):
    planner, state = Hindsight(TreeSearch(4), 3), TREE.root(2)
    keys = jax.ShapeDtypeStruct((2,), jr.key(0).dtype)

    def plan(carry, key):
        return planner.plan(DICE, state, carry, key=key)[0]

    for wrong in (Hindsight(TreeSearch(4), 2).init(DICE, state), planner.init(DICE, TREE.root(3))):
        with pytest.raises(ValueError, match=r"`carry.ply` is int32\[\d\] for 6 states"):
            jax.eval_shape(plan, wrong, keys)
    carry = planner.init(DICE, state)
    with pytest.raises(ValueError, match=r"`key` is .* for 2 states; it must hold one"):
        jax.eval_shape(plan, carry, jax.ShapeDtypeStruct((6,), jr.key(0).dtype))
    with pytest.raises(ValueError, match=r"`action` is int32\[3\] for a carry of 2 games"):
        action, last = jnp.zeros((3,), jnp.int32), jnp.zeros((3,), bool)
        planner.advance(carry, action, TREE.root(3), last)
