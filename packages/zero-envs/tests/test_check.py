"""Each check of `check_environment` fires on an environment that breaks just that promise."""

import itertools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array

from zero_envs import (
    AbstractContinuousEnvironment,
    AbstractDiscreteEnvironment,
    AbstractEnvironment,
    AbstractFactoredEnvironment,
    AbstractObservedEnvironment,
    Observation,
    Transition,
)
from zero_envs.testing import check_environment, check_shapes


def _init(key: Array) -> Any:
    del key
    return {"t": jnp.zeros((), jnp.int32)}


def _step(state: Any, action: Array, key: Array) -> Any:
    """A countdown of three steps, each worth 1."""
    del action, key
    over = state["t"] >= 3
    t = jnp.minimum(state["t"] + 1, 3)
    last = t >= 3
    transition = Transition(
        reward=jnp.where(over, 0.0, 1.0).astype(jnp.float32),
        discount=jnp.where(last, 0.0, 1.0).astype(jnp.float32),
        last=last,
    )
    return state | {"t": t}, transition


def _observe(state: Any) -> Any:
    return Observation(features=state["t"].astype(jnp.float32), legal=jnp.ones(2, jnp.bool_))


class Discrete(AbstractDiscreteEnvironment[Any]):
    """Three steps, and any part of it can be replaced by a broken one."""

    init_fn: Callable = _init
    step_fn: Callable = _step
    observe_fn: Callable = _observe
    num_actions: Any = 2
    hidden: Any = False

    def init(self, *, key):
        return self.init_fn(key)

    def step(self, state, action, *, key):
        return self.step_fn(state, action, key)

    def observe(self, state):
        return self.observe_fn(state)


class Continuous(AbstractContinuousEnvironment[Any]):
    """The same with actions in `[-1, 1]`."""

    legal: Any = None
    action_size: Any = 3
    hidden: Any = False

    def init(self, *, key):
        return _init(key)

    def step(self, state, action, *, key):
        state, transition = _step(state, action, key)
        reward = jnp.where(transition.reward > 0, action.sum(), jnp.float32(0))
        return state, eqx.tree_at(lambda t: t.reward, transition, reward)

    def observe(self, state):
        return Observation(features=state["t"].astype(jnp.float32), legal=self.legal)


class Factored(AbstractFactoredEnvironment[Any]):
    """The same with actions of two integers; the second may not be its last value."""

    legal_fn: Callable = lambda t: jnp.array([1, 1, 1, 1, 0], jnp.bool_)
    num_values: Any = (2, 3)
    hidden: Any = False

    def init(self, *, key):
        return _init(key)

    def step(self, state, action, *, key):
        state, transition = _step(state, action, key)
        # Not finite where the action is not what was allowed.
        fits = (action.shape == (2,)) & (action[0] < 2) & (action[1] < 2)
        reward = jnp.where(fits, transition.reward, jnp.nan)
        return state, eqx.tree_at(lambda t: t.reward, transition, reward)

    def observe(self, state):
        features = state["t"].astype(jnp.float32)
        return Observation(features=features, legal=self.legal_fn(state["t"]))


class Players(Discrete):
    """The same for too many."""

    num_players: int = 3


class Neither(AbstractEnvironment[Any, Any]):
    """Derived from the root, so nobody knows its actions."""

    hidden: bool = False

    def init(self, *, key):
        return _init(key)

    def step(self, state, action, *, key):
        return _step(state, action, key)

    def observe(self, state):
        return _observe(state)


def _with(**extra: Callable[[Array], Array]) -> Callable:
    """`init` with further leaves."""
    return lambda key: _init(key) | {name: fn(key) for name, fn in extra.items()}


def _returning(change: Callable) -> Callable:
    """`step` with its results changed."""
    return lambda state, action, key: change(*_step(state, action, key))


def _transition(**fields: Callable[[Transition], Array]) -> Callable:
    """`step` with fields of its transition replaced, past what their types would let through."""

    def change(state: Any, transition: Transition) -> Any:
        for name, fn in fields.items():
            where = lambda t, name=name: getattr(t, name)
            transition = eqx.tree_at(where, transition, fn(transition))
        return state, transition

    return _returning(change)


