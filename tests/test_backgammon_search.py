"""A search of backgammon over its 21 rolls, against pgx's own rolls of two dice."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from zero_envs import Backgammon, PgxEnvironment
from zero_search import PUCT, read_tree, TreeSearch
from zero_train import EnvironmentModel


ENV, PGX = Backgammon(), PgxEnvironment("backgammon")
# Enough keys that each of the 36 rolls is drawn by some.
NUM_KEYS = 500
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


def judge(obs):
    """No preference; the value depends on the board and on the roll."""
    weights = jnp.sin(jnp.arange(34, dtype=jnp.float32))
    mobile = jnp.sum(obs.legal, dtype=jnp.int32).astype(jnp.float32)
    board = jnp.sum(weights * obs.features.astype(jnp.float32))
    return jnp.zeros(156, jnp.float32), 0.05 * board + 0.1 * mobile


def expectations(state, actions):
    """What each move is worth that ends the turn: minus the mean value of the 36 rolls."""

    @jax.jit(compiler_options=QUICK)
    def values(state, actions, keys):
        def one(action, key):
            after, transition = PGX.step(state, action, key=key)
            value = judge(PGX.observe(after))[1]
            return after.position._dice, transition.reward + transition.discount * value

        return jax.vmap(jax.vmap(one, (None, 0)), (0, None))(actions, keys)

    dice, worth = jax.device_get(values(state, actions, jr.split(jr.key(2), NUM_KEYS)))
    rolls = [np.flatnonzero((dice[0] == (i, j)).all(axis=1))[0] for i in range(6) for j in range(6)]
    return worth[:, rolls].mean(axis=1)


@pytest.fixture(scope="module")
def searched():
    """Of an opening, after a move by one of its two dice and before it, every move is tried once,
    or as many of them as the former has."""
    step = jax.jit(lambda s, a: ENV.step(s, a, key=jr.key(1))[0], compiler_options=QUICK)
    opening = ENV.init(key=jr.key(0))
    legal = np.flatnonzero(opening.position.legal_action_mask)
    running = step(opening, jnp.int32(legal[0]))
    actions = np.flatnonzero(running.position.legal_action_mask)
    states = jax.tree.map(lambda *x: jnp.stack(x), running, opening)
    planner = TreeSearch(len(actions), PUCT(1e6), evaluate_outcomes=True)
    model = EnvironmentModel(ENV, judge)

    @jax.jit(compiler_options=QUICK)
    def grow(states):
        carry = planner.init(model, states)
        plan, _, tree = planner.grow(model, states, carry, key=jr.split(jr.key(3), 2))
        return plan, tree

    with jax.debug_key_reuse(False):
        plan, tree = jax.device_get(grow(states))
    return running, opening, actions, plan, tree


def test_a_move_that_ends_the_turn_is_worth_the_mean_of_its_rolls(searched):
    running, _, actions, plan, tree = searched
    assert len(actions) > 3
    np.testing.assert_array_equal(np.flatnonzero(plan.visits[0]), actions)
    worth = expectations(running, jnp.asarray(actions, jnp.int32))
    np.testing.assert_allclose(plan.qvalues[0][actions], worth, rtol=1e-4, atol=1e-5)
    own = float(judge(PGX.observe(running))[1])
    total = (own + worth.sum()) / (len(actions) + 1)
    np.testing.assert_allclose(plan.value[0], total, rtol=1e-4, atol=1e-5)
    assert read_tree(tree, 0).chance[1:].all()


def test_within_a_turn_there_is_no_chance_node(searched):
    _, opening, actions, plan, tree = searched
    grown = read_tree(tree, 1)
    assert len(grown) == len(actions) + 1 and not grown.chance.any()
    tried = np.flatnonzero(plan.visits[1])
    step = jax.jit(lambda a: PGX.step(opening, a, key=jr.key(0))[0], compiler_options=QUICK)
    worth = [float(judge(PGX.observe(step(jnp.int32(a))))[1]) for a in tried]
    np.testing.assert_allclose(plan.qvalues[1][tried], worth, rtol=1e-4, atol=1e-5)
