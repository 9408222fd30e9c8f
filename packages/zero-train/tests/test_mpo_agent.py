"""MPO: whose actions, judged by whom, returns that end with the episode, and that it learns."""

import functools as ft
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import scipy.stats
from jaxtyping import Array, Float, PRNGKeyArray

from zero_envs import Observation
from zero_train import Behaviour, Experience
from zero_train.losses import AbstractTrustRegion, Dual

from .actor_critics import (
    ACTIONS,
    Aim,
    aimer,
    aiming,
    aiming_error,
    apart,
    assert_same,
    CANDIDATES,
    counted,
    DIMS,
    each,
    FEATURES,
    GaussianNet,
    learned,
    Moments,
    mpo,
    rates,
    windows,
)
from .policies import Gaussian
from .windows import by_definition, corrected_return


def record(*, candidates, weights, advantages, log_prob):
    del candidates, weights, advantages
    return Behaviour(log_prob)


batch_of = ft.partial(windows, record=record)


def update_of(agent: Any) -> Any:
    return eqx.filter_jit(lambda state, batch: agent.update(state, batch, key=jr.key(0)))


class Steady(eqx.Module):
    """A Gaussian whose sample is its mean, so that the mean over samples is known exactly."""

    loc: Float[Array, " dims"]
    scale: Float[Array, " dims"]

    def sample(self, *, key: PRNGKeyArray) -> Float[Array, " dims"]:
        del key
        return self.loc

    def log_prob(self, action: Float[Array, " dims"]) -> Float[Array, ""]:
        return Gaussian(self.loc, self.scale).log_prob(action)

    def kl(self, other: "Steady") -> Float[Array, " dims"]:
        return Gaussian(self.loc, self.scale).kl(Gaussian(other.loc, other.scale))

    def decouple(self, other: "Steady") -> tuple["Steady", "Steady"]:
        return Steady(self.loc, other.scale), Steady(other.loc, self.scale)


class SteadyNet(eqx.Module):
    net: GaussianNet

    def __init__(self, *, key: PRNGKeyArray):
        self.net = GaussianNet(FEATURES, key=key)

    def __call__(self, features: Float[Array, " size"]) -> Steady:
        policy = self.net(features)
        return Steady(policy.loc, policy.scale)


class OfPart(eqx.Module):
    """A policy of a part of what is seen."""

    net: GaussianNet

    def __init__(self, *, key: PRNGKeyArray):
        self.net = GaussianNet(FEATURES, key=key)

    def __call__(self, features: dict[str, Array]) -> Gaussian:
        return self.net(features["seen"])


class Steep(eqx.Module):
    """A Q-value that is a multiple of the action's sum."""

    slope: Float[Array, ""]

    def __init__(self, *, key: PRNGKeyArray):
        self.slope = jr.normal(key)

    def __call__(self, features: Any, action: Array) -> Float[Array, ""]:
        del features
        return self.slope * jnp.sum(action.astype(jnp.float32))


class Witness(AbstractTrustRegion):
    """Says what it was given, of policies with a `loc` or with logits."""

    epsilon: float
    temperature: Dual

    def duals(self) -> dict[str, Dual]:
        return {"temperature": self.temperature}

    def loss(
        self,
        policy: Any,
        target: Any,
        actions: Array,
        values: Float[Array, " actions"],
        duals: dict[str, Dual],
        *,
        weights: Float[Array, " actions"] | None = None,
        log_prior: Float[Array, " actions"] | None = None,
    ) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
        assert weights is None and log_prior is None
        number = actions.astype(jnp.float32).reshape(actions.shape[0], -1)
        ratio = values / jnp.sum(number, axis=1)
        return duals["temperature"].value + 0 * jnp.sum(jax.tree.leaves(policy)[0]), {
            "slope": jnp.mean(ratio),
            "slope_spread": jnp.max(ratio) - jnp.min(ratio),
            "log_prob": jnp.mean(jax.vmap(target.log_prob)(actions)),
            "spread": jnp.mean(jnp.std(number, axis=0)),
            "first": jnp.mean(number[:, 0]),
        }

    def constraint(self, policy: Any, target: Any, duals: dict[str, Dual]) -> Any:
        raise AssertionError("MPO has a fit of its own")


