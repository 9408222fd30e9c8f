"""Bounds of what a belief is worth where episodes have no limit of steps: the upper one if all that
is hidden were seen at once, the lower one if nothing were seen any more. Of LightDark also what it
is worth if beliefs are normal, which is no bound.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.ndimage import map_coordinates
from scipy.stats import norm

from zero_envs import LightBelief, LightDark, RockSample, Tag
from zero_envs._tag import _floor


def mdp_bound(env: Any, gamma: float) -> Callable[[Any], jax.Array]:
    """A function of ONE belief of the environment's own filter, or of LightDark in particles."""
    if isinstance(env, RockSample):
        rocks = jnp.asarray(_rocks(env, gamma), jnp.float32)
        return lambda belief: _expected(rocks, belief)
    if isinstance(env, Tag):
        cells = jnp.asarray(_tag(env, gamma), jnp.float32)
        rows = lambda belief: cells if env.lasers else cells[belief.known.agent][None]
        return lambda belief: jnp.sum(belief.odds * rows(belief))
    if isinstance(env, LightDark):
        line = jnp.asarray(_line(env, gamma), jnp.float32)
        # A move of whole numbers from y brings the agent as near to the origin as from floor(|y|).
        at = lambda place: line[jnp.floor(jnp.abs(place)).astype(jnp.int32)]
        return lambda belief: jnp.sum(jnp.exp(belief.log_weights) * at(_places(belief)))
    raise SystemExit(f"--leaves mdp: {type(env).__name__} has no table; choose another world")


def blind_bound(env: Any, gamma: float) -> Callable[[Any], jax.Array]:
    """A function of ONE belief of LightDark: the best of the plans that stop after some moves,
    whatever is observed meanwhile, and of never stopping."""
    if not isinstance(env, LightDark):
        raise SystemExit(f"--leaves blind: {type(env).__name__} has no such bound; leave it out")
    bound, (ways, number) = int(env.bound), _walks(env)
    paid = env.cost * (1 - gamma**number) / (1 - gamma)
    paid, kept = jnp.asarray(paid, jnp.float32), jnp.asarray(gamma**number, jnp.float32)

    def worth(belief: Any) -> jax.Array:
        place, weights = _places(belief), jnp.exp(belief.log_weights)
        below = jnp.floor(place)
        # How likely each move leads nearer than 1 to the origin: that of -floor(place) does, and
        # where the place is no whole number so does one less.
        odds = jnp.zeros(2 * bound + 2)
        first = (bound - below).astype(jnp.int32)
        odds = odds.at[first].add(weights)
        odds = odds.at[first - 1].add(jnp.where(place > below, weights, 0.0))
        stopped = kept * env.reward * (2 * odds[ways + bound] - 1) - paid
        return jnp.maximum(jnp.max(stopped), -env.cost / (1 - gamma))

    return worth


def normal_worth(env: Any, gamma: float) -> Callable[[Any], jax.Array]:
    """A function of ONE belief of LightDark with a normal start: dynamic programming over the mean
    and the deviation of the place, as if it were always normal. After a move the place and its
    reading are drawn, and the belief that follows has the mean and the deviation of the
    posterior."""
    if not isinstance(env, LightDark) or env.spread:
        raise SystemExit("--leaves normal: only lightdark-5 and lightdark-10 have it; choose one")
    cells = 4  # of the means, in a length of 1
    means = env.start[0] + np.arange(-16 * cells, 16 * cells + 1) / cells
    deviations, factor = np.geomspace(0.02, 4, 40), 200 ** (1 / 39)
    middle = lambda number: norm.ppf((np.arange(number) + 0.5) / number)
    away = np.linspace(-5, 5, 161)  # of points of the line, in deviations
    drawn, noise = middle(9)[:, None], middle(61)
    coordinates = lambda mean, log_variance: (
        (mean - means[0]) * cells,
        (log_variance / 2 - math.log(deviations[0])) / math.log(factor),
    )

    def seen(mean: float, deviation: float) -> tuple[np.ndarray, np.ndarray]:
        of = lambda place: env.slope * np.abs(place - env.light) + env.noise
        points, there = mean + deviation * away, mean + deviation * drawn
        readings = (there + of(there) * noise).reshape(-1, 1)
        weights = norm.pdf(readings, points, of(points)) * norm.pdf(away)
        weights /= weights.sum(1, keepdims=True)
        after = weights @ points
        return coordinates(after, np.log(np.maximum(weights @ points**2 - after**2, 1e-6)))

    nodes = [seen(mean, deviation) for mean in means for deviation in deviations]
    where = np.stack(nodes, axis=1).reshape(2, len(means), len(deviations), -1)
    at = np.meshgrid(means, deviations, indexing="ij")
    near = norm.cdf(1, *at) - norm.cdf(-1, *at)
    stop = value = env.reward * (2 * near - 1)
    place = np.arange(len(means))
    while True:
        later = map_coordinates(value, where, order=1, mode="nearest").mean(-1)
        moves = [later[np.clip(place + m * cells, 0, place[-1])] for m in env.moves if m]
        best = np.maximum(stop, -env.cost + gamma * np.max(moves, axis=0))
        if np.abs(best - value).max() < 1e-6:
            break
        value = best
    table = jnp.asarray(value, jnp.float32)

    def worth(belief: Any) -> jax.Array:
        weights = jnp.exp(belief.log_weights)
        mean = jnp.sum(weights * belief.places)
        variance = jnp.sum(weights * jnp.square(belief.places - mean))
        there = coordinates(mean, jnp.log(jnp.maximum(variance, 1e-6)))
        return jax.scipy.ndimage.map_coordinates(table, there, order=1, mode="nearest")

    return worth


