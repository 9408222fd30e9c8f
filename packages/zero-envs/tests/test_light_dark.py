"""LightDark, and what is known of the place, against loops written from its rules."""

import itertools
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import stats

from zero_envs import LightDark, LightFilter

from .helpers import close, play


@pytest.mark.parametrize("env", [LightDark(), LightDark.betazero(10), LightDark.betazero(5)])
def test_light_dark_follows_the_rules(env, getkey):
    starts = jax.jit(jax.vmap(lambda key: env.init(key=key).place))(jr.split(getkey(), 6000))
    if env.spread:
        close(np.bincount(np.asarray(starts).astype(int) + 30), np.full(61, 1 / 61))
    else:
        assert stats.kstest(np.asarray(starts), stats.norm(2, 3).cdf).pvalue > 1e-7
    first, many = env.init(key=getkey()), _many(env)
    log_prob = jax.jit(env.observation_log_prob)
    for place, action in itertools.product((-59.5, -0.8, 0.9, 7.0), range(env.num_actions)):
        state = eqx.tree_at(lambda s: s.place, first, jnp.float32(place))
        after, transition, obs = many(state, jnp.int32(action), getkey())
        move = env.moves[action]
        place = min(max(place + move, -env.bound), env.bound)
        np.testing.assert_allclose(after.place, place, atol=1e-5)
        prize, scale, slope = (100, 1.0, 1.0) if env.light == 10 else (10, 1 / math.sqrt(2), 1)
        stop = prize if abs(place) < 1 else -prize
        pay = stop if move == 0 else -1.0 if env.spread else 0.0
        assert (transition.reward == pay).all() and (transition.last == (move == 0)).all()
        deviation = abs(place - env.light) * scale * slope + (1e-4 if env.light == 10 else 0.01)
        law: Any = stats.norm(place, deviation)
        read = np.asarray(obs.features[:, 0])
        assert stats.kstest(read, law.cdf).pvalue > 1e-7 and (obs.features[:, 1] == 1).all()
        one = jax.tree.map(lambda x: x[0], (obs, after))
        said = log_prob(one[0], state, jnp.int32(action), one[1])
        assert said == pytest.approx(law.logpdf(read[0]), abs=1e-2)
    assert (env.observe(first).features == 0).all()


def _many(env: Any) -> Any:
    def run(state, action, key):
        def one(key):
            after, transition = env.step(state, action, key=key)
            return after, transition, env.observe(after)

        return jax.vmap(one)(jr.split(key, 500))

    return jax.jit(run)


AT_THE_LIGHT = LightDark((-1, 0, 1), cost=0.0, start=(9.0, 1.0), spread=0, max_steps=6)
WORLDS = [
    LightDark(bound=33.0, max_steps=6),
    LightDark.betazero(10),
    LightDark.betazero(5),
    AT_THE_LIGHT,
]


@pytest.mark.parametrize("env", WORLDS)
def test_the_belief_of_light_dark_is_that_of_all_starts(env):
    """Bayes' rule over whole numbers, of which moves beyond the bound make one, or many points;
    with the points that the filter has by default it comes near."""
    filters, mean, reach = [LightFilter(3001), LightFilter()], env.start[0], 5 * env.start[1]
    first, (seen, both) = play(env, filters, jr.key(3), 24, 8)
    fine, coarse = (_told(env, x, *y) for x, y in zip(filters, both, strict=True))
    unsure, far = 0, []
    for game in range(len(first)):
        places, log_odds = np.arange(-30.0, 31.0), np.zeros(61)
        if not env.spread:
            places = np.linspace(mean - reach, mean + reach, 12001)
            log_odds = stats.norm.logpdf(places, *env.start)
        over, pay = False, 0.0
        for t, action in enumerate(seen["action"][game]):
            row, move, near = seen["features"][game, t], env.moves[action], _near(places, log_odds)
            if not over:
                places = np.clip(places + move, -env.bound, env.bound)
                scale = env.slope * np.abs(places - env.light) + env.noise
                pay = 2 * _near(places, log_odds) - 1 if move == 0 else -env.cost / env.reward
                log_odds = log_odds + stats.norm.logpdf(row[0], places, scale)
                unsure += move == 0 and 0.003 < near < 0.997
            odds = _odds(log_odds)
            deviation = np.sqrt(odds @ (places - odds @ places) ** 2)
            wanted = [0 if over else pay, odds @ places / 2, deviation / 2, _near(places, log_odds)]
            np.testing.assert_allclose(fine[game, t], wanted, atol=0.02)
            if env.spread:
                np.testing.assert_allclose(np.exp(both[0][0].log_weights[game, t]), odds, atol=1e-3)
            if not over:
                far.append(np.abs(coarse[game, t] - wanted))
            over |= move == 0 or t + 1 == env.max_steps
    assert (np.mean(far, axis=0) < 0.02).all() and (unsure > 2 or env is AT_THE_LIGHT)