def witnessed(discrete: bool) -> dict[str, float]:
    """What the region was given, where the target policy is nowhere near the one that is learned,
    and the target critic multiplies by -3."""
    agent: Any = mpo(discrete, critic=Steep, num_samples=400, region=Witness(0.1, Dual(0.0)))
    state = agent.init(key=jr.key(0))
    bias = lambda policy: policy.mlp.layers[-1].bias
    where = lambda s: (bias(s.target_policy), bias(s.online.policy), s.target_critic.slope)
    target, online, _ = where(state)
    other = target.at[0].add(8.0), online.at[0].add(-8.0), jnp.float32(-3.0)
    state = eqx.tree_at(where, state, other)
    _, metrics = eqx.filter_jit(agent.update)(state, batch_of(discrete), key=jr.key(3))
    return {name: float(x) for name, x in metrics.items()}


def test_candidates_are_the_target_policys_and_judged_by_the_target_critic():
    """The target policy plays 1 in the first dimension, the one that is learned -1; and the target
    critic multiplies by -3."""
    found = witnessed(discrete=False)
    assert found["slope"] == pytest.approx(-3, rel=1e-4)
    assert found["slope_spread"] < 1e-2
    assert found["first"] == pytest.approx(1, abs=0.1)  # and not -1
    assert found["spread"] > 0.3  # no two are the same draw
    # As likely as draws from it are on average: the negative entropy.
    assert found["log_prob"] == pytest.approx(-DIMS * (1.42 + np.log(0.7)), abs=0.5)


def test_illegal_actions_are_no_candidates():
    """Which all are possible under the target policy."""
    found = witnessed(discrete=True)
    assert np.isfinite(found["log_prob"])


@pytest.fixture(scope="module")
def steady():
    """An agent whose candidates are known, a state unlike its targets, and its update."""
    agent: Any = mpo(policy=SteadyNet)
    return agent, apart(agent), update_of(agent)


def returns_of(agent: Any, state: Any, batch: Any) -> np.ndarray:
    """Retrace by its definition, of the target networks."""
    rows = batch.items
    policy = each(agent.policy, state.target_policy, rows.obs.features)
    judge = ft.partial(each, agent.critic, state.target_critic, rows.obs.features)
    log_prob = scipy.stats.norm.logpdf(rows.action, policy.loc, policy.scale).sum(-1)
    ratio = np.exp(log_prob - np.asarray(rows.record.log_prob, np.float64))
    assert 0.1 < np.mean(ratio < 1) < 0.95  # both sides of the minimum
    window = {
        "reward": np.asarray(rows.reward),
        "discount": agent.gamma * np.asarray(rows.discount, np.float64),
        "qvalue": judge(rows.action),
        "value": judge(jnp.asarray(policy.loc, jnp.float32)),
        "coefficient": agent.lambda_ * np.minimum(1, ratio),
        "last": np.asarray(rows.last),
    }
    return by_definition(corrected_return, window)


def test_the_critic_learns_retrace(steady):
    """The mean over rows that count; and of each such row alone, with all weight on it."""
    agent, state, update = steady
    batch = batch_of()
    rows, counts = batch.items, counted(batch)
    returns = returns_of(agent, state, batch)
    value = each(agent.critic, state.online.critic, rows.obs.features, rows.action)
    loss = (value - returns) ** 2 / 2
    _, metrics = update(state, batch)
    wanted = np.sum(counts * loss) / counts.sum()
    assert float(metrics["value_loss"]) == pytest.approx(wanted, rel=1e-4)
    assert float(metrics["value_mean"]) == pytest.approx(np.sum(counts * value) / counts.sum())
    for index in np.argwhere(counts > 0):
        i = tuple(index)
        weights = np.zeros(counts.shape, np.float32)
        weights[i] = 1
        alone = eqx.tree_at(lambda b: b.weights, batch, jnp.asarray(weights))
        assert float(update(state, alone)[1]["value_loss"]) == pytest.approx(
            loss[i], rel=1e-3, abs=1e-5
        )


def test_the_policy_is_fitted_within_its_region_to_what_the_target_policy_plays(steady):
    """All candidates are the target's mean here, so the losses are densities of that."""
    agent, state, update = steady
    batch = batch_of()
    at = lambda params: each(agent.policy, params, batch.items.obs.features)
    new, old, counts = at(state.online.policy), at(state.target_policy), counted(batch)
    average = lambda x: np.sum(counts * x.sum(-1)) / counts.sum()
    _, metrics = update(state, batch)
    density = scipy.stats.norm.logpdf
    wanted = {
        "policy_loss_mean": -average(density(old.loc, new.loc, old.scale)),
        "policy_loss_stddev": -average(density(old.loc, old.loc, new.scale)),
        "kl_mean": average((old.loc - new.loc) ** 2 / (2 * old.scale**2)),
        "kl_nonparametric": 0.0,
        "effective_sample_size": CANDIDATES,
    }
    found = {name: float(metrics[name]) for name in wanted}
    assert found == pytest.approx(wanted, rel=1e-4, abs=1e-5)


