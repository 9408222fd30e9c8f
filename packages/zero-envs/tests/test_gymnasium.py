"""Environments of Gymnasium, the Arcade Learning Environment and EnvPool."""

import re
import subprocess
import sys
from typing import Any, cast

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from gymnasium import spaces

from zero_envs import (
    AbstractContinuousEnvironment,
    AbstractDiscreteEnvironment,
    AbstractFactoredEnvironment,
    ale_environment,
    CartPole,
    environment_facts,
    envpool_environment,
    gymnasium_environment,
    Hosted,
    HostStep,
    known_environments,
    make,
)


class Toy(gymnasium.Env):
    """It says what its action was, and shows samples, until the fifth step."""

    def __init__(self, seen: spaces.Space, taken: spaces.Space, table: Any = None):
        self.observation_space, self.action_space = seen, taken
        seen.seed(0)

    def reset(self, *, seed=None, options=None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        return self.observation_space.sample(), {}

    def step(self, action) -> Any:
        self.time += 1
        self.given = action
        return self.observation_space.sample(), 1.0, self.time == 5, False, {"given": action}


gymnasium.register("Toy-v0", entry_point=lambda **given: Toy(**given))


def toy(seen=None, taken=None, **options):
    seen = spaces.Box(-1, 1, (2,)) if seen is None else seen
    taken = spaces.Discrete(2) if taken is None else taken
    return gymnasium_environment(
        "Toy-v0", seen=seen, taken=taken, disable_env_checker=True, **options
    )


def _given(env, actions):
    """What the simulators are given for these actions."""
    worlds: Any = env.open(len(actions), key=jr.key(0))
    worlds.reset()
    worlds.step(np.asarray(actions))
    given = np.stack([one.unwrapped.given for one in worlds._envs.envs])
    worlds.close()
    return given


def test_cartpole_is_ours():
    """Gymnasium's own CartPole and the one in JAX, from the same states by the same actions."""
    env, ours = gymnasium_environment("CartPole-v1"), CartPole()
    worlds = env.open(4, key=jr.key(3))
    motion, rng = worlds.reset(), np.random.default_rng(0)
    step = jax.jit(jax.vmap(lambda state, action: ours.step(state, action, key=jr.key(0))))
    blank = jax.eval_shape(lambda: ours.init(key=jr.key(0)))
    state = jax.tree.map(lambda x: jnp.zeros((4, *x.shape), x.dtype), blank)
    state = eqx.tree_at(lambda state: state.motion, state, jnp.asarray(motion))
    over, ends = np.zeros(4, np.bool_), 0
    for _ in range(60):
        action = rng.integers(0, 2, 4).astype(np.int32)
        state, expected = step(state, action)
        found = worlds.step(action)
        live = ~over
        np.testing.assert_allclose(found.state[live], state.motion[live], rtol=1e-4, atol=1e-5)
        for name in ("reward", "discount", "last"):
            np.testing.assert_array_equal(getattr(found, name)[live], getattr(expected, name)[live])
        ends += int((found.last & live).sum())
        over |= found.last
    assert ends == 4
    worlds.close()


def test_an_end_is_followed_by_a_fresh_episode():
    worlds = toy().open(2, key=jr.key(0))
    worlds.reset()
    steps = [worlds.step(np.zeros(2, np.int32)) for _ in range(6)]
    assert [bool(x.last[0]) for x in steps] == [False] * 4 + [True, False]
    assert [float(x.reward[0]) for x in steps] == [1.0] * 5 + [0.0]
    assert [float(x.discount[0]) for x in steps] == [1.0] * 4 + [0.0, 1.0]


def test_worlds_follow_from_their_seed():
    env = gymnasium_environment("CartPole-v1")
    first, second, other = (env.open(2, key=jr.key(seed)).reset() for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(first, other) and not np.array_equal(first[0], first[1])


def test_observations_are_pytrees():
    """Dictionaries and tuples, numbers that become one-hot, and images."""
    seen = spaces.Dict(
        {
            "pair": spaces.Tuple([spaces.Discrete(3, start=5), spaces.MultiBinary(2)]),
            "wide": spaces.Box(0, 1, (2,), np.float64),
            "several": spaces.MultiDiscrete(
                np.array([[2, 3], [4, 2]]), start=np.array([[1, 0], [0, -1]])
            ),
            "image": spaces.Box(0, 255, (6, 5, 3), np.uint8),
            "grey": spaces.Box(0, 255, (6, 5), np.uint8),
            "plane": spaces.Box(0, 1, (7,), np.uint8),
            "frames": spaces.Box(0, 255, (4, 6, 6), np.uint8),
            "board": spaces.Box(0, 255, (4, 4, 6), np.uint8),
        }
    )
    env = toy(seen)
    worlds = env.open(3, key=jr.key(0))
    state = worlds.reset()
    blank = jax.tree.map(lambda x: (x.shape, x.dtype), env.init(key=jr.key(0)))
    assert blank == jax.tree.map(lambda x: (x.shape[1:], x.dtype), state)
    features = jax.vmap(env.observe)(jax.tree.map(jnp.asarray, state)).features
    assert {x.dtype for x in jax.tree.leaves(features)} == {jnp.dtype(np.float32)}
    pair, bits = features["pair"]
    np.testing.assert_array_equal(pair, np.eye(3)[state["pair"][0]])
    np.testing.assert_array_equal(bits, state["pair"][1])
    each = [np.eye(n)[state["several"].reshape(3, 4)[:, i]] for i, n in enumerate((2, 3, 4, 2))]
    np.testing.assert_array_equal(features["several"], np.concatenate(each, axis=1))
    for name, seen in (
        ("image", state["image"]),
        ("board", state["board"]),
        ("grey", state["grey"][..., None]),
        ("frames", np.moveaxis(state["frames"], 1, 3)),
    ):
        np.testing.assert_allclose(features[name], seen.astype(np.float32) / 255, rtol=1e-6)
    np.testing.assert_array_equal(features["plane"], state["plane"])


def test_dtypes_are_those_of_the_space():
    """And not those of what is shown, such as Python's integers; also in double precision."""
    env: Any = toy(spaces.Tuple([spaces.Discrete(3), spaces.Box(0, 9, (2,), np.int64)]))
    before = jax.config.read("jax_enable_x64")
    state = env.simulator.shown((np.array([1, 2], np.uint8), np.zeros((2, 2), np.float64)))
    assert [x.dtype for x in state] == [np.int32, np.int32]
    jax.config.update("jax_enable_x64", True)
    try:
        features = env.observe(env.init(key=jr.key(0))).features
    finally:
        jax.config.update("jax_enable_x64", before)
    assert [x.dtype for x in features] == [np.float32, np.int32]
    toy(spaces.Tuple([spaces.Box(-1, 1, (0,)), spaces.Discrete(2)])).init(key=jr.key(0))
    wide: Any = toy(spaces.Box(0, 2**40, (1,), np.int64))
    assert wide.simulator.shown(np.array([[2**32]]))[0, 0] == 2.0**32


def test_two_of_a_name_are_one_program():
    """JAX compiles once for what is equal and has one hash."""
    parts = lambda env: jax.tree.structure(env)
    for made in (lambda: gymnasium_environment("CartPole-v1"), lambda: toy(table=np.arange(3))):
        first, second = parts(made()), parts(made())
        assert first == second and hash(first) == hash(second)
    assert parts(toy(table=np.arange(1, 4))) != first
    boxes = [spaces.Box(0, 1, (2,)), spaces.Box(0, 2, (2,))]
    assert len({parts(toy(taken=box)) for box in (*boxes, boxes[0])}) == 2


@pytest.mark.parametrize("options, most", [({}, 500), ({"max_episode_steps": 7}, 7)])
@pytest.mark.parametrize("mode", ["sync", "vector_entry_point"])
def test_the_time_limit_is_that_of_what_is_made(mode, options, most):
    env = gymnasium_environment("CartPole-v1", vectorization_mode=mode, **options)
    assert env.max_steps == most


def test_actions_are_those_of_the_simulator():
    box = toy(taken=spaces.Box(np.array([0.0, -2.0]), np.array([1.0, 6.0]), dtype=np.float64))
    assert isinstance(box, AbstractContinuousEnvironment) and box.action_size == 2
    given = _given(box, np.array([[-1, -1], [0, 0.5], [7, np.nan]], np.float32))
    np.testing.assert_allclose(given, [[0, -2], [0.5, 4], [1, 2]])
    whole = toy(taken=spaces.Box(-1, 1, (1,), np.int32))
    given = _given(whole, np.linspace(-1, 1, 9, dtype=np.float32)[:, None])
    np.testing.assert_array_equal(given[:, 0], [-1, -1, 0, 0, 0, 0, 0, 1, 1])
    high = spaces.Box(-0.3, 0.1, (1,), np.float64)  # -0.3 + 0.4 is more than 0.1
    assert _given(toy(taken=high), np.ones((1, 1), np.float32))[0] in high
    several: Any = toy(taken=spaces.MultiDiscrete([2, 3]))
    assert isinstance(several, AbstractFactoredEnvironment) and several.num_values == (2, 3)
    seen: Any = several.observe(several.init(key=jr.key(0)))
    assert seen.legal.shape == (5,)
    np.testing.assert_array_equal(
        _given(several, np.array([[1, 2], [9, -1]], np.int32)), [[1, 2], [1, 0]]
    )
    switch: Any = toy(taken=spaces.Box(0, 1, (2,), cast(Any, np.bool_)))
    pressed = _given(switch, np.array([[-1, -0.5], [0.5, 1]], np.float32))
    np.testing.assert_array_equal(pressed, [[False, False], [True, True]])
    late = toy(taken=spaces.Discrete(2, start=3))
    assert isinstance(late, AbstractDiscreteEnvironment) and late.num_actions == 2
    np.testing.assert_array_equal(_given(late, np.array([0, 1, -1], np.int32)), [3, 4, 3])


@pytest.mark.parametrize(
    "options, said",
    [
        ({"seen": spaces.Text(3)}, "a part of its observation is a Text"),
        ({"seen": spaces.OneOf([spaces.Discrete(3)])}, "a part of its observation is a OneOf"),
        ({"seen": spaces.Dict({})}, "its observation is empty"),
        ({"seen": spaces.Box(0, 255, (4, 9, 9, 3), np.uint8)}, r"of shape \[4, 9, 9, 3\]; thr"),
        ({"taken": spaces.Tuple([spaces.MultiDiscrete(np.arange(1, 41))])}, "are a Tuple"),
        ({"taken": spaces.MultiDiscrete(np.ones((2, 2), int))}, "its actions are a MultiDiscrete"),
        ({"taken": spaces.Box(-np.inf, np.inf, (2,))}, "its actions have no bounds"),
        ({"vector_kwargs": {"autoreset_mode": "SameStep"}}, "resets by SAME_STEP; NEXT_STEP"),
        ({"bounds": (0, 1)}, "its actions are numbered; leave out `bounds`"),
        ({"colour": 3}, "unexpected keyword argument 'colour'"),
    ],
)
def test_what_cannot_be_played_is_refused(options, said):
    with pytest.raises(ValueError, match=said) as caught:
        toy(**options)
    assert "\n" not in str(caught.value)


def test_a_missing_library_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "Box2D", None)
    monkeypatch.delitem(sys.modules, "gymnasium.envs.box2d", raising=False)
    for name in [x for x in sys.modules if x.startswith("gymnasium.envs.box2d")]:
        monkeypatch.delitem(sys.modules, name)
    why = "Box2D is not installed.*; install zero-envs with its extra `gymnasium`"
    with pytest.raises(ImportError, match=why) as caught:
        make("gymnasium/LunarLander-v3")
    assert "\n" not in str(caught.value)
    monkeypatch.setitem(sys.modules, "envpool", None)
    with pytest.raises(ImportError, match="install zero-envs with its extra `envpool`"):
        make("envpool/Pong-v5")


def test_names_are_known_without_importing_anything():
    known = known_environments()
    assert known["gymnasium/LunarLander-v3"].actions == "discrete"
    assert known["gymnasium/Ant-v5"].actions == "continuous"
    assert known["ale/Breakout"].hosted and "ale/Combat" not in known
    assert not {"gymnasium/Ant-v2", "gymnasium/Pusher-v4"} & {*known}
    with pytest.raises(ValueError, match="Did you mean gymnasium/LunarLander-v3"):
        make("gymnasium/LunarLandr-v3")
    with pytest.raises(ValueError, match="Did you mean ale/Breakout"):
        make("ale/breakot")


# What SWIG made of Box2D warns while it is imported, and crashes where a warning is an error.
@pytest.mark.filterwarnings("ignore:builtin type .* has no __module__")
@pytest.mark.parametrize(
    "name",
    [
        "Acrobot-v1",
        "Ant-v5",
        "BipedalWalker-v3",
        "Blackjack-v1",
        "LunarLander-v3",
        "LunarLanderContinuous-v3",
        "MountainCarContinuous-v0",
        "Pendulum-v1",
    ],
)
def test_what_is_said_before_it_is_made_is_so(name):
    env = make(f"gymnasium/{name}")
    assert isinstance(env, Hosted)
    assert environment_facts(env) == known_environments()[f"gymnasium/{name}"]


def test_a_game_of_atari():
    """Four frames are its channels, and rewards are those of the game."""
    env: Any = ale_environment("Breakout")
    assert env.num_actions == 4
    worlds = env.open(2, key=jr.key(0))
    first = np.array(worlds.reset())
    paid = [worlds.step(np.array([1, 1] if t == 0 else [2, 3], np.int32)) for t in range(8)]
    features = jax.vmap(env.observe)(jnp.asarray(paid[-1].state)).features
    assert features.shape == (2, 84, 84, 4) and float(features.max()) <= 1
    assert first.dtype == np.uint8 and not np.array_equal(paid[-1].state, first)
    with pytest.raises(ValueError, match=r'ale_environment\("Breakot"\)'):
        ale_environment("Breakot")
    with pytest.raises(ValueError, match=r'"Breakout", life_loss_info=True\): a lost life'):
        ale_environment("Breakout", life_loss_info=True)


def test_envpool():
    pytest.importorskip("envpool")
    env = envpool_environment("CartPole-v1")
    worlds = env.open(3, key=jr.key(1))
    seen = worlds.reset()
    assert seen.shape == (3, 4)
    steps = [worlds.step(np.ones(3, np.int32)) for _ in range(12)]
    ends = np.array([x.last for x in steps])
    assert ends.any(axis=0).all()
    # The row after an end begins anew, and pays nothing.
    rewards = np.array([x.reward for x in steps])
    np.testing.assert_array_equal(rewards[1:][ends[:-1]], 0)
    with pytest.raises(ValueError, match="Did you mean CartPole-v1"):
        envpool_environment("CartPol-v1")


def test_gymnasium_is_not_imported_before_it_is_needed():
    code = "import sys, zero_envs; zero_envs.make; assert 'gymnasium' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_step_has_one_number_for_each_simulator(float64):
    over = np.zeros(3, np.bool_)
    for reward in (np.zeros((3, 1)), np.zeros(()), np.zeros(2)):
        with pytest.raises(ValueError, match=rf"of the shapes {re.escape(str(reward.shape))}, "):
            HostStep(over, reward, np.ones(3), over).transition()
    with pytest.raises(ValueError, match=r"states whose first axes are \[\(3,\), \(4,\)\]: give"):
        HostStep((over, np.zeros((4, 2))), np.zeros(3), np.ones(3), over).transition()
    with pytest.raises(ValueError, match="`last` of int8: give bool"):
        HostStep(over, np.zeros(3), np.ones(3), np.zeros(3, np.int8)).transition()
    found = HostStep(over, np.zeros(3), np.ones(3), over).transition()
    assert found.reward.dtype == found.discount.dtype == np.float32
