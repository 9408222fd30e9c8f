"""SPO's losses term by term against plain NumPy, whose gradient goes where, and what it refuses."""

import functools as ft
import re
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
import scipy.special
import scipy.stats

from zero_train import ActorCriticState, ParticleRecord
from zero_train.losses import Dual

from .actor_critics import (
    ACTIONS,
    apart,
    assert_same,
    CANDIDATES,
    continuous_region,
    counted,
    DIMS,
    each,
    FEATURES,
    LENGTH,
    Moments,
    moved_by,
    spo,
    windows,
)
from .windows import by_definition, mixed_return


def record(*, candidates, weights, advantages, log_prob):
    del log_prob
    return ParticleRecord(candidates, weights, advantages, {})


batch_of = ft.partial(windows, record=record)
KINDS = pytest.mark.parametrize("discrete", [False, True], ids=["continuous", "discrete"])


class Case:
    """An agent, a state that is unlike its targets, a batch, and one update, compiled once."""

    def __init__(self, discrete: bool):
        self.agent: Any = spo(discrete)
        self.state = apart(self.agent)
        self.batch = batch_of(discrete)
        self._update = eqx.filter_jit(ft.partial(self.agent.update, key=jr.key(0)))
        self._losses = eqx.filter_jit(
            jax.value_and_grad(
                lambda learned, state, batch: self.agent.losses(
                    learned, state, batch, key=jr.key(0)
                ),
                has_aux=True,
            )
        )

    def update(self, state: Any = None, batch: Any = None) -> tuple[ActorCriticState, dict]:
        state, batch = state or self.state, batch or self.batch
        return self._update(state, batch)

    def losses(self, *, policy: Any = None, critic: Any = None, batch: Any = None) -> Any:
        """The metrics, and the gradients of policy, critic and duals."""
        online = self.state.online
        learned = policy or online.policy, critic or online.critic, online.duals
        (_, metrics), gradient = self._losses(learned, self.state, batch or self.batch)
        return {name: float(x) for name, x in metrics.items()}, gradient


@pytest.fixture(scope="module")
def cases():
    return [Case(False), Case(True)]


def duals_of(state: ActorCriticState) -> dict[str, np.ndarray]:
    rhos = {name: np.asarray(dual.rho, np.float64) for name, dual in state.online.duals.items()}
    return {name: np.logaddexp(0, rho) + 1e-8 for name, rho in rhos.items()}


def mean(x: np.ndarray, batch: Any) -> Any:
    """Over the rows that count; whatever other rows have is not looked at."""
    counts = counted(batch)
    assert 0 < np.count_nonzero(counts) < counts.size - LENGTH
    keep = counts > 0
    return np.tensordot(counts[keep], x[keep], 1) / counts.sum()


def critic_terms(case: Case) -> dict[str, float]:
    agent, state, rows = case.agent, case.state, case.batch.items
    value = each(agent.critic, state.online.critic, rows.obs.features)
    window = {
        "reward": np.asarray(rows.reward),
        "discount": agent.gamma * np.asarray(rows.discount, np.float64),
        "value": each(agent.critic, state.target_critic, rows.obs.features),
        "last": np.asarray(rows.last),
    }
    target = by_definition(mixed_return, window, trace=agent.lambda_)
    average = mean(value, case.batch)
    return {
        "value_loss": mean((value - target) ** 2 / 2, case.batch),
        "value_mean": average,
        "value_stddev": np.sqrt(mean((value - average) ** 2, case.batch)),
    }


def estep_terms(case: Case) -> dict[str, float]:
    """The temperature's, of the stored advantages."""
    eta, epsilon = duals_of(case.state)["temperature"], case.agent.region.epsilon
    scaled = np.asarray(case.batch.items.record.advantages, np.float64) / eta
    log_z = scipy.special.logsumexp(scaled, axis=-1) - np.log(CANDIDATES)
    improved = scipy.special.softmax(scaled, axis=-1)
    kl = np.sum(improved * np.log(CANDIDATES * improved), axis=-1)
    return {
        "temperature_loss": mean(eta * (epsilon + log_z), case.batch),
        "temperature": float(eta),
        "kl_nonparametric": mean(kl, case.batch),
        "kl_nonparametric_relative": mean(kl, case.batch) / epsilon,
        "effective_sample_size": mean(1 / np.sum(improved**2, axis=-1), case.batch),
    }