def _odds(log_odds):
    odds = np.exp(log_odds - log_odds.max())
    return odds / odds.sum()


def _near(places, log_odds):
    return _odds(log_odds)[np.abs(places) < 1].sum()


def _told(env, filter, belief, reward):
    """The reward in units of the largest, and what a network sees: `[games, steps, 4]`."""
    obs = env.observe(env.init(key=jr.key(0)))  # which the belief says all of
    shown = jax.vmap(jax.vmap(lambda x: filter.features(env, x, obs)))(belief)
    each = [reward / env.reward, *(shown[x][..., 0] for x in ("mean", "deviation", "near"))]
    return np.stack(each, axis=-1)


@pytest.mark.parametrize("env", [LightDark(), LightDark.betazero(10)])
def test_samples_are_drawn_from_the_belief_of_light_dark(env, getkey):
    exact, many = LightFilter(), jr.split(getkey(), 6000)
    state = env.init(key=getkey())
    belief = exact.init(env, env.observe(state), key=getkey())
    state, transition = env.step(state, jnp.int32(env.num_actions - 1), key=getkey())
    update = jax.jit(lambda *x: exact.update(env, *x, key=jr.key(0))[0])
    belief = update(belief, jnp.int32(env.num_actions - 1), env.observe(state), transition.last)
    drawn = jax.jit(jax.vmap(lambda key: exact.sample(env, belief, key=key)))(many)
    assert (drawn.steps == 1).all() and (drawn.reading == state.reading).all()
    places, odds = np.asarray(belief.places), np.exp(belief.log_weights)
    number = np.abs(np.asarray(drawn.place)[:, None] - places).argmin(axis=1)
    np.testing.assert_allclose(np.bincount(number, minlength=len(places)) / 6000, odds, atol=0.04)
    assert (len(np.unique(drawn.place)) > 3000) == (not env.spread)


def test_a_start_that_is_known_is_a_belief(getkey):
    env, exact = LightDark(spread=0, start=(2.0, 0.0)), LightFilter()
    obs = env.observe(env.init(key=getkey()))
    belief = exact.init(env, obs, key=getkey())
    shown = exact.features(env, belief, obs)
    assert [float(x[0]) for x in shown.values()] == pytest.approx([1, 0, 0], abs=1e-6)


@pytest.mark.parametrize(
    "given, message",
    [
        ({"start": 3.0}, r"^LightDark\(start=3.0\): it must be a tuple of a mean and a deviation"),
        (
            {"start": (1.0, -1.0)},
            r"^LightDark\(start=-1.0\): it must be a finite number, 0 or more",
        ),
        ({"moves": 0}, r"^LightDark\(moves=0\): it must be a tuple of integers"),
        (
            {"moves": (0, math.nan)},
            r"^LightDark\(moves=\(0, nan\)\): it must be a tuple of integers",
        ),
        ({"moves": (1, 2)}, r"^LightDark\(moves=\(1, 2\)\): it must be .* must be 0, which stops"),
    ],
)
def test_bad_arguments_are_named(unhooked, given, message):
    with pytest.raises(ValueError, match=message):
        LightDark(**given)


def test_a_start_is_within_the_bound_and_so_is_the_belief_of_it():
    env, exact = LightDark(spread=30, bound=10.0), LightFilter()
    keys = jr.split(jr.key(0), (2, 2000))
    starts = jax.jit(jax.vmap(lambda k: env.init(key=k)))(keys[0])
    belief = exact.init(env, env.observe(env.init(key=jr.key(1))), key=jr.key(2))
    drawn = jax.jit(jax.vmap(lambda k: exact.sample(env, belief, key=k)))(keys[1])
    for places in (starts.place, drawn.place):
        assert np.abs(places).max() == 10
        # 21 of 61 starts are at 10 or beyond it.
        assert np.mean(places == 10) == pytest.approx(21 / 61, abs=0.04)
