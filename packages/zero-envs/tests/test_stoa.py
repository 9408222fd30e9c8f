"""Environments with Stoa's interface, and what its adapters and wrappers get wrong."""

import sys
import warnings
from typing import Any, cast

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pgx
import pytest
from jumanji import registration

from zero_envs import (
    AdaptedEnvironment,
    ContinuousAdaptedEnvironment,
    JumanjiEnvironment,
    stoa_environment,
)
from zero_envs.testing import check_environment


with warnings.catch_warnings():
    # It imports every library that it adapts, and what brax imports says that it is not maintained.
    warnings.simplefilter("ignore")
    import stoa
    from stoa.core_wrappers.vmap import VmapWrapper
    from stoa.stoa_struct import dataclass


@dataclass
class Tossed:
    coin: Any
    steps: Any
    rng_key: Any


class Guess(stoa.Environment):
    """Guess a coin that is tossed by the key in the state; `ends` by its rules in step 3, or not.
    Guessing 2 is not allowed."""

    def __init__(self, ends: bool = True):
        self.ends = ends

    def _seen(self, coin: Any) -> Any:
        return {"coin": coin, "action_mask": jnp.array([True, True, False])}

    def reset(self, rng_key, env_params=None) -> Any:
        state = Tossed(jnp.int32(0), jnp.int32(0), rng_key)
        kind, one = stoa.StepType.FIRST, jnp.float32(1)
        return state, stoa.TimeStep(kind, one - 1, one, self._seen(state.coin), {})

    def step(self, state: Any, action: Any, env_params=None) -> Any:
        rng_key, drawn = jr.split(state.rng_key)
        coin = jr.bernoulli(drawn).astype(jnp.int32)
        state = Tossed(coin, state.steps + 1, rng_key)
        over = self.ends & (state.steps == 3)
        kind = jnp.where(over, stoa.StepType.TERMINATED, stoa.StepType.MID)
        reward, discount = jnp.float32(action == coin), 1 - jnp.float32(over)
        return state, stoa.TimeStep(kind, reward, discount, self._seen(coin), {})

    def action_space(self, env_params=None) -> Any:
        return stoa.DiscreteSpace(3, jnp.int32)

    def observation_space(self, env_params=None) -> Any:
        return stoa.DictSpace({"coin": stoa.DiscreteSpace(2, jnp.int32)})

    def state_space(self, env_params=None) -> Any:
        return stoa.DictSpace({})


class Steer(Guess):
    """The same, where an action is two numbers, of which the first has to reach the coin."""

    def step(self, state: Any, action: Any, env_params=None) -> Any:
        state, seen = super().step(state, action[0], env_params)
        return state, seen.replace(reward=action.sum())

    def action_space(self, env_params=None) -> Any:
        return stoa.BoundedArraySpace((2,), jnp.float32, jnp.array([0.0, -2.0]), 2.0)


class Components(Guess):
    def action_space(self, env_params=None) -> Any:
        return stoa.MultiDiscreteSpace([2, 2], jnp.int32)


class Unbounded(Guess):
    def action_space(self, env_params=None) -> Any:
        return stoa.ArraySpace((2,))


class Named(Guess):
    def action_space(self, env_params=None) -> Any:
        return stoa.DictSpace({"x": stoa.DiscreteSpace(2, jnp.int32)})


class Table(Guess):
    """Its two components are numbered, as by Stoa's wrapper, and its mask is still a table."""

    def __init__(self, num_actions: int = 6):
        super().__init__()
        self.num_actions = num_actions

    def _seen(self, coin: Any) -> Any:
        return {"coin": coin, "action_mask": jnp.array([[True, False, True], [False, True, True]])}

    def action_space(self, env_params=None) -> Any:
        return stoa.DiscreteSpace(self.num_actions, jnp.int32)


class Places(Guess):
    """An action is an integer within bounds."""

    def action_space(self, env_params=None) -> Any:
        return stoa.BoundedArraySpace((1,), jnp.int32, 0, 2)