def test_a_truncated_episode_is_bootstrapped_from_its_own_last_state(steady):
    """The row before a truncation: its return is of the final row, and not of the next episode,
    which may even be NaN."""
    agent, state, update = steady
    batch = batch_of()
    alone = eqx.tree_at(lambda b: b.weights, batch, jnp.zeros(batch.weights.shape).at[1, 2].set(1))
    assert batch.items.last[1, 3] and batch.items.discount[1, 2] == 1
    features = lambda b: b.items.obs.features
    loss = lambda b: float(update(state, b)[1]["value_loss"])
    rows = alone.items
    policy = each(agent.policy, state.target_policy, rows.obs.features)
    judge = lambda action: each(agent.critic, state.target_critic, rows.obs.features, action)
    final = judge(jnp.asarray(policy.loc, jnp.float32))[1, 3]
    target = float(rows.reward[1, 2]) + agent.gamma * final
    value = each(agent.critic, state.online.critic, rows.obs.features, rows.action)[1, 2]
    assert loss(alone) == pytest.approx((value - target) ** 2 / 2, rel=1e-3)
    beyond = eqx.tree_at(features, alone, features(alone).at[1, 4:].add(5.0))
    reward = eqx.tree_at(lambda b: b.items.reward, beyond, beyond.items.reward.at[1, 3:].set(9.0))
    assert loss(reward) == pytest.approx(loss(alone), rel=1e-5)
    final_row = eqx.tree_at(features, alone, features(alone).at[1, 3].add(5.0))
    assert loss(final_row) != pytest.approx(loss(alone), rel=1e-2)
    # A terminated one is not bootstrapped at all.
    ended = eqx.tree_at(lambda b: b.items.discount, alone, rows.discount.at[1, 2].set(0.0))
    assert loss(ended) == pytest.approx((value - float(rows.reward[1, 2])) ** 2 / 2, rel=1e-3)


@pytest.mark.parametrize("discrete", [False, True], ids=["continuous", "discrete"])
def test_one_step_of_all_parts(discrete):
    """Targets follow, statistics stay, duals stay above -18; what is nowhere legal is not learned
    from; and a step gone wrong changes nothing."""
    critic = {"critic": Steep} if discrete else {}
    agent: Any = mpo(discrete, statistics=Moments.zeros(FEATURES), **critic)
    batch, state = batch_of(discrete), apart(agent)
    statistics = Moments.zeros(FEATURES).update(3 + batch.items.obs.features)
    duals = jax.tree.map(lambda x: jnp.full_like(x, -25.0), state.online.duals)
    parts = lambda s: (s.online.statistics, s.online.duals)
    state = eqx.tree_at(parts, state, (statistics, duals))
    update = update_of(agent)
    after, metrics = update(state, batch)
    assert all(np.isfinite(x) for x in metrics.values())
    for name in ("policy", "critic"):
        online, target = getattr(after.online, name), getattr(after, f"target_{name}")
        before = getattr(state, f"target_{name}")
        followed = jax.tree.map(lambda x, y: 0.995 * x + 0.005 * y, before, online)
        assert_same(target, followed, rtol=1e-5, atol=1e-7)
        old = jax.tree.leaves(getattr(state.online, name))
        assert any(np.any(x != y) for x, y in zip(jax.tree.leaves(online), old, strict=True))
    assert_same(after.online.statistics, statistics)
    for dual in after.online.duals.values():
        assert np.all(np.asarray(dual.rho) >= -18)
    if discrete:
        bias = lambda s: s.online.policy.mlp.layers[-1].bias
        moved = np.asarray(bias(after) != bias(state))
        assert moved.tolist() == [True] * (ACTIONS - 1) + [False]
    reward = lambda b: b.items.reward
    spoilt = eqx.tree_at(reward, batch, reward(batch).at[0, 0].set(jnp.inf))
    unchanged, said = update(state, spoilt)
    assert not np.isfinite(said["value_loss"])
    assert_same(unchanged, state)


def test_a_part_of_what_is_seen_may_be_empty():
    agent, features = mpo(policy=OfPart, critic=Steep), lambda b: b.items.obs.features
    batch = batch_of()
    parts = {"seen": features(batch), "none": jnp.zeros((*features(batch).shape[:2], 0))}
    batch, state = eqx.tree_at(features, batch, parts), agent.init(key=jr.key(0))
    after, _ = eqx.filter_eval_shape(agent.update, state, batch, key=jr.key(1))
    assert jax.tree.structure(after) == jax.tree.structure(state)