def gaussian_terms(case: Case) -> dict[str, float]:
    state, rows, region = case.state, case.batch.items, case.agent.region
    at = lambda params: each(case.agent.policy, params, rows.obs.features)
    new, old, duals = at(state.online.policy), at(state.target_policy), duals_of(state)
    actions = np.asarray(rows.record.candidates, np.float64)
    weights = np.asarray(rows.record.weights, np.float64)
    kls = {
        "mean": (old.loc - new.loc) ** 2 / (2 * old.scale**2),
        "stddev": np.log(new.scale / old.scale) + old.scale**2 / (2 * new.scale**2) - 0.5,
    }
    parts = {"mean": (new.loc, old.scale), "stddev": (old.loc, new.scale)}
    terms = {}
    for name, (loc, scale) in parts.items():
        density = scipy.stats.norm.logpdf(actions, loc[:, :, None], scale[:, :, None]).sum(-1)
        kl, alpha = mean(kls[name], case.batch), duals[f"alpha_{name}"]
        epsilon = getattr(region, f"epsilon_{name}")
        assert kl.shape == alpha.shape == (DIMS,) and alpha[0] != alpha[1]
        terms |= {
            f"policy_loss_{name}": mean(-np.sum(weights * density, axis=-1), case.batch),
            f"kl_loss_{name}": alpha @ kl,
            f"alpha_loss_{name}": alpha @ (epsilon - kl),
            f"alpha_{name}": alpha.mean(),
            f"kl_{name}": kl.sum(),
            f"kl_relative_{name}": kl.sum() / (DIMS * epsilon),
        }
    return terms


def categorical_terms(case: Case) -> dict[str, float]:
    """The logits of legal actions alone, row by row."""
    state, rows, region = case.state, case.batch.items, case.agent.region
    at = lambda params: each(case.agent.policy, params, rows.obs.features).logits
    new, old = at(state.online.policy), at(state.target_policy)
    alpha = duals_of(state)["alpha"]
    policy_loss, kls = np.full((2, *rows.last.shape), np.nan)
    for index in np.argwhere(counted(case.batch) > 0):
        i = tuple(index)
        legal = np.flatnonzero(rows.obs.legal[i])
        assert ACTIONS - 1 not in legal
        log_new, log_old = (scipy.special.log_softmax(x[i][legal]) for x in (new, old))
        kls[i] = np.exp(log_old) @ (log_old - log_new)
        taken = np.searchsorted(legal, rows.record.candidates[i])
        policy_loss[i] = -np.asarray(rows.record.weights[i], np.float64) @ log_new[taken]
    kl = mean(kls, case.batch)
    return {
        "policy_loss": mean(policy_loss, case.batch),
        "kl_loss": alpha * kl,
        "alpha_loss": alpha * (region.epsilon_policy - kl),
        "alpha": float(alpha),
        "kl": kl,
        "kl_relative": kl / region.epsilon_policy,
    }


@KINDS
def test_losses_are_the_formulas(cases, discrete):
    """Of windows with both kinds of ends inside. Targets are those of the target critic, up to the
    end of an episode: past a final row they would be of another one."""
    case = cases[discrete]
    wanted = critic_terms(case) | estep_terms(case)
    wanted |= categorical_terms(case) if discrete else gaussian_terms(case)
    terms = [name for name in wanted if "_loss" in name]
    wanted["loss"] = sum(wanted[name] for name in terms)
    assert len(terms) == (5 if discrete else 8)
    metrics, _ = case.losses()
    assert metrics == pytest.approx(wanted, rel=1e-4, abs=1e-5)


def test_the_temperature_of_a_state_worked_out_by_hand():
    """Of three equally likely actions worth 1, 0 and -1."""
    agent: Any = spo(region=continuous_region(epsilon=0.1, temperature=Dual.from_value(1.0)))
    batch = batch_of()
    advantages = jnp.broadcast_to(jnp.array([1.0, 0.0, -1.0]), (*batch.items.last.shape, 3))
    few = ParticleRecord(
        batch.items.record.candidates[:, :, :3], jnp.full(advantages.shape, 1 / 3), advantages, {}
    )
    batch = eqx.tree_at(lambda b: b.items.record, batch, few)
    _, metrics = eqx.filter_jit(agent.update)(agent.init(key=jr.key(0)), batch, key=jr.key(1))
    assert float(metrics["temperature_loss"]) == pytest.approx(0.408994, abs=1e-5)
    assert float(metrics["kl_nonparametric"]) == pytest.approx(0.266217, abs=1e-5)
    assert float(metrics["effective_sample_size"]) == pytest.approx(1.958699, abs=1e-5)


