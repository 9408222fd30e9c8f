"""Actors and the model that planners plan over."""

import functools as ft

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import stats

from zero_envs import Observation, Transition
from zero_envs.testing import Nim, NimState
from zero_search import (
    AbstractPriorModel,
    BeliefModel,
    Hindsight,
    ParticleSearch,
    PlayoutModel,
    TreeSearch,
)
from zero_train import (
    EnvironmentModel,
    evaluate_batch,
    FeatureEvaluator,
    PlanningActor,
    PolicyActor,
    RandomActor,
)

from .games import Cups, CupsState, Drift, perfect_nim, SealedCups


LEGAL = jnp.asarray([[True, True, True], [True, False, True], [False, False, False]])
LOGITS = jnp.asarray([[0.0, 1.0, -1.0], [0.5, 9.0, 1.5], [2.0, 0.0, 0.0]])
OBS = Observation(features=LOGITS, legal=LEGAL)


def echo(obs: Observation):
    """The features are the logits, their sum is the value."""
    return obs.features, jnp.sum(obs.features)


def keys(key, num: int):
    return jr.split(key, num)


def test_illegal_logits_are_masked_and_all_else_passes():
    features = LOGITS.at[0, 0].set(jnp.nan)
    logits, value = evaluate_batch(echo, Observation(features, LEGAL))
    np.testing.assert_array_equal(logits, np.where(LEGAL, features, -np.inf))
    np.testing.assert_array_equal(value, np.sum(features, axis=1))


@pytest.mark.parametrize(
    "evaluate",
    [
        lambda obs: (obs.features, jnp.sum(obs.features, keepdims=True)),
        lambda obs: (obs.features[:2], jnp.sum(obs.features)),
    ],
    ids=["value with an axis", "too few logits"],
)
def test_an_evaluator_of_the_wrong_shape_is_named(evaluate):
    with pytest.raises(ValueError, match=r"must return \(3,\) and \(\)"):
        evaluate_batch(evaluate, OBS)


def test_a_feature_evaluator_shows_the_network_the_features():
    logits, value = FeatureEvaluator(lambda features: (features, features[0]))(
        Observation(LOGITS[1], LEGAL[1])
    )
    np.testing.assert_array_equal(logits, LOGITS[1])
    assert value == LOGITS[1, 0]


def test_the_model_is_its_environment_row_by_row(getkey):
    env = Nim(heap=7, most=3)
    model = EnvironmentModel(env, perfect_nim)
    heaps = jnp.asarray([7, 2, 0, 4], jnp.int32)
    actions = jnp.asarray([2, 1, 0, 1], jnp.int32)

    @jax.jit
    def run(keys):
        states = jax.vmap(NimState)(heaps)
        rows = [
            env.step(NimState(heap), action, key=key)
            for heap, action, key in zip(heaps, actions, keys[4:8], strict=True)
        ]
        return model.step(states, actions, key=keys[:4]), rows, model.predict(states, key=keys[8:])

    (state, *heard), rows, (logits, value) = jax.device_get(run(keys(getkey(), 12)))
    for row, (one, transition) in enumerate(rows):
        assert one.heap == state.heap[row]
        said = transition.reward, transition.discount, transition.last
        assert said == tuple(x[row] for x in heard)
    # From 2, taking 3 is illegal; in the final row everything is filler.
    np.testing.assert_array_equal(np.isneginf(logits).sum(axis=1), [0, 1, 0, 0])
    np.testing.assert_array_equal(value, [1, 1, -1, -1])
    assert model.root(state, None, key=keys(getkey(), 4)) is state
    assert model.num_outcomes == model.num_signals == 0


def test_a_model_multiplies_its_gamma_into_the_discounts(getkey):
    env, states = Nim(heap=7, most=3), jax.vmap(NimState)(jnp.asarray([7, 2], jnp.int32))
    model = EnvironmentModel(env, perfect_nim, 0.5)
    actions = jnp.asarray([0, 1], jnp.int32)
    step = jax.jit(lambda key: model.step(states, actions, key=keys(key, 2)))
    np.testing.assert_array_equal(step(getkey())[2], [-0.5, 0.0])
    with pytest.raises(ValueError, match=r"EnvironmentModel\(gamma=0.0\) must be above 0"):
        EnvironmentModel(env, perfect_nim, 0.0)


