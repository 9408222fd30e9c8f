"""RockSample: which of the rocks are worth the way, and is it worth looking before?"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from ._environment import (
    absorbing_transition,
    AbstractObservedEnvironment,
    check_cells,
    check_count,
    check_state,
    checked_action,
    Observation,
    Transition,
)
from ._filtered import AbstractChanceFilter


_SAMPLE = 4
#: North, south, east, west, and the other actions, which do not move.
_MOVES = np.asarray([[0, 1], [0, -1], [1, 0], [-1, 0], [0, 0]], np.int32)
#: The distance in cells over which the efficiency of the sensor halves.
_HALF = 20.0
#: The cells that a network sees as a distance of 1.
_UNIT = 2.0
_PUBLISHED = {
    (7, 8): ((2, 0), (0, 1), (3, 1), (6, 3), (2, 4), (3, 4), (5, 5), (1, 6)),
    (11, 11): (
        *((0, 3), (0, 7), (1, 8), (2, 4), (3, 3), (3, 8)),
        *((4, 3), (5, 8), (6, 1), (9, 3), (9, 9)),
    ),
}


class RockSampleState(eqx.Module):
    """The state of RockSample.

    **Attributes:**

    - `position`: x and y; x is the size of the grid once the rover has left.
    - `good`: which rocks are good.
    - `reading`: what the last action read: 0 for nothing, 1 for a bad rock, 2 for a good one.
    - `steps`: the number of steps so far.
    """

    position: Int[Array, "*axes 2"]
    good: Bool[Array, "*axes rocks"]
    reading: Int[Array, "*axes"]
    steps: Int[Array, "*axes"]


class RockSample(AbstractObservedEnvironment[RockSampleState]):
    """A rover samples good rocks and leaves to the east (Smith and Simmons 2004).

    Rocks lie on a grid of `size` by `size` cells, (0, 0) in the lower left corner. Each is good or
    bad with equal odds. Actions 0 to 3 move north, south, east and west. Leaving to the east is
    rewarded with 10 and ends the episode; moves over other edges do not move, as in RockSample.jl
    (in DESPOT they cost 100 and end it). Action 4 samples: 10 for a good rock, which turns bad, -10
    for a bad one, and 0 where there is none. Action 5 + i checks rock i, which is read rightly with
    probability `(1 + 2**(-d / 20)) / 2` at a distance of `d` cells. It is truncated after
    `max_steps` steps. The papers use gamma 0.95. The features are the position and one-hot what was
    read: nothing, bad, good.

    **Arguments:**

    - `size`: the rows and columns.
    - `rocks`: the cells of the rocks, x and y.
    - `start`: the cell of the rover.
    """

    size: int
    rocks: tuple[tuple[int, int], ...]
    start: tuple[int, int]
    max_steps: int = 100
    num_actions: int = eqx.field(init=False)
    num_players: int = eqx.field(init=False, default=1)
    hidden: bool = eqx.field(init=False, default=True)

    def __post_init__(self):
        self.num_actions = 5 + len(self.rocks)

    def __check_init__(self):
        check_count("RockSample", size=self.size, max_steps=self.max_steps)
        check_cells("RockSample", self.size, rocks=self.rocks)
        check_cells("RockSample", self.size, start=(self.start,))

    @classmethod
    def of(
        cls, size: int, num_rocks: int, seed: int | None = None, *, max_steps: int = 100
    ) -> "RockSample":
        """The published layouts for 7, 8 and 11, 11 without a seed, and otherwise rocks in
        different cells that NumPy's `default_rng(seed)` draws, by default with the seed 0. The
        rover starts in the middle of the west edge."""
        check_count("RockSample.of", size=size, num_rocks=num_rocks)
        check_count("RockSample.of", 0, seed=seed or 0)
        size, num_rocks = int(size), int(num_rocks)
        if num_rocks > size**2:
            raise ValueError(
                f"RockSample.of(num_rocks={num_rocks}): there are only {size**2} cells."
            )
        rocks = _PUBLISHED.get((size, num_rocks)) if seed is None else None
        if rocks is None:
            draws = np.random.default_rng(seed or 0)
            drawn = draws.choice(size**2, num_rocks, replace=False).tolist()
            rocks = tuple(divmod(x, size) for x in drawn)
        return cls(size, rocks, (0, size // 2), max_steps)

    def init(self, *, key: PRNGKeyArray) -> RockSampleState:
        """Each rock is good with probability 1/2."""
        good = jr.bernoulli(key, 0.5, (len(self.rocks),))
        position = jnp.asarray(self.start, jnp.int32)
        return RockSampleState(position, good, jnp.int32(0), jnp.int32(0))

    def step(
        self, state: RockSampleState, action: Int[Array, ""], *, key: PRNGKeyArray
    ) -> tuple[RockSampleState, Transition]:
        """Moves, samples or checks."""
        action = checked_action(self, action)
        check_state(self, state.position, 1)
        over = self._over(state)
        most = jnp.asarray([self.size, self.size - 1], jnp.int32)
        moved = state.position + jnp.asarray(_MOVES)[jnp.minimum(action, _SAMPLE)]
        position = jnp.where(over, state.position, jnp.clip(moved, 0, most))
        rocks = jnp.asarray(self.rocks, jnp.int32)
        sampled = jnp.all(state.position[None] == rocks, axis=1) & (action == _SAMPLE) & ~over
        worth = jnp.where(jnp.any(sampled & state.good), 10.0, -10.0)
        left = position[0] >= self.size
        reward = jnp.where(left, 10.0, jnp.where(jnp.any(sampled), worth, 0.0))
        read = jr.bernoulli(key, self._reads_good(state, action)).astype(jnp.int32) + 1
        reading = jnp.where(action > _SAMPLE, read, 0)
        after = RockSampleState(
            position,
            state.good & ~sampled,
            jnp.where(over, state.reading, reading),
            state.steps + jnp.where(over, 0, 1),
        )
        truncated = after.steps >= self.max_steps
        return after, absorbing_transition(over, reward, terminated=left, truncated=truncated)

    def observe(self, state: RockSampleState) -> Observation:
        """The position and what was read; all actions are legal."""
        check_state(self, state.position, 1)
        reading = jnp.arange(3, dtype=jnp.int32) == state.reading
        features = jnp.concatenate([state.position, reading.astype(jnp.int32)])
        return Observation(features.astype(jnp.float32), jnp.ones(self.num_actions, jnp.bool_))

    def observation_log_prob(
        self,
        observation: Observation,
        state: RockSampleState,
        action: Int[Array, ""],
        next_state: RockSampleState,
    ) -> Float[Array, ""]:
        """Of reading a rock to be bad or good, or nothing, at the position."""
        position, reading = _seen(observation)
        good = self._reads_good(state, action)
        read = jnp.where(reading == 2, good, 1 - good)
        possible = jnp.all(position == next_state.position) & ((reading > 0) == (action > _SAMPLE))
        return jnp.log(jnp.where(possible, jnp.where(reading > 0, read, 1.0), 0.0))

    def _over(self, state: RockSampleState) -> Bool[Array, ""]:
        return (state.position[0] >= self.size) | (state.steps >= self.max_steps)

    def _reads_good(self, state: RockSampleState, action: Int[Array, ""]) -> Float[Array, ""]:
        """The probability that a check reads good."""
        rock = jnp.maximum(action - _SAMPLE - 1, 0)
        away = (jnp.asarray(self.rocks, jnp.int32)[rock] - state.position).astype(jnp.float32)
        right = (1 + 2 ** (-jnp.sqrt(jnp.sum(away**2)) / _HALF)) / 2
        return jnp.where(state.good[rock], right, 1 - right)


class RockBelief(eqx.Module):
    """What is known of RockSample.

    **Attributes:**

    - `log_odds`: of each rock, that it is good.
    - `known`: a state whose rocks are all bad, the rest as it is.
    """

    log_odds: Float[Array, "*axes rocks"]
    known: RockSampleState


class RockFilter(AbstractChanceFilter[RockSampleState, RockBelief]):
    """The exact belief of [`zero_envs.RockSample`][]: rocks are independent given the readings.

    A network sees the cells to each edge, and for each rock the probability that it is good and the
    way there. All lengths are in units of 2 cells: smaller numbers take much longer to learn from.
    The shapes are `[4]` and `[rocks, 3]`. An observation that contradicts the belief makes it NaN.
    """

    def init(self, env: RockSample, obs: Observation, *, key: PRNGKeyArray) -> RockBelief:
        del obs
        known = _with(env.init(key=key), False)
        return RockBelief(jnp.zeros(len(env.rocks), jnp.float32), known)

    def update(
        self,
        env: RockSample,
        belief: RockBelief,
        action: Int[Array, ""],
        obs: Observation,
        last: Bool[Array, ""],
        *,
        key: PRNGKeyArray,
    ) -> tuple[RockBelief, Float[Array, ""]]:
        del last
        (bad, cost), (good, gain) = (
            env.step(_with(belief.known, rocks), action, key=k)
            for rocks, k in zip((False, True), jr.split(key), strict=True)
        )
        likely = lambda before, after: env.observation_log_prob(obs, before, action, after)
        evidence = likely(_with(belief.known, True), good) - likely(belief.known, bad)
        each = jnp.arange(len(env.rocks), dtype=jnp.int32)
        # What neither state of the rock can show makes the evidence NaN, which belongs to all.
        checked = (each == action - _SAMPLE - 1) | jnp.isnan(evidence)
        checked &= ~env._over(belief.known)
        log_odds = belief.log_odds + jnp.where(checked, evidence, 0.0)
        # The rock that was sampled is the one that has turned bad.
        log_odds = jnp.where(good.good, log_odds, -jnp.inf)
        chance = jnp.sum(jnp.where(good.good, 0.0, jax.nn.sigmoid(belief.log_odds)))
        reward = cost.reward + chance * (gain.reward - cost.reward)
        known = eqx.tree_at(lambda s: s.reading, bad, _seen(obs)[1])
        return RockBelief(log_odds, known), reward

    def sample(self, env: RockSample, belief: RockBelief, *, key: PRNGKeyArray) -> RockSampleState:
        good = jr.bernoulli(key, jax.nn.sigmoid(belief.log_odds))
        return eqx.tree_at(lambda s: s.good, belief.known, good)

    def features(
        self, env: RockSample, belief: RockBelief, obs: Observation
    ) -> dict[str, Float[Array, "..."]]:
        position = belief.known.position.astype(jnp.float32)
        way = jnp.asarray(env.rocks, jnp.float32) - position[None]
        chance = jax.nn.sigmoid(belief.log_odds)
        edges = jnp.concatenate([position, env.size - 1 - position]) / _UNIT
        return {"edges": edges, "rocks": jnp.concatenate([chance[:, None], way / _UNIT], axis=1)}

    def num_outcomes(self, env: RockSample) -> int:
        """2: a rock is read to be bad or good. What is not a check shows the first one."""
        return 2

    def outcome_logits(
        self, env: RockSample, belief: RockBelief, action: Int[Array, ""]
    ) -> Float[Array, " 2"]:
        checks = action > _SAMPLE
        right = env._reads_good(_with(belief.known, True), action)
        chance = jax.nn.sigmoid(belief.log_odds)[jnp.maximum(action - _SAMPLE - 1, 0)]
        good = jnp.where(checks, chance * right + (1 - chance) * (1 - right), 0.0)
        return jnp.log(jnp.stack([1 - good, good]))

    def outcome(
        self,
        env: RockSample,
        belief: RockBelief,
        action: Int[Array, ""],
        number: Int[Array, ""],
        *,
        key: PRNGKeyArray,
    ) -> tuple[RockSampleState, Transition]:
        after, transition = env.step(belief.known, action, key=key)
        checks = (action > _SAMPLE) & ~env._over(belief.known)
        reading = jnp.where(checks, 1 + number, after.reading)
        return eqx.tree_at(lambda s: s.reading, after, reading), transition


def _with(state: RockSampleState, good: bool) -> RockSampleState:
    """A state in which all rocks are good or bad."""
    return eqx.tree_at(lambda s: s.good, state, jnp.full_like(state.good, good))


def _seen(observation: Observation) -> tuple[Int[Array, " 2"], Int[Array, ""]]:
    features = observation.features
    reading = jnp.argmax(features[2:]).astype(jnp.int32)
    return features[:2].astype(jnp.int32), reading
