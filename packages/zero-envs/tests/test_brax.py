"""The brax adapter against brax itself, and what brax's own wrappers get wrong."""

import base64
import json
import re
import subprocess
import sys
import warnings
import zlib
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from zero_envs import BraxEnvironment, PhysicsState
from zero_envs.testing import check_environment


with warnings.catch_warnings():
    # brax says that it is no longer developed, and so does what it imports.
    warnings.simplefilter("ignore")
    from brax import base, envs
    from brax.envs.wrappers.training import EpisodeWrapper


class Walk:
    """Two numbers that the actions are added to, and noise; beyond 5 the physics break down."""

    action_size = 2

    def __init__(self, sys: Any = None):
        self.sys = sys

    def reset(self, rng: Any) -> envs.State:
        zero = jnp.zeros((), jnp.float32)
        physics = base.State(jnp.zeros(2), jnp.zeros(2), x=None, xd=None, contact=None)  # pyright: ignore[reportArgumentType]
        return envs.State(physics, physics.q, zero, zero, {"noise": zero}, {"rng": rng})

    def step(self, state: Any, action: Any) -> envs.State:
        physics: Any = state.pipeline_state
        noise = jr.uniform(state.info["rng"], maxval=1e-3)
        q = physics.q + action + noise
        q = jnp.where(q > 5, jnp.nan, q)
        state.metrics.update(noise=noise)
        physics = physics.replace(q=q)
        return state.replace(pipeline_state=physics, obs=q, reward=q.sum(), done=q[0] < -3)


WALK: Any = Walk()


@pytest.fixture(scope="module")
def walk() -> BraxEnvironment:
    return BraxEnvironment(Walk(), max_steps=4, bounds=([-2.0, 0.0], [2.0, 1.0]))


def _start(env: BraxEnvironment) -> PhysicsState:
    return jax.jit(lambda: env.init(key=jr.key(0)))()


@pytest.fixture(scope="module")
def moved(walk: BraxEnvironment) -> Any:
    """A function of 8 actions: where they lead from the start, each with a key of its own."""
    start, keys = _start(walk), jr.split(jr.key(1), 8)
    step = jax.jit(jax.vmap(lambda action, key: walk.step(start, action, key=key)[0].physics.q))
    return lambda actions: np.asarray(step(np.resize(actions, (8, 2)).astype(np.float32), keys))


@pytest.fixture(scope="module")
def starts() -> Any:
    """16 first states of brax's pendulum."""
    env = BraxEnvironment("inverted_pendulum", max_steps=15)
    return jax.device_get(jax.jit(jax.vmap(lambda key: env.init(key=key)))(_pendulum_keys()))


def _pendulum_keys() -> Any:
    return jr.split(jr.key(7), 16)


