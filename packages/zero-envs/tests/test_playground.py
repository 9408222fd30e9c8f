"""The adapter to MuJoCo Playground against Playground itself."""

import importlib.util
import subprocess
import sys
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from zero_envs import known_environments, make, PlaygroundEnvironment
from zero_envs._known import names_of
from zero_envs.testing import check_environment


with warnings.catch_warnings():
    # What brax imports says that it is not maintained.
    warnings.simplefilter("ignore")
    from mujoco_playground import registry
    from mujoco_playground._src import mjx_env
    from mujoco_playground._src.wrapper import BraxAutoResetWrapper


class Sum:
    """Two numbers that actions and noise are added to, beyond 5 a NaN; and no more of `MjxEnv` than
    the adapter needs."""

    action_size = 2
    mjx_model = None

    def reset(self, rng: Any) -> Any:
        zero = jnp.zeros((), jnp.float32)
        seen = {"sum": jnp.zeros(2), "time": zero}
        data: Any = jnp.zeros(2)
        return mjx_env.State(data, seen, zero, zero, {"noise": zero}, {"rng": rng})

    def step(self, state: Any, action: Any) -> Any:
        rng, drawn = jr.split(state.info["rng"])
        noise = jr.uniform(drawn, maxval=1e-3)
        data = state.data + action + noise
        data = jnp.where(data > 5, jnp.nan, data)
        state.info["rng"] = rng
        state.metrics["noise"] = noise
        seen = {"sum": data, "time": state.obs["time"] + 1}
        return state.replace(data=data, obs=seen, reward=data.sum(), done=data[0] < -3)


@pytest.fixture(scope="module")
def total() -> PlaygroundEnvironment:
    return PlaygroundEnvironment(Sum(), max_steps=4, bounds=([-2.0, 0.0], [2.0, 1.0]), hidden=False)


