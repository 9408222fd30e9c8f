"""Sequential halving at the root: its table with several leaves at a time, and kept trees."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from mctx._src.seq_halving import get_sequence_of_considered_visits

from zero_search import AbstractPriorModel, TreeSearch
from zero_search._root import SequentialHalving

from .helpers import exact_values, Jitted, quick_jit, RandomTree


BATCH, SIMULATIONS = 12, 32


# (With one leaf at a time test_parity.py finds the visits of mctx.)
@pytest.mark.parametrize("considered, leaves", [pytest.param(8, 1, marks=pytest.mark.slow), (4, 4)])
def test_visits_of_a_bandit_follow_the_table(considered, leaves):
    # All ends after one move. The first walks take different actions, and what is stored and final
    # may be visited twice at a time: no walk is lost.
    model = RandomTree(num_actions=8, discounts=(0.0,), illegal=0.0)
    planner = TreeSearch.gumbel(
        SIMULATIONS, max_num_considered_actions=considered, num_leaves=leaves
    )
    plan = jax.tree.map(np.asarray, Jitted(planner, model).fresh(model.start(BATCH)))
    due = np.asarray(get_sequence_of_considered_visits(considered, SIMULATIONS))
    for visits in range(SIMULATIONS):
        more = np.sum(plan.visits > visits, axis=1)
        assert np.all(more == np.sum(due == visits))
    assert np.all(np.sum(plan.visits, axis=1) == SIMULATIONS)
    # Halves are dropped by their scores: what is left in the end is played.
    assert np.array_equal(plan.visits[np.arange(BATCH), plan.action], np.max(plan.visits, axis=1))


class Watched(SequentialHalving):
    """Tells what each simulation started with, and which action it took."""

    def choose(self, simulation, num_simulations, root, inside):
        action = super().choose(simulation, num_simulations, root, inside)
        told = (simulation, root.started, action, root.node.visits)
        jax.debug.callback(lambda *x: SEEN.append([np.array(y) for y in x]), *told, ordered=True)
        return action


SEEN: list[list[np.ndarray]] = []


def test_walks_that_collide_follow_the_table_all_the_same():
    # As many leaves as actions are considered: where fewer are legal, walks meet.
    considered = leaves = 4
    model = RandomTree(num_actions=6, illegal=0.5)
    planner = TreeSearch(SIMULATIONS, root=Watched(considered), num_leaves=leaves)
    state = model.start(BATCH)
    SEEN.clear()
    plan = Jitted(planner, model).fresh(state)
    jax.effects_barrier()
    predict = quick_jit(lambda s: model.predict(s, key=jr.split(jr.key(0), BATCH))[0])
    legal = np.isfinite(predict(state))
    rows = np.minimum(legal.sum(axis=1), considered)
    due = np.asarray([get_sequence_of_considered_visits(int(m), SIMULATIONS) for m in rows])
    # Until its walk begins a simulation's action may be chosen anew: the last choice counts.
    last = {int(simulation): rest for simulation, *rest in SEEN}
    lane, started = np.arange(BATCH), np.zeros(legal.shape)
    for simulation in range(SIMULATIONS):
        seen, action, visits = last[simulation]
        assert np.array_equal(seen, started)
        assert np.all(legal[lane, action])
        assert np.array_equal(started[lane, action], due[:, simulation])
        assert np.all(visits <= started)
        started[lane, action] += 1
    assert np.all(plan.visits <= started)
    assert np.sum(plan.visits) < BATCH * SIMULATIONS  # else no walks have met


# (With one leaf at a time test_any_game.py finds the kept trees of the reference.)
@pytest.mark.parametrize("leaves", [pytest.param(1, marks=pytest.mark.slow), 4])
def test_gumbel_with_a_kept_tree_improves_on_the_prior(leaves):
    # Two moves: when the second is planned, all that is kept and all that is new are exact rewards.
    model = RandomTree(num_actions=4, discounts=(1.0,), illegal=0.3, horizon=2)
    planner = TreeSearch.gumbel(16, reuse=True, num_leaves=leaves)
    run = Jitted(planner, model)
    state = model.start(64)
    first, carry = run.plan(state, run.fresh_carry(state), jr.key(0))
    state, _, _, last = run.step(state, first.action)
    plan, _ = run.plan(state, run.advance(carry, first.action, last), jr.key(1))

    @quick_jit
    def known(state):
        prior = jax.nn.softmax(model.predict(state, key=jr.split(jr.key(0), 64))[0])
        return exact_values(model, state, levels=1), prior

    exact, prior = map(np.asarray, known(state))
    first, plan, last = jax.tree.map(np.asarray, (first, plan, last))
    legal, rows = np.isfinite(exact), np.arange(64)
    kept = first.visits[rows, first.action] - 1
    assert not np.any(last) and np.array_equal(plan.stats["reused"], kept) and kept.min() > 0
    assert np.all(plan.visits[legal] > 0)
    assert np.allclose(plan.qvalues[legal], exact[legal], atol=1e-6)
    assert np.allclose(plan.weights.sum(axis=1), 1, atol=1e-6) and not np.any(plan.weights[~legal])
    worth = np.where(legal, exact, 0.0)
    before, after = (np.sum(x * worth, axis=1) for x in (prior, plan.weights))
    assert np.all(after >= before - 1e-6)
    assert np.mean(after - before) > 0.1
    # So does the action, by its Gumbel noise a draw from the improved policy's like.
    assert np.mean(worth[rows, plan.action] - before) > 0.1
    assert np.all(plan.visits[rows, plan.action] > 0)


class Trap(AbstractPriorModel):
    """Action 0 ends at -1 at once. Action 1 leads along a line of single moves to +1."""

    def root(self, state, obs, *, key):
        del obs, key
        return state

    def step(self, node, action, *, key):
        del key
        trapped = (node == 0) & (action == 0)
        after = jnp.where(trapped, 99, node + 1)
        over = trapped | (after >= 40)
        reward = jnp.where(trapped, -1.0, jnp.where(over, 1.0, 0.0))
        return after, reward, jnp.where(over, 0.0, 1.0), over

    def predict(self, node, *, key):
        del key
        legal = (jnp.arange(2, dtype=jnp.int32)[None] == 1) | (node == 0)[:, None]
        worth = jnp.where((node > 0) & (node < 99), 1.0, 0.0)
        return jnp.where(legal, 0.0, -jnp.inf), worth


@pytest.mark.parametrize("leaves", [pytest.param(1, marks=pytest.mark.slow), 8])
def test_walks_that_collide_do_not_make_a_lost_move_the_most_taken(leaves):
    """Visits of a final child count however many leaves a group has, and the others may not."""
    planner = TreeSearch.gumbel(32, gumbel_scale=0.0, num_leaves=leaves)
    plan = Jitted(planner, Trap()).fresh(np.zeros((1,), np.int32))
    assert np.asarray(plan.action)[0] == 1 and np.asarray(plan.weights)[0, 1] > 0.9
