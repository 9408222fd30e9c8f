"""Checks of environments with known odds: the outcomes agree with `step`."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from ._check_parts import (
    batched,
    check_laws,
    check_pure,
    check_same,
    check_signature,
    fail,
    key_leaf,
    kind,
)


# The number of steps from each state. Bins with fewer than `_RARE` expected visits are merged.
_SAMPLES, _RARE = 512, 5.0
# A correct environment fails with a probability below exp(-_DOUBT).
_DOUBT = 20.0


def check_chance(
    env: Any,
    name: str,
    state: PyTree[Array],
    action: Int[Array, " rows"],
    over: Bool[Array, " rows"],
    *,
    key: PRNGKeyArray,
) -> None:
    """Checks the outcomes of `action` in each row of `state`, some of which are final (`over`),
    beside those that the method `name` of the environment draws."""
    number = env.num_outcomes
    if type(number) is not int or number < 1:
        fail(f"num_outcomes is {number!r}; it must be a Python int of at least 1.")
    afterstate = jax.jit(batched(env, "afterstate"))
    # Waiting prevents two programs with host callbacks from running at once.
    after = jax.block_until_ready(afterstate(state, action))
    if leaf := key_leaf(after):
        fail(
            f"afterstate{leaf} is a PRNG key, so the outcome is determined before it is drawn; it "
            "must depend on `outcome_logits` only."
        )
    check_same("afterstate", after, afterstate(state, action))
    each = jnp.arange(number, dtype=jnp.int32)
    outcome_logits, resolve = jax.jit(batched(env, "outcome_logits")), jax.jit(_resolver(env))
    probs = _probabilities(number, outcome_logits(after))
    landed = resolve(after, each)
    keys = jr.split(key, (len(action), _SAMPLES))
    step = getattr(env, name)
    many = jax.vmap(lambda s, a, k: step(s, a, key=k), (None, None, 0))
    stepped = jax.jit(jax.vmap(many))(state, action, keys)
    check_pure("afterstate", afterstate, batched(env, "afterstate"), state, action)
    check_pure("outcome_logits", outcome_logits, batched(env, "outcome_logits"), after)
    check_pure("resolve", resolve, _resolver(env), after, each)
    check_signature("resolve", stepped, landed, first=name, what="", axes=2)
    possible = probs > 0
    finished = np.broadcast_to(np.asarray(over)[:, None], possible.shape)
    transitions = jax.tree.map(lambda x: np.asarray(x)[possible], landed[1])
    check_laws("an outcome", finished[possible], transitions)
    _check_frequencies(name, probs, landed, stepped)


def _resolver(env: Any) -> Callable:
    """A new function that returns all outcomes of each row, `[rows, outcomes, ...]`."""
    resolve = lambda after, outcome: env.resolve(after, outcome)
    return jax.vmap(jax.vmap(resolve, (None, 0)), (0, None))


def _probabilities(number: int, logits: Any) -> Float[np.ndarray, "rows outcomes"]:
    if logits.shape[1:] != (number,) or not jnp.issubdtype(logits.dtype, jnp.floating):
        fail(f"outcome_logits returns {kind(logits)}; it must be floating, [{number}].")
    probs = np.exp(np.asarray(logits, np.float64))
    total = probs.sum(axis=1)
    # This form also detects a NaN.
    wrong = ~(np.abs(total - 1.0) <= 1e-4)
    if wrong.any():
        fail(
            f"the probabilities of outcome_logits add up to {total[wrong][0]:.6g}; they must add "
            "up to 1: normalise them with jax.nn.log_softmax."
        )
    return probs


def _check_frequencies(
    name: str, probs: Float[np.ndarray, "rows outcomes"], landed: Any, stepped: Any
) -> None:
    """A chi-square test over all rows together.

    With `k` degrees of freedom, the statistic exceeds `k + 2 sqrt(k x) + 2 x` with a probability
    below `exp(-x)` (Laurent and Massart 2000, "Adaptive estimation of a quadratic functional by
    model selection", lemma 1).
    """
    statistic, freedom, worst = 0.0, 0, (0.0, "")
    for row, p in enumerate(probs):
        counts, expected = _count(name, p, *(_row(x, row) for x in (landed, stepped)))
        terms = (counts - expected) ** 2 / expected
        statistic, freedom = statistic + terms.sum(), freedom + len(terms) - 1
        i = int(np.argmax(terms))
        seen = f"{counts[i]:.0f} times in {_SAMPLES} instead of {expected[i]:.1f}"
        worst = max(worst, (terms[i], seen))
    if statistic > freedom + 2 * np.sqrt(freedom * _DOUBT) + 2 * _DOUBT:
        fail(
            f"{name} does not draw outcomes with the probabilities of outcome_logits: one occurred "
            f"{worst[1]} (chi-square {statistic:.0f}, {freedom} degrees of freedom)."
        )


def _row(x: Any, row: int) -> list[np.ndarray]:
    return [np.asarray(leaf)[row].reshape(leaf.shape[1], -1) for leaf in jax.tree.leaves(x)]


def _count(
    name: str,
    probs: Float[np.ndarray, " outcomes"],
    landed: list[np.ndarray],
    stepped: list[np.ndarray],
) -> tuple[Float[np.ndarray, " bins"], Float[np.ndarray, " bins"]]:
    """The actual and the expected counts of the outcomes of one row.

    Outcomes with equal results are counted together, and so are rare ones.
    """
    free, bins = np.ones(_SAMPLES, np.bool_), []
    left = np.flatnonzero(probs > 0)
    while left.size:
        first = [leaf[left[0]] for leaf in landed]
        same = _equal([leaf[left] for leaf in landed], first)
        hit = free & _equal(stepped, first)
        bins.append((probs[left[same]].sum() * _SAMPLES, hit.sum()))
        free, left = free & ~hit, left[~same]
    if free.any():
        fail(
            f"{free.sum()} of {_SAMPLES} results of {name} are not results of `resolve` for any "
            "outcome of positive probability; states, rewards and ends must be equal."
        )
    bins.sort(reverse=True)
    while len(bins) > 1 and bins[-1][0] < _RARE:
        rare = bins.pop()
        bins[-1] = (bins[-1][0] + rare[0], bins[-1][1] + rare[1])
        bins.sort(reverse=True)
    expected, counts = np.asarray(bins, np.float64).T
    return counts, expected


def _equal(many: list[np.ndarray], one: list[np.ndarray]) -> Bool[np.ndarray, " rows"]:
    """Whether each row equals the given one, up to the rounding of different programs."""
    close = [
        np.isclose(x, y, rtol=1e-4, atol=1e-5, equal_nan=True)
        if np.issubdtype(x.dtype, np.inexact)
        else x == y
        for x, y in zip(many, one, strict=True)
    ]
    return np.all(np.concatenate(close, axis=1), axis=1)