def _places(belief: Any) -> jax.Array:
    return belief.places if isinstance(belief, LightBelief) else belief.states.place


def _walks(env: LightDark) -> tuple[np.ndarray, np.ndarray]:
    """The distances that moves lead to, and the fewest moves to each."""
    number, newest = {0: 0}, {0}
    while newest:
        led = {at + move for at in newest for move in env.moves}
        newest = {to for to in led - number.keys() if abs(to) <= env.bound}
        number |= dict.fromkeys(newest, 1 + max(number.values()))
    return np.asarray([*number]), np.asarray([*number.values()])


def _rocks(env: RockSample, gamma: float) -> np.ndarray:
    """By x, y and a mask of the rocks that are good."""
    size, number = env.size, len(env.rocks)
    value = np.zeros((size, size, 2**number), np.float32)
    masks = np.arange(2**number)
    while True:
        best = value.copy()
        best[-1] = 10.0
        np.maximum(best[:-1], gamma * value[1:], out=best[:-1])
        np.maximum(best[1:], gamma * value[:-1], out=best[1:])
        np.maximum(best[:, :-1], gamma * value[:, 1:], out=best[:, :-1])
        np.maximum(best[:, 1:], gamma * value[:, :-1], out=best[:, 1:])
        for rock, (x, y) in enumerate(env.rocks):
            good = masks[masks >> rock & 1 == 1]
            sampled = 10 + gamma * value[x, y, good ^ (1 << rock)]
            best[x, y, good] = np.maximum(best[x, y, good], sampled)
        if np.abs(best - value).max() < 1e-4:
            return best
        value = best


def _expected(table: jax.Array, belief: Any) -> jax.Array:
    odds = jnp.ones(1, jnp.float32)
    for chance in jax.nn.sigmoid(belief.log_odds):
        odds = jnp.concatenate([odds * (1 - chance), odds * chance])
    x, y = jnp.minimum(belief.known.position, table.shape[0] - 1)
    return table[x, y] @ odds


def _tag(env: Tag, gamma: float) -> np.ndarray:
    """By the cells of the agent and of the opponent."""
    floor, number = _floor(env.cells), len(env.cells)
    value, met = np.zeros((number, number)), np.eye(number, dtype=bool)
    while True:
        # By agent, its next cell, and opponent.
        later = np.einsum("ijk,lk->ilj", floor.flights, value)
        moved = np.stack([later[np.arange(number), floor.onward[:, a]] for a in range(4)])
        best = (-1 + gamma * moved).max(0)
        best = np.where(met, np.maximum(10, best), best)
        if np.abs(best - value).max() < 1e-6:
            return best
        value = best


def _line(env: LightDark, gamma: float) -> np.ndarray:
    """By whole numbers, from the origin on."""
    bound = int(env.bound)
    places = np.arange(-bound, bound + 1)
    stop = np.where(np.abs(places) < 1, env.reward, -env.reward)
    value = np.full(places.shape, -env.reward)
    while True:
        moved = [value[np.clip(places + m, -bound, bound) + bound] for m in env.moves if m]
        best = np.maximum(stop, -env.cost + gamma * np.max(moved, axis=0))
        if np.abs(best - value).max() < 1e-9:
            return best[bound:]
        value = best