def test_episodes_are_those_of_playground():
    """Its observations and rewards; the limit, which only its wrapper has, is no end."""
    env = PlaygroundEnvironment("CartpoleBalance", max_steps=3)
    assert env.env is make("playground/CartpoleBalance").env  # pyright: ignore[reportAttributeAccessIssue]
    actions = jnp.asarray([[0.5], [-1.0], [1.0], [0.0]], jnp.float32)

    def ours(key):
        def body(state, action):
            state, transition = env.step(state, action, key=jr.key(0))
            return state, (env.observe(state).features, transition)

        return jax.lax.scan(body, env.init(key=key), actions)[1]

    def theirs(key):
        def body(state, action):
            state = env.env.step(state, action)
            return state, (state.obs, state.reward)

        return jax.lax.scan(body, env.env.reset(key), actions)[1]

    seen, transition = jax.jit(ours)(jr.key(3))
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        expected, reward = jax.jit(theirs)(jr.key_data(jr.key(3)))
    np.testing.assert_allclose(seen[:3], expected[:3], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(seen[3], seen[2])
    np.testing.assert_allclose(transition.reward, [*reward[:3], 0], rtol=1e-5)
    np.testing.assert_array_equal(transition.last, [0, 0, 1, 1])
    np.testing.assert_array_equal(transition.discount, [1, 1, 1, 0])


def test_no_state_foresees_its_noise(total):
    """Playground keeps a key in `info`: two first states differ in nothing else."""
    states = [total.init(key=jr.key(seed)) for seed in range(2)]
    assert states[0].info == {"rng": None}
    jax.tree.map(np.testing.assert_array_equal, *states)
    action = jnp.zeros(2, jnp.float32)
    step: Any = jax.jit(lambda s, key: total.step(s, action, key=key)[0].physics[0])
    noise = {float(step(states[seed], jr.key(key))) for key in range(4) for seed in range(2)}
    assert len(noise) == 4


def test_each_dimension_reaches_its_bounds(total):
    start = total.init(key=jr.key(0))
    step = jax.jit(lambda action: total.step(start, action, key=jr.key(1))[0].physics)
    for given, expected in (((-1, -1), (-2, 0)), ((1, 1), (2, 1)), ((3, -3), (2, 0))):
        np.testing.assert_allclose(step(np.asarray(given, np.float32)), expected, atol=1e-3)


def test_every_promise_is_kept(total):
    """An end, a limit, a NaN and observations that are dictionaries."""
    report = check_environment(total, key=jr.key(0), num_steps=6, num_envs=32)
    assert report.terminated > 0 and report.truncated > 0
    step = jax.jit(lambda s, key: total.step(s, jnp.ones(2, jnp.float32), key=key))
    state = total.init(key=jr.key(0))
    for i in range(2):
        state, _ = step(state, jr.key(i))
    state, transition = step(state, jr.key(2))
    assert state.failed and (transition.discount, transition.last) == (1, True)
    assert np.isfinite(state.physics).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", registry.dm_control_suite.ALL_ENVS)
def test_all_of_the_suite(name):
    """Its actuators take actions from -1 to 1, and its limit is that of the adapter."""
    env: Any = make(f"playground/{name}", max_steps=8)
    report = check_environment(env, key=jr.key(0), num_steps=10, num_envs=2)
    assert report.truncated == 2
    ranges = env.env.mj_model.actuator_ctrlrange
    np.testing.assert_array_equal(ranges, np.broadcast_to([-1, 1], (env.action_size, 2)))
    assert registry.get_default_config(name).episode_length == PlaygroundEnvironment(name).max_steps


def test_nothing_is_printed_or_left_behind(tmp_path):
    """MuJoCo says of this model that it uses what is deprecated, and keeps it in a log."""
    code = "import zero_envs; zero_envs.PlaygroundEnvironment('CheetahRun')"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert not list(tmp_path.iterdir()) and "settotalmass" not in done.stderr


def test_robots_are_not_downloaded(monkeypatch, tmp_path):
    """Playground would call git, and print, when one is made; with the models there they are
    listed."""
    robots = {*registry.ALL_ENVS} - {*registry.dm_control_suite.ALL_ENVS}
    listed = lambda: {x for x in known_environments() if x.startswith("playground/")}
    assert not {f"playground/{name}" for name in robots} & listed()
    with pytest.raises(ValueError, match="mujoco_menagerie, which must be downloaded to") as raised:
        PlaygroundEnvironment("Go1Handstand")
    assert "\n" not in str(raised.value)
    spec: Any = importlib.util.find_spec("mujoco_playground")
    (tmp_path / "external_deps" / "mujoco_menagerie").mkdir(parents=True)
    (tmp_path / "_src").symlink_to(spec.submodule_search_locations[0] + "/_src")
    monkeypatch.setattr(spec, "origin", str(tmp_path / "__init__.py"))
    found = {"mujoco_playground": spec}
    monkeypatch.setattr("zero_envs._known.importlib.util.find_spec", found.get)
    names = names_of("playground")
    assert names.keys() == {*registry.ALL_ENVS}
    assert {name for name, facts in names.items() if facts.hidden} == robots


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"env": "CartpoleBalence"}, "no such environment. Did you mean CartpoleBalance"),
        (
            {"env": "CartpoleBalance", "gravity": 1.0},
            "configuration cannot be changed by .*gravity",
        ),
        ({"env": "CartpoleBalance", "max_steps": 0}, "an integer, at least 1"),
        ({"env": Sum(), "hidden": False, "typo": 1}, "<Sum>, typo.*options belong to a name"),
        ({"env": "CartpoleBalance", "action_repeat": 4}, "only Playground's wrappers read it"),
        ({"env": "CartpoleBalance", "vision_config": {}}, "cannot be given .*; give plain values"),
        ({"env": Sum()}, "not one of Playground's own.* pass hidden=True or False"),
        ({"env": Sum(), "hidden": False, "bounds": (1.0, -1.0)}, "low below high"),
        ({"env": BraxAutoResetWrapper(Sum())}, "BraxAutoResetWrapper resets within a step"),
        ({"env": Sum}, "give a name or an MjxEnv"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], message: str):
    """One clear line each."""
    with pytest.raises(ValueError, match=message) as raised:
        PlaygroundEnvironment(**arguments)
    assert "\n" not in str(raised.value)


def test_playground_missing(monkeypatch: Any):
    """Names what to install."""
    monkeypatch.setitem(sys.modules, "mujoco_playground", None)
    with pytest.raises(ImportError, match="install zero-envs with its extra `playground`"):
        PlaygroundEnvironment("WalkerWalk")
