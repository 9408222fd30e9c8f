"""Each check of outcomes fires on a chance environment that breaks just that promise."""

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

from zero_envs import AbstractChanceEnvironment, Observation, Transition
from zero_envs.testing import check_environment


PROBS = (0.5, 0.3, 0.2, 0.0)


def _afterstate(state: Any, action: Array) -> Any:
    return state | {"bet": action}


def _logits(after: Any) -> Array:
    del after
    return jnp.log(jnp.asarray(PROBS, jnp.float32))


def _resolve(after: Any, outcome: Array) -> Any:
    """Three throws of a die with three sides; a side bet on pays 1."""
    over = after["t"] >= 3
    t = jnp.minimum(after["t"] + 1, 3)
    last = t >= 3
    total = jnp.where(over, after["sum"], after["sum"] + outcome)
    transition = Transition(
        reward=(~over & (outcome == after["bet"])).astype(jnp.float32),
        discount=jnp.where(last, 0.0, 1.0).astype(jnp.float32),
        last=last,
    )
    return {"t": t, "sum": total}, transition


class Dice(AbstractChanceEnvironment[Any]):
    """Any part of it can be replaced by a broken one; `step` follows unless it is replaced too."""

    afterstate_fn: Callable = _afterstate
    logits_fn: Callable = _logits
    resolve_fn: Callable = _resolve
    step_fn: Callable | None = None
    num_actions: Any = 3
    num_outcomes: Any = 4
    hidden: Any = False

    def init(self, *, key):
        del key
        return {"t": jnp.zeros((), jnp.int32), "sum": jnp.zeros((), jnp.int32)}

    def afterstate(self, state, action):
        return self.afterstate_fn(state, action)

    def outcome_logits(self, afterstate):
        return self.logits_fn(afterstate)

    def resolve(self, afterstate, outcome):
        return self.resolve_fn(afterstate, outcome)

    def step(self, state, action, *, key):
        if self.step_fn is not None:
            return self.step_fn(state, action, key)
        outcome = jr.categorical(key, _logits(state)).astype(jnp.int32)
        return _resolve(_afterstate(state, action), outcome)

    def observe(self, state):
        features = jnp.stack([state["t"], state["sum"]]).astype(jnp.float32)
        return Observation(features=features, legal=jnp.ones(3, jnp.bool_))


def _stepping(probs: tuple[float, ...], change: Callable = lambda s, t: (s, t)) -> Callable:
    """`step` with other odds, or with its result changed."""

    def step(state: Any, action: Array, key: Array) -> Any:
        outcome = jr.categorical(key, jnp.log(jnp.asarray(probs, jnp.float32)))
        return change(*_resolve(_afterstate(state, action), outcome.astype(jnp.int32)))

    return step


def _resolving(change: Callable) -> Callable:
    """`resolve` with its result changed, given the outcome too."""
    return lambda after, outcome: change(*_resolve(after, outcome), outcome)


def _reward(state: Any, transition: Any, reward: Array) -> Any:
    return state, eqx.tree_at(lambda t: t.reward, transition, reward)


_CALLS = itertools.count()


def _count() -> Array:
    """Another number each time it is run."""
    shape = jax.ShapeDtypeStruct((), jnp.int32)
    return jax.pure_callback(lambda: np.int32(next(_CALLS)), shape, vmap_method="sequential")


def _python_count() -> Array:
    """Another number each time it is traced."""
    return jnp.asarray(next(_CALLS), jnp.int32)


