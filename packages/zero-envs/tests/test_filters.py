"""Filters, and what is made of them: environments whose states hold a belief."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from zero_envs import (
    AbstractObservedEnvironment,
    Filtered,
    make,
    Observation,
    ParticleFilter,
    Particles,
    RockFilter,
    RockSample,
    Tag,
    Tiger,
    TimeLimit,
    Transition,
)
from zero_envs.testing import check_environment


ROCKS = RockSample(2, ((0, 0), (1, 1)), (0, 1), max_steps=9)
ROOM = Tag(((0, 0), (1, 0), (2, 0), (0, 1), (2, 1), (0, 2), (1, 2)), lasers=True, max_steps=9)


def test_particles_that_are_all_dead_are_drawn_anew(getkey):
    """From initial states where the agent of Tag was seen, or by lasers met the opponent. That of
    RockSample is always at the start, so its samples are kept."""
    tag, few = Tag(), ParticleFilter(1000)
    state = tag.init(key=getkey())
    place = lambda state, cell: eqx.tree_at(lambda s: s.agent, state, jnp.int32(cell))
    begin = lambda env: jax.jit(lambda obs, key: few.init(env, obs, key=key))
    belief = begin(tag)(tag.observe(place(state, 3)), getkey())
    assert (belief.states.agent == 3).all() and belief.lost == 0
    seen = tag.observe(eqx.tree_at(lambda s: s.opponent, place(state, 20), jnp.int32(1)))
    going = jnp.bool_(False)
    update = lambda env: jax.jit(lambda b, a, o, k: few.update(env, b, a, o, going, key=k)[0])
    belief = update(tag)(belief, jnp.int32(0), seen, getkey())
    assert belief.lost == 1 and (belief.states.agent == 20).all()
    assert np.exp(belief.log_weights).sum() == pytest.approx(1, abs=1e-5)
    # By lasers one may see the opponent after an action, and never before the first.
    state = eqx.tree_at(lambda s: s.readings, ROOM.init(key=getkey()), jnp.full(8, -2))
    belief = begin(ROOM)(ROOM.observe(state), getkey())
    apart = (jnp.full(1000, 0), jnp.full(1000, 6))
    belief = eqx.tree_at(lambda b: (b.states.agent, b.states.opponent), belief, apart)
    met = ROOM.observe(eqx.tree_at(lambda s: s.readings, state, jnp.full(8, -1)))
    belief = update(ROOM)(belief, jnp.int32(0), met, getkey())
    assert belief.lost == 1 and (belief.states.agent == belief.states.opponent).all()
    state = ROCKS.init(key=getkey())
    far = ROCKS.observe(eqx.tree_at(lambda s: s.position, state, jnp.int32([1, 1])))
    belief = begin(ROCKS)(far, getkey())
    assert belief.lost == 1 and np.exp(belief.log_weights).sum() == pytest.approx(1, abs=1e-5)
    belief = update(ROCKS)(belief, jnp.int32(4), far, getkey())
    assert belief.lost == 2 and (belief.states.position == jnp.int32([[0, 1]])).all()


class Unsure(AbstractObservedEnvironment[Any]):
    """A tiger whose observations have a probability of NaN."""

    tiger: Tiger = Tiger()
    num_actions: int = 3
    hidden: bool = True

    def init(self, *, key):
        return self.tiger.init(key=key)

    def step(self, state, action, *, key):
        return self.tiger.step(state, action, key=key)

    def observe(self, state):
        return self.tiger.observe(state)

    def observation_log_prob(self, observation, state, action, next_state):
        del observation, action, next_state
        return jnp.where(state.tiger == 0, jnp.nan, 0.0)


def test_a_likelihood_of_nan_is_seen(getkey):
    """From the first observation on, although half of the states have none."""
    env = Filtered(Unsure(), ParticleFilter(16))
    state = env.init(key=getkey())
    assert np.isnan(env.observe(state).features["mean"]).all()
    state, transition = env.imagine(state, jnp.int32(0), key=getkey())
    assert np.isnan(env.observe(state).features["mean"]).all() and np.isnan(transition.reward)


class Fuse(AbstractObservedEnvironment[Any]):
    """A step ends the episode where a hidden bit says so, and nothing is ever seen."""

    num_actions: int = 1
    hidden: bool = True

    def init(self, *, key):
        return jr.bernoulli(key)

    def step(self, state, action, *, key):
        del action, key
        return state, Transition(jnp.float32(1), jnp.where(state, 0.0, 1.0), state)

    def observe(self, state):
        del state
        return Observation(jnp.zeros(1, jnp.float32), jnp.ones(1, jnp.bool_))

    def observation_log_prob(self, observation, state, action, next_state):
        del observation, state, action, next_state
        return jnp.float32(0)


class Short(Fuse):
    """Its simulation breaks down where a step ends the episode."""

    def failed(self, state):
        return state


def test_particles_learn_from_an_end(getkey):
    env, cloud = Fuse(), ParticleFilter(64, 1.0)
    obs = env.observe(jnp.bool_(False))

    @jax.jit
    def update(last, key):
        belief = cloud.init(env, obs, key=jr.fold_in(key, 0))
        after, _ = cloud.update(env, belief, jnp.int32(0), obs, last, key=jr.fold_in(key, 1))
        return belief.states, after.states, after.lost

    for last in (False, True):
        before, after, lost = update(jnp.bool_(last), getkey())
        assert {*before.tolist()} == {False, True} and {*after.tolist()} == {last} and lost == 0


@pytest.mark.parametrize("name", ["rocksample-7-8", "tag", "lasertag", "tiger"])
def test_nothing_that_is_hidden_leaks(name, getkey):
    """Another truth with the same belief: what the player sees, draws and imagines is the same."""
    env: Any = make(name)
    first = env.init(key=getkey())
    others = (env.env.init(key=jr.fold_in(getkey(), i)) for i in range(99))
    other = next(x for x in others if not eqx.tree_equal(x, first.state))
    twin = eqx.tree_at(lambda s: s.state, first, other)

    @jax.jit
    def known(state):
        draw, step = jr.split(jr.key(3))
        drawn = env.resample(state, key=draw)
        return env.observe(state), drawn, env.imagine(state, jnp.int32(0), key=step)

    assert eqx.tree_equal(known(first), known(twin))


def test_where_nothing_fits_what_was_believed_goes_on(getkey):
    """The weights of before, so that what was excluded does not come back; a sample whose episode
    is over has none."""
    cloud, state = ParticleFilter(4, 0.0), ROCKS.init(key=getkey())
    states = jax.tree.map(lambda x: jnp.broadcast_to(x, (4, *x.shape)), state)
    steps = jnp.asarray([0, 0, 0, 8], jnp.int32)  # the last one is truncated by its next step
    states = eqx.tree_at(lambda s: s.steps, states, steps)
    weights = jnp.log(jnp.asarray([0.6, 0.2, 0.0, 0.2]))
    belief = Particles(states, weights, jnp.int32(0))
    far = ROCKS.observe(eqx.tree_at(lambda s: s.position, state, jnp.int32([1, 1])))
    update = jax.jit(
        lambda b, k: cloud.update(ROCKS, b, jnp.int32(4), far, jnp.bool_(False), key=k)
    )
    after, _ = update(belief, getkey())
    assert after.lost == 1
    np.testing.assert_allclose(np.exp(after.log_weights), [0.75, 0.25, 0, 0], atol=1e-6)


@pytest.mark.parametrize("position, reading", [((1, 1), 0), ((0, 1), 2)])
def test_rocks_that_cannot_be_as_they_are_read_are_nan(position, reading, getkey):
    """At another place, and after sampling, which reads nothing."""
    exact, state = RockFilter(), ROCKS.init(key=getkey())
    seen = eqx.tree_at(
        lambda s: (s.position, s.reading), state, (jnp.int32(position), jnp.int32(reading))
    )
    belief = exact.init(ROCKS, ROCKS.observe(state), key=getkey())
    update = jax.jit(
        lambda obs, k: exact.update(ROCKS, belief, jnp.int32(4), obs, jnp.bool_(False), key=k)[0]
    )
    assert np.isnan(update(ROCKS.observe(seen), getkey()).log_odds).all()
    assert np.isfinite(update(ROCKS.observe(state), getkey()).log_odds).all()


class Pair(Fuse):
    """For two players."""

    num_players: int = 2


class Wrong(RockFilter):
    """Expects what is read to be good too often."""

    def outcome_logits(self, env, belief, action):
        logits = super().outcome_logits(env, belief, action)
        return jax.nn.log_softmax(logits + jnp.arange(2.0))


def test_wrong_odds_are_found(getkey):
    env = Filtered(RockSample(3, ((0, 0), (1, 1)), (0, 1), max_steps=4), Wrong())
    with pytest.raises(AssertionError, match="imagine does not draw outcomes"):
        check_environment(env, key=getkey(), num_steps=4, num_envs=32)


def test_what_has_no_single_belief_is_refused():
    with pytest.raises(ValueError, match=r"^Filtered\(env=Pair\): it has 2 players"):
        Filtered(Pair())
    with pytest.raises(ValueError, match=r"^Filtered\(env=Short\): it has `failed`"):
        Filtered(Short())
    envs: tuple[Any, ...] = (Tiger(), Filtered(Tiger()))
    for env in envs:
        with pytest.raises(ValueError, match="observation_log_prob.* would lose them"):
            TimeLimit(env, 5)
