"""A chance environment as a model, and a search over it that plays 2048."""

import functools as ft

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from zero_envs import (
    AbstractDiscreteEnvironment,
    AbstractHiddenEnvironment,
    Game2048,
    Observation,
    PgxEnvironment,
    Transition,
)
from zero_search import PUCT, TreeSearch
from zero_train import EnvironmentModel, evaluate, PlanningActor, RandomActor


ENV = Game2048()


def count_gaps(obs):
    """No preference; empty cells are worth points."""
    empty = jnp.sum(obs.features[..., 0], dtype=jnp.int32).astype(jnp.float32)
    return jnp.zeros(4, jnp.float32), 20.0 * empty


MODEL = EnvironmentModel(ENV, count_gaps)


@ft.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
def twice(keys):
    """Moves of the model and of the environment with the same keys, and every prediction."""
    state = jax.vmap(lambda k: ENV.init(key=k))(keys)
    action = jnp.arange(keys.shape[0], dtype=jnp.int32) % 4
    after, reward, discount, last = MODEL.step(state, action, key=keys)
    theirs, transition = jax.vmap(lambda s, a, k: ENV.step(s, a, key=k))(state, action, keys)
    ours = (after, reward, discount, last)
    prediction = MODEL.predict(after, key=keys)
    theirs = (theirs, transition.reward, transition.discount, transition.last)
    return ours, theirs, prediction, jax.vmap(ENV.observe)(after)


class Coin(AbstractHiddenEnvironment):
    """Action 0 pays 1 or -1 by chance and action 1 pays 0.3. It does not say that it draws."""

    hidden: bool = False
    num_actions: int = 2
    num_signals: int = 1

    def resample(self, state, *, key):
        return state

    def signal(self, state, action, next_state):
        return jnp.int32(0)

    def init(self, *, key):
        return jnp.zeros((), jnp.int32)

    def step(self, state, action, *, key):
        paid = jnp.where(action == 0, jnp.where(jr.bernoulli(key), 1.0, -1.0), 0.3)
        reward = jnp.where(state > 0, 0.0, paid)
        return jnp.int32(1), Transition(reward, jnp.zeros(()), jnp.ones((), bool))

    def observe(self, state):
        return Observation(jnp.zeros(1), jnp.ones(2, bool))


@pytest.mark.parametrize("hidden", [False, True])
def test_a_world_that_draws_and_does_not_say_so_is_searched_as_one(hidden):
    model, planner = EnvironmentModel(Coin(hidden), _nothing), TreeSearch(64)
    assert model.random
    state = jnp.zeros(64, jnp.int32)
    run = lambda key: planner.plan(model, state, planner.init(model, state), key=key)[0]
    plan = jax.jit(run)(jr.split(jr.key(0), 64))
    assert np.mean(plan.action == 0) < 0.2


def _nothing(obs):
    return jnp.zeros(2), jnp.zeros(())


class Loaded(AbstractDiscreteEnvironment):
    """Its `init` cannot be traced. It may say whether it draws."""

    num_actions: int = 2
    hidden: bool = False

    def init(self, *, key):
        return jnp.int32(int(jr.randint(key, (), 0, 3)))

    def step(self, state, action, *, key):
        return Coin().step(state, action, key=key)

    def observe(self, state):
        return Coin().observe(state)


def test_where_nothing_can_be_traced_the_environment_has_to_say_so():
    with pytest.raises(ValueError, match="^Loaded: `init` cannot be traced.*attribute `random`"):
        _ = EnvironmentModel(Loaded(), _nothing).random


def test_what_knows_its_odds_is_not_traced(monkeypatch):
    monkeypatch.setattr("zero_train._model.draws", None)
    assert MODEL.num_outcomes and not MODEL.random


def test_gamma_may_be_traced(unhooked):
    build = lambda gamma: EnvironmentModel(Coin(), _nothing, gamma).gamma
    assert jax.eval_shape(build, jnp.float32(0.9)).shape == ()


def test_the_model_is_the_environment():
    with jax.debug_key_reuse(False):
        ours, theirs, (logits, value), obs = twice(jr.split(jr.key(0), 64))
    for x, y in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert jnp.array_equal(x, y)
    assert jnp.array_equal(jnp.isfinite(logits), obs.legal)
    assert np.array_equal(value, 20.0 * np.sum(np.asarray(ours[0].board) == 0, axis=1))


def test_only_an_environment_that_tells_its_odds_has_chance_nodes():
    assert MODEL.num_outcomes == ENV.num_outcomes
    assert EnvironmentModel(PgxEnvironment("2048"), count_gaps).num_outcomes == 0


def test_an_afterstate_has_a_value_of_its_own_only_where_it_is_given():
    state = jax.vmap(lambda k: ENV.init(key=k))(jr.split(jr.key(0), 8))
    action = jnp.arange(8, dtype=jnp.int32) % 4
    after, keys = MODEL.afterstate(state, action), jr.split(jr.key(1), 8)
    assert MODEL.afterstate_value(after, key=keys) is None
    filled = lambda after: after.points + jnp.sum(after.board.astype(jnp.float32))
    model = EnvironmentModel(ENV, count_gaps, evaluate_afterstate=filled)
    expected = np.asarray(after.points) + np.sum(np.asarray(after.board), axis=1)
    found = model.afterstate_value(after, key=keys)
    assert found is not None and np.array_equal(found, expected)


def play(actor, num_episodes):
    """Scores of the first 160 moves, about where random games end; a search goes on for long."""

    def scores(key):
        return evaluate(ENV, actor, num_episodes=num_episodes, max_steps=160, key=key).returns

    # The check for reused keys takes longer than all else here.
    with jax.debug_key_reuse(False):
        return np.asarray(jax.jit(scores)(jr.key(1)))


def test_search_plays_2048_far_better_than_chance():
    planner = TreeSearch(16, PUCT(2.0), reuse=True)
    scores, random = play(PlanningActor(planner, MODEL), 16), play(RandomActor(), 128)
    error = np.hypot(scores.std() / np.sqrt(16), random.std() / np.sqrt(128))
    assert scores.mean() - random.mean() > 6 * error
