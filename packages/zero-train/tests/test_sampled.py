"""Learning from candidates: the losses of Sampled MuZero and Sampled AlphaZero against NumPy, plans
over an exact model, and the same update on any number of devices."""

import functools as ft
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from jaxtyping import Array

from zero_envs import Observation
from zero_memory import Batch, PrioritisedTrajectoryBuffer
from zero_search import SampledSearch, TreeSearch
from zero_train import (
    bind,
    candidates_and_value,
    data_mesh,
    Experience,
    ExpertIteration,
    FeatureEvaluator,
    fill,
    init,
    LatentModel,
    LatentPolicyModel,
    Loop,
    MuZero,
    PlanRecord,
    PolicyModel,
    step,
)
from zero_train._policies import imitation

from .actor_critics import Aim, DIMS
from .crossings import check_update
from .policies import Gaussian


ROWS, STEPS, FEATURES, DRAWN, GAMMA = 5, 2, 3, 6, 0.9


class Normal(eqx.Module):
    """A Gaussian of deviation 1, with an entropy."""

    loc: Array

    def sample(self, *, key):
        return self.loc + jr.normal(key, self.loc.shape, self.loc.dtype)

    def log_prob(self, action):
        return jnp.sum(jax.scipy.stats.norm.logpdf(action - self.loc))

    def entropy(self):
        return jnp.asarray(0.5 * self.loc.size * np.log(2 * np.pi * np.e), jnp.float32)


class Linear(eqx.Module):
    """Hidden states, rewards, means and values that are linear in what they come from."""

    encode: Array
    move: Array
    heads: Array

    def __init__(self, features: int = FEATURES, *, key: Array):
        keys = jr.split(key, 3)
        self.encode = 0.1 * jr.normal(keys[0], (4, features))
        self.move = 0.5 * jr.normal(keys[1], (4, 4 + DIMS))
        self.heads = 0.5 * jr.normal(keys[2], (DIMS + 2, 4))

    def represent(self, features):
        return self.encode @ features

    def step(self, hidden, action):
        hidden = self.move @ jnp.concatenate([hidden, action])
        return hidden, self.heads[-1] @ hidden

    def predict(self, hidden):
        out = self.heads @ hidden
        return Normal(out[:DIMS]), out[DIMS]

    def __call__(self, features):
        """Without a model."""
        return self.predict(self.represent(features))


SEARCH = SampledSearch(TreeSearch.gumbel(8), DRAWN)


def muzero(**changes: Any) -> MuZero:
    fields = dict(
        network=Linear,
        optimiser=optax.sgd(0.1),
        explorer=SEARCH,
        planner=SEARCH,
        gamma=GAMMA,
        num_unroll=STEPS,
        n_steps=2,
        value_weight=0.7,
        entropy_bonus=0.2,
        model=LatentPolicyModel,
        record=candidates_and_value,
    )
    return MuZero(**{**fields, **changes})


def alphazero() -> ExpertIteration:
    return ExpertIteration(
        network=Linear,
        optimiser=optax.sgd(0.1),
        model=ft.partial(PolicyModel, Aim()),
        explorer=SEARCH,
        planner=SEARCH,
        gamma=GAMMA,
        value_weight=0.7,
        entropy_bonus=0.2,
        record=candidates_and_value,
    )