def test_episodes_are_those_of_brax(starts: Any):
    """The same physics, rewards and ends; a fall is an end and only the limit is a truncation.

    brax notes every fall as a `time_out`: who believes it bootstraps from a pole that lies.
    """
    env = BraxEnvironment("inverted_pendulum", max_steps=15)
    # Pushed hard, pushed against, left alone: the pole falls, falls, and is cut off.
    actions = jnp.asarray([[1.0], [-1.0], [0.0]], jnp.float32)

    def ours(start: Any, action: Any):
        def body(state: Any, _):
            state, transition = env.step(state, action, key=jr.key(0))
            return state, (env.observe(state).features, transition)

        return jax.lax.scan(body, start, length=18)[1]

    def alone(key: Any, action: Any):
        def body(state: Any, _):
            state = env.env.step(state, action)
            state = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), state)
            return state, (state.obs, state.reward, state.done, state.info["time_out"])

        return jax.lax.scan(body, env.env.reset(jr.key_data(key)), length=18)[1]

    start = jax.tree.map(lambda x: x[:3], starts)
    seen, transition = jax.jit(jax.vmap(ours))(start, actions)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            theirs = jax.jit(jax.vmap(alone))(_pendulum_keys()[:3], actions)
    *theirs, done, time_out = map(np.asarray, theirs)
    length = np.minimum(np.where(done.any(axis=1), done.argmax(axis=1) + 1, 18), 15)
    assert (length[:2] < 15).all() and length[2] == 15 and not done[2].any()
    assert (time_out == done).all()
    index = np.arange(18)[None]
    live, last = index < length[:, None], index >= length[:, None] - 1
    np.testing.assert_allclose(np.asarray(seen)[live], theirs[0][live], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(transition.reward, np.where(live, theirs[1], 0))
    np.testing.assert_array_equal(transition.last, last)
    np.testing.assert_array_equal(transition.discount, live & (done == 0))
    # A final state stays.
    np.testing.assert_array_equal(seen[:, -1], np.asarray(seen)[range(3), length - 1])


def test_every_reset_is_another(starts: Any):
    """brax's wrapper replays each environment's first state for ever."""
    assert len(np.unique(starts.observation, axis=0)) == 16


def test_each_dimension_reaches_its_bounds(moved: Any):
    """Unmapped, the second dimension would be told to go backwards."""
    actions = [(-1, -1), (1, 1), (0, 0), (3, -3)]
    expected = [(-2, 0), (2, 1), (0, 0.5), (2, 0)]
    np.testing.assert_allclose(moved(actions)[:4], expected, atol=1e-3)


def test_bounds_are_by_default_those_of_the_actuators():
    """And have to be finite."""
    ranges: Any = type("Range", (), {"ctrl_range": jnp.asarray([[-3.0, 1.0], [0.0, 2.0]])})
    env = BraxEnvironment(Walk(type("Sys", (), {"actuator": ranges})))
    step = jax.jit(lambda s, action: env.step(s, action, key=jr.key(1))[0])
    state = step(_start(env), np.asarray([-1, 1], np.float32))
    np.testing.assert_allclose(state.physics.q, [-3, 2], atol=1e-3)


def test_broken_physics_end_the_episode_and_are_flagged(walk: BraxEnvironment):
    """A NaN in a state would reach every plan and every gradient; it is no end of the task."""
    step = jax.jit(lambda s, key: walk.step(s, jnp.ones(2, jnp.float32), key=key))
    state = _start(walk)
    for i in range(2):
        state, transition = step(state, jr.key(i))
        assert not transition.last and not state.failed
    broken, transition = step(state, jr.key(2))
    assert (transition.reward, transition.discount, transition.last) == (0, 1, True)
    assert broken.failed and broken.over
    np.testing.assert_array_equal(broken.observation, state.observation)
    _, transition = step(broken, jr.key(3))
    assert (transition.reward, transition.discount, transition.last) == (0, 0, True)


def test_numbers_are_drawn_from_the_keys_of_the_steps(walk: BraxEnvironment, moved: Any):
    """An environment that keeps a key in its `info` must not let a state foresee its noise."""
    assert _start(walk).info == {"rng": None}
    noisy = moved((0, 0))
    np.testing.assert_array_equal(noisy, moved((0, 0)))
    assert len(np.unique(noisy, axis=0)) == 8


def test_every_promise_is_kept(walk: BraxEnvironment):
    """An end, a limit and broken physics; and brax's smallest environment."""
    report = check_environment(walk, key=jr.key(0), num_steps=6, num_envs=32)
    assert report.terminated > 0 and report.truncated > 0
    report = check_environment(BraxEnvironment("fast", max_steps=4), key=jr.key(0), num_steps=6)
    assert report.truncated == 8


@pytest.mark.slow
@pytest.mark.parametrize("name", envs._envs)
def test_all_of_the_registry(name: str):
    """With the engine that each has by default."""
    env = BraxEnvironment(name, max_steps=8)
    report = check_environment(env, key=jr.key(0), num_steps=10, num_envs=2)
    assert report.truncated + report.terminated == 2


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["generalized", "mjx", "positional", "spring"])
def test_all_engines(backend: str):
    """On the smallest system that all of them have."""
    env = BraxEnvironment("inverted_pendulum", backend=backend, max_steps=8)
    report = check_environment(env, key=jr.key(0), num_steps=10, num_envs=2)
    assert report.truncated + report.terminated == 2


