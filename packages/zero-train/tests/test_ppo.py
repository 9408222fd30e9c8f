"""PPO and V-MPO: the loss of a minibatch against NumPy, its gradient, memory, devices, and that
both learn."""

import dataclasses
import functools as ft
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jaxtyping
import numpy as np
import optax
import pytest
from jaxtyping import Array, Float, PRNGKeyArray

from zero_envs import Observation
from zero_memory import Batch, Latest
from zero_train import bind, Clip, data_mesh, Experience, init, Loop, PolicyRecord, PPO, step, VMPO
from zero_train.losses import Dual

from .actor_critics import (
    ACTIONS,
    Aim,
    assert_same,
    continuous_region,
    counted,
    DIMS,
    discrete_region,
    each,
    FEATURES,
    GaussianNet,
    LogitsNet,
    Moments,
    moved_by,
    ValueNet,
    windows,
)
from .crossings import check_crossings
from .policies import Categorical, Gaussian
from .test_loop import plain


GAMMA, LAMBDA, EPSILON, VALUE, ENTROPY = 0.9, 0.8, 0.2, 0.7, 0.1
RATE = 0.1


class Both(eqx.Module):
    """A policy and a value."""

    policy: GaussianNet | LogitsNet
    value: ValueNet

    def __init__(self, size: int, actions: int | None = None, *, key: PRNGKeyArray):
        pkey, vkey = jr.split(key)
        discrete = actions is not None
        self.policy = (
            LogitsNet(size, actions, key=pkey) if discrete else GaussianNet(size, key=pkey)
        )
        self.value = ValueNet(size, key=vkey)

    def __call__(self, features: Float[Array, " size"]) -> tuple[Any, Float[Array, ""]]:
        return self.policy(features), self.value(features)


def ppo(discrete: bool = False, **changes: Any) -> PPO:
    """PPO of `windows`."""
    fields: dict[str, Any] = dict(
        network=ft.partial(Both, FEATURES, ACTIONS if discrete else None),
        optimiser=optax.sgd(RATE),
        objective=Clip(EPSILON),
        gamma=GAMMA,
        lambda_=LAMBDA,
        value_weight=VALUE,
        entropy_bonus=ENTROPY,
    )
    return PPO(**{**fields, **changes})


def batch_of(discrete: bool) -> Batch:
    """Windows with policies that have acted, not far from those that a fresh network has."""

    def record(*, log_prob: Array, **rest: Array) -> PolicyRecord:
        del rest
        draws = np.random.default_rng(3)
        number = lambda *shape: jnp.asarray(
            draws.normal(size=(*log_prob.shape, *shape)), jnp.float32
        )
        if discrete:
            return PolicyRecord(Categorical(0.5 * number(ACTIONS)), None)
        return PolicyRecord(Gaussian(0.3 * number(DIMS), jnp.exp(0.2 * number(DIMS)) * 0.7), None)

    batch = windows(discrete, record=record)
    if not discrete:
        return batch
    # What acted plays no illegal action.
    legal = batch.items.obs.legal
    assert legal is not None
    legal = legal | ~jnp.any(legal, axis=-1, keepdims=True)
    logits = jnp.where(legal, batch.items.record.policy.logits, -jnp.inf)
    return eqx.tree_at(lambda b: b.items.record.policy.logits, batch, logits)


def gae(rows: Experience, value: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Advantages and returns by their sums (Schulman et al. 2016, equation 16)."""
    advantage = np.zeros(value.shape)
    number, time = value.shape
    for i in range(number):
        for t in range(time - 1):
            weight = 1.0
            for k in range(t, time - 1):
                if rows.last[i, k]:
                    break
                ahead = GAMMA * float(rows.discount[i, k])
                delta = float(rows.reward[i, k]) + ahead * value[i, k + 1] - value[i, k]
                advantage[i, t] += weight * delta
                weight *= LAMBDA * ahead
    return advantage, advantage + value


def log_probs(policy: Any, batch: Batch, which: str = "log_prob") -> np.ndarray:
    """In double precision, from the textbook's formulas; illegal actions are taken out first."""
    action = np.asarray(batch.items.action)
    if isinstance(policy, Gaussian):
        z = (action - policy.loc) / policy.scale
        return np.sum(-(z**2) / 2 - np.log(policy.scale) - np.log(2 * np.pi) / 2, axis=-1)
    return np.take_along_axis(log_softmax(policy, batch), action[..., None], -1)[..., 0]


def log_softmax(policy: Any, batch: Batch) -> np.ndarray:
    legal = np.asarray(batch.items.obs.legal)
    legal = legal | ~legal.any(-1, keepdims=True)
    logits = np.where(legal, np.asarray(policy.logits, np.float64), -1e9)
    return logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)


