"""A model that sees which moves end the episode, against a loop over the environment."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from zero_envs import Game2048, Observation, TimeLimit
from zero_envs.testing import Corridor, Nim, NimState
from zero_search import PlayoutModel, TreeSearch
from zero_train import EnvironmentModel

from .games import Cups


ENV = Nim(heap=7, most=3)


def dislikes_large_moves(obs: Observation):
    """Taking more is less likely by e^15 each, and every position is worth 0.25."""
    return -15.0 * jnp.arange(3, dtype=jnp.float32), jnp.float32(0.25)


def keys(number: int):
    return jr.split(jr.key(0), number)


def test_a_node_is_worth_its_best_end_and_its_prior_is_on_the_moves_there():
    heaps = np.arange(1, 8, dtype=np.int32)
    nodes = jax.vmap(NimState)(jnp.asarray(heaps))
    plain = EnvironmentModel(ENV, dislikes_large_moves).predict(nodes, key=keys(7))
    model = EnvironmentModel(ENV, dislikes_large_moves, decisive_moves=True)
    logits, value = (np.asarray(x) for x in model.predict(nodes, key=keys(7)))
    for i, heap in enumerate(heaps):
        state = NimState(jnp.asarray(heap))
        moves = [ENV.step(state, jnp.int32(a), key=jr.key(1))[1] for a in range(min(3, heap))]
        ends = [a for a, move in enumerate(moves) if move.last and move.reward == 1]
        if not ends:
            np.testing.assert_array_equal(logits[i], plain[0][i])
            assert value[i] == plain[1][i]
            continue
        assert value[i] == 1
        others = np.setdiff1d(np.arange(min(3, heap)), ends)
        np.testing.assert_array_equal(logits[i, ends], 0)
        np.testing.assert_array_equal(logits[i, others], -1e4)
        # Taking more than there is ends the game too, and is illegal.
        np.testing.assert_array_equal(logits[i, heap:], -np.inf)


class Prize(Corridor):
    """A corridor whose episode can pay `max_return`, and pays 1 at its end."""

    max_return: float = 1.0


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize("most", [1.0, 2.0])
@pytest.mark.parametrize("value", [-3.0, 0.5, 1.5, np.nan])
def test_an_end_is_the_least_value_and_the_prior_follows_the_greatest_return(value, most, dtype):
    """In the corridor's last but one cell one action of two ends the episode, with reward 1."""
    env = Prize(max_return=most)
    state = jax.tree.map(lambda x: jnp.full(1, 3, x.dtype), env.init(key=jr.key(0)))
    evaluate = lambda obs: (jnp.asarray([0.5, -jnp.inf], dtype), jnp.asarray(value, dtype))
    model = EnvironmentModel(env, evaluate, decisive_moves=True)
    logits, found = model.predict(state, key=keys(1))
    assert logits.dtype == found.dtype == dtype
    expected = jnp.asarray([-1e4, 0] if most == 1 else [0.5, -np.inf], dtype)
    np.testing.assert_array_equal(np.asarray(logits[0]), np.asarray(expected))
    np.testing.assert_array_equal(np.float32(found), [np.maximum(np.float32(value), 1.0)])


def test_a_time_limit_is_no_end():
    """A truncated episode pays nothing that a worse value could be raised to, before it is over and
    after."""
    env = TimeLimit(Corridor(), 1)
    state = jax.vmap(lambda key: env.init(key=key))(keys(1))
    evaluate = lambda obs: (jnp.zeros(2), jnp.float32(-3))
    plain = EnvironmentModel(env, evaluate)
    after, _, _, last = plain.step(state, jnp.zeros(1, jnp.int32), key=keys(1))
    assert last[0]
    models: tuple[Any, ...] = (
        EnvironmentModel(env, evaluate, decisive_moves=True),
        PlayoutModel(plain, 5, bootstrap=True),
    )
    for model in models:
        for node in (state, after):
            assert model.predict(node, key=keys(1))[1] == -3


def test_a_search_sees_a_reply_that_its_prior_does_not():
    """From 5, taking 2 lets the opponent take 3, which the evaluator thinks impossible, and taking
    1 is the one move that does not lose."""
    nodes, few = jax.vmap(NimState)(jnp.asarray([5], jnp.int32)), TreeSearch(24)

    def evaluate(obs: Observation):
        likes = jnp.where(obs.features[5] > 0, jnp.asarray([0.0, 2.0, 2.0]), 0.0)
        return likes - 15.0 * jnp.asarray([0.0, 0.0, 1.0]), jnp.float32(0.0)

    found = []
    for decisive in (False, True):
        model = EnvironmentModel(ENV, evaluate, decisive_moves=decisive)
        plan, _ = few.plan(model, nodes, few.init(model, nodes), key=keys(1))
        found.append(int(plan.action[0]))
    assert found == [1, 0]


def test_a_search_that_proves_tries_the_move_that_it_thinks_unlikely():
    """From 5 all likely moves lose at once, and taking 1, which is unlikely, does not."""
    nodes = jax.vmap(NimState)(jnp.asarray([5], jnp.int32))
    evaluate = lambda obs: (jnp.asarray([-15.0, 0.0, 0.0]), jnp.float32(0))
    model = EnvironmentModel(ENV, evaluate, decisive_moves=True)
    actions = []
    for most in (None, 1.0):
        planner = TreeSearch(24, max_return=most)
        plan, _ = planner.plan(model, nodes, planner.init(model, nodes), key=keys(1))
        actions.append(int(plan.action[0]))
    assert actions[0] != 0 and actions[1] == 0


@pytest.mark.parametrize("env", [Cups(), Game2048()], ids=lambda env: type(env).__name__)
def test_where_an_end_is_not_known_before_it_is_refused(env):
    with pytest.raises(ValueError, match="decisive_moves"):
        EnvironmentModel(env, dislikes_large_moves, decisive_moves=True)