def test_the_engine_is_that_of_the_paper_where_there_is_a_choice():
    """And whoever names it has the same object, or all would be traced twice."""
    assert BraxEnvironment("reacher").env is BraxEnvironment("reacher", backend="spring").env
    assert BraxEnvironment("swimmer").env.backend == "generalized"


def test_fluids_can_be_swum_in():
    """brax calls `jnp.clip` by names that JAX has dropped: `swimmer` could not be stepped."""
    env = BraxEnvironment("swimmer")
    action = jnp.zeros(env.action_size, jnp.float32)
    state = jax.eval_shape(lambda: env.init(key=jr.key(0)))
    state, _ = jax.eval_shape(lambda s: env.step(s, action, key=jr.key(1)), state)
    assert state.observation.shape == (8,)
    clip: Any = sys.modules["brax.fluid"].__dict__["jp"].clip
    for call in (dict(a_min=2.0), dict(min=2.0)):
        np.testing.assert_array_equal(clip(jnp.arange(4.0), **call), [2, 2, 2, 3])


def test_nothing_is_printed_or_left_behind(tmp_path: Any):
    """MuJoCo prints what it lacks, which spoils `--json`, and leaves a log where the user is."""
    code = "import zero_envs; zero_envs.BraxEnvironment('halfcheetah')"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert not list(tmp_path.iterdir()) and "settotalmass" not in done.stderr


def test_an_episode_becomes_a_page_of_the_viewer(starts: Any):
    """With its frames, in their order and at their pace."""
    env = BraxEnvironment("inverted_pendulum")
    first = jax.tree.map(lambda x: x[0], starts)
    later = eqx.tree_at(lambda s: s.physics.x.pos, first, first.physics.x.pos + 1)
    page = env.render([first, later], height=300)
    packed = max(re.findall(r'"([A-Za-z0-9+/=]+)"', page), key=len)
    told = json.loads(zlib.decompress(base64.b64decode(packed)))
    start, end = (np.asarray(x["pos"]) for x in told["states"]["x"])
    np.testing.assert_allclose(end, start + 1, atol=1e-6)
    assert told["opt"]["timestep"] == pytest.approx(env.env.dt) and "height: 300px" in page


def test_environments_of_brax_take_actions_up_to_1():
    """Their actuators' range is that, or they map it: else half the force would be cut off."""
    mapped = {"humanoid", "humanoidstandup", "inverted_pendulum", "pusher"}
    for name in envs._envs.keys() - {"fast"}:
        env = BraxEnvironment(name).env
        unit = np.broadcast_to([-1.0, 1.0], (env.action_size, 2))
        assert np.array_equal(env.sys.actuator.ctrl_range, unit) == (name not in mapped), name


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"env": "Ants"}, "no such environment. Did you mean ant.* Allowed: ant, fast, half"),
        (
            {"env": "reacher", "backend": "bullet"},
            "reacher has no such backend; allowed: generalized, mjx, positional, spring.$",
        ),
        (
            {"env": "swimmer", "backend": "spring"},
            "swimmer has no such backend; allowed: generalized.$",
        ),
        ({"env": "ant", "max_steps": 0}, "an integer, at least 1"),
        ({"env": Walk(), "backend": "mjx"}, "<Walk>, backend.*options belong to a name"),
        ({"env": EpisodeWrapper(WALK, 5, 1)}, "EpisodeWrapper ends episodes itself"),
        ({"env": Walk()}, r"no bounds .*pass bounds=\(low, high\)"),
        ({"env": Walk(), "bounds": (1.0, -1.0)}, "low below high"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], message: str):
    """One clear line each."""
    with pytest.raises(ValueError, match=message) as raised:
        BraxEnvironment(**arguments)
    assert "\n" not in str(raised.value)


def test_an_environment_may_lead_back_to_itself():
    walk: Any = Walk()
    walk.env = walk
    assert BraxEnvironment(walk, bounds=(-1.0, 1.0)).action_size == 2


def test_brax_missing(monkeypatch: Any):
    """Names what to install."""
    monkeypatch.setitem(sys.modules, "brax", None)
    with pytest.raises(ImportError, match="install zero-envs with its extra `brax`"):
        BraxEnvironment("walker")