def windows(seed: int, batch: int = 16) -> Batch:
    """Windows of which half have an end, and half of these a true one."""
    draws, shape = np.random.default_rng(seed), (batch, ROWS)
    last = np.zeros(shape, bool)
    last[np.arange(0, batch, 2), draws.integers(1, ROWS, batch // 2)] = True
    discount = np.ones(shape)
    discount[:, :-1][last[:, 1:] & (np.arange(batch) % 4 == 0)[:, None]] = 0
    weights = draws.random((*shape, DRAWN))
    number = lambda x: jnp.asarray(x, jnp.float32)
    rows = Experience(
        obs=Observation(number(draws.normal(size=(*shape, FEATURES))), None),
        action=number(draws.normal(size=(*shape, DIMS))),
        reward=number(draws.normal(size=shape)),
        discount=number(np.where(last, 0.0, discount)),
        last=jnp.asarray(last),
        record=PlanRecord(
            number(weights / weights.sum(-1, keepdims=True)),
            number(draws.normal(size=shape)),
            number(draws.normal(size=(*shape, DRAWN, DIMS))),
        ),
    )
    counts = number(np.broadcast_to(draws.random((batch, 1)), shape))
    return Batch(rows, counts, jnp.zeros(shape, jnp.int32))


def log_density(action: np.ndarray, loc: np.ndarray) -> np.ndarray:
    return -0.5 * np.sum((action - loc) ** 2 + np.log(2 * np.pi), axis=-1)


ENTROPY = 0.5 * DIMS * np.log(2 * np.pi * np.e)


def test_muzeros_loss_is_the_formula():
    """Over candidates, at every position of an unroll by continuous actions."""
    agent, batch = muzero(), windows(1)
    state = agent.init(key=jr.key(0))
    _, metrics, _ = jax.jit(lambda b: agent.update(state, b, key=jr.key(2)))(batch)
    unrolled = jax.jit(lambda r: agent.unrolled(r, r.record.value, key=jr.key(2)))(batch.items)
    learned, rows = (jax.tree.map(np.asarray, x) for x in (unrolled, batch.items))
    net = jax.tree.map(lambda x: np.asarray(x, np.float64), bind(Linear, state.params))
    total, drawn = 0.0, 0
    for b in range(len(rows.last)):
        hidden = net.encode @ rows.obs.features[b, 0]
        for k in range(STEPS + 1):
            out = net.heads @ hidden
            weight = learned.policy_weight[b, k]
            candidates = rows.record.candidates[b, k]
            np.testing.assert_array_equal(learned.candidates[b, k], candidates)
            log_pi = log_density(candidates, out[:DIMS])
            loss = weight * (-(rows.record.weights[b, k] * log_pi).sum() - 0.2 * ENTROPY)
            loss += 0.35 * learned.value_weight[b, k] * (out[DIMS] - learned.value[b, k]) ** 2
            if k:
                error = out[DIMS + 1] - learned.reward[b, k]
                loss += 0.5 * learned.reward_weight[b, k] * error**2
            total += float(batch.weights[b, 0]) * loss
            if k < STEPS:
                action = learned.action[b, k]
                over = np.any(rows.last[b, : k + 1])
                assert over or np.array_equal(action, rows.action[b, k])
                # After a true end it is one of the first row's candidates.
                if over and np.any(rows.discount[b, :k][~rows.last[b, :k]] == 0):
                    drawn += 1
                    assert np.any(np.all(rows.record.candidates[b, 0] == action, axis=1))
                hidden = net.move @ np.concatenate([hidden, action])
    assert drawn > 0
    assert float(metrics["loss"]) == pytest.approx(total / float(batch.weights[:, 0].sum()), 1e-4)
    assert float(metrics["policy_entropy"]) == pytest.approx(ENTROPY, 1e-5)


def test_expert_iterations_policy_loss_is_the_formula():
    agent, batch = alphazero(), windows(2)
    state = agent.init(key=jr.key(0))
    _, metrics = jax.jit(lambda b: agent.update(state, b, key=jr.key(1)))(batch)
    net, rows = bind(Linear, state.params), jax.tree.map(np.asarray, batch.items)
    features = rows.obs.features[:, :, None]
    loc = (features @ np.asarray(net.encode).T @ np.asarray(net.heads).T)[..., :DIMS]
    losses = -np.sum(rows.record.weights * log_density(rows.record.candidates, loc), axis=2)
    counts = np.where(rows.last, 0, np.asarray(batch.weights))[:, :-1]
    wanted = np.sum(counts * losses[:, :-1]) / counts.sum()
    assert float(metrics["policy_loss"]) == pytest.approx(wanted, 1e-4)
    assert float(metrics["policy_entropy"]) == pytest.approx(ENTROPY, 1e-5)


def test_candidates_may_be_numbers_of_actions():
    """Of logits: equal to what the same weights of all actions teach."""
    logits, legal = jr.normal(jr.key(0), (4,)), jnp.array([True, True, False, True])
    some, every = jnp.array([0.3, 0.7]), jnp.array([0.7, 0.0, 0.0, 0.3])
    found = imitation(logits, some, jnp.array([3, 0], jnp.int32), legal)
    wanted = imitation(logits, every, None, legal)
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


class Knows(eqx.Module):
    """The world `Aim` as a model that was learned without a fault."""

    guesses: Array

    def represent(self, features):
        return (features - 10) / 4

    def step(self, hidden, action):
        cost = jnp.sum(jnp.square(jnp.clip(action, -1.0, 1.0) - hidden))
        return -jnp.roll(hidden, 1), -cost

    def predict(self, hidden):
        out = self.guesses @ hidden
        return Gaussian(out[:DIMS], jnp.full((DIMS,), 0.5, jnp.float32)), out[DIMS]

    def __call__(self, features):
        return self.predict(self.represent(features))


def test_an_exact_model_is_planned_over_as_the_world_is():
    """Candidates and visits are the same, and no row depends on its neighbours."""
    net, env = Knows(jr.normal(jr.key(1), (DIMS + 1, DIMS))), Aim(max_steps=1000)
    models = PolicyModel(env, FeatureEvaluator(net), GAMMA), LatentPolicyModel(net, GAMMA)

    @eqx.filter_jit
    def plan(model, order):
        keys = jr.split(jr.key(2), 8)[order]
        state = jax.vmap(lambda key: env.init(key=key))(jr.split(jr.key(3), 8)[order])
        obs, carry = jax.vmap(env.observe)(state), SEARCH.init(model, state)
        return SEARCH.plan(model, state, carry, key=keys, obs=obs)[0]

    order = jnp.arange(8)
    world, latent = (plan(model, order) for model in models)
    turned = plan(models[1], order[::-1])
    np.testing.assert_allclose(world.candidates, latent.candidates, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(world.visits, latent.visits)
    np.testing.assert_allclose(world.value, latent.value, rtol=1e-3, atol=1e-4)
    np.testing.assert_array_equal(turned.visits[::-1], latent.visits)
    np.testing.assert_array_equal(turned.action[::-1], latent.action)
    assert world.action.shape == (8, DIMS) and world.candidates.shape == (8, DRAWN, DIMS)


def loop_of(num_devices: int) -> Loop:
    buffer = PrioritisedTrajectoryBuffer(
        capacity=16, num_envs=16, batch_size=32, length=5, num_shards=8
    )
    agent = muzero(network=ft.partial(Linear, features=DIMS))
    mesh = data_mesh(num_devices)
    return Loop(env=Aim(), agent=agent, buffer=buffer, unroll_length=8, num_updates=1, mesh=mesh)


def test_devices_change_nothing(collectives, sums_in_turn):
    """Collecting and an update, on one device and on eight, which wait for each other twice."""
    found = []
    for number in (1, 8):
        loop = loop_of(number)
        state, metrics = step(loop, fill(loop, init(loop, key=jr.key(0))))
        found.append(jax.tree.map(np.asarray, (state.agent.params, metrics)))
    check_update(loop, state, collectives, sums_in_turn)
    jax.tree.map(ft.partial(np.testing.assert_allclose, rtol=1e-3, atol=1e-5), *found)


def test_what_does_not_fit_is_refused():
    batch = windows(3)
    bare = eqx.tree_at(lambda b: b.items.record.candidates, batch, None)
    agents: tuple[Any, ...] = muzero(), alphazero()
    for agent in agents:
        update = lambda b, agent=agent: agent.update(agent.init(key=jr.key(0)), b, key=jr.key(1))
        with pytest.raises(
            ValueError, match="rows say nothing of the actions.*candidates_and_value"
        ):
            jax.eval_shape(update, bare)
    with pytest.raises(ValueError, match="entropy_bonus=-1"):
        muzero(entropy_bonus=-1.0)
    model, keys = LatentModel(Linear(key=jr.key(0))), jr.split(jr.key(1), 16)
    node = model.root(None, jax.tree.map(lambda x: x[:, 0], batch.items.obs), key=keys)
    with pytest.raises(ValueError, match="continuous ones; use a LatentPolicyModel"):
        model.predict(node, key=keys)


def test_a_policy_of_the_other_kind_is_named():
    search = SampledSearch(TreeSearch(4), num_candidates=DRAWN)
    parts: dict[str, Any] = dict(
        network=Linear, optimiser=optax.sgd(0.1), explorer=search, planner=search
    )
    with pytest.raises(ValueError, match=r"explorer=SampledSearch.*give record=zero_train.candid"):
        MuZero(**parts, model=LatentPolicyModel)
    with pytest.raises(ValueError, match=r"ExpertIteration\(explorer=SampledSearch"):
        ExpertIteration(**parts, model=PolicyModel, gamma=1.0)
    obs = Observation(jnp.zeros((2, FEATURES)), jnp.ones((2, DIMS), bool))
    keys = jr.split(jr.key(0), 2)

    def asked(kind, predict):
        model = kind(Predicting(predict))
        node = model.root(None, obs, key=keys)
        ask = model.predict if kind is LatentModel else model.propose
        return jax.eval_shape(lambda: ask(node, key=keys))

    with pytest.raises(ValueError, match="predicts a Gaussian; use a LatentPolicyModel"):
        asked(LatentModel, lambda x: Gaussian(x[:DIMS], x[:DIMS]))
    with pytest.raises(ValueError, match="that predicts logits; use a LatentModel"):
        asked(LatentPolicyModel, lambda x: x[:DIMS])


class Predicting(eqx.Module):
    """A network of features that predicts a policy as it is told."""

    policy: Any = eqx.field(static=True)

    def represent(self, features):
        return features

    def step(self, hidden, action):
        return hidden, jnp.zeros(())

    def predict(self, hidden):
        return self.policy(hidden), jnp.zeros(())
