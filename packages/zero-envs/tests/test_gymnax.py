"""The adapter to gymnax against gymnax itself, and what its own `step` does otherwise."""

import sys
from typing import Any, NamedTuple

import gymnax
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from gymnax.environments import environment, spaces
from gymnax.wrappers.purerl import LogWrapper, StickyActionWrapper

from zero_envs import AdaptedEnvironment, ContinuousAdaptedEnvironment, gymnax_environment, make
from zero_envs.testing import check_environment


class Tossed(NamedTuple):
    time: Any
    coins: Any
    rng: Any


class Coins(environment.Environment[Any, Any]):
    """Toss a coin by the key in the state, until the limit."""

    def reset_env(self, key, params) -> Any:
        return {"coins": jnp.zeros(2), "time": jnp.int32(0)}, Tossed(0, jnp.zeros(2), key)

    def step_env(self, key, state, action, params):
        rng, drawn = jr.split(state.rng)
        coins = state.coins.at[action].set(jr.uniform(drawn))
        state = Tossed(state.time + 1, coins, rng)
        return {"coins": coins, "time": state.time}, state, coins.sum(), jnp.array(False), {}

    def action_space(self, params: Any = None) -> Any:
        return spaces.Discrete(2)

    def observation_space(self, params) -> Any:
        return spaces.Dict({"coins": spaces.Box(0, 1, (2,)), "time": spaces.Discrete(9)})


class Pair(Coins):
    """Its actions are of no kind that is known."""

    def action_space(self, params: Any = None) -> Any:
        return spaces.Tuple([spaces.Discrete(2), spaces.Discrete(2)])


class Whole(Coins):
    def action_space(self, params: Any = None) -> Any:
        return spaces.Box(0, 5, (2,), jnp.int32)


class Unbounded(Coins):
    def action_space(self, params: Any = None) -> Any:
        return spaces.Box(-jnp.inf, jnp.inf, (2,))


def _played(env: Any, actions: np.ndarray, key: Any, keys: Any):
    """Observations and transitions of an episode that ours steps through."""

    @jax.jit
    def run(actions, keys):
        def body(state, given):
            state, transition = env.step(state, given[0], key=given[1])
            return state, (env.observe(state).features, transition)

        return jax.lax.scan(body, env.init(key=key), (actions, keys))[1]

    return jax.device_get(run(actions, keys))


def _theirs(name: str, params: Any, actions: np.ndarray, key: Any, keys: Any):
    """What gymnax's own `step`, which resets, says of the same episode: what is seen, what was seen
    at the end of an episode, rewards and the two kinds of ends."""
    env, _ = gymnax.make(name)

    @jax.jit
    def run(actions, keys):
        def body(state, given):
            # gymnax splits the key of a step for the reset.
            seen, state, reward, over, cut, info = env.step(given[1], state, given[0], params)
            return state, (seen, info["final_observation"], reward, over, cut)

        return jax.lax.scan(body, env.reset(key, params)[1], (actions, keys))[1]

    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        return jax.device_get(run(actions, keys))


@pytest.mark.parametrize("limit", [500, 5])
def test_episodes_are_those_of_gymnax_without_its_reset(limit):
    """A pole that falls is an end and a limit is none, and the last state is seen: in its place
    gymnax shows the first of the next episode, whose value is not that of a pole that lies."""
    params = gymnax.make("CartPole-v1")[1].replace(max_steps_in_episode=limit)
    env = gymnax_environment("CartPole-v1", params=params, hidden=False)
    assert isinstance(env, AdaptedEnvironment) and env.max_steps == limit
    actions, keys = np.ones(14, np.int32), jr.split(jr.key(1), 14)
    seen, transition = _played(env, actions, jr.key(0), keys)
    now, final, reward, over, cut = _theirs(
        "CartPole-v1", params, actions, jr.key_data(jr.key(0)), jr.key_data(keys)
    )
    end = int(np.argmax(over | cut))
    assert (over[end], cut[end]) == (limit == 500, limit == 5)
    assert (end == 4) == (limit == 5)
    np.testing.assert_allclose(seen[: end + 1], final[: end + 1], rtol=1e-6)
    assert not np.allclose(now[end], final[end])
    np.testing.assert_array_equal(transition.reward, np.where(np.arange(14) <= end, 1, 0))
    np.testing.assert_array_equal(transition.last, np.arange(14) >= end)
    expected = np.arange(14) < end + (limit == 5)
    np.testing.assert_array_equal(transition.discount, expected)
    # A final state stays.
    np.testing.assert_array_equal(seen[end:], np.broadcast_to(seen[end], seen[end:].shape))


