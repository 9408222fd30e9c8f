"""Expert iteration's targets and loss against NumPy, its target network, and that it learns."""

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
from jaxtyping import Array, Float

from zero_envs import Observation, TimeLimit
from zero_envs.testing import Corridor, Nim
from zero_memory import Batch, TrajectoryBuffer
from zero_search import DirichletNoise, PriorRoot, PUCT, SoftmaxQ, TreeSearch
from zero_train import (
    bind,
    EnvironmentModel,
    Experience,
    ExpertIteration,
    fill,
    init,
    Loop,
    NStepReturns,
    Outcomes,
    PlanRecord,
    step,
)
from zero_train._policies import imitation

from .nim_agent import TinyNet


ENV = Nim(heap=7, most=3)
GAMMA = 0.9
ATOMS = np.array([-1.0, 0.0, 1.0])


class ThreeAtoms(eqx.Module):
    """Values on -1, 0 and 1."""

    def decode_logits(self, logits: Float[Array, " atoms"]) -> Float[Array, ""]:
        return jnp.sum(jax.nn.softmax(logits) * jnp.asarray(ATOMS, jnp.float32))

    def cross_entropy(self, logits: Float[Array, " atoms"], value: Float[Array, ""]):
        share = jnp.maximum(1 - jnp.abs(value - jnp.asarray(ATOMS, jnp.float32)), 0)
        return -jnp.sum(share * jax.nn.log_softmax(logits))


class AtomsNet(eqx.Module):
    """Logits of moves and of atoms."""

    linear: eqx.nn.Linear

    def __init__(self, *, key: Array):
        self.linear = eqx.nn.Linear(8, 6, key=key)

    def __call__(self, features: Float[Array, " size"]):
        out = self.linear(features)
        return out[:3], out[3:]


def agent_of(env: Any = ENV, **changes: Any) -> ExpertIteration:
    search = TreeSearch(8, PUCT())
    fields = dict(
        network=AtomsNet,
        optimiser=optax.sgd(0.1),
        model=ft.partial(EnvironmentModel, env),
        explorer=search,
        planner=search,
        gamma=GAMMA,
        value_target=NStepReturns(2),
        value_code=ThreeAtoms(),
    )
    return ExpertIteration(**{**fields, **changes})


def windows(seed: int) -> Batch:
    """Three windows of five rows; one crosses the end of an episode, one row has no weight."""
    draws = np.random.default_rng(seed)
    heaps = draws.integers(3, 8, (3, 5))
    heaps[0, 0] = 2
    legal = np.arange(1, 4) <= heaps[..., None]
    weights = draws.random((3, 5, 3)) * legal
    weights /= weights.sum(axis=2, keepdims=True)
    last = np.zeros((3, 5), bool)
    last[1, 2] = True
    number = lambda x: jnp.asarray(x, jnp.float32)
    rows = Experience(
        obs=Observation(number(np.eye(8)[heaps]), jnp.asarray(legal)),
        action=jnp.zeros((3, 5), jnp.int32),
        reward=number(draws.uniform(-0.5, 0.5, (3, 5))),
        discount=number(-np.ones((3, 5))),
        last=jnp.asarray(last),
        record=PlanRecord(number(weights), number(draws.uniform(-1, 1, (3, 5)))),
    )
    counts = np.ones((3, 5))
    counts[2, 1] = 0
    return Batch(rows, number(counts), jnp.zeros((3, 5), jnp.int32))


