"""MuZero's targets, loss and gradient against NumPy, and that it learns a world."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jaxtyping
import numpy as np
import optax
import pytest
from jaxtyping import Array

from zero_envs import Observation
from zero_memory import Batch, PrioritisedTrajectoryBuffer
from zero_search import DirichletNoise, TreeSearch
from zero_train import (
    bind,
    data_mesh,
    Experience,
    fill,
    init,
    LatentModel,
    Loop,
    MuZero,
    PlanRecord,
    RandomActor,
    step,
    template,
)

from .crossings import check_update
from .test_expert_iteration import agent_of as expert_iteration
from .test_latent_model import ACTIONS, GAMMA, RING


ROWS, STEPS, N, LAMBDA = 10, 4, 3, 0.9


class Linear(eqx.Module):
    """Hidden states, rewards, logits and values that are linear in what they come from."""

    encode: Array
    move: Array
    heads: Array

    def __init__(self, *, key: Array):
        keys = jr.split(key, 3)
        self.encode = 0.5 * jr.normal(keys[0], (5, 4))
        self.move = 0.5 * jr.normal(keys[1], (ACTIONS, 5, 5))
        self.heads = 0.5 * jr.normal(keys[2], (ACTIONS + 2, 5))

    def represent(self, features):
        return self.encode @ features

    def step(self, hidden, action):
        hidden = self.move[action] @ hidden
        return hidden, self.heads[-1] @ hidden

    def predict(self, hidden):
        out = self.heads[:-1] @ hidden
        return out[:ACTIONS], out[ACTIONS]


class LinearAtoms(Linear):
    """The same with logits of two atoms for rewards and values."""

    def step(self, hidden, action):
        hidden = self.move[action] @ hidden
        return hidden, (self.heads @ hidden)[-2:]

    def predict(self, hidden):
        out = self.heads @ hidden
        return out[:ACTIONS], out[ACTIONS:]


class Halves(eqx.Module):
    """Numbers on -4 and 4."""

    def decode_logits(self, logits):
        return jnp.sum(jax.nn.softmax(logits) * jnp.array([-4.0, 4.0]))

    def cross_entropy(self, logits, value):
        share = jnp.clip((value + 4) / 8, 0, 1)
        return -jnp.sum(jnp.stack([1 - share, share]) * jax.nn.log_softmax(logits))


class Shifted(eqx.Module):
    """Statistics that only shift."""

    by: Array

    def update(self, batch, weights=None):
        return self

    def normalise(self, x):
        return x - self.by


def agent_of(**changes: Any) -> MuZero:
    search = TreeSearch.muzero(8)
    fields = dict(
        network=Linear,
        optimiser=optax.sgd(0.1),
        explorer=search,
        planner=search,
        gamma=GAMMA,
        num_unroll=STEPS,
        n_steps=N,
        lambda_=LAMBDA,
        value_weight=0.7,
        reward_weight=1.3,
    )
    return MuZero(**{**fields, **changes})


def windows(seed: int, batch: int = 24, *, num_players: int = 1) -> Batch:
    """Windows in which episodes end and are cut off at random; filler that must not be read is
    large."""
    draws = np.random.default_rng(seed)
    shape = batch, ROWS
    last = draws.random(shape) < 0.2
    discount = np.full(shape, 1.0 if num_players == 1 else -1.0)
    # Half of the final rows come after a true end.
    discount[:, :-1][last[:, 1:] & (draws.random((batch, ROWS - 1)) < 0.5)] = 0
    weights = draws.random((*shape, ACTIONS))
    number = lambda x: jnp.asarray(x, jnp.float32)
    rows = Experience(
        obs=Observation(number(draws.normal(size=(*shape, 4))), jnp.ones((*shape, ACTIONS), bool)),
        action=jnp.asarray(draws.integers(0, ACTIONS, shape), jnp.int32),
        reward=number(np.where(last, 1e3, draws.normal(size=shape))),
        discount=number(np.where(last, 0.0, discount)),
        last=jnp.asarray(last),
        record=PlanRecord(
            number(weights / weights.sum(-1, keepdims=True)), number(draws.normal(size=shape))
        ),
    )
    counts = number(np.broadcast_to(draws.random((batch, 1)), shape))
    return Batch(rows, counts, jnp.zeros(shape, jnp.int32))


def returned(rows: Any, b: Any, at: int, steps: int) -> float:
    """The return of so many steps from a row."""
    if at == ROWS - 1 or not steps or rows.last[b, at]:
        return rows.record.value[b, at]
    later = returned(rows, b, at + 1, steps - 1)
    later = (1 - LAMBDA) * rows.record.value[b, at + 1] + LAMBDA * later
    return rows.reward[b, at] + GAMMA * rows.discount[b, at] * later


def by_hand(rows: Any, b: Any, horizons: Any = None) -> list[dict[str, Any]]:
    """What each position of an unroll learns; `None` where it learns nothing."""
    record, found, state = rows.record, [], "runs"
    for k in range(STEPS + 1):
        if k:  # the step that led here, from the row before
            if state == "runs" and rows.last[b, k - 1]:
                state = "unknown"
            if state == "runs":
                found[-1]["action"], reward = rows.action[b, k - 1], rows.reward[b, k - 1]
                state = "over" if rows.discount[b, k - 1] == 0 else "runs"
            else:
                reward = 0.0 if state == "over" else None
        else:
            reward = None
        if state == "runs":
            value = returned(rows, b, k, N if horizons is None else horizons[b, k])
        else:
            value = 0.0 if state == "over" else None
        learns = state == "runs" and not rows.last[b, k]
        policy = record.weights[b, k] if learns else None
        found.append(dict(reward=reward, value=value, policy=policy, action=None))
    return found


@pytest.mark.parametrize("num_players", [1, 2])
def test_targets_are_those_of_a_loop_over_the_rows(num_players):
    batch = windows(0, num_players=num_players)
    learned = lambda rows: agent_of().unrolled(rows, rows.record.value, key=jr.key(0))
    found = jax.jit(learned)(batch.items)
    rows = jax.tree.map(np.asarray, batch.items)
    seen = dict(over=0, unknown=0)
    for b in np.flatnonzero(~rows.last[:, 0]):
        for k, target in enumerate(by_hand(rows, b)):
            for name in ("value", "policy") + (("reward",) if k else ()):
                weight, wanted = getattr(found, f"{name}_weight")[b, k], target[name]
                scale = 1 / STEPS if k else 1
                assert float(weight) == (0 if wanted is None else scale), (b, k, name)
                if wanted is not None:  # one target is 1e-4, a float32 sum of numbers near 1
                    np.testing.assert_allclose(
                        getattr(found, name)[b, k], wanted, rtol=1e-4, atol=1e-6
                    )
            if target["action"] is not None:
                assert found.action[b, k] == target["action"]
            seen["unknown"] += target["value"] is None
            seen["over"] += target["value"] == 0
    assert min(seen.values()) > 3
    assert np.all((0 <= found.action) & (found.action < ACTIONS))


def forward(net: Any, features: np.ndarray, actions: np.ndarray) -> tuple[list, list, list]:
    hidden = net.encode @ features
    rewards, logits, values = [], [], []
    for k in range(len(actions) + 1):
        out = net.heads @ hidden
        logits.append(out[:ACTIONS])
        values.append(out[ACTIONS])
        rewards.append(out[ACTIONS + 1])
        if k < len(actions):
            hidden = net.move[actions[k]] @ hidden
    return rewards, logits, values


def test_loss_is_the_formula():
    agent, batch = agent_of(), windows(1)
    state = agent.init(key=jr.key(0))
    update = jax.jit(lambda s, b: agent.update(s, b, key=jr.key(2)))
    _, metrics, priorities = update(state, batch)
    learned = jax.tree.map(
        np.asarray, agent.unrolled(batch.items, batch.items.record.value, key=jr.key(2))
    )
    net = jax.tree.map(lambda x: np.asarray(x, np.float64), bind(Linear, state.params))
    rows, total, count = jax.tree.map(np.asarray, batch.items), 0.0, 0.0
    for b in range(len(rows.last)):
        if rows.last[b, 0]:
            assert priorities[b] == 0
            continue
        weight = float(batch.weights[b, 0])
        features = np.asarray(rows.obs.features[b, 0], np.float64)
        outs = forward(net, features, learned.action[b])
        for k, (reward, logits, value) in enumerate(zip(*outs, strict=True)):
            log_pi = logits - np.log(np.exp(logits).sum())
            loss = -learned.policy_weight[b, k] * (learned.policy[b, k] * log_pi).sum()
            error = value - learned.value[b, k]
            loss += 0.7 * learned.value_weight[b, k] * 0.5 * error**2
            if k:  # before the first position there was no step
                error = reward - learned.reward[b, k]
                loss += 1.3 * learned.reward_weight[b, k] * 0.5 * error**2
            total += weight * loss
        count += weight
        wanted = abs(rows.record.value[b, 0] - learned.value[b, 0])
        assert priorities[b] == pytest.approx(wanted, rel=1e-4)
    assert float(metrics["loss"]) == pytest.approx(total / count, rel=1e-4)


def test_returns_may_end_with_what_the_target_network_says_now():
    """They learn what windows would teach whose plans had found its values; a code and statistics
    are used on the way."""
    fields: dict[str, Any] = dict(
        code=Halves(), statistics=Shifted(jnp.float32(0.3)), network=LinearAtoms
    )
    agents = [agent_of(bootstrap=kind, **fields) for kind in ("network", "plan")]
    state, batch = agents[0].init(key=jr.key(0)), windows(4)
    other = agents[0].init(key=jr.key(1)).params
    state = dataclasses.replace(state, target=other)

    @jax.jit
    def values(obs):
        model = LatentModel(bind(LinearAtoms, other), GAMMA, 1, Halves(), fields["statistics"])
        return jax.vmap(jax.vmap(lambda obs: model.evaluate(obs)[1]))(obs)

    found = values(batch.items.obs)
    hidden = np.asarray(batch.items.obs.features) - 0.3
    out = hidden @ np.asarray(other.encode).T @ np.asarray(other.heads).T
    share = np.exp(out[..., ACTIONS:]) / np.exp(out[..., ACTIONS:]).sum(-1, keepdims=True)
    np.testing.assert_allclose(found, share @ [-4, 4], rtol=1e-3, atol=1e-4)
    planned = eqx.tree_at(lambda b: b.items.record.value, batch, found)
    first, second = (
        jax.jit(lambda b, agent=agent: agent.update(state, b, key=jr.key(2))[1:])(given)
        for agent, given in zip(agents, (batch, planned), strict=True)
    )
    for name, metric in first[0].items():
        assert float(metric) == pytest.approx(float(second[0][name]), rel=1e-5), name
    np.testing.assert_allclose(first[1], second[1], rtol=1e-4, atol=1e-5)


class Projected(Linear):
    """The same with vectors for a loss of consistency, which the hidden state itself gives."""

    guess: Array

    def __init__(self, *, key: Array):
        super().__init__(key=key)
        self.guess = jr.normal(jr.fold_in(key, 3), (5, 5))

    def project(self, hidden):
        return hidden

    def predict_projection(self, projection):
        return self.guess @ projection


def test_consistency_is_the_cosine_to_what_was_observed():
    """Only where a step was played from one row of the window to the next; what is observed gets no
    gradient."""
    agent, batch = agent_of(network=Projected, consistency=2.0), windows(9)
    state = agent.init(key=jr.key(0))
    update = jax.jit(lambda s, b: agent.update(s, b, key=jr.key(2)))
    after, metrics, _ = update(state, batch)
    net = jax.tree.map(lambda x: np.asarray(x, np.float64), bind(Projected, state.params))
    rows, total, count = jax.tree.map(np.asarray, batch.items), 0.0, 0.0
    features = np.asarray(rows.obs.features, np.float64)
    for b in np.flatnonzero(~rows.last[:, 0]):
        weight, hidden = float(batch.weights[b, 0]), net.encode @ features[b, 0]
        for k in range(1, STEPS + 1):
            if rows.last[b, k - 1] or (k > 1 and rows.discount[b, k - 2] == 0):
                break
            hidden = net.move[rows.action[b, k - 1]] @ hidden
            guess, seen = net.guess @ hidden, net.encode @ features[b, k]
            cosine = guess @ seen / np.linalg.norm(guess) / np.linalg.norm(seen)
            total += weight * (1 - cosine) / STEPS
        count += weight
    assert float(metrics["consistency_loss"]) == pytest.approx(total / count, rel=1e-4)
    plain, _, _ = jax.jit(lambda s, b: agent_of(network=Projected).update(s, b, key=jr.key(2)))(
        state, batch
    )
    assert not np.allclose(after.params.guess, state.params.guess)
    np.testing.assert_array_equal(plain.params.guess, state.params.guess)


class Narrow(Halves):
    """Says which numbers it can tell apart."""

    limits = (-0.5, 0.5)


def test_targets_outside_of_the_support_are_counted():
    agent, batch = agent_of(network=LinearAtoms, code=Narrow()), windows(10)
    state = agent.init(key=jr.key(0))
    _, metrics, _ = jax.jit(lambda b: agent.update(state, b, key=jr.key(2)))(batch)
    learned = agent.unrolled(batch.items, batch.items.record.value, key=jr.key(2))
    first = ~np.asarray(batch.items.last[:, :1])
    wrong = sum(
        int(np.sum(first & (np.asarray(weight) > 0) & (np.abs(np.asarray(x)) > 0.5)))
        for x, weight in (
            (learned.value, learned.value_weight),
            (learned.reward, learned.reward_weight),
        )
    )
    assert float(metrics["outside_support"]) == wrong > 10


def test_the_error_of_values_is_a_mean_over_those_that_are_learned():
    """A window that the end of an episode by a time limit cuts has no value after its last steps:
    it counts as one of weight 0."""
    agent, batch = agent_of(), windows(5)
    state = agent.init(key=jr.key(0))
    learn = jax.jit(lambda b: agent.update(state, b, key=jr.key(2))[1]["value_error_unrolled"])
    learned = agent.unrolled(batch.items, batch.items.record.value, key=jr.key(2))
    known = np.asarray(learned.value_weight)[:, -1:] > 0
    assert 3 < known.sum() < len(known) - 3
    without = dataclasses.replace(batch, weights=jnp.where(known, batch.weights, 0.0))
    assert float(learn(batch)) == pytest.approx(float(learn(without)), rel=1e-6)


@pytest.mark.parametrize("num_players", [1, 2])
def test_a_move_out_of_turn_is_an_error_and_teaches_nothing(num_players):
    agent = agent_of(num_players=3 - num_players)
    state, batch = agent.init(key=jr.key(0)), windows(5, num_players=num_players)
    after, metrics, _ = jax.jit(lambda b: agent.update(state, b, key=jr.key(1)))(batch)
    assert np.isnan(metrics["turn_error"])
    for old, new in zip(jax.tree.leaves(state), jax.tree.leaves(after), strict=True):
        np.testing.assert_array_equal(old, new)


def test_what_does_not_fit_is_refused():
    agent = agent_of()
    short = jax.tree.map(lambda x: x[:, :STEPS], windows(6))
    with pytest.raises(ValueError, match="was given windows of 4 rows; .* length of at least 5"):
        jax.eval_shape(lambda b: agent.update(agent.init(key=jr.key(0)), b, key=jr.key(1)), short)
    with pytest.raises(ValueError, match="give 'plan' or 'network'"):
        agent_of(bootstrap="search")
    with pytest.raises(ValueError, match="n_steps=0, bootstrap='network'.* needs bootstrap='plan'"):
        agent_of(n_steps=0, bootstrap="network")
    with pytest.raises(ValueError, match="num_players=True"):
        agent_of(num_players=True)
    model, keys = LatentModel(Linear(key=jr.key(0))), jr.split(jr.key(1), 2)
    with pytest.raises(ValueError, match="plans from observations"):
        model.root(None, None, key=keys)


def test_without_returns_priorities_compare_the_plans_with_the_network():
    agent, batch = agent_of(n_steps=0, bootstrap="plan"), windows(3)
    state = agent.init(key=jr.key(0))
    _, _, priorities = jax.jit(lambda b: agent.update(state, b, key=jr.key(1)))(batch)
    rows = batch.items
    model = LatentModel(bind(agent.network, state.target))
    told = jax.vmap(lambda x: model.judged(x)[1])(rows.obs.features[:, 0])
    wanted = np.abs(np.asarray(told - rows.record.value[:, 0]))
    known = ~np.asarray(rows.last[:, 0])
    np.testing.assert_allclose(np.asarray(priorities)[known], wanted[known], rtol=1e-5)


def test_a_gradient_is_halved_at_every_step():
    """A step of plain gradient descent on the reward of one step alone: what the step reads moves
    by half of the loss's difference quotient, and the step itself by all of it."""
    # Policies that equal the targets have no gradient.
    batch, agent = windows(2), agent_of(num_unroll=1, value_weight=0.0)
    uniform = jnp.full_like(batch.items.record.weights, 1 / ACTIONS)
    batch = eqx.tree_at(lambda b: b.items.record.weights, batch, uniform)
    state = agent.init(key=jr.key(0))
    heads = jnp.zeros_like(state.params.heads).at[-1].set(state.params.heads[-1])
    state = eqx.tree_at(lambda s: s.params.heads, state, heads)
    update = jax.jit(lambda s: agent.update(s, batch, key=jr.key(2)))
    after, _, _ = update(state)
    for find, share in ((lambda s: s.params.encode, 0.5), (lambda s: s.params.move, 1.0)):
        old, new = find(state), find(after)
        shift = np.zeros(old.shape, np.float32)
        shift.flat[3] = 1e-2
        up, down = (
            float(update(eqx.tree_at(find, state, old + x))[1]["loss"]) for x in (shift, -shift)
        )
        quotient = (up - down) / 2e-2
        assert abs(quotient) > 1e-3
        gradient = np.ravel(old - new)[3] / 0.1
        assert gradient == pytest.approx(share * quotient, rel=0.02)