@KINDS
def test_duals_have_the_slopes_of_their_bounds(cases, discrete):
    """`d/drho alpha * (epsilon - KL)`, and nothing of the penalty or of the policy's loss."""
    case = cases[discrete]
    estep = estep_terms(case)
    if discrete:
        kls = {"alpha": categorical_terms(case)["kl"]}
        bounds = {"alpha": case.agent.region.epsilon_policy}
    else:
        rows = case.batch.items
        at = lambda params: each(case.agent.policy, params, rows.obs.features)
        new, old = at(case.state.online.policy), at(case.state.target_policy)
        stddev = np.log(new.scale / old.scale) + old.scale**2 / (2 * new.scale**2) - 0.5
        kls = {
            "alpha_mean": mean((old.loc - new.loc) ** 2 / (2 * old.scale**2), case.batch),
            "alpha_stddev": mean(stddev, case.batch),
        }
        bounds = {name: getattr(case.agent.region, f"epsilon_{name[6:]}") for name in kls}
    kls["temperature"], bounds["temperature"] = estep["kl_nonparametric"], case.agent.region.epsilon
    _, (_, _, slopes) = case.losses()
    assert slopes.keys() == kls.keys()
    for name, dual in case.state.online.duals.items():
        wanted = scipy.special.expit(np.asarray(dual.rho)) * (bounds[name] - kls[name])
        np.testing.assert_allclose(slopes[name].rho, wanted, rtol=1e-4, atol=1e-6)


@KINDS
def test_gradients_are_the_slopes_of_their_own_losses(cases, discrete):
    """By differences: the policy's of its fit and its penalty, the critic's of its regression, to
    targets that stand still."""
    case, size = cases[discrete], 3e-3
    _, (policy, critic, _) = case.losses()
    own = ("policy_loss", "kl_loss")
    for name, gradient, terms in (("policy", policy, own), ("critic", critic, ("value_loss",))):
        params = getattr(case.state.online, name)
        along = jax.tree.map(lambda x: jr.normal(jr.key(x.size), x.shape), params)
        moved = [case.losses(**{name: moved_by(params, along, by)})[0] for by in (size, -size)]
        up, down = (
            sum(x for key, x in metrics.items() if key.startswith(terms)) for metrics in moved
        )
        slope = sum(jax.tree.leaves(jax.tree.map(jnp.vdot, gradient, along)))
        assert (up - down) / (2 * size) == pytest.approx(float(slope), rel=2e-2, abs=2e-3)
        # The gradient of the whole loss is that of these terms: it is not that of the others.
        assert abs(float(slope)) > 0.05


def test_illegal_actions_are_not_learned_from(cases):
    """Whatever the network says of an action that was nowhere legal: no loss knows it."""
    case = cases[True]
    last_layer = lambda policy: policy.mlp.layers[-1]
    metrics, (gradient, _, _) = case.losses()
    slopes = last_layer(gradient)
    assert np.all(slopes.weight[-1] == 0) and slopes.bias[-1] == 0
    assert np.all(slopes.bias[:-1] != 0)
    biased = eqx.tree_at(
        lambda p: last_layer(p).bias, case.state.online.policy, replace_fn=lambda x: x.at[-1].set(9)
    )
    assert case.losses(policy=biased)[0] == metrics


@KINDS
def test_one_step_moves_every_part_by_its_own_optimiser(cases, discrete):
    """Rates of 0.1, 0.2 and 0.3 tell the optimisers apart. Targets move by `target_rate` towards
    what has been learned, and statistics are none of it."""
    case = cases[discrete]
    state, metrics = case.update()
    _, gradients = case.losses()
    old = case.state.online
    new = state.online.policy, state.online.critic, state.online.duals
    rates = 0.1, 0.2, 0.3
    for before, after, gradient, rate in zip(
        (old.policy, old.critic, old.duals), new, gradients, rates, strict=True
    ):
        assert any(np.any(x != 0) for x in jax.tree.leaves(gradient))
        assert_same(after, moved_by(before, gradient, -rate), rtol=1e-5, atol=1e-6)
    for target, start, online in (
        (state.target_policy, case.state.target_policy, state.online.policy),
        (state.target_critic, case.state.target_critic, state.online.critic),
    ):
        followed = jax.tree.map(lambda x, y: 0.995 * x + 0.005 * y, start, online)
        assert_same(target, followed, rtol=1e-5, atol=1e-7)
    assert int(state.updates) == 1
    norm = np.sqrt(sum(np.sum(np.square(x)) for x in jax.tree.leaves(gradients)))
    assert float(metrics["gradient_norm"]) == pytest.approx(float(norm), rel=1e-5)
    assert float(metrics["observation_error"]) == 0


def test_duals_stay_where_they_can_come_back_from(cases):
    """A bound that is slack for long drives its dual down, but not below -18."""
    case = cases[False]
    low = jax.tree.map(lambda x: jnp.full_like(x, -30.0), case.state.online.duals)
    state, _ = case.update(eqx.tree_at(lambda s: s.online.duals, case.state, low))
    for dual in state.online.duals.values():
        assert np.all(np.asarray(dual.rho) == -18)