@pytest.mark.parametrize("discrete", [True, False])
def test_loss_is_the_formula(discrete):
    """Targets of the target network, and every term, against a NumPy loop over what counts."""
    changes = {} if discrete else dict(network=ft.partial(TinyNet, 8, 3), value_code=None)
    mixes = dict(value_mix=0.25, value_weight=0.7, entropy_bonus=0.03)
    agent = agent_of(**changes, **mixes)
    state = agent.init(key=jr.key(0))
    other = agent.init(key=jr.key(1)).params
    state = eqx.tree_at(lambda s: s.target, state, other)
    batch = windows(0)
    _, metrics = jax.jit(lambda *args: agent.update(*args, key=jr.key(2)))(state, batch)

    rows = jax.tree.map(lambda x: np.asarray(x, np.float64), batch.items)

    @jax.jit
    def networks(params, target):
        raw = jax.vmap(jax.vmap(bind(agent.network, params)))(batch.items.obs.features)
        return *raw, jax.vmap(jax.vmap(agent.evaluator(target)))(batch.items.obs)[1]

    found = networks(state.params, other)
    logits, outputs, bootstrap = (np.asarray(x, np.float64) for x in found)
    policy = value = entropy = count = 0.0
    for i in range(3):
        for t in range(4):
            if rows.last[i, t] or batch.weights[i, t] == 0:
                continue
            returned, discount, at = 0.0, 1.0, t
            for _ in range(2):
                if at == 4 or rows.last[i, at]:
                    break
                returned += discount * rows.reward[i, at]
                discount *= GAMMA * rows.discount[i, at]
                at += 1
            returned += discount * bootstrap[i, at]
            target = 0.75 * returned + 0.25 * rows.record.value[i, t]
            legal = rows.obs.legal[i, t] > 0
            log_pi = logits[i, t, legal] - np.log(np.exp(logits[i, t, legal]).sum())
            policy -= (rows.record.weights[i, t, legal] * log_pi).sum()
            entropy -= (np.exp(log_pi) * log_pi).sum()
            if discrete:
                log_atoms = outputs[i, t] - np.log(np.exp(outputs[i, t]).sum())
                share = np.maximum(1 - np.abs(np.clip(target, -1, 1) - ATOMS), 0)
                value -= (share * log_atoms).sum()
            else:
                value += 0.5 * (outputs[i, t] - target) ** 2
            count += 1
    assert count == 10
    assert float(metrics["policy_loss"]) == pytest.approx(policy / count, rel=1e-5)
    assert float(metrics["value_loss"]) == pytest.approx(value / count, rel=1e-5)
    assert float(metrics["policy_entropy"]) == pytest.approx(entropy / count, rel=1e-5)
    total = (policy - 0.03 * entropy + 0.7 * value) / count
    assert float(metrics["loss"]) == pytest.approx(total, rel=1e-5)


def test_the_entropy_has_its_gradient():
    """That of `H` is `-p * (log p + H)`, and 0 of illegal actions."""
    logits, legal = jnp.array([1.0, 0.0, -1.0, 5.0]), jnp.array([True, True, True, False])
    weights = jnp.array([0.2, 0.3, 0.5, 0.0])
    found = jax.grad(lambda x: imitation(x, weights, None, legal)[1])(logits)
    log_p = np.asarray(logits[:3]) - np.log(np.exp(logits[:3]).sum())
    p = np.exp(log_p)
    wanted = [*(-p * (log_p - (p * log_p).sum())), 0.0]
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-7)


def test_an_entropy_bonus_may_fall():
    """The loss of the first update and of the second is that of the bonus of its number."""

    def losses(bonus, updates: int) -> float:
        agent = agent_of(entropy_bonus=bonus)
        state = agent.init(key=jr.key(0))
        state = eqx.tree_at(lambda s: s.updates, state, jnp.int32(updates))
        _, metrics = jax.jit(lambda *args: agent.update(*args, key=jr.key(2)))(state, windows(0))
        return float(metrics["loss"])

    falling = lambda updates: jnp.where(updates < 1, 0.5, 0.25)
    for updates, bonus in enumerate((0.5, 0.25)):
        assert losses(falling, updates) == pytest.approx(losses(bonus, 0), rel=1e-6)
    assert losses(0.5, 0) < losses(0.25, 0)


class ThreeOutputs(eqx.Module):
    """Logits, a value, and a guess at the value that a plan found."""

    linear: eqx.nn.Linear

    def __init__(self, *, key: Array):
        self.linear = eqx.nn.Linear(8, 5, key=key)

    def __call__(self, features: Float[Array, " size"]):
        out = self.linear(features)
        return out[:3], out[3], out[4]