BROKEN = {
    "num_outcomes": (Dice(num_outcomes=0), "num_outcomes is 0"),
    "typed key": (
        Dice(afterstate_fn=lambda s, a: _afterstate(s, a) | {"x": jr.key(a)}),
        r"afterstate\['x'\] is a PRNG key",
    ),
    "raw key": (
        Dice(afterstate_fn=lambda s, a: _afterstate(s, a) | {"rng": jr.key_data(jr.key(a))}),
        r"afterstate\['rng'\] is a PRNG key",
    ),
    "random afterstate": (
        Dice(afterstate_fn=lambda s, a: _afterstate(s, a) | {"x": _count()}),
        r"afterstate called twice with the same arguments differs in \['x'\]",
    ),
    "counting afterstate": (
        Dice(afterstate_fn=lambda s, a: _afterstate(s, a) | {"x": a * _python_count()}),
        "two traces of afterstate differ",
    ),
    "counting logits": (
        Dice(logits_fn=lambda after: _logits(after) + 0.0 * _python_count().astype(jnp.float32)),
        "two traces of outcome_logits differ",
    ),
    "counting resolve": (
        Dice(resolve_fn=_resolving(lambda s, t, o: (s, t if next(_CALLS) % 2 else _copy(t)))),
        "two traces of resolve differ",
    ),
    "logits shape": (
        Dice(logits_fn=lambda after: _logits(after)[:2]),
        r"outcome_logits returns float32\[2\]; it must be floating, \[4\]",
    ),
    "logits dtype": (
        Dice(logits_fn=lambda after: jnp.zeros(4, jnp.int32)),
        r"outcome_logits returns int32\[4\]",
    ),
    "not normalised": (
        Dice(logits_fn=lambda after: _logits(after) + 0.01),
        r"probabilities of outcome_logits add up to 1\.01",
    ),
    "no number": (
        Dice(logits_fn=lambda after: _logits(after) * jnp.float32(jnp.nan)),
        "probabilities of outcome_logits add up to nan",
    ),
    "structure": (
        Dice(resolve_fn=_resolving(lambda s, t, o: (s | {"x": o}, t))),
        "resolve returns the structure .* and step",
    ),
    "dtype": (
        Dice(resolve_fn=_resolving(lambda s, t, o: (s | {"t": s["t"].astype(jnp.int8)}, t))),
        r"\['t'\] is int32\[\] after step and int8\[\] after resolve",
    ),
    "rare reward": (
        Dice(
            logits_fn=lambda after: jnp.log(jnp.asarray([0.5, 0.3, 0.2, 1e-9], jnp.float32)),
            resolve_fn=_resolving(
                lambda s, t, o: _reward(s, t, jnp.where(o == 3, jnp.inf, t.reward))
            ),
        ),
        "an outcome: a reward is not finite",
    ),
    "absorbing": (
        Dice(resolve_fn=_resolving(lambda s, t, o: _reward(s, t, t.reward + 1.0))),
        "an outcome: stepping on after the end of an episode gave reward 1",
    ),
    "other odds": (
        Dice(step_fn=_stepping((0.4, 0.36, 0.24, 0.0))),
        r"with the probabilities of outcome_logits: one occurred \d+ times in 512",
    ),
    "an outcome that never comes": (
        Dice(step_fn=_stepping((0.5, 0.5, 0.0, 0.0))),
        "step does not draw outcomes with the probabilities",
    ),
    "impossible outcome": (
        Dice(step_fn=_stepping((0.5, 0.3, 0.15, 0.05))),
        r"\d+ of 512 results of step are not results of `resolve`",
    ),
    "another reward": (
        Dice(step_fn=_stepping(PROBS, lambda s, t: _reward(s, t, t.reward * 2.0))),
        "results of step are not results of `resolve`",
    ),
    "another state": (
        Dice(resolve_fn=lambda after, o: _resolve(after | {"sum": after["sum"] + after["bet"]}, o)),
        "results of step are not results of `resolve`",
    ),
}


def _copy(transition: Transition) -> Transition:
    return _reward(None, transition, transition.reward + 0.0)[1]


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_promise_is_named(name: str):
    """Were a check dropped, the environment would pass or fail with another message."""
    env, message = BROKEN[name]
    with pytest.raises(AssertionError, match=message) as raised:
        check_environment(env, key=jr.key(0), num_steps=5, num_envs=2)
    assert str(raised.value).startswith("check_environment(Dice): ")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 5))]
)
def test_the_unbroken_one_passes(seed: int):
    """Otherwise the tests above would prove nothing."""
    report = check_environment(Dice(), key=jr.key(seed), num_steps=5, num_envs=2)
    assert (report.steps, report.terminated) == (6, 2)


def test_outcomes_that_lead_to_the_same_place_are_one():
    """A die with two equal sides, and `step` that draws only one of them, as often as both."""

    def resolve(after: Any, outcome: Array) -> Any:
        return _resolve(after, jnp.minimum(outcome, 1))

    def step(state: Any, action: Array, key: Array) -> Any:
        outcome = jr.bernoulli(key, 0.5).astype(jnp.int32)
        return _resolve(_afterstate(state, action), outcome)

    env = Dice(resolve_fn=resolve, step_fn=step)
    assert check_environment(env, key=jr.key(0), num_steps=5, num_envs=2).terminated == 2
