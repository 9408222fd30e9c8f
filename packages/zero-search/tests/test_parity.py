"""With the same noise, visits equal mctx's: PUCT and Gumbel, Othello and random trees."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import mctx
import pytest

from zero_search import _gumbel, AbstractRootNoise, GumbelSearch, MuZeroPUCT, TreeSearch
from zero_search._tree_search import root_statistics

from .helpers import Jitted, othello_positions, RandomTree


SIMULATIONS = 40
# chex dataclasses hide their constructors from type checkers.
ENGINE: Any = mctx
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


@pytest.fixture(scope="module", params=["othello", "tree"])
def case(request):
    if request.param == "othello":
        model, state = othello_positions(208, seed=3)
    else:
        model = RandomTree()
        state = model.root(400)
    logits = jax.jit(lambda s: model.predict(s, key=UNUSED))(state)[0]
    return model, state, jr.normal(jr.key(5), logits.shape)


def run_mctx(policy, model, state, noise, monkeypatch, **kwargs):
    """One mctx search with `noise` in the place of its own."""

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
        monkeypatch.setattr(jr, "gumbel", lambda *_, **__: noise)
        out = policy((), jr.key(0), root, recurrent, SIMULATIONS, invalid, **kwargs)
        return out.search_tree.summary(), out.action, out.action_weights

    monkeypatch.setattr(jr, "uniform", lambda key, shape=(), *_, **__: jnp.zeros(shape))
    with (
        jax.numpy_dtype_promotion("standard"),
        jax.numpy_rank_promotion("allow"),
        jax.debug_key_reuse(False),
    ):
        out = jax.jit(run)(state, noise)
    monkeypatch.undo()
    return out


def test_puct_visits_equal_mctx(case, monkeypatch):
    model, state, noise = case
    summary, _, _ = run_mctx(
        mctx.muzero_policy, model, state, noise, monkeypatch, dirichlet_fraction=0.0
    )
    planner = TreeSearch(SIMULATIONS, selection=MuZeroPUCT(), noise=Fixed(noise))
    plan = Jitted(planner, model).fresh(state)
    ours = jnp.round(plan.weights * SIMULATIONS).astype(jnp.int32)
    assert jnp.array_equal(ours, summary.visit_counts.astype(jnp.int32))
    assert jnp.allclose(plan.value, summary.value, atol=1e-5)
    seen = ours > 0
    assert jnp.allclose(jnp.where(seen, plan.qvalues - summary.qvalues, 0.0), 0.0, atol=1e-5)


def test_gumbel_visits_equal_mctx(case, monkeypatch):
    model, state, noise = case
    summary, action, weights = run_mctx(mctx.gumbel_muzero_policy, model, state, noise, monkeypatch)
    planner = GumbelSearch(SIMULATIONS)
    seen = []

    def spy(tree):
        seen.append(tree.edge[:, 0, 0])
        return root_statistics(tree)

    def run(state, noise):
        monkeypatch.setattr(_gumbel, "root_gumbel", lambda *_: noise)
        monkeypatch.setattr(_gumbel, "root_statistics", spy)
        key = jr.split(jr.key(0), noise.shape[0])
        plan, _ = planner.plan(model, state, planner.init(model, state), key=key)
        return plan, seen[-1]

    plan, visits = jax.jit(run)(state, noise)
    assert jnp.array_equal(visits, summary.visit_counts)
    assert jnp.array_equal(plan.action, action)
    assert jnp.allclose(plan.weights, weights, atol=1e-5)
    assert jnp.allclose(plan.value, summary.value, atol=1e-5)
    assert jnp.allclose(jnp.where(visits > 0, plan.qvalues - summary.qvalues, 0.0), 0.0, atol=1e-5)
