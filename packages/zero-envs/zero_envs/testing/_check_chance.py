"""Do the outcomes of a chance environment agree with what its `step` does?"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from .._environment import AbstractChanceEnvironment
from ._check_parts import check_laws, check_pure, check_same, fail, is_key, leaves


# Steps taken from each state. Bins with fewer than `_RARE` expected visits are counted together.
_SAMPLES, _RARE = 512, 5.0
# A right environment fails with probability exp(-_DOUBT).
_DOUBT = 20.0


def check_chance(
    env: AbstractChanceEnvironment[Any],
    state: PyTree[Array],
    action: Int[Array, " rows"],
    over: Bool[Array, " rows"],
    *,
    key: PRNGKeyArray,
) -> None:
    """Checks the outcomes of `action` in each row of `state`, some of them final (`over`)."""
    number = env.num_outcomes
    if type(number) is not int or number < 1:
        fail(env, f"num_outcomes is {number!r}; it must be a Python int of at least 1.")
    afterstate, outcome_logits, resolve = map(jax.jit, _functions(env).values())
    # Waiting keeps two programs with host callbacks from running at once.
    after = jax.block_until_ready(afterstate(state, action))
    _check_afterstate(env, after)
    check_same(env, "afterstate", after, afterstate(state, action))
    each = jnp.arange(number, dtype=jnp.int32)
    probs = _probabilities(env, outcome_logits(after))
    landed, stepped = resolve(after, each), _samples(env, state, action, key)
    check_pure(env, lambda: _functions(env), ((state, action), (after,), (after, each)))
    _check_signature(env, stepped, landed)
    possible = probs > 0
    finished = np.broadcast_to(np.asarray(over)[:, None], possible.shape)
    transitions = jax.tree.map(lambda x: np.asarray(x)[possible], landed[1])
    check_laws(env, "an outcome", finished[possible], transitions)
    _check_frequencies(env, probs, landed, stepped)


def _functions(env: Any) -> dict[str, Callable]:
    """Fresh batched functions, so that `jax.jit` cannot remember having traced them."""

    def afterstate(state, action):
        return env.afterstate(state, action)

    def outcome_logits(after):
        return env.outcome_logits(after)

    def resolve(after, outcomes):
        return jax.vmap(lambda outcome: env.resolve(after, outcome))(outcomes)

    return {
        "afterstate": jax.vmap(afterstate),
        "outcome_logits": jax.vmap(outcome_logits),
        "resolve": jax.vmap(resolve, in_axes=(0, None)),
    }


def _samples(env: Any, state: PyTree[Array], action: Array, key: PRNGKeyArray) -> Any:
    """What `step` returned, `[rows, samples, ...]`."""

    def step(state, action, keys):
        return jax.vmap(lambda k: env.step(state, action, key=k))(keys)

    return jax.jit(jax.vmap(step))(state, action, jr.split(key, (len(action), _SAMPLES)))


def _check_afterstate(env: Any, after: PyTree[Array]) -> None:
    for name, leaf in leaves(after):
        if is_key(name, leaf):
            fail(
                env,
                f"afterstate{name} is a PRNG key, so the outcome is settled before it is drawn; "
                "let nothing but `outcome_logits` say what chance may do.",
            )


def _probabilities(env: Any, logits: Any) -> Float[np.ndarray, "rows outcomes"]:
    if logits.shape[1:] != (env.num_outcomes,) or not jnp.issubdtype(logits.dtype, jnp.floating):
        fail(
            env,
            f"outcome_logits returns {logits.dtype}{list(logits.shape[1:])}; it must be floating, "
            f"[{env.num_outcomes}].",
        )
    probs = np.exp(np.asarray(logits, np.float64))
    total = probs.sum(axis=1)
    # Not `>`: a NaN is wrong too.
    wrong = ~(np.abs(total - 1.0) <= 1e-4)
    if wrong.any():
        fail(
            env,
            f"the probabilities of outcome_logits add up to {total[wrong][0]:.6g}; they must add "
            "up to 1: normalise them with jax.nn.log_softmax.",
        )
    return probs


def _check_signature(env: Any, stepped: Any, landed: Any) -> None:
    """`[rows, samples, ...]` of `step` and `[rows, outcomes, ...]` of `resolve`."""
    old, new = jax.tree.structure(stepped), jax.tree.structure(landed)
    if old != new:
        fail(env, f"resolve returns the structure {new} and step {old}; both must agree.")
    for (name, x), (_, y) in zip(leaves(stepped), leaves(landed), strict=True):
        if (x.shape[2:], x.dtype) != (y.shape[2:], y.dtype):
            fail(
                env,
                f"{name} is {x.dtype}{list(x.shape[2:])} after step and "
                f"{y.dtype}{list(y.shape[2:])} after resolve; both must agree.",
            )


def _check_frequencies(
    env: Any, probs: Float[np.ndarray, "rows outcomes"], landed: Any, stepped: Any
) -> None:
    """A chi-square test over all rows together.

    Its statistic exceeds `k + 2 sqrt(k x) + 2 x`, `k` its degrees of freedom, with a probability
    below `exp(-x)`. Laurent and Massart 2000, "Adaptive estimation of a quadratic functional by
    model selection", lemma 1.
    """
    statistic, freedom, worst = 0.0, 0, (0.0, "")
    for row, p in enumerate(probs):
        counts, expected = _count(env, p, *(_row(x, row) for x in (landed, stepped)))
        terms = (counts - expected) ** 2 / expected
        statistic, freedom = statistic + terms.sum(), freedom + len(terms) - 1
        i = int(np.argmax(terms))
        seen = f"{counts[i]:.0f} times in {_SAMPLES} instead of {expected[i]:.1f}"
        worst = max(worst, (terms[i], seen))
    if statistic > freedom + 2 * np.sqrt(freedom * _DOUBT) + 2 * _DOUBT:
        fail(
            env,
            "step does not draw outcomes with the probabilities of outcome_logits: one came "
            f"{worst[1]} (chi-square {statistic:.0f}, {freedom} degrees of freedom).",
        )


def _row(x: Any, row: int) -> list[np.ndarray]:
    return [np.asarray(leaf)[row].reshape(leaf.shape[1], -1) for leaf in jax.tree.leaves(x)]


def _count(
    env: Any,
    probs: Float[np.ndarray, " outcomes"],
    landed: list[np.ndarray],
    stepped: list[np.ndarray],
) -> tuple[Float[np.ndarray, " bins"], Float[np.ndarray, " bins"]]:
    """How often each outcome of one row came and how often it should have.

    Outcomes that lead to the same place are counted together, and so are rare ones.
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
            env,
            f"step led {free.sum()} times in {_SAMPLES} where `resolve` leads from no outcome of "
            "positive probability; both must move, reward and end alike.",
        )
    bins.sort(reverse=True)
    while len(bins) > 1 and bins[-1][0] < _RARE:
        rare = bins.pop()
        bins[-1] = (bins[-1][0] + rare[0], bins[-1][1] + rare[1])
        bins.sort(reverse=True)
    expected, counts = np.asarray(bins, np.float64).T
    return counts, expected


def _equal(many: list[np.ndarray], one: list[np.ndarray]) -> Bool[np.ndarray, " rows"]:
    """Whether each row equals the given one; two programs may round floats differently."""
    close = [
        np.isclose(x, y, rtol=1e-4, atol=1e-5, equal_nan=True)
        if np.issubdtype(x.dtype, np.inexact)
        else x == y
        for x, y in zip(many, one, strict=True)
    ]
    return np.all(np.concatenate(close, axis=1), axis=1)
