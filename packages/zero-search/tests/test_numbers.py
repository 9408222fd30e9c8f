"""Numbers of NumPy's, known ones of JAX's, and integers of few bits."""

import functools as ft
from typing import Any, cast

import jax
import jax.numpy as jnp
import jax.random as jr
import mctx
import numpy as np
import pytest

from zero_search import (
    AbstractRootRule,
    GaussianNoise,
    Hindsight,
    ParticleSearch,
    PUCT,
    Rules,
    SampledSearch,
    TreeSearch,
)
from zero_search.mctx import _policies as dropin

from .helpers import Jitted, RandomTree


TREE = RandomTree()


@pytest.mark.usefixtures("unhooked")
def test_numbers_of_numpy_are_pythons():
    """They overflow, are wider than arrays in double precision, and are traced by filter_jit."""
    few: Any = np.uint8(200)
    one, most, kept = np.float64(1.5), cast(Any, np.int64(3)), cast(Any, np.bool_(True))
    halving = lambda n: TreeSearch.gumbel(n, max_num_considered_actions=n)
    for found, wanted in (
        (TreeSearch.alphazero(few, c=one), TreeSearch.alphazero(200, c=1.5)),
        (halving(most), halving(3)),
        (TreeSearch(few, max_return=one), TreeSearch(200, max_return=1.5)),
        (Hindsight(TreeSearch(4), few), Hindsight(TreeSearch(4), 200)),
        (SampledSearch(TreeSearch(4), few), SampledSearch(TreeSearch(4), 200)),
    ):
        leaves, others = jax.tree.leaves(found), jax.tree.leaves(wanted)
        assert leaves == others and [*map(type, leaves)] == [*map(type, others)]
    assert TreeSearch(few, reuse=kept)._num_nodes == 401
    completed = ft.partial(mctx.qtransform_completed_by_mix_value, value_scale=one)
    given: Any = (
        PUCT(one),
        dropin.as_qtransform(completed),
        ParticleSearch(8, noise=GaussianNoise(one)),
    )
    rules: Any = Rules(given[0])
    numbers = rules.selection.c, given[1].value_scale, given[2].noise.scale
    assert numbers == (1.5, 1.5, 1.5) and {*map(type, numbers)} == {float}


@pytest.mark.usefixtures("unhooked")
def test_known_numbers_of_jax_may_be_given_within_jit():
    weight = jnp.float32(1.5)

    def run(state, key):
        planner = TreeSearch.alphazero(4, c=weight)
        return planner.plan(TREE, state, planner.init(TREE, state), key=key)[0].visits

    assert jax.eval_shape(run, TREE.start(2), jr.split(jr.key(0), 2)).shape[0] == 2


class FirstOfAll(AbstractRootRule):
    """Takes the first action, as a byte."""

    def prior(self, logits, *, key):
        return logits, jnp.zeros_like(logits)

    def choose(self, simulation, num_simulations, root, inside):
        return jnp.zeros_like(inside, jnp.int8)


def test_a_root_rule_may_return_any_integers():
    state, planner = TREE.start(2), TreeSearch(4, root=FirstOfAll())
    plan = lambda s, k: planner.plan(TREE, s, planner.init(TREE, s), key=k)[0].visits
    visits = jax.jit(plan)(state, jr.split(jr.key(0), 2))
    np.testing.assert_array_equal(visits[:, 0], 4)


def test_a_tree_is_reused_after_actions_of_eight_bits():
    """JAX compares them with 200 actions as if there were -56."""
    run = Jitted(TreeSearch(4, reuse=True), RandomTree(num_actions=200))
    state = run.model.start(2)
    plan, carry = run.plan(state, run.fresh_carry(state), jr.key(0))
    action, last = jnp.argmax(plan.visits[:, :100], axis=1), jnp.zeros(2, jnp.bool_)
    wide, narrow = (run.advance(carry, action.astype(x), last) for x in (jnp.int32, jnp.int8))
    assert np.asarray(wide.reached).any()
    np.testing.assert_array_equal(narrow.reached, wide.reached)
