"""AlphaZero's loss against NumPy, its guard against NaN, and that it learns Nim."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

from zero_envs import Observation
from zero_envs.testing import Nim, NimState
from zero_memory import Batch
from zero_search import TreeSearch
from zero_train import evaluate_batch, Experience, fill, init, PlanRecord, step

from .nim_agent import nim_agent, nim_loop


ENV = Nim(heap=7, most=3)


def make_batch(seed: int) -> Batch:
    """Eight rows: two are final observations, one has no weight, two heaps have illegal moves."""
    draws = np.random.default_rng(seed)
    heaps = np.array([7, 5, 3, 2, 1, 4, 6, 7])
    legal = np.arange(1, 4)[None] <= heaps[:, None]
    weights = draws.random((8, 3)) * legal
    weights /= weights.sum(axis=1, keepdims=True)
    last = np.array([0, 0, 1, 0, 0, 0, 1, 0], bool)
    outcome = jnp.asarray(draws.choice([-1.0, 1.0], 8), jnp.float32)
    rows = Experience(
        obs=Observation(jnp.asarray(np.eye(8)[heaps], jnp.float32), jnp.asarray(legal)),
        action=jnp.zeros(8, jnp.int32),
        reward=jnp.zeros(8),
        discount=-jnp.ones(8, jnp.float32),
        last=jnp.asarray(last),
        record=PlanRecord(
            jnp.asarray(weights, jnp.float32), jnp.asarray(draws.uniform(-1, 1, 8), jnp.float32)
        ),
    )
    counts = jnp.asarray([1, 1, 1, 0, 1, 1, 1, 1], jnp.float32)
    return Batch(rows, counts, jnp.arange(8, dtype=jnp.int32), outcome)


def test_loss_is_the_formula():
    """Every term against a NumPy loop over the rows that count."""
    agent = nim_agent(ENV, value_weight=0.7, value_mix=0.25, l2=0.01)
    state = agent.init(key=jr.key(0))
    batch = make_batch(0)
    _, metrics = eqx.filter_jit(agent.update)(state, batch, key=jr.key(1))

    rows, outcome = batch.items, np.asarray(batch.outcome)
    evaluate = jax.jit(lambda params: jax.vmap(agent.evaluator(params))(rows.obs))
    logits, values = evaluate(state.params)
    logits, values = np.asarray(logits, np.float64), np.asarray(values, np.float64)
    policy, value, entropy, count = 0.0, 0.0, 0.0, 0
    for i in range(8):
        if rows.last[i] or batch.weights[i] == 0:
            continue
        legal = np.flatnonzero(rows.obs.legal[i])
        log_pi = logits[i, legal] - np.log(np.exp(logits[i, legal]).sum())
        target = 0.75 * float(outcome[i]) + 0.25 * float(rows.record.value[i])
        policy -= float((np.asarray(rows.record.weights[i])[legal] * log_pi).sum())
        value += 0.5 * (values[i] - target) ** 2
        entropy -= float((np.exp(log_pi) * log_pi).sum())
        count += 1
    squares = sum(float((np.asarray(x) ** 2).sum()) for x in jax.tree.leaves(state.params))
    assert count == 5
    assert float(metrics["policy_loss"]) == pytest.approx(policy / count, rel=1e-5)
    assert float(metrics["value_loss"]) == pytest.approx(value / count, rel=1e-5)
    assert float(metrics["l2_loss"]) == pytest.approx(0.01 * squares, rel=1e-5)
    assert float(metrics["policy_entropy"]) == pytest.approx(entropy / count, rel=1e-5)
    total = policy / count + 0.7 * value / count + 0.01 * squares
    assert float(metrics["loss"]) == pytest.approx(total, rel=1e-5)


def test_reanalysis_plans_from_the_stored_states():
    """With the keys of the plans that are stored, and the network of their time, it changes
    nothing; after an update it does, and no outcome."""
    agent = nim_agent(ENV, keeps_states=True)
    state, keys = agent.init(key=jr.key(0)), jr.split(jr.key(1), 8)
    batch = make_batch(0)
    heaps = jnp.argmax(batch.items.obs.features, axis=-1).astype(jnp.int32)

    @eqx.filter_jit
    def play(state):
        actor = agent.actor(state, explore=True)
        start = jax.vmap(NimState)(heaps)
        return actor.act(start, batch.items.obs, actor.init(start), key=keys)[1]

    with jax.debug_key_reuse(False):
        rows = dataclasses.replace(batch.items, record=play(state))
        anew = eqx.filter_jit(lambda state, rows: agent.reanalyser(state)(rows, key=keys))
        same = anew(state, rows)
        learned, _ = eqx.filter_jit(agent.update)(state, batch, key=jr.key(2))
        other = anew(learned, rows)
    for x, y in zip(jax.tree.leaves(rows), jax.tree.leaves(same), strict=True):
        np.testing.assert_array_equal(x, y)
    assert not np.array_equal(rows.record.value, other.record.value)
    np.testing.assert_array_equal(rows.record.state.heap, other.record.state.heap)
    with pytest.raises(ValueError, match="has no states to plan from anew: give True"):
        nim_agent(ENV).reanalyser(state)


@pytest.fixture(scope="module")
def trained():
    """A new state, and the update of its agent without a penalty on parameters."""
    agent = nim_agent(ENV, l2=0.0)
    return agent.init(key=jr.key(0)), eqx.filter_jit(agent.update)


def test_rows_without_weight_teach_nothing(trained):
    """Final rows and rows of weight 0 may hold anything, even where nothing else counts."""
    state, update = trained
    batch = make_batch(1)
    rows, outcome, uncounted = batch.items, batch.outcome, jnp.array([2, 3, 6])
    assert outcome is not None
    spoilt = eqx.tree_at(
        lambda b: (b.outcome, b.items.obs.legal, b.items.record.weights),
        batch,
        (
            outcome.at[uncounted].set(jnp.nan),
            rows.obs.legal.at[uncounted].set(False),
            rows.record.weights.at[uncounted].set(jnp.nan),
        ),
    )
    one, _ = update(state, batch, key=jr.key(1))
    two, _ = update(state, spoilt, key=jr.key(1))
    for x, y in zip(jax.tree.leaves(one.params), jax.tree.leaves(two.params), strict=True):
        np.testing.assert_array_equal(x, y)
    nothing = eqx.tree_at(lambda b: b.weights, batch, jnp.zeros(8))
    three, metrics = update(state, nothing, key=jr.key(1))
    assert float(metrics["gradient_norm"]) == 0.0
    for x, y in zip(jax.tree.leaves(three.params), jax.tree.leaves(state.params), strict=True):
        np.testing.assert_array_equal(x, y)


def test_nan_never_reaches_the_parameters(trained):
    state, update = trained
    batch = make_batch(2)
    assert batch.outcome is not None
    bad = eqx.tree_at(lambda b: b.outcome, batch, batch.outcome.at[0].set(jnp.nan))
    new, metrics = update(state, bad, key=jr.key(1))
    assert not np.isfinite(float(metrics["value_loss"]))
    assert np.isfinite(float(metrics["policy_loss"]))
    for x, y in zip(jax.tree.leaves(new), jax.tree.leaves(state), strict=True):
        np.testing.assert_array_equal(x, y)


def test_average_is_a_moving_average():
    agent = nim_agent(ENV, average_decay=0.9, optimiser=optax.sgd(0.1))
    state = agent.init(key=jr.key(0))
    expected = [np.asarray(x) for x in jax.tree.leaves(state.params)]
    update = eqx.filter_jit(agent.update)
    for count in range(3):
        state, _ = update(state, make_batch(count), key=jr.key(1))
        decay = min(0.9, (1 + count) / (10 + count))
        params = [np.asarray(x) for x in jax.tree.leaves(state.params)]
        expected = [decay * a + (1 - decay) * p for a, p in zip(expected, params, strict=True)]
    for x, y in zip(jax.tree.leaves(state.target), expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("decay", [-0.1, 1.5, np.nan])
def test_a_decay_that_is_no_share_is_refused(decay):
    with pytest.raises(ValueError, match="average_decay=.* must be a number, 0 to 1"):
        nim_agent(ENV, average_decay=decay)


def test_learns_nim():
    """From self-play alone, the bare network plays the winning line and knows who is winning.

    The search is Gumbel's: with so few simulations PUCT may never try a move that an early,
    wrong policy has given up. Heaps that perfect play never meets are not asked for.
    """
    search = TreeSearch.gumbel(8, max_num_considered_actions=3)
    loop = nim_loop(1, agent=nim_agent(ENV, explorer=search))
    state = fill(loop, init(loop, key=jr.key(4)))
    for _ in range(60):
        state, _ = step(loop, state)
    heaps = jnp.arange(1, 8, dtype=jnp.int32)
    obs = jax.vmap(ENV.observe)(jax.vmap(NimState)(heaps))
    agent: Any = loop.agent
    evaluate = jax.jit(lambda params: evaluate_batch(agent.evaluator(params), obs))
    logits, values = evaluate(state.agent.params)
    best = np.argmax(logits, axis=-1) + 1
    for heap in (1, 2, 3, 7):
        assert best[heap - 1] == heap % 4, heap
    assert float(values[3]) < -0.5 and float(values[6]) > 0.5