def rows_of(features: Array) -> Experience:
    """Nothing but observations."""
    zeros = jnp.zeros(features.shape[:2])
    obs = Observation(features, None)
    return Experience(obs, zeros, zeros, zeros, jnp.zeros(zeros.shape, bool), None)


@pytest.mark.parametrize("explore", [True, False])
def test_it_acts_by_its_policy(explore):
    """Draws, whose log-density it notes, or the mode: of normalised observations."""
    agent: Any = aiming(mpo, statistics=Moments.zeros(DIMS))
    state = agent.init(key=jr.key(0))
    features = 10 + 4 * jr.normal(jr.key(1), (500, DIMS))
    state, said = agent.digest(state, rows_of(features[None]))
    assert said == {}
    obs = Observation(features, None)
    actor = agent.actor(state, explore=explore)
    act = eqx.filter_jit(lambda actor: actor.act(None, obs, None, key=jr.split(jr.key(2), 500)))
    action, behaviour, _ = act(actor)
    mean, stddev = (f(np.asarray(features, np.float64), axis=0) for f in (np.mean, np.std))
    normal = jnp.asarray((np.asarray(features) - mean) / stddev, jnp.float32)[None]
    policy = jax.tree.map(lambda x: x[0], each(agent.policy, state.online.policy, normal))
    z = (np.asarray(action) - policy.loc) / policy.scale
    wanted = scipy.stats.norm.logpdf(action, policy.loc, policy.scale).sum(-1)
    np.testing.assert_allclose(behaviour.log_prob, wanted, rtol=1e-3, atol=1e-3)
    if explore:
        assert scipy.stats.kstest(z.ravel(), "norm").pvalue > 1e-4
    else:
        np.testing.assert_allclose(z, 0, atol=1e-3)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_statistics_outlive_what_is_no_number(bad):
    """One would be in them for ever, and no longer could be told whose fault it was."""
    agent: Any = aiming(mpo, statistics=Moments.zeros(DIMS))
    features = jr.normal(jr.key(1), (2, 3, DIMS))
    state, _ = agent.digest(agent.init(key=jr.key(0)), rows_of(features))
    spoilt, _ = agent.digest(state, rows_of(features.at[1, 2, 0].set(bad)))
    assert_same(spoilt, state)
    after, _ = agent.digest(state, rows_of(features))
    assert float(after.online.statistics.count) == 12


@pytest.mark.parametrize("explore", [True, False])
def test_it_never_plays_what_is_illegal(explore):
    """Although the network likes nothing better."""
    agent: Any = mpo(True, critic=Steep)
    state = agent.init(key=jr.key(0))
    bias = lambda s: s.online.policy.mlp.layers[-1].bias
    state = eqx.tree_at(bias, state, jnp.array([0.0, 0.0, 20.0, 30.0]))
    legal = jr.bernoulli(jr.key(1), 0.5, (200, ACTIONS)).at[:, 0].set(True)
    obs = Observation(jr.normal(jr.key(2), (200, FEATURES)), legal)
    actor = agent.actor(state, explore=explore)
    act = eqx.filter_jit(lambda actor, key: actor.act(None, obs, None, key=jr.split(key, 200)))
    action, behaviour, _ = act(actor, jr.key(3))
    assert action.dtype == jnp.int32
    assert np.take_along_axis(np.asarray(legal), np.asarray(action)[:, None], 1).all()
    assert np.all(np.isfinite(behaviour.log_prob))


@pytest.mark.parametrize("number", [0, -1])
def test_there_must_be_candidates(number):
    with pytest.raises(ValueError, match=rf"^`MPO\(num_samples={number}\)`: must be an int"):
        mpo(num_samples=number)


@pytest.mark.parametrize("change", [dict(gamma=1.5), dict(lambda_=-1.0), dict(target_rate=2.0)])
def test_bad_numbers_are_refused(change):
    ((name, value),) = change.items()
    with pytest.raises(ValueError, match=rf"MPO\({name}={value}\).* a number, 0 to 1"):
        mpo(**change)


def test_what_is_no_window_is_refused():
    agent: Any = mpo()
    batch = jax.tree.map(lambda x: x[:, 0], batch_of())
    with pytest.raises(ValueError, match=r"MPO\.update was given rows of shape \[4\]; .*windows"):
        agent.update(agent.init(key=jr.key(0)), batch, key=jr.key(1))


def test_it_learns_to_hit_what_it_is_shown():
    """The policy's mean, which it plays. Observations are far from 0, and are only learned from
    because they are normalised."""
    agent = aimer(mpo, num_samples=16, **rates(3e-3, 3e-2))
    before, after = learned(Aim(), agent, blocks=60)
    assert aiming_error(agent, before) > 0.4 and aiming_error(agent, after) < 0.1