@pytest.mark.parametrize("make", [agent_of, expert_iteration])
def test_an_actor_of_another_kind_is_refused(make, monkeypatch):
    """By every agent whose player plans."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    said = r"\.init\(actor=RandomActor.*must be an actor of this agent"
    with pytest.raises(ValueError, match=said):
        make().init(key=jr.key(0), actor=RandomActor())


class Perceptrons(eqx.Module):
    """One hidden layer for everything."""

    represent: eqx.nn.MLP
    move: eqx.nn.MLP
    heads: eqx.nn.MLP

    def __init__(self, *, key: Array):
        keys = jr.split(key, 3)
        build = lambda i, inputs, outputs: eqx.nn.MLP(inputs, outputs, 32, 1, key=keys[i])
        self.represent = build(0, 7, 16)
        self.move = build(1, 16 + ACTIONS, 17)
        self.heads = build(2, 16, ACTIONS + 1)

    def step(self, hidden, action):
        out = self.move(jnp.concatenate([hidden, jax.nn.one_hot(action, ACTIONS)]))
        return jnp.tanh(hidden + out[1:]), out[0]

    def predict(self, hidden):
        out = self.heads(hidden)
        return out[:ACTIONS], out[ACTIONS]


def ring_loop(num_devices: int) -> Loop:
    agent = MuZero(
        network=Perceptrons,
        optimiser=optax.adam(3e-3),
        # Moves at random as well, so that it sees all places.
        explorer=TreeSearch.muzero(8, noise=DirichletNoise(0.5), temperature=1.0),
        planner=TreeSearch.gumbel(16, gumbel_scale=0.0),
        gamma=0.8,
        num_unroll=3,
        n_steps=3,
    )
    buffer = PrioritisedTrajectoryBuffer(
        capacity=64, num_envs=16, batch_size=64, length=7, num_shards=8
    )
    mesh = data_mesh(num_devices)
    sizes: dict[str, Any] = dict(unroll_length=8, num_updates=8, reanalyse=0.25)
    return Loop(env=RING, agent=agent, buffer=buffer, mesh=mesh, **sizes)


def test_an_update_waits_for_the_other_devices_twice(collectives, sums_in_turn):
    loop = ring_loop(8)
    check_update(loop, template(loop), collectives, sums_in_turn)


def regret(loop: Loop, state: Any) -> float:
    """How much worse than the best move, at most, its moves are in the ring."""
    values, worth = np.zeros(7), np.zeros((7, ACTIONS))
    for _ in range(100):
        moved = np.array([[values[(s + a + 1) % 7] for a in range(ACTIONS)] for s in range(7)])
        worth = np.asarray(RING.rewards) + 0.8 * moved
        values = worth.max(axis=1)
    actor = loop.agent.actor(state.agent, explore=False)
    places = jnp.arange(7, dtype=jnp.int32)
    obs = jax.vmap(RING.observe)(places)
    act = eqx.filter_jit(lambda actor, keys: actor.act(places, obs, actor.init(places), key=keys))
    action, _, _ = act(actor, jr.split(jr.key(1), 7))
    return float(np.max(values - worth[np.arange(7), np.asarray(action)]))


def test_it_learns_the_ring():
    """From rewards and observations alone, the way round that pays most."""
    loop = ring_loop(1)
    state = fill(loop, init(loop, key=jr.key(0)))
    metrics = {}
    for _ in range(200):
        state, metrics = step(loop, state)
    assert metrics["reward_loss"] < 0.01
    # Learned values are those of a player that explores, so near the best is good enough.
    assert regret(loop, state) < 0.3
