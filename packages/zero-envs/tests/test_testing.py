"""The small exact games, and the wrapper that cuts episodes off."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from zero_envs import (
    AbstractChanceEnvironment,
    AbstractDiscreteEnvironment,
    AbstractHiddenEnvironment,
    Observation,
    Othello,
    TimeLimit,
    Transition,
)
from zero_envs.testing import check_environment, Corridor, Nim, NimState


def test_nim_value_is_what_minimax_through_step_finds():
    """Full search by `max_a r + d V(next)`, the only backup there is, against the closed form."""
    env = Nim(heap=11, most=3)
    step = jax.jit(lambda heap, a: env.step(NimState(heap), a, key=jr.key(0)))
    legal = jax.jit(lambda heap: env.observe(NimState(heap)).legal)
    values = [0.0]
    for heap in range(1, 12):
        found = []
        for action in np.flatnonzero(legal(heap)):
            state, t = step(heap, action)
            found.append(float(t.reward) + float(t.discount) * values[int(state.heap)])
        values.append(max(found))
    closed = jax.vmap(lambda heap: env.value(NimState(heap)))(jnp.arange(12, dtype=jnp.int32))
    np.testing.assert_array_equal(values, closed)


def test_nim_ends():
    """Taking the last object wins, taking more than is left loses, and the end stays the end."""
    env = Nim(heap=2, most=3)
    start = env.init(key=jr.key(0))
    won, transition = env.step(start, jnp.int32(1), key=jr.key(0))
    assert (transition.reward, transition.discount, transition.last) == (1, 0, True)
    lost, transition = env.step(start, jnp.int32(2), key=jr.key(0))
    assert (transition.reward, transition.discount, transition.last) == (-1, 0, True)
    for state in (won, lost):
        assert int(state.heap) == 0
        np.testing.assert_array_equal(env.observe(state).legal, [True, True, True])
    np.testing.assert_array_equal(env.observe(start).features, [0, 0, 1])
    np.testing.assert_array_equal(env.observe(start).legal, [True, True, False])


def test_corridor_truncated():
    """Going left runs into the limit (discount stays 1), going right reaches the goal first."""
    env = TimeLimit(Corridor(length=3), max_steps=2)
    step = jax.jit(lambda s, a: env.step(s, a, key=jr.key(0)))
    for action, reward, discount in ((0, 0, 1), (1, 1, 0)):
        state, transition = step(env.init(key=jr.key(0)), action)
        assert (transition.reward, transition.discount, transition.last) == (0, 1, False)
        state, transition = step(state, action)
        assert (transition.reward, transition.discount, transition.last) == (reward, discount, True)
        # Even a move that would have reached the goal changes nothing any more.
        after, transition = step(state, 1)
        assert (transition.reward, transition.discount, transition.last) == (0, 0, True)
        assert jax.tree.all(jax.tree.map(lambda x, y: (x == y).all(), state, after))


def test_time_limit_keeps_the_opponents_sign():
    """Truncation between two players: the opponent's value is bootstrapped, so -1."""
    env = TimeLimit(Nim(heap=7, most=3), max_steps=1)
    state, transition = env.step(env.init(key=jr.key(0)), jnp.int32(0), key=jr.key(0))
    assert (transition.reward, transition.discount, transition.last) == (0, -1, True)
    assert int(state.inner.heap) == 6


def test_a_time_limit_says_what_its_environment_says():
    """Players would otherwise take a win for the greatest return, or one player for two."""
    env = TimeLimit(Othello(disc_weight=0.5), max_steps=3)
    assert (env.max_return, env.num_players) == (1.5, 2)
    for name in ("max_return", "num_players", "random", "disc_weight"):
        assert not hasattr(TimeLimit(Nim(), max_steps=3), name)


