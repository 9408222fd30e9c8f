"""Chance nodes: a bad model ends in one line that names it."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from zero_search import ParticleSearch, SampledSearch, TreeSearch

from .dice import OtherDice, RandomDice
from .helpers import Jitted, quick_jit, RandomTree


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
        (
            "afterstate_value",
            lambda x: x[:, None],
            r"`model.afterstate_value` returned .* float\[2\]: one",
        ),
        (
            "afterstate_value",
            lambda x: x > 0,
            r"`model.afterstate_value` returned .* float\[2\]: one",
        ),
    ],
)
def test_a_bad_model_is_named(method, spoil, message):
    dice = RandomDice(RandomTree(2))
    model, state = OtherDice(dice, method, spoil), dice.tree.start(2)
    planner = TreeSearch(4)

    def plan(state, key):
        return planner.plan(model, state, planner.init(model, state), key=key)[0]

    with pytest.raises(ValueError, match=message):
        jax.eval_shape(plan, state, jr.split(jr.key(0), 2))


def test_a_law_that_is_none_is_counted():
    # Rows: NaN; nothing possible; one outcome impossible; infinity; nothing after the end; whole.
    nothing = lambda x, row: x.at[row].set(-jnp.inf)
    spoil = lambda x: nothing(
        nothing(x.at[0, 1].set(jnp.nan).at[2, 1].set(-jnp.inf).at[3, 2].set(jnp.inf), 1), 4
    )
    tree = RandomTree(2, (1.0, -1.0), horizon=50)
    root = tree.start(6)
    state = root._replace(depth=np.where(np.arange(6) == 4, np.int32(49), root.depth))
    model = OtherDice(RandomDice(tree), "outcome_logits", spoil)
    plan = Jitted(TreeSearch(4), model).fresh(state)
    assert plan.stats["invalid"].tolist() == [4, 4, 0, 4, 0, 0]
    assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(plan))
    with pytest.raises(ValueError, match=r"12 evaluations, in rows \[0, 1, 3\].*outcome_logits"):
        plan.check()


@pytest.mark.parametrize(
    "planner",
    [TreeSearch(4, outcomes="frozen"), ParticleSearch(4, depth=4), SampledSearch(TreeSearch(4))],
    ids=["frozen", "particles", "sampled"],
)
def test_a_law_that_is_none_is_counted_where_outcomes_are_drawn(planner):
    def spoil(x):
        n = len(x) // 3  # rows of a game
        return x.at[:n, 1].set(jnp.nan).at[n : 2 * n].set(-jnp.inf).at[2 * n :, 1].set(-jnp.inf)

    tree = RandomTree(2, (1.0, -1.0), horizon=50)
    model = OtherDice(RandomDice(tree), "outcome_logits", spoil)
    run = lambda state, key: planner.plan(model, state, planner.init(model, state), key=key)[0]
    plan = quick_jit(run)(tree.start(3), jr.split(jr.key(0), 3))
    invalid = np.asarray(plan.stats["invalid"])
    assert (invalid[:2] > 0).all() and invalid[2] == 0
    assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(plan))


def test_unknown_outcomes_are_refused():
    with pytest.raises(
        ValueError, match=r"must be .proportional., .weighted., .sampled., .drawn. or"
    ):
        TreeSearch(4, outcomes="exact")
