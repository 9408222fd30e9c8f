"""With the same noise, visits equal mctx's: PUCT and Gumbel, Othello and random trees."""

import contextlib
import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import mctx
import numpy as np
import pytest

from zero_search import (
    AbstractRootNoise,
    ByMinMax,
    CompletedByMixedValue,
    PriorRoot,
    PUCT,
    TreeSearch,
)
from zero_search._root import SequentialHalving

from .helpers import Jitted, othello_positions, quick_jit, RandomTree


SIMULATIONS, GAMMA = 32, 0.9
# chex dataclasses hide their constructors from type checkers.
ENGINE: Any = mctx
MUZERO = PUCT(1.25, c_base=19652.0)
# The models here draw nothing.
UNUSED: Any = None


class Fixed(AbstractRootNoise):
    """Root logits disturbed by a given array, as mctx stores them."""

    noise: jax.Array

    def __call__(self, logits, *, key):
        del key
        noisy = jnp.where(logits > -jnp.inf, logits + self.noise, -jnp.inf)
        probs = jax.nn.softmax(noisy)
        out = jnp.log(jnp.maximum(probs, jnp.finfo(jnp.float32).tiny))
        out = out - jnp.max(out, axis=-1, keepdims=True)
        return jnp.where(logits > -jnp.inf, out, -jnp.inf)


class FixedHalving(SequentialHalving):
    """The Gumbel noise is a given array."""

    noise: Any = None

    def prior(self, logits, *, key):
        return super().prior(logits, key=key)[0], self.noise


def muzero(noise, **parts) -> TreeSearch:
    options: dict[str, Any] = {"selection": MUZERO, **parts}
    return TreeSearch(SIMULATIONS, root=PriorRoot(Fixed(noise)), **options)


def gumbel(noise, qtransform, **parts) -> TreeSearch:
    planner = TreeSearch.gumbel(SIMULATIONS, qtransform=qtransform, **parts)
    root = FixedHalving(qtransform=qtransform, noise=noise)
    return dataclasses.replace(planner, root=root)


@pytest.fixture(scope="module")
def case(request):
    """Model, states and root noise; the tree has states where an episode is cut off."""
    if request.param == "othello":
        model, state = othello_positions(208, seed=3, gamma=GAMMA)
    else:
        model = RandomTree(truncate=0.1, gamma=GAMMA)
        state = model.start(200)
    logits = quick_jit(lambda s: model.predict(s, key=UNUSED))(state)[0]
    return model, state, jr.normal(jr.key(5), logits.shape)


def run_mctx(policy, case, monkeypatch, **kwargs):
    """One mctx search with the case's noise in the place of its own."""
    model, state, noise = case
    if isinstance(model, RandomTree):
        # mctx walks on below a final state: there the values must not fade.
        model = dataclasses.replace(model, after_end=1 / GAMMA)

    def recurrent(_, key, action, state):
        state, reward, discount, _ = model.step(state, action, key=key)
        logits, value = model.predict(state, key=key)
        return ENGINE.RecurrentFnOutput(
            reward=reward, discount=discount, prior_logits=logits, value=value
        ), state

    def run(state, noise):
        logits, value = model.predict(state, key=UNUSED)
        invalid = jnp.isneginf(logits)
        if policy is mctx.muzero_policy:
            logits = logits + noise
        root = ENGINE.RootFnOutput(prior_logits=logits, value=value, embedding=state)
        out = policy((), jr.key(0), root, recurrent, SIMULATIONS, invalid, **kwargs)
        return out.search_tree.summary(), out.action, out.action_weights

    with quiet_mctx(monkeypatch, noise), jax.debug_key_reuse(False):
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            return quick_jit(run)(state, noise)


@contextlib.contextmanager
def quiet_mctx(monkeypatch, noise):
    """mctx draws the given root noise and breaks no ties at random."""
    with monkeypatch.context() as patch:
        fixed = lambda key, shape, *_, **__: noise if shape == noise.shape else jnp.zeros(shape)
        patch.setattr(jr, "gumbel", fixed)
        patch.setattr(jr, "uniform", lambda key, shape=(), *_, **__: jnp.zeros(shape))
        yield


