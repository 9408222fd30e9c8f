"""Checks of hidden environments: nothing hidden is observed, and signals are sufficient."""

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray, PyTree

from .._environment import AbstractHiddenEnvironment, Observation, Transition
from ._check_parts import (
    batched,
    check_pure,
    check_same,
    check_signature,
    check_strong,
    fail,
    kind,
    leaves,
)


# The number of states that are resampled from each.
_TWINS = 2


def check_hidden(
    env: AbstractHiddenEnvironment[Any],
    step: Callable[..., tuple[Any, Transition]],
    observe: Callable[..., Observation],
    played: list[tuple[PyTree[Array], Int[Array, " rows"]]],
    *,
    key: PRNGKeyArray,
) -> None:
    """Checks the states of `played`, each with the action taken in it.

    `step` and `observe` are batched and compiled. They are called separately for a state and for
    each of its twins, because only results of the same row of the same program are bitwise equal.
    """
    number = env.num_signals
    if type(number) is not int or number < 1:
        fail(f"num_signals is {number!r}; it must be a Python int of at least 1.")
    resample, signal = (jax.jit(batched(env, name)) for name in ("resample", "signal"))

    def look(state: Any, action: Array, key: Array) -> _Look:
        after, transition = step(state, action, key)
        return _Look(
            seen=_seen(observe(state)),
            signal=signal(state, action, after),
            ends={"discount": transition.discount, "last": transition.last},
            after=_seen(observe(after)),
        )

    keys = (jr.split(jr.fold_in(key, n), len(played[0][1])) for n in itertools.count())
    changed = False
    for i, (state, action) in enumerate(played):
        if i == 0:
            args = (state, action, step(state, action, next(keys))[0])
            twin_key = next(keys)
            twin = resample(state, twin_key)
            check_signature("resample", state, twin)
            check_strong("resample", twin)
            check_same("resample", twin, resample(state, jr.clone(twin_key)))
            check_same("signal", signal(*args), signal(*args))
            check_pure("resample", resample, batched(env, "resample"), state, twin_key)
            check_pure("signal", signal, batched(env, "signal"), *args)
        real = look(state, action, next(keys))
        _check_signal(i, real.signal, len(action), number)
        for _ in range(_TWINS):
            twin = resample(state, next(keys))
            changed |= bool(_differing(dict(leaves(state)), dict(leaves(twin))))
            other = look(twin, action, next(keys))
            for name in _differing(real.seen, other.seen):
                fail(f"step {i}: resample changes {name}; it must keep the observation.")
            _check_signal(i, other.signal, len(action), number)
            _check_learned(i, action, real, other)
    if env.hidden and not changed:
        fail(
            f"resample never changed a state in {len(played)} steps; it must draw the part of the "
            "state that the player cannot observe."
        )


class _Look(NamedTuple):
    """The observation before a step, its signal and end, and the observation after it."""

    seen: dict[str, Array]
    signal: Array
    ends: dict[str, Array]
    after: dict[str, Array]


def _seen(observation: Observation) -> dict[str, Array]:
    features = {f"features{name}": leaf for name, leaf in leaves(observation.features)}
    return features | {"the legal actions": jnp.asarray(observation.legal)}


def _differing(first: dict[str, Array], second: dict[str, Array]) -> dict[str, np.ndarray]:
    """The rows in which two batches differ, by the name of each leaf that differs in any."""
    found = {}
    for name, x in first.items():
        x, y = np.asarray(x), np.asarray(second[name])
        same = (x == y) | ((x != x) & (y != y))
        rows = ~same.reshape(len(x), -1).all(axis=1)
        if rows.any():
            found[name] = rows
    return found


def _check_signal(i: int, signal: Array, rows: int, number: int) -> None:
    if signal.shape != (rows,) or not jnp.issubdtype(signal.dtype, jnp.integer):
        fail(f"signal is {kind(signal)}; it must be an integer scalar.")
    values = np.asarray(signal)
    for value in values[(values < 0) | (values >= number)]:
        fail(
            f"step {i}: a signal is {value}; with num_signals={number} it must be from 0 to "
            f"{number - 1}."
        )


def _check_learned(i: int, action: Array, real: _Look, other: _Look) -> None:
    told = np.asarray(real.signal == other.signal)
    # Observations after the end of a game do not matter.
    goes_on = np.asarray(real.ends["discount"]) != 0
    checks = ((told, real.ends, other.ends), (told & goes_on, real.after, other.after))
    for where, first, second in checks:
        for name, rows in _differing(first, second).items():
            for row in np.flatnonzero(where & rows):
                fail(
                    f"step {i}: two states with equal observations gave signal {real.signal[row]} "
                    f"for action {action[row]}, but then {name} differed; so must the signals."
                )