def entropy(policy: Any, batch: Batch) -> np.ndarray:
    if isinstance(policy, Gaussian):
        return np.sum(np.log(policy.scale) + np.log(2 * np.pi * np.e) / 2, axis=-1)
    logs = log_softmax(policy, batch)
    return -np.sum(np.exp(logs) * logs, axis=-1)


def divergence(old: Any, policy: Any, batch: Batch) -> np.ndarray:
    """KL(old || policy), of each dimension where there are some."""
    if isinstance(policy, Gaussian):
        square = np.square(old.scale) + np.square(old.loc - policy.loc)
        return np.log(policy.scale / old.scale) + square / (2 * np.square(policy.scale)) - 0.5
    before, now = log_softmax(old, batch), log_softmax(policy, batch)
    return np.sum(np.exp(before) * (before - now), axis=-1)


def network_says(agent: PPO, params: Any, batch: Batch) -> tuple[Any, np.ndarray]:
    return each(agent.network, params, batch.items.obs.features)


def mean(x: np.ndarray, counts: np.ndarray) -> float:
    return float(np.sum(np.where(counts > 0, counts * x, 0)) / counts.sum())


def wanted(agent: PPO, params: Any, batch: Batch, fixed: Any = None) -> dict[str, float]:
    """The losses of PPO; with `fixed` parameters the advantages and returns are those of these."""
    counts = counted(batch)
    policy, value = network_says(agent, params, batch)
    _, known = network_says(agent, params if fixed is None else fixed, batch)
    advantage, returns = gae(batch.items, known)
    centred = advantage - mean(advantage, counts)
    advantage = centred / np.sqrt(mean(centred**2, counts) + 1e-8)
    old = jax.tree.map(lambda x: np.asarray(x, np.float64), batch.items.record.policy)
    ratio = np.exp(log_probs(policy, batch) - log_probs(old, batch))
    clipped = np.clip(ratio, 1 - EPSILON, 1 + EPSILON)
    far = mean(np.abs(ratio - 1) > EPSILON, counts)
    assert 0.1 < far < 0.99  # on both sides
    found = {
        "policy_loss": -mean(np.minimum(ratio * advantage, clipped * advantage), counts),
        "value_loss": mean((value - returns) ** 2 / 2, counts),
        "policy_entropy": mean(entropy(policy, batch), counts),
        "clipped": far,
    }
    kl = divergence(old, policy, batch)
    found["kl"] = mean(kl.sum(-1) if kl.ndim > 2 else kl, counts)
    parts = found["policy_loss"] + VALUE * found["value_loss"]
    return found | {"loss": parts - ENTROPY * found["policy_entropy"]}


@pytest.fixture(scope="module", params=[False, True], ids=["continuous", "discrete"])
def updated(request: Any) -> Any:
    """An agent, a batch, its state before and after an update, and the metrics."""
    agent, batch = ppo(request.param), batch_of(request.param)
    state = agent.init(key=jr.key(0))
    after, metrics = eqx.filter_jit(agent.update)(state, batch, key=jr.key(1))
    return agent, batch, state, after, {name: float(x) for name, x in metrics.items()}


def test_the_loss_is_that_of_the_paper(updated):
    """Clipped ratios of standardised advantages, returns that end with the episode or go on behind
    a truncated one, and the entropy; final rows and those of weight 0 count for nothing."""
    agent, batch, state, _, metrics = updated
    numbers = wanted(agent, state.params, batch)
    assert {name: metrics[name] for name in numbers} == pytest.approx(numbers, rel=1e-4, abs=1e-5)


def test_the_gradient_is_that_of_the_loss(updated):
    """By finite differences, with advantages and returns held: nothing learns through these."""
    agent, batch, state, after, _ = updated
    gradient = jax.tree.map(lambda x, y: (x - y) / RATE, state.params, after.params)
    for seed in range(3):
        leaves, shape = jax.tree.flatten(state.params)
        keys = jr.split(jr.key(seed), len(leaves))
        along = shape.unflatten(
            [jr.normal(k, x.shape, x.dtype) for k, x in zip(keys, leaves, strict=True)]
        )
        ends = [
            wanted(agent, moved_by(state.params, along, by), batch, fixed=state.params)["loss"]
            for by in (2e-4, -2e-4)
        ]
        slope = sum(jax.tree.leaves(jax.tree.map(lambda g, d: jnp.sum(g * d), gradient, along)))
        assert float(slope) == pytest.approx((ends[0] - ends[1]) / 4e-4, rel=1e-2, abs=3e-3)


