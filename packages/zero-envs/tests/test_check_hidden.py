"""Each check of what is hidden fires on an environment that breaks just that promise."""

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array

from zero_envs import AbstractHiddenEnvironment, Observation, Transition
from zero_envs.testing import check_environment


def _step(state: Any, action: Array, key: Array) -> Any:
    """Three steps; action 1 looks at the coin, and at the end it is shown to everybody."""
    del key
    over = state["t"] >= 3
    t = jnp.minimum(state["t"] + 1, 3)
    last = t >= 3
    seen = jnp.where(~over & ((action == 1) | last), state["coin"], state["seen"])
    transition = Transition(
        reward=jnp.zeros((), jnp.float32),
        discount=jnp.where(last, 0.0, 1.0).astype(jnp.float32),
        last=last,
    )
    return state | {"t": t, "seen": seen}, transition


def _observe(state: Any) -> Observation:
    return Observation({"seen": state["seen"], "t": state["t"]}, jnp.ones(2, jnp.bool_))


def _resample(state: Any, key: Array) -> Any:
    coin = jr.bernoulli(key).astype(jnp.int32)
    return state | {"coin": jnp.where(state["seen"] < 0, coin, state["coin"])}


def _signal(state: Any, action: Array, after: Any) -> Array:
    """0 or 1 where the coin was looked at, else 2."""
    return jnp.where(action == 1, state["coin"], 2)


class Coin(AbstractHiddenEnvironment[Any]):
    """A hidden coin. Any part can be replaced by a broken one."""

    step_fn: Callable = _step
    observe_fn: Callable = _observe
    resample_fn: Callable = _resample
    signal_fn: Callable = _signal
    num_actions: int = 2
    num_signals: Any = 3
    hidden: bool = True

    def init(self, *, key):
        unknown = jnp.full((), -1, jnp.int32)
        return {"coin": jr.bernoulli(key).astype(jnp.int32), "seen": unknown, "t": unknown + 1}

    def step(self, state, action, *, key):
        return self.step_fn(state, action, key)

    def observe(self, state):
        return self.observe_fn(state)

    def resample(self, state, *, key):
        return self.resample_fn(state, key)

    def signal(self, state, action, next_state):
        return self.signal_fn(state, action, next_state)


def _drawing(change: Callable) -> Coin:
    """`resample` with its result changed."""
    return Coin(resample_fn=lambda state, key: change(_resample(state, key)))


def _telling(change: Callable) -> Coin:
    """`signal` with its result changed."""
    return Coin(signal_fn=lambda *step: change(_signal(*step)))


def _ending(**fields: Callable) -> Coin:
    """`step` with fields of its transition replaced by functions of the coin and the time."""

    def step(state: Any, action: Array, key: Array) -> Any:
        after, transition = _step(state, action, key)
        parts = {name: getattr(transition, name) for name in ("reward", "discount", "last")}
        parts |= {name: fn(state["coin"], state["t"]) for name, fn in fields.items()}
        return after, Transition(**parts)

    return Coin(step_fn=step)


def _drifting(state: Any, action: Array, key: Array) -> Any:
    """What is seen is drawn in the step, and no signal tells of it."""
    after, transition = _step(state, action, key)
    noise = jr.bernoulli(key).astype(jnp.int32)
    return after | {"seen": jnp.where(state["t"] < 3, noise, state["seen"])}, transition


_CALLS = itertools.count()


def _count() -> Array:
    """Another number each time it is run."""
    shape = jax.ShapeDtypeStruct((), jnp.int32)
    return jax.pure_callback(lambda: np.int32(next(_CALLS)), shape, vmap_method="sequential")


def _python_count() -> Array:
    """Another number each time it is traced."""
    return jnp.asarray(next(_CALLS), jnp.int32)


UNTOLD = "step .: two states with equal .* gave signal {} for action {}, but then {} differed"
BROKEN = {
    "num_signals": (Coin(num_signals=0), "num_signals is 0; it must be a Python int"),
    "structure": (
        _drawing(lambda s: {"coin": s["coin"]}),
        "resample returns the structure .* and init .*; both must agree",
    ),
    "dtype": (
        _drawing(lambda s: s | {"coin": s["coin"].astype(jnp.int8)}),
        r"state\['coin'\] is int32\[\] after init and int8\[\] after resample",
    ),
    "weak type": (_drawing(lambda s: s | {"coin": 1}), "weakly typed after resample"),
    "random resample": (
        _drawing(lambda s: s | {"coin": s["coin"] + _count()}),
        "resample called twice with the same arguments differs",
    ),
    "counting resample": (
        _drawing(lambda s: s | {"coin": s["coin"] * _python_count()}),
        "two traces of resample differ",
    ),
    "random signal": (
        _telling(lambda x: x + _count()),
        "signal called twice with the same arguments differs",
    ),
    "counting signal": (_telling(lambda x: x * _python_count()), "two traces of signal differ"),
    "features": (
        _drawing(lambda s: s | {"seen": jnp.maximum(s["seen"], 0)}),
        r"step 0: resample changes features\['seen'\]",
    ),
    "later features": (
        _drawing(lambda s: s | {"seen": jnp.where(s["t"] == 2, 2, s["seen"])}),
        r"step 2: resample changes features\['seen'\]",
    ),
    "legal actions": (
        Coin(observe_fn=lambda s: Observation(s["t"], jnp.arange(2) <= s["coin"])),
        "step 0: resample changes the legal actions",
    ),
    "resample nothing": (Coin(resample_fn=lambda s, key: s), "resample never changed a state"),
    "signal dtype": (_telling(lambda x: x.astype(jnp.float32)), r"signal is float32\[\]"),
    "signal shape": (_telling(lambda x: x[None]), r"signal is int32\[1\]"),
    "signal too high": (_telling(lambda x: x + 1), "step .: a signal is 3; with num_signals=3"),
    "signal too low": (_telling(lambda x: x - 1), "step .: a signal is -1; .* from 0 to 2"),
    "nothing told": (_telling(lambda x: 0 * x), UNTOLD.format(0, 1, r"features\['seen'\]")),
    "last untold": (
        _ending(last=lambda coin, t: (t >= 2) | ((t == 1) & (coin == 1))),
        UNTOLD.format(2, 0, "last"),
    ),
    "discount untold": (
        _ending(discount=lambda coin, t: jnp.where(t >= 2, 0, 1 - 2 * coin).astype(jnp.float32)),
        UNTOLD.format(2, 0, "discount"),
    ),
    "chance untold": (Coin(step_fn=_drifting), UNTOLD.format(2, 0, r"features\['seen'\]")),
    "untold at a truncation": (
        _ending(discount=lambda coin, t: (t < 3).astype(jnp.float32)),
        UNTOLD.format(2, 0, r"features\['seen'\]"),
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_promise_is_named(name: str):
    """Were a check dropped, the environment would pass or fail with another message."""
    env, message = BROKEN[name]
    with pytest.raises(AssertionError, match=message) as raised:
        check_environment(env, key=jr.key(0), num_steps=5, num_envs=32)
    assert str(raised.value).startswith("check_environment(Coin): ")


@pytest.mark.parametrize(
    "env", [Coin(), Coin(resample_fn=lambda s, key: s, hidden=False)], ids=["hidden", "open"]
)
def test_the_unbroken_ones_pass(env: Coin):
    """Otherwise the tests above would prove nothing. The coin shown at the end needs no signal."""
    report = check_environment(env, key=jr.key(0), num_steps=5, num_envs=32)
    assert (report.steps, report.terminated) == (96, 32)