def _transitions(env: Any, num_steps: int) -> Any:
    def body(state, key):
        return env.step(state, jnp.int32(0), key=key)

    keys = jr.split(jr.key(1), num_steps)
    return jax.jit(lambda: jax.lax.scan(body, env.init(key=jr.key(0)), keys)[1])()


def test_ends_and_limits_are_apart():
    """A wrapper's limit is a truncation, but not where the rules end the episode in that step."""
    rules = _transitions(stoa_environment(Guess(), hidden=False), 4)
    np.testing.assert_array_equal(rules.last, [0, 0, 1, 1])
    np.testing.assert_array_equal(rules.discount, [1, 1, 0, 0])
    for ends, discount in ((False, [1, 1, 1, 0]), (True, [1, 1, 0, 0])):
        limited = stoa.EpisodeStepLimitWrapper(Guess(ends), 3)
        cut = _transitions(stoa_environment(limited, hidden=False), 4)
        np.testing.assert_array_equal(cut.last, [0, 0, 1, 1])
        np.testing.assert_array_equal(cut.discount, discount)


def test_no_state_foresees_its_coin():
    """Neither the key that the environment keeps nor that of a wrapper is in a state, so what two
    states draw depends on the keys of the steps alone."""
    env: Any = stoa_environment(stoa.AddRNGKey(Guess()), hidden=False)
    states = [env.init(key=jr.key(seed)) for seed in range(2)]
    assert env.random
    assert states[0].position.rng_key is None
    assert states[0].position.base_env_state.rng_key is None
    jax.tree.map(np.testing.assert_array_equal, *states)
    toss: Any = jax.jit(
        jax.vmap(
            lambda s, key: env.step(s, jnp.int32(0), key=key)[0].position.coin, in_axes=(None, 0)
        )
    )
    keys = jr.split(jr.key(2), 64)
    coins = toss(states[0], keys)
    assert 16 < coins.sum() < 48
    np.testing.assert_array_equal(coins, toss(states[1], jr.clone(keys)))


def test_the_mask_of_an_observation_is_that_of_the_actions():
    env = stoa_environment(Guess(), hidden=False)
    assert isinstance(env, AdaptedEnvironment) and env.num_actions == 3
    seen = env.observe(env.init(key=jr.key(0)))
    np.testing.assert_array_equal(seen.legal, [True, True, False])
    assert list(seen.features) == ["coin"]
    table = stoa_environment(Table(), hidden=False)
    mask = table.observe(table.init(key=jr.key(0))).legal
    np.testing.assert_array_equal(mask, [True, False, True, False, True, True])


def test_actions_reach_their_bounds():
    env = stoa_environment(Steer(), hidden=False, max_steps=3)
    assert isinstance(env, ContinuousAdaptedEnvironment) and env.max_steps == 3
    step = jax.jit(
        lambda action: env.step(env.init(key=jr.key(0)), action, key=jr.key(1))[1].reward
    )
    for given, expected in (([-1, -1], -2), ([1, -1], 0), ([0, 0], 1), ([5, 5], 4)):
        np.testing.assert_allclose(step(jnp.asarray(given, jnp.float32)), expected, atol=1e-6)


@pytest.mark.usefixtures("unhooked")
def test_bounds_may_be_an_array_and_are_those_of_numbers():
    limits = np.array([-1.0, 1.0])
    made = stoa_environment(Steer(), hidden=False, bounds=cast(Any, limits))
    assert isinstance(made, ContinuousAdaptedEnvironment)
    with pytest.raises(ValueError, match="its actions are numbered; leave out `bounds`"):
        stoa_environment(Guess(), hidden=False, bounds=(-1.0, 1.0))


