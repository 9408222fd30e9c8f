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


@pytest.mark.parametrize(
    "env", [LightDark(bound=33.0), LightDark.betazero(10), LightDark.betazero(5)]
)
def test_the_belief_of_light_dark_is_that_of_all_starts(env):
    """Bayes' rule over whole numbers, of which moves beyond the bound make one, or many points;
    with the points that the filter has by default it comes near."""
    filters = [LightFilter(3001), LightFilter()]
    first, (seen, both) = play(env, filters, jr.key(3), 24, 8)
    close_stops, far = 0, []
    for game in range(len(first)):
        places, log_odds = np.arange(-30.0, 31.0), np.zeros(61)
        if not env.spread:
            places = np.linspace(-13, 17, 12001)
            log_odds = stats.norm.logpdf(places, 2, 3)
        over = False
        for t, action in enumerate(seen["action"][game]):
            row, move = seen["features"][game, t], env.moves[action]
            odds = np.exp(log_odds - log_odds.max())
            near = odds[np.abs(places) < 1].sum() / odds.sum()
            pay = env.reward * (2 * near - 1) if move == 0 else -env.cost
            if not over:
                places = np.clip(places + move, -env.bound, env.bound)
                scale = env.slope * np.abs(places - env.light) + env.noise
                log_odds = log_odds + stats.norm.logpdf(row[0], places, scale)
                close_stops += move == 0 and 0.003 < near < 0.997
            odds = np.exp(log_odds - log_odds.max())
            odds /= odds.sum()
            mean = odds @ places
            wanted = [0 if over else pay / env.reward, mean, np.sqrt(odds @ (places - mean) ** 2)]
            (fine, told), coarse = ([x[game, t] for x in _told(env, *one)] for one in both)
            np.testing.assert_allclose(told, wanted, atol=0.02)
            far.append(np.abs(coarse[1] - wanted))
            if env.spread:
                np.testing.assert_allclose(fine, odds, atol=1e-3)
            over |= move == 0
    assert close_stops > 2 and np.mean(far) < 0.02, np.mean(far, axis=0)


def _told(env, belief, reward):
    """The odds, and the reward for each that a stop may bring, the mean and the deviation."""
    odds, places = np.exp(belief.log_weights), belief.places
    mean = np.sum(odds * places, axis=-1)
    deviation = np.sqrt(np.sum(odds * (places - mean[..., None]) ** 2, axis=-1))
    return odds, np.stack([reward / env.reward, mean, deviation], axis=-1)
