"""The tiger problem, the smallest world in which listening pays."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from ._environment import (
    absorbing_transition,
    AbstractObservedEnvironment,
    check_count,
    check_state,
    checked_action,
    Observation,
    Transition,
)
from ._filtered import AbstractChanceFilter


_LISTEN = 0
#: The probability that the tiger is heard where it is.
_RIGHT = 0.85


class TigerState(eqx.Module):
    """The state of the tiger problem.

    **Attributes:**

    - `tiger`: the door with the tiger, 0 for the left one and 1 for the right one.
    - `heard`: 0 for nothing, and else 1 + the door behind which the tiger was heard.
    - `steps`: the number of steps so far.
    """

    tiger: Int[Array, "*axes"]
    heard: Int[Array, "*axes"]
    steps: Int[Array, "*axes"]


class Tiger(AbstractObservedEnvironment[TigerState]):
    """Behind one of two doors is a tiger (Kaelbling, Littman and Cassandra 1998, section 5.1).

    Action 0 listens, for a reward of -1: the tiger is heard behind the right door with probability
    0.85. Actions 1 and 2 open the left and the right door: the reward is -100 with the tiger and 10
    without. Then the tiger is put behind either door anew and nothing is heard. Nothing ends this
    but a truncation after `max_steps` steps. The features are one-hot: nothing, left, right.

    The optimum with gamma 0.95 from equal odds is 19.37.
    """

    max_steps: int = 100
    num_actions: int = eqx.field(init=False, default=3)
    num_players: int = eqx.field(init=False, default=1)
    hidden: bool = eqx.field(init=False, default=True)

    def __check_init__(self):
        check_count("Tiger", max_steps=self.max_steps)

    def init(self, *, key: PRNGKeyArray) -> TigerState:
        """Either door, with equal odds."""
        return TigerState(jr.bernoulli(key).astype(jnp.int32), jnp.int32(0), jnp.int32(0))

    def step(
        self, state: TigerState, action: Int[Array, ""], *, key: PRNGKeyArray
    ) -> tuple[TigerState, Transition]:
        """Listens, or opens a door."""
        action = checked_action(self, action)
        check_state(self, state.tiger, 0)
        over = state.steps >= self.max_steps
        hear_key, door_key = jr.split(key)
        listens = action == _LISTEN
        heard = jnp.where(jr.bernoulli(hear_key, _RIGHT), state.tiger, 1 - state.tiger)
        door = jr.bernoulli(door_key).astype(jnp.int32)
        opened = jnp.where(action - 1 == state.tiger, -100.0, 10.0)
        moved = TigerState(
            jnp.where(listens | over, state.tiger, door),
            jnp.where(over, state.heard, jnp.where(listens, 1 + heard, 0)),
            state.steps + jnp.where(over, 0, 1),
        )
        return moved, absorbing_transition(
            over,
            jnp.where(listens, -1.0, opened),
            terminated=False,
            truncated=moved.steps >= self.max_steps,
        )

    def observe(self, state: TigerState) -> Observation:
        """What was heard; all actions are legal."""
        check_state(self, state.heard, 0)
        heard = jnp.arange(3, dtype=jnp.int32) == state.heard
        return Observation(heard.astype(jnp.float32), jnp.ones(3, jnp.bool_))

    def observation_log_prob(
        self,
        observation: Observation,
        state: TigerState,
        action: Int[Array, ""],
        next_state: TigerState,
    ) -> Float[Array, ""]:
        """Of hearing the tiger behind a door, or nothing."""
        heard = jnp.argmax(observation.features).astype(jnp.int32)
        right = jnp.where(heard - 1 == state.tiger, _RIGHT, 1 - _RIGHT)
        possible = (action == _LISTEN) == (heard > 0)
        probability = jnp.where(possible, jnp.where(heard > 0, right, 1.0), 0.0)
        return jnp.log(probability).astype(jnp.float32)


class TigerBelief(eqx.Module):
    """What is known of the tiger problem.

    **Attributes:**

    - `log_odds`: that the tiger is behind the right door.
    - `known`: a state whose tiger is behind the left door, the rest as it is.
    """

    log_odds: Float[Array, "*axes"]
    known: TigerState


class TigerFilter(AbstractChanceFilter[TigerState, TigerBelief]):
    """The exact belief of [`zero_envs.Tiger`][]. A network sees the probability that the tiger is
    behind the right door, `[1]`. An observation that no state can show makes the belief NaN, until
    a door is opened.
    """

    def init(self, env: Tiger, obs: Observation, *, key: PRNGKeyArray) -> TigerBelief:
        del obs
        return TigerBelief(jnp.float32(0), _behind(env.init(key=key), 0))

    def update(
        self,
        env: Tiger,
        belief: TigerBelief,
        action: Int[Array, ""],
        obs: Observation,
        last: Bool[Array, ""],
        *,
        key: PRNGKeyArray,
    ) -> tuple[TigerBelief, Float[Array, ""]]:
        del last
        known, over = belief.known, belief.known.steps >= env.max_steps
        doors = _behind(known, 0), _behind(known, 1)
        (left, worse), (right, better) = (
            env.step(state, action, key=k) for state, k in zip(doors, jr.split(key), strict=True)
        )
        likely = lambda before, after: env.observation_log_prob(obs, before, action, after)
        evidence = likely(doors[1], right) - likely(doors[0], left)
        before = jnp.where(action == _LISTEN, belief.log_odds, 0.0)  # the tiger is put anew
        log_odds = jnp.where(over, belief.log_odds, before + evidence)
        chance = jax.nn.sigmoid(belief.log_odds)
        reward = worse.reward + chance * (better.reward - worse.reward)
        heard = jnp.argmax(obs.features).astype(jnp.int32)
        return TigerBelief(log_odds, TigerState(known.tiger, heard, left.steps)), reward

    def sample(self, env: Tiger, belief: TigerBelief, *, key: PRNGKeyArray) -> TigerState:
        return _behind(belief.known, jr.bernoulli(key, jax.nn.sigmoid(belief.log_odds)))

    def features(self, env: Tiger, belief: TigerBelief, obs: Observation) -> Float[Array, " 1"]:
        return jax.nn.sigmoid(belief.log_odds)[None]

    def num_outcomes(self, env: Tiger) -> int:
        """2: the tiger is heard behind the left or the right door. An opened door shows the first
        one, which is nothing then."""
        return 2

    def outcome_logits(
        self, env: Tiger, belief: TigerBelief, action: Int[Array, ""]
    ) -> Float[Array, " 2"]:
        chance = jax.nn.sigmoid(belief.log_odds)
        right = chance * _RIGHT + (1 - chance) * (1 - _RIGHT)
        heard = jnp.where(_listens(env, belief, action), right, 0.0)
        return jnp.log(jnp.stack([1 - heard, heard]))

    def outcome(
        self,
        env: Tiger,
        belief: TigerBelief,
        action: Int[Array, ""],
        number: Int[Array, ""],
        *,
        key: PRNGKeyArray,
    ) -> tuple[TigerState, Transition]:
        after, transition = env.step(belief.known, action, key=key)
        heard = jnp.where(_listens(env, belief, action), 1 + number, after.heard)
        return TigerState(after.tiger, heard, after.steps), transition


def _listens(env: Tiger, belief: TigerBelief, action: Int[Array, ""]) -> Bool[Array, ""]:
    """Whether the action is to listen, in an episode that goes on."""
    return (action == _LISTEN) & (belief.known.steps < env.max_steps)


def _behind(state: TigerState, door: int | Bool[Array, ""]) -> TigerState:
    return TigerState(jnp.asarray(door, jnp.int32), state.heard, state.steps)