def assert_same(plan, summary):
    assert np.array_equal(plan.visits, summary.visit_counts)
    assert np.allclose(plan.value, summary.value, atol=1e-5)
    ours, theirs = (np.asarray(x.qvalues)[np.asarray(plan.visits) > 0] for x in (plan, summary))
    assert np.allclose(ours, theirs, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["othello"], indirect=True)
def test_puct_visits_equal_mctx(case, monkeypatch):
    model, state, noise = case
    summary, _, _ = run_mctx(mctx.muzero_policy, case, monkeypatch, dirichlet_fraction=0.0)
    assert_same(Jitted(muzero(noise), model).fresh(state), summary)


@pytest.mark.parametrize("case", ["tree"], indirect=True)
def test_whole_plans_equal_those_of_mctx(case, monkeypatch):
    # Everything in the plan, where episodes are cut off and mctx by itself walks on.
    model, state, noise = case
    options = dict(dirichlet_fraction=0.0)
    summary, _, weights = run_mctx(mctx.muzero_policy, case, monkeypatch, **options)
    plan = jax.tree.map(np.asarray, Jitted(muzero(noise), model).fresh(state))
    assert_same(plan, summary)
    assert np.allclose(plan.weights, weights, atol=1e-6)
    # mctx draws among the most visited; we take the first.
    assert np.array_equal(plan.action, np.argmax(weights, axis=1))
    advantages = plan.qvalues - plan.value[:, None]
    assert not np.any(advantages[plan.visits == 0])
    assert np.allclose(plan.advantages, advantages)
    assert not np.any(plan.stats["invalid"]) and not np.any(plan.stats["reused"])


@pytest.mark.parametrize(
    "case, options",
    [
        pytest.param("othello", {}, marks=pytest.mark.slow),
        ("tree", {"rescale_values": False, "value_scale": 0.3, "maxvisit_init": 10.0}),
    ],
    indirect=["case"],
)
def test_gumbel_visits_equal_mctx(case, options, monkeypatch):
    model, state, noise = case
    transform = functools.partial(mctx.qtransform_completed_by_mix_value, **options)
    summary, action, weights = run_mctx(
        mctx.gumbel_muzero_policy, case, monkeypatch, qtransform=transform
    )
    plan = Jitted(gumbel(noise, CompletedByMixedValue(**options)), model).fresh(state)
    assert_same(plan, summary)
    assert np.array_equal(plan.action, action)
    assert np.allclose(plan.weights, weights, atol=1e-5)


@pytest.mark.parametrize("case", ["tree"], indirect=True)
def test_puct_with_other_parts_and_a_depth_limit_equals_mctx(case, monkeypatch):
    model, state, noise = case
    transform = functools.partial(mctx.qtransform_by_min_max, min_value=-1.5, max_value=2.0)
    options = dict(dirichlet_fraction=0.0, qtransform=transform, max_depth=3)
    summary, _, _ = run_mctx(mctx.muzero_policy, case, monkeypatch, **options)
    rule = PUCT(1.25, ByMinMax(-1.5, 2.0), c_base=19652.0)
    plan = Jitted(muzero(noise, selection=rule, max_depth=3), model).fresh(state)
    assert_same(plan, summary)


@pytest.mark.parametrize("case", ["tree"], indirect=True)
def test_gumbel_with_other_parts_and_a_depth_limit_equals_mctx(case, monkeypatch):
    model, state, noise = case
    transform = functools.partial(mctx.qtransform_completed_by_mix_value, use_mixed_value=False)
    summary, action, weights = run_mctx(
        mctx.gumbel_muzero_policy, case, monkeypatch, qtransform=transform, max_depth=2
    )
    rule = CompletedByMixedValue(use_mixed_value=False)
    plan = Jitted(gumbel(noise, rule, max_depth=2), model).fresh(state)
    assert_same(plan, summary)
    assert np.array_equal(plan.action, action)
    assert np.allclose(plan.weights, weights, atol=1e-5)