def _seeing(**fields: Any) -> Callable:
    """`observe` with fields replaced by functions of the time."""
    return lambda state: Observation(
        **{
            "features": state["t"].astype(jnp.float32),
            "legal": jnp.ones(2, jnp.bool_),
            **{name: fn(state["t"]) for name, fn in fields.items()},
        }
    )


_CALLS = itertools.count()


def _count() -> Array:
    """Another number each time it is run."""
    shape = jax.ShapeDtypeStruct((), jnp.int32)
    return jax.pure_callback(lambda: np.int32(next(_CALLS)), shape, vmap_method="sequential")


def _python_count() -> Array:
    """Another number each time it is traced."""
    return jnp.asarray(next(_CALLS), jnp.int32)


BROKEN = {
    "kind": (Neither(), "must be an AbstractDiscreteEnvironment, an AbstractFactored"),
    "num_actions": (Discrete(num_actions=0), "num_actions is 0"),
    "action_size": (Continuous(action_size=2.0), "action_size is 2.0"),
    "num_values": (Factored(num_values=(2, 0)), r"num_values is \(2, 0\)"),
    "no values": (Factored(num_values=[2, 3]), r"num_values is \[2, 3\]; it must be a tuple"),
    "hidden": (Discrete(hidden=None), "hidden is None"),
    "random init": (
        Discrete(init_fn=lambda key: {"t": jnp.int32(0) * _count(), "x": _count()}),
        r"init called twice with the same arguments differs in \['x'\]",
    ),
    "typed key": (Discrete(init_fn=_with(x=lambda key: key)), r"state\['x'\] is a PRNG key"),
    "raw key": (Discrete(init_fn=_with(rng=jr.key_data)), r"state\['rng'\] is a PRNG key"),
    "raw key of rbg": (
        Discrete(init_fn=_with(rng=lambda key: jnp.tile(jr.key_data(key), 2))),
        r"state\['rng'\] is a PRNG key",
    ),
    "weak init": (
        Discrete(init_fn=lambda key: {"t": 0}),
        r"state\['t'\] is weakly typed after init",
    ),
    "structure": (
        Discrete(step_fn=_returning(lambda s, t: (s | {"new": s["t"]}, t))),
        "step returns the structure .* and init .*; both must agree",
    ),
    "dtype": (
        Discrete(step_fn=_returning(lambda s, t: ({"t": s["t"].astype(jnp.int16)}, t))),
        r"state\['t'\] is int32\[\] after init and int16\[\] after step",
    ),
    "shape": (
        Discrete(step_fn=_returning(lambda s, t: ({"t": s["t"][None]}, t))),
        r"state\['t'\] is int32\[\] after init and int32\[1\] after step",
    ),
    "weak step": (
        Discrete(step_fn=_returning(lambda s, t: ({"t": 1}, t))),
        "weakly typed after step",
    ),
    "observation": (
        Discrete(observe_fn=lambda s: s["t"]),
        "observe returns an array; return a zero_envs",
    ),
    "features": (Discrete(observe_fn=_seeing(features=lambda t: ())), "no features"),
    "no mask": (Discrete(observe_fn=_seeing(legal=lambda t: None)), "mask is None"),
    "mask size": (
        Discrete(observe_fn=_seeing(legal=lambda t: jnp.ones(3, jnp.bool_))),
        r"mask is bool\[3\]; it must be bool\[2\]",
    ),
    "factored mask": (
        Factored(legal_fn=lambda t: jnp.ones(6, jnp.bool_)),
        r"mask is bool\[6\]; it must be bool\[5\]",
    ),
    "stuck component": (
        Factored(legal_fn=lambda t: jnp.stack([t >= 0, t >= 0, t != 2, t != 2, t < 0])),
        "step 1: a state that is not final has no legal action",
    ),
    "continuous mask": (Continuous(legal=jnp.ones(2, jnp.bool_)), "must be None"),
    "initial mask": (
        Discrete(observe_fn=_seeing(legal=lambda t: jnp.zeros(2, jnp.bool_))),
        "an initial state has no legal action",
    ),
    "later mask": (
        Discrete(observe_fn=_seeing(legal=lambda t: jnp.ones(2, jnp.bool_) & (t != 2))),
        "step 1: a state that is not final has no legal action",
    ),
    "transition": (
        Discrete(step_fn=_returning(lambda s, t: (s, t.reward))),
        "step returns a state and an array; return",
    ),
    "four things": (
        Discrete(step_fn=lambda s, a, key: (s, 0.0, True, {})),
        "step returns 4 things; return",
    ),
    "players": (Players(), "num_players is 3; it must be 1 or 2"),
    "reward shape": (
        Discrete(step_fn=_transition(reward=lambda t: t.reward[None])),
        r"reward is float32\[1\]; it must be a floating scalar",
    ),
    "discount dtype": (
        Discrete(step_fn=_transition(discount=lambda t: t.discount.astype(jnp.int32))),
        r"discount is int32\[\]",
    ),
    "random step": (
        Discrete(step_fn=_returning(lambda s, t: ({"t": s["t"] + _count()}, t))),
        "step called twice with the same arguments differs",
    ),
    "counting init": (
        Discrete(init_fn=lambda key: {"t": _python_count()}),
        "two traces of init differ",
    ),
    "counting step": (
        Discrete(step_fn=_returning(lambda s, t: ({"t": s["t"] * _python_count()}, t))),
        "two traces of step differ",
    ),
    "counting observe": (
        Discrete(observe_fn=_seeing(features=lambda t: t * _python_count())),
        "two traces of observe differ",
    ),
    "reward value": (
        Discrete(step_fn=_transition(reward=lambda t: t.reward * jnp.float32(jnp.nan))),
        "step 0: a reward is not finite",
    ),
    "discount value": (
        Discrete(step_fn=_transition(discount=lambda t: t.discount * jnp.float32(0.99))),
        "step 0: a discount is not -1, 0 or 1",
    ),
    "early end": (
        Discrete(step_fn=_transition(discount=lambda t: t.discount * jnp.float32(0))),
        "step 0: discount is 0 where last is False",
    ),
    "absorbing reward": (
        Discrete(step_fn=_transition(reward=lambda t: jnp.ones_like(t.reward))),
        "after the end of an episode gave reward 1, discount 0 and last=True; `step` in a final",
    ),
    "absorbing discount": (
        Discrete(step_fn=_transition(discount=lambda t: jnp.ones_like(t.discount))),
        "after the end of an episode gave reward 0, discount 1 and last=True; `step` in a final",
    ),
    "features value": (
        Discrete(
            observe_fn=_seeing(features=lambda t: jnp.float32(0) / (t - 2).astype(jnp.float32))
        ),
        "step 1: features are not finite",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_promise_is_named(name: str):
    """Were a check dropped, the environment would pass or fail with another message."""
    env, message = BROKEN[name]
    with pytest.raises(AssertionError, match=message) as raised:
        check_environment(env, key=jr.key(0), num_steps=5, num_envs=2)
    assert str(raised.value).startswith(f"check_environment({type(env).__name__}): ")


def test_last_must_stay():
    """Forgetting that it was over is the third way not to be absorbing."""

    def step(state: Any, action: Array, key: Array) -> Any:
        state, transition = _step(state, action, key)
        again = state | {"t": jnp.where(transition.last, 0, state["t"]).astype(jnp.int32)}
        return again, transition

    with pytest.raises(AssertionError, match="gave .* last=False; `step` in a final state must"):
        check_environment(Discrete(step_fn=step), key=jr.key(0), num_steps=5, num_envs=2)


@pytest.mark.parametrize("env", [Discrete(), Continuous(), Factored()])
def test_the_unbroken_ones_pass(env):
    """Otherwise the tests above would prove nothing."""
    report = check_environment(env, key=jr.key(0), num_steps=5, num_envs=2)
    assert (report.steps, report.terminated, report.same_player) == (6, 2, 4)


@pytest.mark.parametrize(
    "env, message",
    [
        (Discrete(num_actions="3"), "Discrete: num_actions is '3'; it must be a Python int"),
        (BROKEN["mask size"][0], "Discrete: the legal mask is bool[3]; it must be bool[2]."),
        (BROKEN["no mask"][0], "Discrete: the legal mask is None; it must be bool[2]."),
        (BROKEN["dtype"][0], "state['t'] is int32[] after init and int16[] after step"),
        (BROKEN["reward shape"][0], "Discrete: reward is float32[1]; it must be a floating scalar"),
        (
            Discrete(init_fn=lambda key, size: size),
            "missing 1 required positional argument: 'size'",
        ),
        (Discrete(init_fn=lambda key: {}["a"]), "test_check.py, line 344: KeyError: 'a'"),
    ],
)
def test_shapes_alone_are_checked_without_running(env, message, monkeypatch):
    """One line, with the line of the user's own code where that raised."""
    monkeypatch.setattr(jax, "jit", lambda *_: pytest.fail("it compiled"))
    with pytest.raises(ValueError) as raised:
        check_shapes(env)
    assert message in str(raised.value) and "\n" not in str(raised.value)


@pytest.mark.parametrize("env", [Discrete(), Continuous(), Factored(), BROKEN["weak init"][0]])
def test_unbroken_shapes_pass(env):
    """Also those that are only slow: what is weakly typed is traced again."""
    check_shapes(env)


class Told(AbstractObservedEnvironment[Any]):
    """The countdown again, which says more of itself."""

    likely_fn: Callable = lambda *_: jnp.float32(-1)
    step_fn: Callable = _step
    random: bool = False
    num_players: int = 1
    num_actions: int = 2
    hidden: bool = True

    def init(self, *, key):
        return _init(key)

    def step(self, state, action, *, key):
        return self.step_fn(state, action, key)

    def observe(self, state):
        return _observe(state)

    def observation_log_prob(self, observation, state, action, next_state):
        return self.likely_fn(action)


def _drawn(state: Any, action: Array, key: Array) -> Any:
    state, transition = _step(state, action, key)
    reward = jnp.where(transition.reward > 0, jr.uniform(key, (), jnp.float32), 0.0)
    return state, eqx.tree_at(lambda x: x.reward, transition, reward.astype(jnp.float32))


def _turned(state: Any, action: Array, key: Array) -> Any:
    state, transition = _step(state, action, key)
    return state, eqx.tree_at(lambda x: x.discount, transition, -transition.discount)


@pytest.mark.parametrize(
    "broken, message",
    [
        ({"step_fn": _drawn}, "step with another key, where `random` is False, differs in "),
        ({"step_fn": _turned}, "a discount is -1, .*; num_players is 1"),
        ({"likely_fn": lambda _: jnp.int32(0)}, r"log_prob returns int32\[\]; it must be a float"),
        ({"likely_fn": lambda _: None}, "log_prob returns a NoneType; it must be a floating"),
        ({"likely_fn": lambda _: jnp.zeros(1, jnp.float32)}, r"log_prob returns float32\[1\]"),
        (
            {"likely_fn": lambda action: jnp.where(action < 0, -jnp.inf, 0.0).astype(jnp.float32)},
            "init, with action -1: observation_log_prob of what was observed is not finite",
        ),
        (
            {"likely_fn": lambda action: jnp.where(action < 0, 0.0, jnp.nan).astype(jnp.float32)},
            "step 0: observation_log_prob of what was observed is not finite",
        ),
    ],
)
def test_what_an_environment_says_of_itself_holds(broken, message):
    check_environment(Told(), key=jr.key(0), num_steps=5, num_envs=2)
    with pytest.raises(AssertionError, match=message):
        check_environment(Told(**broken), key=jr.key(0), num_steps=5, num_envs=2)