def test_a_model_needs_discrete_actions():
    with pytest.raises(ValueError, match="Drift.*no discrete actions"):
        EnvironmentModel(Drift(), echo)
    with pytest.raises(ValueError, match="continuous actions"):
        evaluate_batch(echo, Observation(LOGITS, None))


def test_planners_may_not_see_what_cannot_be_resampled():
    with pytest.raises(ValueError, match="SealedCups.*resample"):
        EnvironmentModel(SealedCups(), echo)


def cups(obs: Observation):
    return jnp.zeros(3), jnp.zeros(())


MODEL = EnvironmentModel(Cups(), cups)
BELIEFS = BeliefModel(MODEL, 8)
SEEDS = jnp.arange(2)


class Peeking(AbstractPriorModel[CupsState]):
    """The same game, whose root shows the real state."""

    def root(self, state, obs, *, key):
        return state

    def step(self, node, action, *, key):
        return MODEL.step(node, action, key=key)

    def predict(self, node, *, key):
        return MODEL.predict(node, key=key)


def cups_states(ball: int) -> CupsState:
    return jax.vmap(CupsState)(jnp.full(6, ball, jnp.int32), jnp.zeros(6, bool))


slow = ft.partial(pytest.param, marks=pytest.mark.slow)


@eqx.filter_jit
def move(state: CupsState, carry, seed, planner, model):
    """All that an actor comes to know in a move which changes nothing."""
    actor = PlanningActor(planner, model, lambda plan: plan)
    obs = jax.vmap(Cups().observe)(state)
    action, record, carry = actor.act(state, obs, carry, key=jr.split(jr.key(seed), 6))
    transition = Transition(jnp.zeros(6), jnp.ones(6), jnp.zeros(6, bool))
    return record, actor.advance(carry, action, transition)


@eqx.filter_jit
def begin(state: CupsState, planner, model):
    return PlanningActor(planner, model).init(state)


# One of every kind of root; zero-search's `test_no_leaks.py` has the planners with all of them.
@pytest.mark.parametrize(
    "planner, model",
    [
        (TreeSearch(12), MODEL),
        slow(TreeSearch.gumbel(12, reuse=True, num_leaves=3), MODEL),
        slow(TreeSearch(12, reuse=True), PlayoutModel(MODEL, 3)),
        slow(TreeSearch(12, reuse=True), BELIEFS),
        slow(TreeSearch.gumbel(8), BeliefModel(PlayoutModel(MODEL, 3), 4)),
        (TreeSearch(8, outcomes="frozen"), BELIEFS),
        slow(Hindsight(TreeSearch(6, reuse=True), 3), MODEL),
        (ParticleSearch(4, 2, resample_every=None), PlayoutModel(MODEL, 3)),
    ],
)
def test_a_plan_is_the_same_wherever_the_hidden_ball_is(planner, model):
    moves = []
    for ball in range(3):
        state = cups_states(ball)
        first, carry = move(state, begin(state, planner, model), SEEDS[0], planner, model)
        moves.append(jax.device_get((first, *move(state, carry, SEEDS[1], planner, model))))
    for other in moves[1:]:
        jax.tree.map(np.testing.assert_array_equal, moves[0], other)


def test_a_model_that_shows_the_ball_is_found_out():
    """So the test above could fail."""
    planner, model = TreeSearch(12), Peeking()
    for ball in range(3):
        state = cups_states(ball)
        plan, _ = move(state, begin(state, planner, model), SEEDS[0], planner, model)
        assert (np.argmax(plan.weights, axis=1) == ball).all()


