"""LightDark: going to the light to see where one is."""

import math
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import jax.scipy.stats as jss
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from ._environment import (
    absorbing_transition,
    AbstractObservedEnvironment,
    check_count,
    check_number,
    check_state,
    checked_action,
    Observation,
    Transition,
)


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
        self.num_actions = len(self.moves)

    def __check_init__(self):
        check_count("LightDark", max_steps=self.max_steps)
        check_count("LightDark", 0, spread=self.spread)
        above = {name: getattr(self, name) for name in ("slope", "reward", "cost", "bound")}
        check_number("LightDark", 0, math.inf, **above, start=self.start[1])
        check_number("LightDark", 1e-6, math.inf, noise=self.noise)
        check_number("LightDark", -math.inf, math.inf, light=self.light, start=self.start[0])
        if 0 not in self.moves:
            raise ValueError(
                f"LightDark(moves={self.moves!r}): one of them must be 0, which stops."
            )

    @classmethod
    def betazero(cls, light: int = 10, *, max_steps: int = 100) -> "LightDark":
        """Steps of 1 that cost nothing; the light at 10, or at 5 where all is less."""
        if light not in (5, 10):
            raise ValueError(f"LightDark.betazero(light={light!r}): it must be 5 or 10.")
        near: dict[str, Any] = {
            "light": 5.0,
            "slope": 1 / math.sqrt(2),
            "noise": 0.01,
            "reward": 10.0,
        }
        common: dict[str, Any] = {"moves": (-1, 0, 1), "cost": 0.0, "bound": 100.0, "spread": 0}
        return cls(**common, **(near if light == 5 else {}), max_steps=max_steps)

    def init(self, *, key: PRNGKeyArray) -> LightDarkState:
        """Draws the start."""
        if self.spread:
            place = jr.randint(key, (), -self.spread, self.spread + 1, jnp.int32)
            place = place.astype(jnp.float32)
        else:
            place = self.start[0] + self.start[1] * jr.normal(key, (), jnp.float32)
        return LightDarkState(place, jnp.float32(0), jnp.bool_(False), jnp.int32(0))

    def step(
        self, state: LightDarkState, action: Int[Array, ""], *, key: PRNGKeyArray
    ) -> tuple[LightDarkState, Transition]:
        """Moves and reads, or stops."""
        action = checked_action(self, action)
        check_state(self, state.place, 0)
        over = state.stopped | (state.steps >= self.max_steps)
        move = jnp.asarray(self.moves, jnp.float32)[action]
        place = jnp.clip(state.place + move, -self.bound, self.bound)
        place = jnp.where(over, state.place, place)
        reading = place + self._deviation(place) * jr.normal(key, (), jnp.float32)
        stops = move == 0
        steps = state.steps + jnp.where(over, 0, 1)
        after = LightDarkState(
            place,
            jnp.where(over, state.reading, reading),
            state.stopped | (stops & ~over),
            steps,
        )
        end = jnp.where(jnp.abs(place) < 1, self.reward, -self.reward)
        truncated = steps >= self.max_steps
        return after, absorbing_transition(
            over, jnp.where(stops, end, -self.cost), terminated=stops, truncated=truncated
        )

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

    def _deviation(self, place: Float[Array, ""]) -> Float[Array, ""]:
        return self.slope * jnp.abs(place - self.light) + self.noise
