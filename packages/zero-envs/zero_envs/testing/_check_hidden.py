"""Does what a hidden environment hides stay hidden, and do its signals tell what is learned?"""

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray, PyTree

from .._environment import AbstractHiddenEnvironment, Observation, Transition
from ._check_parts import check_pure, check_same, check_signature, fail, leaves


# Other states drawn for each.
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

    `step` and `observe` are batched and compiled. They are asked about a state and its twins one
    after another: only what the same program says of the same row is equal to the last bit.
    """
    number = env.num_signals
    if type(number) is not int or number < 1:
        fail(env, f"num_signals is {number!r}; it must be a Python int of at least 1.")
    resample, signal = map(jax.jit, _functions(env).values())

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
            after, _ = step(state, action, next(keys))
            _check_functions(env, resample, signal, next(keys), (state, action, after))
        real = look(state, action, next(keys))
        _check_signal(env, i, real.signal, len(action))
        for _ in range(_TWINS):
            twin = resample(state, next(keys))
            changed |= bool(_differing(dict(leaves(state)), dict(leaves(twin))))
            other = look(twin, action, next(keys))
            _check_seen(env, i, real, other)
            _check_signal(env, i, other.signal, len(action))
            _check_learned(env, i, action, real, other)
    if env.hidden and not changed:
        fail(
            env,
            f"resample never changed a state in {len(played)} steps; it must draw anew what the "
            "player cannot see.",
        )


class _Look(NamedTuple):
    """What was seen before a step, what it told, and what there was to learn from it."""

    seen: dict[str, Array]
    signal: Array
    ends: dict[str, Array]
    after: dict[str, Array]


def _functions(env: Any) -> dict[str, Callable]:
    """Fresh batched functions, so that `jax.jit` cannot remember having traced them."""

    def resample(state, key):
        return env.resample(state, key=key)

    def signal(state, action, after):
        return env.signal(state, action, after)

    return {"resample": jax.vmap(resample), "signal": jax.vmap(signal)}


def _seen(observation: Observation) -> dict[str, Array]:
    features = {f"features{name}": leaf for name, leaf in leaves(observation.features)}
    return features | {"the legal actions": jnp.asarray(observation.legal)}


def _differing(first: dict[str, Array], second: dict[str, Array]) -> dict[str, np.ndarray]:
    """In which rows, by the name of what differs in any."""
    found = {}
    for name, x in first.items():
        x, y = np.asarray(x), np.asarray(second[name])
        same = (x == y) | ((x != x) & (y != y))
        rows = ~same.reshape(len(x), -1).all(axis=1)
        if rows.any():
            found[name] = rows
    return found


def _check_functions(
    env: Any, resample: Callable, signal: Callable, key: Array, step: tuple[Any, Array, Any]
) -> None:
    state, _, _ = step
    twin = resample(state, key)
    check_signature(env, "resample", state, twin)
    check_same(env, "resample", twin, resample(state, jr.clone(key)))
    check_same(env, "signal", signal(*step), signal(*step))
    check_pure(env, lambda: _functions(env), ((state, key), step))


def _check_seen(env: Any, i: int, real: _Look, other: _Look) -> None:
    for name in _differing(real.seen, other.seen):
        fail(env, f"step {i}: resample changes {name}; it must keep what the player sees.")


def _check_signal(env: Any, i: int, signal: Array, rows: int) -> None:
    if signal.shape != (rows,) or not jnp.issubdtype(signal.dtype, jnp.integer):
        fail(
            env,
            f"signal is {signal.dtype}{list(signal.shape[1:])}; it must be an integer scalar.",
        )
    known = (signal >= 0) & (signal < env.num_signals)
    if not known.all():
        fail(
            env,
            f"step {i}: a signal is {np.asarray(signal)[~np.asarray(known)][0]}; with "
            f"num_signals={env.num_signals} it must be from 0 to {env.num_signals - 1}.",
        )


def _check_learned(env: Any, i: int, action: Array, real: _Look, other: _Look) -> None:
    told = np.asarray(real.signal == other.signal)
    # Nobody looks at what comes after the end of a game.
    goes_on = np.asarray(real.ends["discount"]) != 0
    checks = ((told, real.ends, other.ends), (told & goes_on, real.after, other.after))
    for where, first, second in checks:
        for name, rows in _differing(first, second).items():
            for row in np.flatnonzero(where & rows):
                fail(
                    env,
                    f"step {i}: two states that looked alike gave signal {real.signal[row]} to "
                    f"action {action[row]}, and then {name} differed; signals must tell it.",
                )
