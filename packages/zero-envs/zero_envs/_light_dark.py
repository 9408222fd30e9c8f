"""LightDark: going to the light to see where one is."""

import dataclasses
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.scipy.stats as jss
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from ._environment import (
    absorbing_transition,
    AbstractObservedEnvironment,
    check_count,
    check_number,
    check_state,
    checked_action,
    Observation,
    plain,
    Transition,
)
from ._filtered import AbstractFilter


#: A network sees lengths in this unit: smaller numbers take much longer to learn from.
_UNIT = 2.0
#: How many deviations from its mean a start can be for the filter.
_TAILS = 5.0


class LightDarkState(eqx.Module):
    """The state of LightDark.

    **Attributes:**

    - `place`: where the agent is.
    - `reading`: where the last observation said that it is; 0 before the first action.
    - `stopped`: whether it has stopped.
    - `steps`: the number of steps so far.
    """

    place: Float[Array, "*axes"]
    reading: Float[Array, "*axes"]
    stopped: Bool[Array, "*axes"]
    steps: Int[Array, "*axes"]


class LightDark(AbstractObservedEnvironment[LightDarkState]):
    """Stop at the origin of a line, and see well at the light only (after Platt et al. 2010).

    Each action moves by one of `moves` within `bound` of the origin, for a reward of `-cost`; the
    move of 0 stops, which ends the episode with `reward` where the origin is nearer than 1, and
    else with `-reward`. After each action the place is observed with normal noise, whose deviation
    is `slope` times the distance to the light and `noise`; before the first nothing is. It is
    truncated after `max_steps` steps. The features are the reading, and 1 if there is one.

    `LightDark()` is the problem of POMCPOW (Sunberg and Kochenderfer 2018) as its
    authors' programs have it, in whole numbers, with gamma 0.95: it starts anywhere from -30 to 30
    with equal odds. `LightDark.betazero(10)` and `(5)` are those of BetaZero (Moss et al. 2024),
    with gamma 0.9, whose start is normal with mean 2 and deviation 3.

    **Arguments:**

    - `start`: the mean and the deviation of where it starts.
    - `spread`: if above 0, it starts at a whole number from `-spread` to `spread` instead.
    """

    moves: tuple[int, ...] = (-10, -1, 0, 1, 10)
    light: float = 10.0
    slope: float = 1.0
    noise: float = 1e-4
    reward: float = 100.0
    cost: float = 1.0
    bound: float = 60.0
    start: tuple[float, float] = (2.0, 3.0)
    spread: int = 30
    max_steps: int = 100
    num_actions: int = eqx.field(init=False)
    num_players: int = eqx.field(init=False, default=1)
    hidden: bool = eqx.field(init=False, default=True)

    def __post_init__(self):
        ints = int | np.integer
        whole = isinstance(self.moves, tuple) and all(isinstance(x, ints) for x in self.moves)
        if not whole or 0 not in self.moves:
            raise ValueError(
                f"LightDark(moves={self.moves!r}): it must be a tuple of integers, and one of them "
                "must be 0, which stops."
            )
        self.num_actions = len(self.moves)
        for name, x in vars(self).items():
            setattr(self, name, jax.tree.map(plain, x))

    def __check_init__(self):
        if not isinstance(self.start, tuple) or len(self.start) != 2:
            raise ValueError(
                f"LightDark(start={self.start!r}): it must be a tuple of a mean and a deviation."
            )
        check_count("LightDark", max_steps=self.max_steps)
        check_count("LightDark", 0, spread=self.spread)
        above = {name: getattr(self, name) for name in ("slope", "reward", "cost", "bound")}
        check_number("LightDark", 0, math.inf, **above, start=self.start[1])
        check_number("LightDark", 1e-6, math.inf, noise=self.noise)
        check_number("LightDark", -math.inf, math.inf, light=self.light, start=self.start[0])

    @classmethod
    def betazero(cls, light: int = 10, *, max_steps: int = 100) -> "LightDark":
        """Steps of 1 that cost nothing; the light at 10, or at 5 where all is less."""
        if light not in (5, 10):
            raise ValueError(f"LightDark.betazero(light={light!r}): it must be 5 or 10.")
        far = cls((-1, 0, 1), cost=0.0, bound=100.0, spread=0, max_steps=max_steps)
        near = {"light": 5.0, "slope": 1 / math.sqrt(2), "noise": 0.01, "reward": 10.0}
        return far if light == 10 else dataclasses.replace(far, **near)

    def init(self, *, key: PRNGKeyArray) -> LightDarkState:
        """Draws the start."""
        if self.spread:
            place = jr.randint(key, (), -self.spread, self.spread + 1, jnp.int32)
            place = place.astype(jnp.float32)
        else:
            place = self.start[0] + self.start[1] * jr.normal(key, (), jnp.float32)
        place = jnp.clip(place, -self.bound, self.bound)
        return LightDarkState(place, jnp.float32(0), jnp.bool_(False), jnp.int32(0))

    def step(
        self, state: LightDarkState, action: Int[Array, ""], *, key: PRNGKeyArray
    ) -> tuple[LightDarkState, Transition]:
        """Moves and reads, or stops."""
        action = checked_action(self, action)
        check_state(self, state.place, 0)
        over = self._over(state)
        move, place = self._moved(state.place, action)
        place = jnp.where(over, state.place, place)
        reading = place + self._deviation(place) * jr.normal(key, (), jnp.float32)
        stops = move == 0
        steps = state.steps + jnp.where(over, 0, 1)
        after = LightDarkState(
            place, jnp.where(over, state.reading, reading), state.stopped | (stops & ~over), steps
        )
        reward = self._reward(stops, (jnp.abs(place) < 1).astype(jnp.float32))
        truncated = steps >= self.max_steps
        return after, absorbing_transition(over, reward, terminated=stops, truncated=truncated)

    def observe(self, state: LightDarkState) -> Observation:
        """What was read; all actions are legal."""
        check_state(self, state.place, 0)
        features = jnp.stack([state.reading, (state.steps > 0).astype(jnp.float32)])
        return Observation(features, jnp.ones(self.num_actions, jnp.bool_))

    def observation_log_prob(
        self,
        observation: Observation,
        state: LightDarkState,
        action: Int[Array, ""],
        next_state: LightDarkState,
    ) -> Float[Array, ""]:
        """The log-density of the reading."""
        del state
        reading, there = jnp.unstack(observation.features)
        place = next_state.place
        density = jss.norm.logpdf(reading, place, self._deviation(place))
        possible = (there > 0) == (action >= 0)
        return jnp.where(possible, jnp.where(there > 0, density, 0.0), -jnp.inf)

    def _over(self, state: LightDarkState) -> Bool[Array, ""]:
        return state.stopped | (state.steps >= self.max_steps)

    def _moved(
        self, place: Float[Array, "*points"], action: Int[Array, ""]
    ) -> tuple[Float[Array, ""], Float[Array, "*points"]]:
        move = jnp.asarray(self.moves, jnp.float32)[action]
        return move, jnp.clip(place + move, -self.bound, self.bound)

    def _reward(self, stops: Bool[Array, ""], near: Float[Array, ""]) -> Float[Array, ""]:
        """The expected reward, given the probability that the origin is nearer than 1."""
        return jnp.where(stops, self.reward * (2 * near - 1), -self.cost)

    def _deviation(self, place: Float[Array, ""]) -> Float[Array, ""]:
        return self.slope * jnp.abs(place - self.light) + self.noise


