"""`CartPole` and `Pendulum` against Gymnasium, and where their episodes end."""

import functools as ft
import xml.etree.ElementTree as ET
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array

from zero_envs import CartPole, CartPoleState, Pendulum, PendulumState
from zero_envs.testing import check_environment


def _cart_pole_action(rng: np.random.Generator, state: np.ndarray, i: int) -> Any:
    # Every second episode is played well enough to last.
    return int(state[2] + 0.3 * state[3] > 0) if i % 2 else int(rng.integers(2))


def _pendulum_action(rng: np.random.Generator, state: np.ndarray, i: int) -> Any:
    # Now and then beyond the bounds, to be cut off; pumped up every second episode, to turn over.
    pumped = np.sign(state[1]) + 0.5 * rng.standard_normal()
    return [pumped if i % 2 else 1.5 * rng.standard_normal()]


def _pendulum_state(physics: Any, steps: Any) -> PendulumState:
    return PendulumState(physics[0], physics[1], steps)


CASES: dict[str, Any] = {
    "CartPole-v1": (CartPole(), _cart_pole_action, CartPoleState),
    "Pendulum-v1": (Pendulum(), _pendulum_action, _pendulum_state),
}


class Steps(NamedTuple):
    """What Gymnasium did, `[steps, ...]`: where it was, what it was told, where it went."""

    before: np.ndarray
    number: np.ndarray
    action: np.ndarray
    after: np.ndarray
    seen: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray


def _steps(name: str, units: float) -> Steps:
    """4 episodes."""
    theirs, rng = gymnasium.make(name), np.random.default_rng(0)
    physics: Any = theirs.unwrapped
    rows = []
    for episode in range(4):
        theirs.reset(seed=episode)
        number, terminated, truncated = 0, False, False
        while not (terminated or truncated):
            before, action = physics.state, CASES[name][1](rng, physics.state, episode)
            told = action if name == "CartPole-v1" else units * np.asarray(action)
            seen, reward, terminated, truncated, _ = theirs.step(told)
            rows.append(
                (before, number, action, physics.state, seen, reward, terminated, truncated)
            )
            number += 1
    return Steps(*map(np.asarray, zip(*rows, strict=True)))


@pytest.mark.parametrize("name", CASES)
def test_steps_are_those_of_gymnasium(name: str, float64):
    """Every state, observation, reward and end of 4 episodes, each step from where Gymnasium is.

    In double precision no term of the physics can be missing; users run single precision. (Alone,
    the same actions lead apart: an upright pole multiplies a rounding error by 50 every second.)
    """
    env, _, state_of = CASES[name]
    discrete, theirs = name == "CartPole-v1", _steps(name, units=2.0)

    def step(physics: Array, number: Array, action: Array):
        state, transition = env.step(state_of(physics, number), action, key=jr.key(0))
        return state, env.observe(state).features, transition

    for real, tolerance in ((np.float64, 1e-12), (np.float32, 5e-6)):
        jax.config.update("jax_enable_x64", real == np.float64)
        state, seen, transition = jax.jit(jax.vmap(step))(
            theirs.before.astype(real),
            theirs.number.astype(np.int32),
            theirs.action.astype(np.int32 if discrete else real),
        )
        *motion, number = jax.tree.leaves(state)
        close = ft.partial(np.testing.assert_allclose, rtol=tolerance, atol=tolerance)
        close(np.column_stack(motion), theirs.after)
        np.testing.assert_array_equal(number, theirs.number + 1)
        np.testing.assert_allclose(seen, theirs.seen, rtol=5e-6, atol=5e-6)
        np.testing.assert_allclose(transition.reward, theirs.reward, rtol=5e-6, atol=5e-6)
        np.testing.assert_array_equal(transition.discount, ~theirs.terminated)
        np.testing.assert_array_equal(transition.last, theirs.terminated | theirs.truncated)
    # A pole that fell and one that stood; a rod that turned over.
    assert theirs.truncated.any() and (np.abs(theirs.after[:, 0]) > np.pi).any() | discrete
    assert theirs.terminated.any() == discrete


@pytest.mark.parametrize("env", [CartPole(max_steps=20), Pendulum(max_steps=20)])
def test_every_promise_is_kept(env: CartPole | Pendulum):
    """Both ends of a pole's episode, the one of a pendulum's."""
    report = check_environment(env, key=jr.key(0), num_steps=24)
    assert report.truncated > 0 and report.opponent == 0
    assert (report.terminated > 0) == isinstance(env, CartPole)
    assert report.state_bytes == (20 if isinstance(env, CartPole) else 12)


def test_a_limit_is_not_an_end_but_a_fall_at_the_limit_is():
    """Discount 0 at the limit would teach that a standing pole is worth nothing."""
    env = CartPole(max_steps=10)
    step = jax.jit(lambda s: env.step(s, jnp.int32(1), key=jr.key(0)))
    for angle, discount in ((0.0, 1.0), (0.2094, 0.0)):
        state = CartPoleState(jnp.float32([0, 0, angle, 1.0]), jnp.asarray(9, jnp.int32))
        _, transition = step(state)
        assert (transition.reward, transition.discount, transition.last) == (1, discount, True)


@pytest.mark.parametrize(
    ("env", "low", "high"),
    [(CartPole(), [-0.05] * 4, [0.05] * 4), (Pendulum(), [-np.pi, -1], [np.pi, 1])],
)
def test_episodes_start_as_gymnasium_starts_them(env: Any, low: list, high: list):
    """Uniform between the bounds: the extremes, the mean and the spread of 4096 starts."""
    states = jax.jit(jax.vmap(lambda key: env.init(key=key)))(jr.split(jr.key(0), 4096))
    numbers = [np.asarray(x).reshape(4096, -1) for x in jax.tree.leaves(states)]
    start, steps = np.concatenate(numbers[:-1], axis=1), numbers[-1]
    unit = (start - np.asarray(low)) / (np.asarray(high) - np.asarray(low))
    assert unit.min() >= 0 and unit.max() <= 1 and not steps.any()
    # Five standard errors; a uniform number has variance 1/12.
    np.testing.assert_allclose(unit.mean(axis=0), 0.5, atol=5 * (1 / 12 / 4096) ** 0.5)
    np.testing.assert_allclose(unit.var(axis=0), 1 / 12, atol=5 * (1 / 180 / 4096) ** 0.5)


def test_drawings_show_the_state():
    """The pole must lean, and the rod swing, the way Gymnasium draws it."""
    steps = jnp.asarray(7, jnp.int32)
    leaning = CartPole().render(CartPoleState(jnp.float32([1.0, 0, 0.5, 0]), steps), scale=2.0)
    swinging = Pendulum().render(PendulumState(jnp.float32(0.5), jnp.float32(0), steps))
    for svg, sign in ((leaning, 1), (swinging, -1)):
        rods = [x for x in ET.fromstring(svg).iter() if x.get("class") == "rod"]
        (x1, y1, x2, y2) = (float(rods[0].attrib[name]) for name in ("x1", "y1", "x2", "y2"))
        np.testing.assert_allclose([x2 - x1, y1 - y2], [sign * 47.9, 87.8], atol=0.2)
        assert "step 7" in svg and "29°" in svg


@pytest.mark.parametrize("kind", [CartPole, Pendulum])
def test_an_episode_has_a_step(kind: Any):
    """One clear line."""
    with pytest.raises(ValueError, match=rf"{kind.__name__}\(max_steps=0\): .* at least 1"):
        kind(max_steps=0)