class Cards(AbstractHiddenEnvironment[Any]):
    """As much of a hidden environment as a wrapper looks at."""

    num_actions: int = 2
    num_signals: int = 1
    hidden: bool = True

    def init(self, *, key: jax.Array) -> Any:
        return key

    def step(self, state: Any, action: jax.Array, *, key: jax.Array) -> tuple[Any, Transition]:
        zero = jnp.zeros((), jnp.float32)
        return state, Transition(reward=zero, discount=zero, last=jnp.ones((), jnp.bool_))

    def observe(self, state: Any) -> Observation:
        return Observation(features=state, legal=jnp.ones(2, jnp.bool_))

    def resample(self, state: Any, *, key: jax.Array) -> Any:
        return state

    def signal(self, state: Any, action: jax.Array, next_state: Any) -> jax.Array:
        return jnp.zeros((), jnp.int32)


class Dice(AbstractChanceEnvironment[Any]):
    """As much of a chance environment as a wrapper looks at."""

    num_actions: int = 2
    num_outcomes: int = 1
    hidden: bool = False

    def init(self, *, key: jax.Array) -> Any:
        return Cards().init(key=key)

    def step(self, state: Any, action: jax.Array, *, key: jax.Array) -> tuple[Any, Transition]:
        return Cards().step(state, action, key=key)

    def observe(self, state: Any) -> Observation:
        return Cards().observe(state)

    def afterstate(self, state: Any, action: jax.Array) -> Any:
        return state

    def outcome_logits(self, afterstate: Any) -> jax.Array:
        return jnp.zeros(1, jnp.float32)

    def resolve(self, afterstate: Any, outcome: jax.Array) -> tuple[Any, Transition]:
        return Cards().step(afterstate, outcome, key=jr.key(0))


class Plain(AbstractDiscreteEnvironment[Any]):
    """As much of an environment as a wrapper looks at."""

    num_actions: int = 2
    hidden: bool = False

    def init(self, *, key: jax.Array) -> Any:
        return Cards().init(key=key)

    def step(self, state: Any, action: jax.Array, *, key: jax.Array) -> tuple[Any, Transition]:
        return Cards().step(state, action, key=key)

    def observe(self, state: Any) -> Observation:
        return Cards().observe(state)


class Brittle(Plain):
    """One that may break down."""

    def failed(self, state: Any) -> jax.Array:
        return jnp.zeros((), jnp.bool_)


class Away(Plain):
    """One on the host."""

    name: str = "away"

    def open(self, num_worlds: int, *, key: jax.Array) -> Any:
        raise AssertionError("it was opened")


@pytest.mark.parametrize("env", [Cards(), Dice(), Brittle(), Away()])
def test_a_time_limit_refuses_what_it_would_strip(env):
    """A planner would otherwise ask the wrapper for methods that it cannot have, and episodes that
    broke down would count."""
    with pytest.raises(ValueError, match="would lose them") as raised:
        TimeLimit(env, max_steps=3)
    assert str(raised.value).startswith(f"TimeLimit({type(env).__name__})")
    assert "\n" not in str(raised.value)


def test_the_report_counts_what_happened():
    """Both kinds of ends and both signs must be told apart."""
    report = check_environment(TimeLimit(Corridor(length=3), max_steps=3), key=jr.key(0))
    assert report.terminated + report.truncated == 8 and report.truncated > 0
    assert report.terminated > 0 and report.opponent == 0
    assert report.same_player == report.steps - report.terminated
    assert report.state_bytes == 8
    report = check_environment(Nim(heap=5, most=2), key=jr.key(0), num_steps=6)
    assert (report.terminated, report.truncated, report.same_player) == (8, 0, 0)
    assert report.opponent == report.steps - 8


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Nim(heap=0), "Nim"),
        (lambda: Nim(most=0), "Nim"),
        (lambda: Corridor(length=1), "Corridor"),
        (lambda: TimeLimit(Nim(), max_steps=0), "TimeLimit"),
    ],
)
def test_bad_sizes(make, message: str):
    """One clear line each."""
    with pytest.raises(ValueError, match=message):
        make()