def test_an_episode_that_ends_by_its_rules_and_at_its_limit_is_over():
    """DeepSea's limit is its depth."""
    env = gymnax_environment("DeepSea-bsuite")
    _, transition = _played(env, np.zeros(9, np.int32), jr.key(0), jr.split(jr.key(1), 9))
    assert transition.last.argmax() == 7 and transition.discount[7] == 0


def test_chance_is_decided_by_the_key_of_the_step():
    """And not by what is in the state, so that no search can look ahead."""
    env: Any = gymnax_environment("FrozenLake-misc")
    state = env.init(key=jr.key(0))
    step = jax.jit(
        jax.vmap(lambda key: env.step(state, jnp.int32(1), key=key)[0].position.position)
    )
    keys = jr.split(jr.key(1), 64)
    reached = np.asarray(step(keys))
    assert len(np.unique(reached)) == 3
    np.testing.assert_array_equal(reached, step(jr.clone(keys)))


def test_a_key_in_the_state_is_taken_out():
    """Two episodes that begin with other keys begin in one state, and what they draw depends on the
    keys of the steps. gymnax's own would foresee all of it."""
    env = gymnax_environment(Coins(), hidden=False)
    states = [env.init(key=jr.key(seed)) for seed in range(2)]
    assert states[0].position.rng is None
    assert jax.tree.structure(states[0]) == jax.tree.structure(states[1])
    jax.tree.map(np.testing.assert_array_equal, *states)
    step: Any = jax.jit(lambda s, key: env.step(s, jnp.int32(0), key=key)[0].position.coins[0])
    drawn = {float(step(states[seed], jr.key(key))) for key in range(4) for seed in range(2)}
    assert len(drawn) == 4
    raw = env.raw(states[0])
    assert raw.rng.shape == (2,) and raw.rng.dtype == jnp.uint32
    report = check_environment(env, key=jr.key(0), num_steps=3)
    assert report.truncated == 8


def test_a_key_of_another_generator_is_taken_out():
    with jax.default_prng_impl("rbg"):
        env = gymnax_environment(Coins(), hidden=False)
        state = env.init(key=jr.key(0))
        assert state.position.rng is None
        step: Any = jax.jit(lambda key: env.step(state, jnp.int32(0), key=key)[0].position.coins[0])
        assert len({float(step(jr.key(seed))) for seed in range(4)}) == 4


def test_observations_may_be_dictionaries():
    seen: Any = jax.eval_shape(
        lambda: gymnax_environment(Coins(), hidden=False).observe(
            gymnax_environment(Coins(), hidden=True).init(key=jr.key(0))
        )
    )
    assert {name: x.shape for name, x in seen.features.items()} == {"coins": (2,), "time": ()}


def test_a_number_that_stands_for_a_place_is_one_hot():
    """A network would take field 8 for twice field 4."""
    env = gymnax_environment("FrozenLake-misc")
    seen: Any = env.observe(env.init(key=jr.key(0))).features
    np.testing.assert_array_equal(seen, np.arange(16) == 0)


@pytest.mark.parametrize("name, most", [("Pendulum-v1", 2.0), ("PointRobot-misc", 0.1)])
def test_actions_reach_their_bounds(name, most):
    env: Any = make(f"gymnax/{name}")
    assert isinstance(env, ContinuousAdaptedEnvironment)
    field = {"Pendulum-v1": "last_u", "PointRobot-misc": "last_action"}[name]
    state = env.init(key=jr.key(0))
    step = jax.jit(
        lambda action: getattr(env.step(state, action, key=jr.key(0))[0].position, field)
    )
    for given, expected in ((-1.0, -most), (0.5, most / 2), (3.0, most)):
        action = jnp.full(env.action_size, given, jnp.float32)
        np.testing.assert_allclose(step(action), np.broadcast_to(expected, step(action).shape))


#: How many steps until a few of 4 random episodes have ended, and how they do.
FAST = {"CartPole-v1": 60, "Catch-bsuite": 10, "FrozenLake-misc": 40}
SLOW = {
    "Acrobot-v1": 501,
    "Asterix-MinAtar": 150,
    "BernoulliBandit-misc": 101,
    "Breakout-MinAtar": 150,
    "DeepSea-bsuite": 9,
    "DiscountingChain-bsuite": 101,
    "FourRooms-misc": 501,
    "Freeway-MinAtar": 2501,
    "GaussianBandit-misc": 101,
    "MemoryChain-bsuite": 10,
    "MetaMaze-misc": 201,
    "MountainCar-v0": 201,
    "MountainCarContinuous-v0": 1000,
    "Pendulum-v1": 201,
    "PointRobot-misc": 101,
    "Pong-misc": 150,
    "Reacher-misc": 101,
    "Seaquest-MinAtar": 150,
    "SimpleBandit-bsuite": 2,
    "SpaceInvaders-MinAtar": 150,
    "Swimmer-misc": 501,
    "UmbrellaChain-bsuite": 11,
}
DOWNLOADED = {"MNISTBandit-bsuite"}