def test_the_signals_of_a_model_are_its_environments():
    env, action = Cups(), jnp.asarray([0, 1, 2, 0, 1, 2], jnp.int32)
    state = cups_states(1)
    after, *_ = MODEL.step(state, action, key=keys(jr.key(0), 6))
    np.testing.assert_array_equal(MODEL.signal(state, action, after), action == 1)
    assert MODEL.num_signals == env.num_signals == 2
    nim = EnvironmentModel(Nim(heap=7, most=3), perfect_nim)
    heaps = jax.vmap(NimState)(action + 1)
    assert nim.num_signals == 0 and not nim.signal(heaps, action, heaps).any()
    with pytest.raises(ValueError, match="EnvironmentModel.*has `num_signals=0`"):
        BeliefModel(nim)


def test_a_planner_finds_the_winning_moves_of_nim(getkey):
    env = Nim(heap=7, most=3)
    model = EnvironmentModel(env, lambda obs: (jnp.zeros(3), jnp.zeros(())))
    actor = PlanningActor(TreeSearch(num_simulations=200), model)
    state = jax.vmap(NimState)(jnp.asarray([7, 6, 5, 3, 0], jnp.int32))

    @eqx.filter_jit
    def act(state, key):
        obs = jax.vmap(env.observe)(state)
        return actor.act(state, obs, actor.init(state), key=key)

    action, record, _ = act(state, keys(getkey(), 5))
    np.testing.assert_array_equal(action[:4], [2, 1, 0, 2])
    assert jnp.isfinite(record.weights).all() and jnp.isfinite(record.value).all()
    np.testing.assert_allclose(record.weights[:4].sum(axis=1), 1, rtol=1e-6)


def test_a_policy_plays_its_best_legal_move(getkey):
    actor = PolicyActor(echo)
    action, record, carry = actor.act(LOGITS, OBS, actor.init(LOGITS), key=keys(getkey(), 3))
    np.testing.assert_array_equal(action[:2], [1, 2])
    expected = np.exp(np.asarray(LOGITS)) * np.asarray(LEGAL)
    expected /= np.maximum(expected.sum(axis=1, keepdims=True), 1e-9)
    np.testing.assert_allclose(record.weights, expected, rtol=1e-6)
    assert record.weights[1, 1] == 0
    np.testing.assert_array_equal(record.value, LOGITS.sum(axis=1))
    assert carry is None


@eqx.filter_jit
def draws(actor, row, key):
    """4000 actions in a row of `OBS`."""
    obs = jax.tree.map(lambda x: jnp.broadcast_to(x[row], (4000, *x[row].shape)), OBS)
    return actor.act(None, obs, None, key=jr.split(key, 4000))[0]


def frequencies(actor, row: int, key):
    return np.bincount(draws(actor, jnp.int32(row), key), minlength=3)


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_a_policy_is_sampled_at_its_temperature(temperature):
    counts = frequencies(PolicyActor(echo, temperature), 0, jr.key(3))
    expected = np.exp(np.asarray(LOGITS[0], np.float64) / temperature)
    expected *= counts.sum() / expected.sum()
    assert stats.chisquare(counts, expected).pvalue > 1e-3


def test_a_random_player_is_uniform_over_legal_moves():
    assert stats.chisquare(frequencies(RandomActor(), 0, jr.key(4))).pvalue > 1e-3
    counts = frequencies(RandomActor(), 1, jr.key(5))
    assert counts[1] == 0
    assert stats.chisquare(counts[[0, 2]]).pvalue > 1e-3


@pytest.mark.parametrize("actor", [PolicyActor(echo), PolicyActor(echo, 1.0), RandomActor()])
def test_a_row_without_legal_moves_is_filler(actor, getkey):
    action, record, _ = actor.act(LOGITS, OBS, None, key=keys(getkey(), 3))
    assert 0 <= action[2] < 3
    np.testing.assert_array_equal(record.weights[2], 0)
    assert jnp.isfinite(record.value).all()


def test_a_negative_temperature_is_refused():
    with pytest.raises(ValueError, match="temperature=-1"):
        PolicyActor(echo, -1.0)