def test_an_auxiliary_loss_is_learned_beside():
    """Its mean over the rows that count, by its weight; what the others hold does not matter."""
    miss = lambda guess, row: jnp.square(guess - row.record.value)
    fields = dict(network=ThreeOutputs, value_code=None)
    agent = agent_of(**fields, auxiliary=miss, auxiliary_weight=0.3)
    state, batch = agent.init(key=jr.key(0)), windows(0)
    idle = np.array(batch.items.last | (batch.weights == 0))
    idle[:, -1] = True
    values = np.where(idle, np.nan, batch.items.record.value)
    batch = eqx.tree_at(lambda b: b.items.record.value, batch, jnp.asarray(values))
    update = lambda agent: jax.jit(lambda b: agent.update(state, b, key=jr.key(1)))(batch)
    (after, metrics), (plain, before) = update(agent), update(agent_of(**fields))
    linear = state.params.linear
    guess = np.asarray(batch.items.obs.features) @ np.asarray(linear.weight[4]) + linear.bias[4]
    expected = np.mean(np.square(guess - values)[~idle])
    assert float(metrics["auxiliary_loss"]) == pytest.approx(expected, rel=1e-5)
    rest = float(before["loss"]) + 0.3 * float(metrics["auxiliary_loss"])
    assert float(metrics["loss"]) == pytest.approx(rest, rel=1e-5)
    weight = lambda s: np.asarray(s.params.linear.weight)
    np.testing.assert_allclose(weight(after)[:4], weight(plain)[:4], rtol=1e-6)
    assert not np.allclose(weight(after)[4], weight(plain)[4])
    other = agent_of(auxiliary=miss)
    with pytest.raises(ValueError, match="its network returns 2 things"):
        jax.eval_shape(lambda key: other.update(other.init(key=key), batch, key=key), jr.key(0))


def test_the_target_network_follows_every_so_many_updates():
    agent = agent_of(target_period=3, target_rate=0.25)
    state = agent.init(key=jr.key(0))
    first = state.target
    update = jax.jit(lambda state: agent.update(state, windows(0), key=jr.key(1))[0])
    for count in range(1, 4):
        state = update(state)
        assert int(state.updates) == count
        moved = jax.tree.map(lambda x, y: 0.75 * x + 0.25 * y, first, state.params)
        expected = moved if count == 3 else first
        for x, y in zip(jax.tree.leaves(state.target), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-6)
    assert not np.allclose(state.target.linear.weight, first.linear.weight)


def test_a_step_gone_wrong_changes_nothing():
    agent = agent_of()
    state = agent.init(key=jr.key(0))
    batch = windows(0)
    batch = eqx.tree_at(lambda b: b.items.reward, batch, batch.items.reward.at[0, 0].set(jnp.nan))
    after, metrics = eqx.filter_jit(agent.update)(state, batch, key=jr.key(1))
    assert not np.isfinite(metrics["loss"])
    for x, y in zip(jax.tree.leaves(after), jax.tree.leaves(state), strict=True):
        assert np.array_equal(x, y)