def _check(name: str, num_steps: int) -> None:
    env = gymnax_environment(name)
    report = check_environment(env, key=jr.key(0), num_steps=num_steps, num_envs=4)
    assert report.terminated + report.truncated > 0, "no end was checked"


@pytest.mark.parametrize("name", FAST)
def test_every_promise_is_kept(name):
    _check(name, FAST[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_all_of_the_registry(name):
    _check(name, SLOW[name])


def test_no_environment_is_left_out():
    assert FAST.keys() | SLOW.keys() | DOWNLOADED == set(gymnax.registered_envs)


def test_what_is_known_not_to_draw_is_so_however_it_is_made():
    """With its own parameters. With others it is as any other whose step looks at its key."""
    name = "Catch-bsuite"
    params = gymnax.make(name)[1]
    ways: list[dict[str, Any]] = [{}, {"hidden": False}]
    others = [{"params": params, "hidden": False}, {"rows": 6, "hidden": False}]
    made: Any = gymnax_environment
    assert [made(name, **way).random for way in ways + others] == [False, False, True, True]


def test_a_step_that_breaks_does_not_pass_for_one_that_draws():
    class Broken(Coins):
        def step_env(self, key, state, action, params):
            raise ValueError("no such coin")

    env: Any = gymnax_environment(Broken(), hidden=False)
    with pytest.raises(ValueError, match="no such coin"):
        _ = env.random


def test_a_name_is_one_environment():
    """Else all would be traced again for each object of it."""
    assert gymnax_environment("Catch-bsuite") is make("gymnax/Catch-bsuite")
    larger = gymnax_environment("Catch-bsuite", hidden=False, rows=4)
    seen: Any = jax.eval_shape(lambda: larger.observe(larger.init(key=jr.key(0))))
    assert seen.features.shape == (4, 5)


CATCH, _ = gymnax.make("Catch-bsuite")


@pytest.mark.parametrize(
    "env, options, message",
    [
        ("Cach-bsuite", {}, "no such environment. Did you mean Catch-bsuite"),
        ("MNISTBandit-bsuite", {}, "it downloads its images when it is made"),
        ("Catch-bsuite", {"rows": 4}, "pass hidden=True or hidden=False"),
        ("Catch-bsuite", {"hidden": False, "size": 4}, "give other options"),
        (Coins(), {}, "<Coins>.: not one of gymnax's own .* pass hidden=True or hidden=False"),
        (Coins(), {"hidden": False, "size": 3}, "<Coins>, size.: options belong to a name"),
        (
            StickyActionWrapper(CATCH, 0.5),
            {"hidden": False},
            "<Sticky.*>.: its class has no `step_e",
        ),
        (LogWrapper(CATCH), {"hidden": False}, "so its `step` would be left out; pass"),
        (Coins, {"hidden": False}, "give an id or an environment of gymnax"),
        (Pair(), {"hidden": False}, "its actions are a Tuple; Discrete or Box is allowed"),
        (
            "CartPole-v1",
            {"hidden": False, "bounds": (-1, 1)},
            "its actions are numbered; leave out `bounds`",
        ),
        (Whole(), {"hidden": False}, "its actions are a Box of int32; only real numbers"),
        (Unbounded(), {"hidden": False}, r"no bounds .*pass bounds=\(low, high\)"),
        (Unbounded(), {"hidden": False, "bounds": (1.0, -1.0)}, "low below high"),
    ],
)
def test_bad_arguments(env, options, message):
    with pytest.raises(ValueError, match=message) as raised:
        gymnax_environment(env, **options)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("module", ["gymnax", "seaborn"])
def test_gymnax_missing(monkeypatch, module):
    """Names what to install, also where gymnax is there and what it imports is not."""
    for known in {*sys.modules}:
        if known.partition(".")[0] == "gymnax":
            monkeypatch.delitem(sys.modules, known)
    monkeypatch.setitem(sys.modules, module, None)
    missing = f"needs {module}, which is not installed: install zero-envs with its extra `gymnax`"
    with pytest.raises(ImportError, match=missing):
        gymnax_environment("Acrobot-v1")