class LightBelief(eqx.Module):
    """What is known of LightDark.

    **Attributes:**

    - `places`: where the agent may be.
    - `log_weights`: the log-probability of each place.
    - `known`: a state whose place is 0, the rest as it is.
    """

    places: Float[Array, "*axes points"]
    log_weights: Float[Array, "*axes points"]
    known: LightDarkState


class LightFilter(AbstractFilter[LightDarkState, LightBelief]):
    """The belief of [`zero_envs.LightDark`][]: Bayes' rule over points that move as the agent does
    (Bucy and Senne 1971, "Digital synthesis of non-linear filters"). It is exact where the start
    is a whole number. Each point of a normal start stands for all places that are nearest to it,
    so at the light less is known than the noise allows.

    A network sees the mean and the deviation of the place in units of 2 (`[1]` each) and how likely
    it is that the agent would be right to stop (`[1]`). An observation without a reading, which
    follows no action, makes the belief NaN.

    **Arguments:**

    - `num_points`: how many points a normal start has, evenly spaced up to 5 deviations from its
        mean. A start at whole numbers has one for each.
    """

    num_points: int = eqx.field(default=201, static=True)

    def __check_init__(self):
        check_count("LightFilter", 2, num_points=self.num_points)

    def init(self, env: LightDark, obs: Observation, *, key: PRNGKeyArray) -> LightBelief:
        del obs
        if env.spread:
            places = jnp.arange(-env.spread, env.spread + 1, dtype=jnp.float32)
            log_weights = jnp.zeros_like(places)
        else:
            mean, deviation = env.start
            away = jnp.linspace(-_TAILS, _TAILS, self.num_points, dtype=jnp.float32)
            places, log_weights = mean + deviation * away, -jnp.square(away) / 2
        places = jnp.clip(places, -env.bound, env.bound)
        known = _at(env.init(key=key), jnp.float32(0))
        return LightBelief(places, jax.nn.log_softmax(log_weights), known)

    def update(
        self,
        env: LightDark,
        belief: LightBelief,
        action: Int[Array, ""],
        obs: Observation,
        last: Bool[Array, ""],
        *,
        key: PRNGKeyArray,
    ) -> tuple[LightBelief, Float[Array, ""]]:
        del last, key
        known, over = belief.known, env._over(belief.known)
        move, places = env._moved(belief.places, action)
        steps = known.steps + jnp.where(over, 0, 1)
        stopped = known.stopped | ((move == 0) & ~over)
        after = LightDarkState(known.place, obs.features[0], stopped, steps)
        likely = lambda place: env.observation_log_prob(obs, known, action, _at(after, place))
        log_weights = jax.nn.log_softmax(belief.log_weights + jax.vmap(likely)(places))
        reward = env._reward(move == 0, self._near(env, places, belief.log_weights))
        places = jnp.where(over, belief.places, places)
        log_weights = jnp.where(over, belief.log_weights, log_weights)
        return LightBelief(places, log_weights, after), jnp.where(over, 0.0, reward)

    def sample(self, env: LightDark, belief: LightBelief, *, key: PRNGKeyArray) -> LightDarkState:
        point_key, place_key = jr.split(key)
        place = belief.places[jr.categorical(point_key, belief.log_weights)]
        aside = jr.uniform(place_key, (), jnp.float32, -0.5, 0.5) * self._apart(env)
        return _at(belief.known, jnp.clip(place + aside, -env.bound, env.bound))

    def features(
        self, env: LightDark, belief: LightBelief, obs: Observation
    ) -> dict[str, Float[Array, " 1"]]:
        del obs
        weights = jnp.exp(belief.log_weights)
        mean = jnp.sum(weights * belief.places)
        deviation = jnp.sqrt(jnp.sum(weights * jnp.square(belief.places - mean)))
        near = self._near(env, belief.places, belief.log_weights)
        shown = {"mean": mean / _UNIT, "deviation": deviation / _UNIT, "near": near}
        return {name: number[None] for name, number in shown.items()}

    def _apart(self, env: LightDark) -> float:
        """The length of the line that a point stands for."""
        return 0.0 if env.spread else 2 * _TAILS * env.start[1] / (self.num_points - 1)

    def _near(
        self, env: LightDark, places: Float[Array, " points"], log_weights: Float[Array, " points"]
    ) -> Float[Array, ""]:
        """How likely the agent is nearer than 1 to the origin."""
        half = self._apart(env) / 2
        if half == 0:
            share = (jnp.abs(places) < 1).astype(jnp.float32)
        else:
            inside = jnp.clip(places + half, -1, 1) - jnp.clip(places - half, -1, 1)
            share = inside / (2 * half)
        return jnp.sum(jnp.exp(log_weights) * share)


def _at(known: LightDarkState, place: Float[Array, ""]) -> LightDarkState:
    return eqx.tree_at(lambda s: s.place, known, place)