def test_what_jumanji_is_through_stoa():
    """Its rewards, masks and ends are those of our own adapter."""
    made = stoa_environment(stoa.JumanjiToStoa(registration.make("Maze-v0")), hidden=False)
    own = JumanjiEnvironment("Maze-v0")

    def both(key):
        theirs, ours = made.init(key=key), own.init(key=jr.clone(key))

        def body(states, key):
            seen = [made.observe(states[0]), own.observe(states[1])]
            legal: Any = seen[1].legal
            action = jnp.argmax(legal).astype(jnp.int32)
            after = [
                env.step(state, action, key=k)
                for env, state, k in zip((made, own), states, jr.split(key), strict=True)
            ]
            return [x[0] for x in after], (seen[0].legal, seen[1].legal, *[x[1] for x in after])

        return jax.lax.scan(body, [theirs, ours], jr.split(jr.key(3), 20))[1]

    legal, expected, *transitions = jax.jit(both)(jr.key(0))
    np.testing.assert_array_equal(legal, expected)
    jax.tree.map(np.testing.assert_array_equal, *transitions)


class Mine(stoa.AutoResetWrapper):
    pass


class Halves(Guess):
    """What it shows begins as an integer."""

    def step(self, state: Any, action: Any, env_params=None) -> Any:
        state, seen = super().step(state, action, env_params)
        coin = seen.observation["coin"] + jnp.float32(0.5)
        return state, seen.replace(observation=seen.observation | {"coin": coin})


class Counts(Guess):
    """What it shows begins in eight bits."""

    def reset(self, rng_key, env_params=None) -> Any:
        state, seen = super().reset(rng_key, env_params)
        coin = seen.observation["coin"].astype(jnp.uint8)
        return state, seen.replace(observation=seen.observation | {"coin": coin})


@pytest.mark.parametrize("env", [Guess(), Steer()], ids=["discrete", "continuous"])
def test_every_promise_is_kept(env):
    report = check_environment(stoa_environment(env, hidden=False), key=jr.key(0), num_steps=5)
    assert report.terminated == 8


@pytest.mark.parametrize(
    "env, hidden, message",
    [
        (stoa.AutoResetWrapper(Guess()), False, "AutoResetWrapper resets within a step"),
        (
            stoa.RecordEpisodeMetrics(stoa.AutoResetWrapper(Guess())),
            False,
            "<RecordEpisodeMetrics>.: AutoResetWrapper resets",
        ),
        (VmapWrapper(Guess()), False, "VmapWrapper resets within a step or steps a batch"),
        (Mine(Guess()), False, "<Mine>.: AutoResetWrapper resets within a step"),
        (Guess(), None, "pass hidden=True or hidden=False"),
        (Guess, False, "give an environment of Stoa"),
        (Components(), False, "wrap it in stoa.MultiDiscreteToDiscreteWrapper"),
        (Unbounded(), False, r"no bounds .*pass bounds=\(low, high\)"),
        (Named(), False, "its actions are a DictSpace"),
        (Places(), False, "its actions are a BoundedArraySpace of .*int32.*; give"),
        (Table(5), False, r"its action mask has the shape \[2, 3\] for 5 actions"),
        (Table(2**31), False, "it has 2147483648 actions; there may be fewer than 2..31"),
        (Halves(), False, "<Halves>.: an array of int32 goes on as float32.*begin with float32"),
        (Counts(), False, "<Counts>.: an array of uint8 goes on as int32.*begin with int32"),
        (stoa.PGXToStoa(pgx.make("tic_tac_toe")), False, r"rewards of shape \[2\]"),
    ],
)
def test_bad_arguments(env, hidden, message):
    with pytest.raises(ValueError, match=message) as raised:
        made = stoa_environment(env, hidden=hidden)
        jax.eval_shape(lambda: made.step(made.init(key=jr.key(0)), jnp.int32(0), key=jr.key(1)))
    assert "\n" not in str(raised.value)


def test_stoa_missing(monkeypatch):
    """Names what to install."""
    monkeypatch.setitem(sys.modules, "stoa", None)
    with pytest.raises(ImportError, match="install zero-envs with its extra `stoa`"):
        stoa_environment(Guess(), hidden=False)