@pytest.mark.parametrize(
    "spoilt, named",
    [("reward", "value_loss"), ("advantages", "temperature_loss"), ("obs", "observation_error")],
)
def test_a_step_gone_wrong_changes_nothing(cases, spoilt, named):
    """One NaN in a row that counts: nothing of it is learned, and the metrics name it."""
    case = cases[False]
    where = {
        "reward": lambda b: b.items.reward,
        "advantages": lambda b: b.items.record.advantages,
        "obs": lambda b: b.items.obs.features,
    }[spoilt]
    batch = eqx.tree_at(where, case.batch, where(case.batch).at[1, 1].set(jnp.nan))
    state, metrics = case.update(batch=batch)
    assert np.isnan(metrics[named])
    assert_same(state, case.state)


@KINDS
def test_rows_that_do_not_count_may_hold_anything(cases, discrete):
    """0 times NaN is NaN, in a gradient too: nothing of such a row's plan may get there."""
    case = cases[discrete]
    idle = counted(case.batch) == 0

    def spoil(x):
        if not jnp.issubdtype(x.dtype, jnp.floating):
            return x
        return jnp.where(jnp.asarray(idle).reshape(*idle.shape, *[1] * (x.ndim - 2)), jnp.nan, x)

    spoilt = jax.tree.map(spoil, case.batch.items.record)
    state, metrics = case.update(batch=eqx.tree_at(lambda b: b.items.record, case.batch, spoilt))
    assert np.isfinite(metrics["gradient_norm"]) and int(state.updates) == 1
    assert_same(state, case.update()[0])


def test_an_empty_buffer_teaches_nothing(cases):
    """Its batches have weight 0 everywhere. (The rows it hands out are made up.)"""
    case = cases[False]
    nothing = eqx.tree_at(lambda b: b.weights, case.batch, jnp.zeros_like(case.batch.weights))
    state, metrics = case.update(batch=nothing)
    assert float(metrics["gradient_norm"]) == 0
    assert_same(state.online, case.state.online)


def test_losses_are_of_normalised_observations(cases):
    """With statistics, the losses of observations are those of normalised ones without; and
    learning leaves the statistics alone."""
    case = cases[False]
    features = 10 + 4 * case.batch.items.obs.features
    raw = eqx.tree_at(lambda b: b.items.obs.features, case.batch, features)
    statistics = Moments.zeros(FEATURES).update(features)
    normal = statistics.normalise(features)
    assert np.allclose(np.mean(normal, (0, 1)), 0, atol=1e-5)
    agent: Any = spo(statistics=Moments.zeros(FEATURES))
    state = eqx.tree_at(
        lambda s: s.online.statistics, case.state, statistics, is_leaf=lambda x: x is None
    )
    found = eqx.filter_jit(agent.update)(state, raw, key=jr.key(0))
    wanted = case.update(batch=eqx.tree_at(lambda b: b.items.obs.features, case.batch, normal))
    assert_same(found[1], wanted[1], rtol=1e-4, atol=1e-5)
    assert_same(found[0].target_policy, wanted[0].target_policy, rtol=1e-5, atol=1e-6)
    assert_same(found[0].online.statistics, statistics)


@pytest.mark.parametrize("shape", [(4,), (4, 1)])
def test_what_is_no_window_is_refused(cases, shape):
    case = cases[False]
    batch = jax.tree.map(lambda x: x[:, 0] if len(shape) == 1 else x[:, :1], case.batch)
    said = rf"SPO\.update was given rows of shape {re.escape(str(list(shape)))}; .*windows.*Traj"
    with pytest.raises(ValueError, match=said):
        case.agent.update(case.state, batch, key=jr.key(1))


@pytest.mark.parametrize(
    "change, said",
    [
        (dict(gamma=1.5), r"SPO\(gamma=1\.5\).* a number, 0 to 1"),
        (dict(lambda_=-0.1), r"SPO\(lambda_=-0\.1\).* a number, 0 to 1"),
        (dict(target_rate=2.0), r"SPO\(target_rate=2\.0\).* a number, 0 to 1"),
    ],
)
def test_bad_numbers_are_refused(change, said):
    with pytest.raises(ValueError, match=said):
        spo(**change)


def test_optimisers_may_be_anything():
    """Three different ones, with state or without, are one pytree to donate and to save."""
    agent: Any = spo(
        policy_optimiser=optax.chain(optax.clip_by_global_norm(0.5), optax.adam(1e-3)),
        critic_optimiser=optax.sgd(0.1, momentum=0.9),
        dual_optimiser=optax.set_to_zero(),
    )
    state = agent.init(key=jr.key(0))
    assert all(isinstance(x, jax.Array) for x in jax.tree.leaves(state))
    buffers = [x.unsafe_buffer_pointer() for x in jax.tree.leaves(state)]
    assert len(set(buffers)) == len(buffers)
    after, _ = eqx.filter_jit(agent.update)(state, batch_of(), key=jr.key(1))
    assert_same(after.online.duals, state.online.duals)
    assert jax.tree.structure(after) == jax.tree.structure(state)