@pytest.mark.parametrize("discrete", [True, False])
def test_rows_that_do_not_count_may_hold_anything(discrete):
    """0 times NaN is NaN, in a gradient too: nothing of a plan may be learned from there."""
    agent = agent_of(
        **({} if discrete else dict(network=ft.partial(TinyNet, 8, 3), value_code=None))
    )
    state = agent.init(key=jr.key(0))
    batch = windows(0)
    idle = np.array(batch.items.last | (batch.weights == 0))
    idle[:, -1] = True
    spoil = lambda x: jnp.where(idle.reshape(3, 5, *[1] * (x.ndim - 2)), jnp.nan, x)
    spoilt = eqx.tree_at(lambda b: b.items.record, batch, jax.tree.map(spoil, batch.items.record))
    update = jax.jit(lambda batch: agent.update(state, batch, key=jr.key(1)))
    expected, found = update(batch), update(spoilt)
    assert int(found[0].updates) == 1
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(x, y)
    after, metrics = update(eqx.tree_at(lambda b: b.weights, batch, jnp.zeros((3, 5))))
    assert float(metrics["gradient_norm"]) == 0
    for x, y in zip(jax.tree.leaves(after.params), jax.tree.leaves(state.params), strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("shape", [(3,), (3, 1)])
def test_what_is_no_window_is_refused(shape):
    agent = agent_of()
    batch = jax.tree.map(lambda x: x[:, 0] if len(shape) == 1 else x[:, :1], windows(0))
    with pytest.raises(ValueError, match=rf"rows of shape {re.escape(str(list(shape)))}.*windows"):
        agent.update(agent.init(key=jr.key(0)), batch, key=jr.key(1))


def test_outcomes_need_whole_episodes():
    agent = agent_of(value_target=Outcomes())
    with pytest.raises(ValueError, match="Outcomes was given a batch without .*EpisodeBuffer"):
        agent.update(agent.init(key=jr.key(0)), windows(0), key=jr.key(1))


def test_other_rewards_take_the_place_of_the_environments():
    """An agent that is paid otherwise learns as if the environment had paid so."""
    paid = windows(0)
    paid = eqx.tree_at(lambda b: b.items.reward, paid, 1 - 2 * paid.items.reward)
    state = agent_of().init(key=jr.key(0))
    update = lambda agent, batch: jax.jit(lambda b: agent.update(state, b, key=jr.key(1)))(batch)
    expected = update(agent_of(), paid)
    otherwise = NStepReturns(2, lambda rows: 1 - 2 * rows.reward)
    found = update(agent_of(value_target=otherwise), windows(0))
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(x, y)


def test_the_explorer_may_follow_the_updates():
    """A temperature that falls while it learns, in a planner that is compiled once."""
    readout = lambda updates: SoftmaxQ(jnp.where(updates < 5, 10.0, 0.0))
    heat = lambda updates: TreeSearch(8, PUCT(), readout=readout(updates))
    agent = agent_of(explorer=heat)
    state = agent.init(key=jr.key(0))
    world = jax.vmap(lambda k: ENV.init(key=k))(jr.split(jr.key(0), 4))

    @jax.jit
    def weights(state):
        actor = agent.actor(state, explore=True)
        obs = jax.vmap(ENV.observe)(world)
        return actor.act(world, obs, actor.init(world), key=jr.split(jr.key(1), 4))[1].weights

    assert np.max(weights(state)) < 0.6
    later = eqx.tree_at(lambda s: s.updates, state, jnp.asarray(5, jnp.int32))
    assert np.array_equal(np.max(weights(later), axis=1), np.ones(4))


@pytest.mark.parametrize(
    "change, said",
    [
        (dict(target_period=0), "target_period=0"),
        (dict(gamma=1.5), "gamma=1.5"),
        (dict(value_mix=-0.1), "value_mix=-0.1"),
        (dict(target_rate=2.0), "target_rate=2.0"),
    ],
)
def test_bad_numbers_are_refused(change, said):
    with pytest.raises(ValueError, match=said):
        agent_of(**change)
    with pytest.raises(ValueError, match=r"NStepReturns\(n=0\)"):
        NStepReturns(0)


def test_continuous_actions_are_refused():
    agent = agent_of()
    batch = windows(0)
    blind = eqx.tree_at(lambda b: b.items.obs.legal, batch, None)
    with pytest.raises(ValueError, match="without legal actions"):
        agent.update(agent.init(key=jr.key(0)), blind, key=jr.key(1))


def test_it_learns_the_shortest_way():
    env = TimeLimit(Corridor(5), 12)
    root = PriorRoot(DirichletNoise(0.5, 2.0))
    agent = agent_of(
        env,
        network=ft.partial(TinyNet, 5, 2),
        value_code=None,
        optimiser=optax.adam(1e-2),
        explorer=TreeSearch(12, PUCT(), root, SoftmaxQ(0.1)),
        planner=TreeSearch(12, PUCT()),
        target_rate=0.1,
    )
    buffer = TrajectoryBuffer(capacity=64, num_envs=16, batch_size=32, length=6)
    loop = Loop(env=env, agent=agent, buffer=buffer, unroll_length=6, num_updates=2)
    state = fill(loop, init(loop, key=jr.key(0)))
    for _ in range(40):
        state, _ = step(loop, state)
    cells = Observation(jnp.eye(5)[:4], jnp.ones((4, 2), bool))
    network = jax.jit(lambda params: jax.vmap(agent.evaluator(params))(cells))
    logits, value = network(state.agent.params)
    assert (np.argmax(logits, axis=1) == 1).all()
    assert float(value[0]) == pytest.approx(GAMMA**3, abs=0.1)