@pytest.mark.parametrize("discrete", [False, True], ids=["continuous", "discrete"])
def test_the_loss_of_v_mpo(discrete):
    """The better half of the rows by `exp(advantage / eta)`, the penalties of all, and their
    duals. (The fit is held to rlax in test_vmpo.py.)"""
    region = discrete_region() if discrete else continuous_region()
    agent = ppo(discrete, objective=VMPO(region, optax.sgd(3 * RATE)))
    batch, state = batch_of(discrete), agent.init(key=jr.key(0))
    after, metrics = eqx.filter_jit(agent.update)(state, batch, key=jr.key(1))
    counts = counted(batch)
    policy, value = network_says(agent, state.params, batch)
    advantage, _ = gae(batch.items, value)
    rows = np.flatnonzero(counts > 0)
    best = np.asarray(sorted(rows, key=lambda i: -advantage.flat[i])[: len(rows) // 2])
    eta = np.logaddexp(0, 0.3) + 1e-8
    kept, gained, chosen = (
        np.ravel(x)[best] for x in (counts, advantage, log_probs(policy, batch))
    )
    q = kept * np.exp(gained / eta)
    log_z = np.log(q.sum() / kept.sum())
    fit = -np.sum(q / q.sum() * chosen)
    assert float(metrics["policy_loss"]) == pytest.approx(fit, rel=1e-4)
    assert float(metrics["temperature_loss"]) == pytest.approx(eta * (0.2 + log_z), rel=1e-4)
    old = jax.tree.map(lambda x: np.asarray(x, np.float64), batch.items.record.policy)
    if discrete:
        kl, alpha, bound = divergence(old, policy, batch), np.logaddexp(0, 0.8), 1e-2
        name = "alpha"
    else:
        kl = divergence(old, Gaussian(policy.loc, old.scale), batch).sum(-1)
        alpha, bound, name = np.logaddexp(0, 1.2), 0.05, "alpha_mean"
    kind = "" if discrete else "_mean"
    assert float(metrics["kl" + kind]) == pytest.approx(mean(kl, counts), rel=1e-3)
    assert float(metrics["kl_loss" + kind]) == pytest.approx(alpha * mean(kl, counts), rel=1e-3)
    # A multiplier rises while the divergence is above the bound.
    moved = after.duals[name].rho - state.duals[name].rho
    per = 1 if discrete else DIMS
    rises = 3 * RATE * scale_of(state.duals[name]) * (mean(kl, counts) / per - bound)
    assert float(jnp.mean(moved)) == pytest.approx(float(rises), rel=1e-2)


def scale_of(dual: Dual) -> float:
    """The derivative of a multiplier."""
    return float(jnp.mean(jax.nn.sigmoid(dual.rho)))


@pytest.mark.parametrize("discount, goal", [(1.0, 1 + GAMMA * 10), (0.0, 1.0)])
def test_a_truncated_episode_is_worth_what_would_have_come(discount, goal):
    """A step of reward 1, and the final observation. All values are 10."""
    shape = (1, 3)
    record = PolicyRecord(Categorical(jnp.zeros((*shape, ACTIONS))), None)
    row = lambda *x: jnp.asarray([x], jnp.float32)
    rows = Experience(
        Observation(jnp.zeros((*shape, FEATURES)), jnp.ones((*shape, ACTIONS), bool)),
        jnp.zeros(shape, jnp.int32),
        row(1, 0, jnp.nan),
        row(discount, 0, jnp.nan),
        jnp.asarray([[False, True, False]]),
        record,
    )
    batch = Batch(rows, jnp.ones(shape), jnp.zeros(shape, jnp.int32))
    agent = ppo(discrete=True)
    state = agent.init(key=jr.key(0))
    values = jax.tree.map(jnp.zeros_like, state.params.value)
    values = eqx.tree_at(
        lambda v: v.mlp.layers[-1].bias, values, jnp.full_like(values.mlp.layers[-1].bias, 10.0)
    )
    state = eqx.tree_at(lambda s: s.params.value, state, values)
    _, metrics = eqx.filter_jit(agent.update)(state, batch, key=jr.key(0))
    assert float(metrics["value_loss"]) == pytest.approx((10 - goal) ** 2 / 2, rel=1e-5)


def aim_loop(objective: Any, devices: int = 1) -> Loop:
    agent = PPO(
        ft.partial(Both, DIMS),
        optax.adam(1e-2),
        objective,
        gamma=0.5,
        statistics=Moments.zeros(DIMS),
    )
    buffer = Latest(capacity=9, num_envs=16, batch_size=16, length=5, num_shards=8)
    return Loop(
        env=Aim(max_steps=3),
        agent=agent,
        buffer=buffer,
        unroll_length=8,
        num_updates=8,
        mesh=data_mesh(devices),
    )


OBJECTIVES = {
    "ppo": Clip(),
    "vmpo": VMPO(
        continuous_region(
            epsilon=0.3,
            epsilon_stddev=5e-3,
            temperature=Dual.from_value(1.0),
            alpha_mean=Dual.from_value(1.0, (DIMS,)),
            alpha_stddev=Dual.from_value(1.0, (DIMS,)),
        ),
        optax.adam(3e-2),
    ),
}


@pytest.mark.parametrize("name", list(OBJECTIVES))
def test_it_aims_on_any_number_of_devices(name, collectives):
    """Two steps are the same on 1 and on 8 devices, where those of PPO only sum. Then it learns,
    with observations far from 0, which statistics bring there."""
    found = {}
    for devices in (1, 8):
        loop = aim_loop(OBJECTIVES[name], devices)
        state, _ = step(loop, init(loop, key=jr.key(0)))
        state, metrics = step(loop, state)
        found[devices] = loop, state, plain((state.agent, metrics))
    for x, y in zip(found[1][2], found[8][2], strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-5)
    if name == "ppo":
        check_crossings(found[8][0], found[8][1], collectives)
    loop, state, _ = found[1]
    for _ in range(60):
        state, metrics = step(loop, state)
        assert np.isfinite(metrics["gradient_norm"])
    goals = jr.uniform(jr.key(2), (200, DIMS), jnp.float32, minval=-0.8, maxval=0.8)
    network = bind(loop.agent.network, state.agent.params)
    says = eqx.filter_jit(lambda network, features: jax.vmap(network)(features))
    policy, _ = says(network, state.agent.statistics.normalise(10 + 4 * goals))
    assert float(jnp.sqrt(jnp.mean(jnp.square(policy.loc - goals)))) < 0.2


def test_a_step_that_is_not_finite_changes_nothing():
    agent, batch = ppo(), batch_of(False)
    state = agent.init(key=jr.key(0))
    batch = eqx.tree_at(
        lambda b: b.items.reward, batch, replace_fn=lambda x: x.at[0, 0].set(jnp.nan)
    )
    after, metrics = eqx.filter_jit(agent.update)(state, batch, key=jr.key(0))
    assert np.isnan(metrics["loss"])
    assert_same(after, state)


def test_learning_goes_on_from_a_player():
    agent = ppo(statistics=Moments.zeros(FEATURES))
    state = agent.init(key=jr.key(0))
    seen = Moments.zeros(FEATURES).update(jnp.ones((4, FEATURES)))
    state = dataclasses.replace(state, statistics=seen)
    player = agent.actor(state, explore=False)
    assert player.greedy and not agent.actor(state, explore=True).greedy
    again = agent.init(key=jr.key(1), actor=player)
    assert_same((again.params, again.statistics), (state.params, state.statistics))


WRONG: Any = 3
NO_REGION: Any = Clip()


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: ppo(network=3), "network"),
        (lambda: ppo(optimiser=3), "optimiser"),
        (lambda: ppo(objective=0.2), r"objective=0.2.*Clip or VMPO"),
        (lambda: ppo(statistics=3), "statistics"),
        (lambda: ppo(gamma=1.5), r"gamma=1.5"),
        (lambda: ppo(entropy_bonus=-1.0), r"entropy_bonus=-1"),
        (lambda: ppo().init(key=jr.key(0), actor=WRONG), r"PPO.init\(actor=3"),
        (lambda: Clip(0.0), "epsilon=0"),
        (lambda: VMPO(NO_REGION, optax.adam(1.0)), "trust region"),
        (lambda: VMPO(discrete_region(), WRONG), "dual_optimiser"),
        (lambda: VMPO(discrete_region(), optax.adam(1.0), 2.0), "top_fraction=2"),
    ],
)
def test_what_it_refuses(make, message, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    with pytest.raises(ValueError, match=message):
        make()


def test_rows_that_are_no_windows():
    agent, batch = ppo(), batch_of(False)
    one = jax.tree.map(lambda x: x[:, :1], batch)
    with pytest.raises(ValueError, match=r"PPO.update was given rows of shape \[4, 1\]"):
        agent.update(agent.init(key=jr.key(0)), one, key=jr.key(0))
