"""Particle search on discrete actions: a slow search to compare with, laws, and sums by hand."""

import functools as ft
import itertools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from zero_search import (
    AbstractPriorModel,
    ParticleSearch,
)
from zero_search._cloud import resampled
from zero_search._particles import move, Particles

from .dice import Die, RandomDice
from .helpers import chi_squared, Noise, quick_jit, RandomTree


BATCH, PARTICLES, DEPTH = 4, 6, 5
# Two players, ends, truncated episodes, and states after the end that would still go on.
DICE = RandomDice(
    RandomTree(4, (1.0, -1.0) * 4 + (0.0,), truncate=0.08, after_end=1.0, sharpness=2.0)
)
SHORT_SIGHTED = eqx.tree_at(lambda d: d.tree.gamma, DICE, 0.9)


def search(planner, model, state, seed=0):
    batch = jax.tree.leaves(state)[0].shape[0]
    run = quick_jit(lambda s, k: planner.plan(model, s, None, key=k)[0])
    return jax.tree.map(np.asarray, run(state, jr.split(jr.key(seed), batch)))


@ft.cache
def compiled(model):
    """`step` and `predict` of one row."""
    row = lambda f: lambda *args: f(*(jax.tree.map(lambda x: x[None], a) for a in args))
    step = lambda state, action, key: model.step(state, action, key=key)
    return quick_jit(row(step)), quick_jit(row(lambda state, key: model.predict(state, key=key)))


class Oracle:
    """The search in Python, one row, one particle, one step at a time."""

    def __init__(self, planner, model):
        self.planner, self.model = planner, model
        self.step, self.predict = compiled(model)
        self.draw = jax.jit(jr.categorical)

    def judge(self, state, key):
        logits, value = self.predict(state, key)
        return logits[0], float(value[0])

    def __call__(self, state, row, key) -> dict[str, Any]:
        state = jax.tree.map(lambda x: x[row], state)
        p, n = self.planner, self.planner.num_particles
        _, predict_key, noise_key, particle_key, resample_key, _ = jr.split(key, 6)
        logits, value = self.judge(state, predict_key)
        wide = logits if p.noise is None else p.noise(logits[None], key=noise_key[None])[0]
        keys = [jr.fold_in(particle_key, i) for i in range(n)]
        particles: list[dict[str, Any]] = []
        for i, k in enumerate(keys):
            action = int(self.draw(jr.fold_in(k, 0), wide))
            ratio = float(jax.nn.log_softmax(logits)[action] - jax.nn.log_softmax(wide)[action])
            ratio *= p.noise is not None and p.correct
            particles.append(
                dict(state=state, action=action, root=i, v=value, w=0.0, ratio=ratio, c=1.0)
                | dict(alive=True, rewards=0.0)
            )
        out: dict[str, Any] = dict(advantages=np.zeros(n), value=value, frozen=False, stats=[])
        out["candidates"] = [x["action"] for x in particles]
        for step in range(1, p.depth + 1):
            now = [jr.split(jr.fold_in(k, step)) for k in keys]
            alive = np.mean([x["alive"] for x in particles])
            for i, x in enumerate(particles):
                x["logits"] = logits  # of filler, where a particle has stopped
                if x["alive"]:
                    delta = self.move(x, now[i][0])
                    if not out["frozen"]:
                        out["advantages"][i] += p.lambda_ ** (step - 1) * delta
            weights = self.weights(particles)
            ess = 1 / np.sum(weights**2) / n
            due = self.due(step, ess)
            out["stats"].append((ess, np.mean([x["w"] for x in particles]), alive, due))
            if due:
                index = self.resample(weights, jr.fold_in(resample_key, step))
                particles = [dict(particles[j], w=0.0, ratio=0.0) for j in index]
                out["frozen"] = True
            for i, x in enumerate(particles):
                if x["alive"]:
                    x["action"] = int(self.draw(now[i][1], x["logits"]))
        out["weights"] = np.zeros(n)
        for x, weight in zip(particles, self.weights(particles), strict=True):
            out["weights"][x["root"]] += weight
        return out | {"particles": particles}

    def move(self, x, key):
        step_key, predict_key = jr.split(key)
        state, reward, discount, last = self.step(x["state"], jnp.int32(x["action"]), step_key)
        x["state"] = jax.tree.map(lambda leaf: leaf[0], state)
        x["logits"], value = self.judge(x["state"], predict_key)
        discount = float(discount[0])
        delta = x["c"] * (float(reward[0]) + discount * value - x["v"])
        x["rewards"] += x["c"] * float(reward[0])
        x["c"] *= discount
        x["v"], x["w"] = value, x["w"] + delta
        x["alive"] = not bool(last[0]) and discount != 0
        return delta

    def weights(self, particles):
        logits = np.array([x["ratio"] + x["w"] / self.planner.temperature for x in particles])
        weights = np.exp(logits - logits.max())
        return weights / weights.sum()

    def due(self, step, ess):
        every, below = self.planner.resample_every, self.planner.resample_below
        return (every is not None and step % every == 0) or (below is not None and ess < below)

    def resample(self, weights, key):
        n = len(weights)
        if self.planner.resampling == "systematic":
            uniform = (np.arange(n) + float(jr.uniform(key))) / n
        else:
            uniform = np.asarray(jr.uniform(key, (n,)))
        return [next(i for i in range(n) if weights[: i + 1].sum() > u) for u in uniform]


CONFIGURATIONS = {
    "after the last step": dict(resample_every=DEPTH, temperature=0.7),
    "every other step": dict(resample_every=2, lambda_=0.8, temperature=0.5),
    "by sample size": dict(
        resample_every=None,
        resample_below=0.6,
        resampling="systematic",
        noise=Noise(),
        temperature=0.4,
    ),
    "in either case": dict(resample_every=2, resample_below=0.6, temperature=0.4),
    "never": dict(resample_every=None, noise=Noise(), correct=False, lambda_=0.5),
}


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_equals_a_loop_over_particles(name):
    planner = ParticleSearch(PARTICLES, DEPTH, **CONFIGURATIONS[name])
    state = DICE.tree.start(BATCH, 5)
    dice = SHORT_SIGHTED if name == "every other step" else DICE
    plan = search(planner, dice, state, 3)
    oracle = Oracle(planner, dice)
    deaths = resampled = 0
    for row, key in enumerate(jr.split(jr.key(3), BATCH)):
        slow = oracle(state, row, key)
        assert plan.candidates[row].tolist() == slow["candidates"]
        close = ft.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5)
        close(plan.weights[row], slow["weights"])
        roots = [x["root"] for x in slow["particles"]]
        assert plan.visits[row].tolist() == np.bincount(roots, minlength=PARTICLES).tolist()
        close(plan.advantages[row], slow["advantages"])
        close(plan.value[row], slow["value"])
        close(plan.qvalues[row], slow["value"] + slow["advantages"])
        close(plan.stats["improvement"][row], slow["weights"] @ slow["advantages"])
        columns = ("ess_fraction", "gain", "alive", "resampled")
        for column, values in zip(columns, zip(*slow["stats"], strict=True), strict=True):
            close(plan.stats[column][row], values)
        deaths += sum(not x["alive"] for x in slow["particles"])
        resampled += sum(x[3] for x in slow["stats"][:-1])
    assert 0 < deaths < BATCH * PARTICLES
    assert (resampled > 0) == (name in ("every other step", "by sample size", "in either case"))
    assert np.all(plan.stats["invalid"] == 0)


def test_gain_is_what_the_way_was_worth_above_the_root():
    # No deaths, no resampling, gamma = lambda = 1: eta log(w) = A = sum(r) + V_h - V_0.
    model = RandomTree(3, (1.0, -1.0))
    planner = ParticleSearch(PARTICLES, DEPTH, 0.6, resample_every=None)
    state = model.start(2, 7)
    plan = search(planner, model, state)
    oracle = Oracle(planner, model)
    for row, key in enumerate(jr.split(jr.key(0), 2)):
        slow = oracle(state, row, key)
        worth = [x["rewards"] + x["c"] * x["v"] - slow["value"] for x in slow["particles"]]
        np.testing.assert_allclose(plan.advantages[row], worth, atol=1e-5)
    tilted = jax.nn.softmax(plan.advantages / 0.6, axis=1)
    np.testing.assert_allclose(plan.weights, tilted, rtol=1e-4)


class Chain(AbstractPriorModel[jax.Array]):
    """The one action goes to the next state; what follows is written down."""

    rewards: tuple[float, ...]
    values: tuple[float, ...]
    discounts: tuple[float, ...]
    lasts: tuple[bool, ...]
    gamma: float = 1.0

    def root(self, state, obs, *, key):
        return state

    def step(self, node, action, *, key):
        of = lambda row: jnp.asarray(row)[node]
        return node + 1, of(self.rewards), self.gamma * of(self.discounts), of(self.lasts)

    def predict(self, node, *, key):
        return jnp.zeros((*node.shape, 1)), jnp.asarray(self.values)[node]


ALIVE, ON = (1.0,) * 4, (False,) * 4
CHAINS = {
    # 1 + .9 + .81 + .729 * 4 - 1
    "discounted": (Chain((1.0, 1.0, 1.0, 0.0), (1.0, 2.0, 3.0, 4.0), ALIVE, ON, 0.9), 3, 4.626),
    # The end counts, what comes after it does not.
    "terminal": (
        Chain((0.0, 0.0, 1.0, 7.0), (0.5,) * 5, (1.0, 1.0, 0.0, 1.0), (False, False, True, False)),
        4,
        0.5,
    ),
    "truncated": (Chain((1.0,) * 4, (0.5, 0.7, 9.0, 9.0), ALIVE, (True,) + ON[1:]), 3, 1.2),
    "not truncated": (
        Chain((1.0,) * 4, (0.5, 0.7, 9.0, 9.0), (0.0,) + ALIVE[1:], (True,) + ON[1:]),
        3,
        0.5,
    ),
}


def test_errors_by_hand():
    # 1.8, 1.7 and 1.6, each discounted once more than the one before.
    model, depth, _ = CHAINS["discounted"]
    planner = ParticleSearch(1, depth, resample_every=None)
    plan = search(planner, model, jnp.zeros((1,), jnp.int32))
    np.testing.assert_allclose(plan.stats["gain"][0], [1.8, 3.33, 4.626], atol=1e-5)


@pytest.mark.parametrize("name", CHAINS)
def test_sums_by_hand(name):
    model, depth, worth = CHAINS[name]
    planner = ParticleSearch(2, depth, 0.5, resample_every=None)
    plan = search(planner, model, jnp.zeros((1,), jnp.int32))
    np.testing.assert_allclose(plan.advantages, [[worth, worth]], atol=1e-5)
    np.testing.assert_allclose(plan.stats["gain"][0, -1], worth, atol=1e-5)
    last = next((i for i, end in enumerate(model.lasts) if end), depth)
    assert plan.stats["alive"][0].tolist() == [float(i <= last) for i in range(depth)]
    assert np.all(plan.stats["ess_fraction"] == 1) and np.all(plan.weights == 0.5)


class Bandit(AbstractPriorModel[jax.Array]):
    """Action 0, 1, 2 pays 1, 0, -1 once; then nothing ever happens."""

    def root(self, state, obs, *, key):
        return state

    def step(self, node, action, *, key):
        reward = jnp.where(node == 0, 1 - action, 0).astype(jnp.float32)
        return node + 1, reward, jnp.ones_like(reward), jnp.zeros_like(reward, bool)

    def predict(self, node, *, key):
        return jnp.zeros((*node.shape, 3)), jnp.zeros(node.shape, jnp.float32)


def test_one_step_is_a_softmax_of_advantages():
    plan = search(ParticleSearch(3, 1, resample_every=None), Bandit(), jnp.zeros((64,), jnp.int32))
    assert np.array_equal(plan.advantages, 1 - plan.candidates)
    np.testing.assert_allclose(plan.weights, jax.nn.softmax(1.0 - plan.candidates), rtol=1e-5)
    whole = np.flatnonzero((np.sort(plan.candidates, axis=1) == [0, 1, 2]).all(axis=1))
    assert len(whole) > 2
    for row in whole:
        best_first = -np.sort(-plan.weights[row])
        np.testing.assert_allclose(best_first, [0.665241, 0.244728, 0.090031], atol=1e-5)
        np.testing.assert_allclose(3 * plan.stats["ess_fraction"][row], 1.958699, rtol=1e-5)
        divergence = np.log(3) - plan.stats["entropy"][row]
        np.testing.assert_allclose(divergence, 0.266217, rtol=1e-5)


def test_sample_size_is_full_after_resampling():
    planner = ParticleSearch(8, 3, 0.2, resample_every=1)
    plan = search(planner, Bandit(), jnp.zeros((16,), jnp.int32))
    ess = 8 * plan.stats["ess_fraction"]
    assert np.all(ess[:, 0] < 8) and np.all((ess >= 1 - 1e-5) & (ess <= 8 + 1e-5))
    np.testing.assert_allclose(ess[:, 1:], 8, rtol=1e-5)
    # Shares of one particle; the advantages stay those of the first actions, in their order.
    assert np.all(plan.weights * 8 == np.round(plan.weights * 8))
    assert np.array_equal(plan.advantages, 1 - plan.candidates)


def test_particles_do_not_depend_on_one_another():
    order = jr.permutation(jr.key(1), PARTICLES)
    spread = lambda x: jnp.broadcast_to(x[:, None], (BATCH, PARTICLES, *x.shape[1:]))
    numbers = jnp.arange(BATCH * PARTICLES, dtype=jnp.float32).reshape(BATCH, -1)
    particles = Particles(
        state=jax.tree.map(spread, DICE.tree.start(BATCH)),
        action=(numbers % 4).astype(jnp.int32),
        ancestor=numbers.astype(jnp.int32),
        gain=numbers / 10,
        log_ratio=-numbers,
        scale=1 - numbers / 50,
        value=numbers / 7,
        alive=numbers % 5 > 0,
    )
    keys = lambda: jr.split(jr.key(2), (BATCH, PARTICLES))
    permute = lambda tree: jax.tree.map(lambda x: x[:, order], tree)
    run = quick_jit(lambda p, k: move(SHORT_SIGHTED, p, k))
    moved, permuted = permute(run(particles, keys())), run(permute(particles), keys()[:, order])
    pairs = zip(jax.tree.leaves(moved), jax.tree.leaves(permuted), strict=True)
    assert all(np.array_equal(x, y) for x, y in pairs)
    heat = jnp.float32(0.5)
    weights = permute(particles).weights(heat)
    np.testing.assert_allclose(weights, permute(particles.weights(heat)), rtol=1e-6)


def test_one_particle_is_a_rollout():
    model, depth = RandomTree(4, (1.0,), illegal=0.4, gamma=0.9), 4
    planner = ParticleSearch(1, depth, lambda_=0.8, resample_every=None)
    state, key = model.start(3, 2), jr.split(jr.key(0), 3)
    plan = search(planner, model, state)
    particle = [jr.fold_in(jr.split(k, 6)[3], 0) for k in key]
    draws = [jr.fold_in(k, 0) for k in particle]
    actions, rewards, values = [], [], []
    predict = quick_jit(lambda s: model.predict(s, key=key))
    play = quick_jit(lambda s, a: model.step(s, a, key=key))
    for step in range(1, depth + 1):
        logits, value = predict(state)
        action = jnp.stack([jr.categorical(*x) for x in zip(draws, logits, strict=True)])
        actions.append(action)
        values.append(value)
        state, reward, _, _ = play(state, action.astype(jnp.int32))
        rewards.append(reward)
        draws = [jr.split(jr.fold_in(k, step))[1] for k in particle]
    values.append(predict(state)[1])
    advantage = np.zeros(3)
    for reward, value, after in reversed(list(zip(rewards, values, values[1:], strict=False))):
        advantage = np.asarray(reward + 0.9 * after - value) + 0.9 * 0.8 * advantage
    np.testing.assert_allclose(plan.advantages[:, 0], advantage, atol=1e-5)
    assert np.array_equal(plan.candidates[:, 0], actions[0])
    assert np.array_equal(plan.action, actions[0])
    assert np.all(plan.weights == 1) and np.all(plan.stats["ess_fraction"] == 1)


def test_particles_know_neither_the_real_die_nor_each_other():
    number, planner, model = 10_000, ParticleSearch(3, 1, resample_every=None), Die()

    @quick_jit
    def run(seeds):
        state = jnp.full(seeds.shape, 7, jnp.int32)
        keys = jax.vmap(lambda s: jr.split(jr.key(s)))(seeds)
        plan, _ = planner.plan(model, state, None, key=keys[:, 0])
        return plan.qvalues, model.step(state, plan.action, key=keys[:, 1])[0]

    seen, real = map(np.asarray, run(jnp.arange(number, dtype=jnp.uint32)))
    draws = [*seen.T.astype(int), real]
    for faces in draws:
        assert chi_squared(np.bincount(faces, minlength=6)[None], number / 6) < 25.8
    for x, y in itertools.combinations(draws, 2):
        table = np.zeros((6, 6))
        np.add.at(table, (x, y), 1)
        margins = table.sum(axis=1, keepdims=True) * table.sum(axis=0) / number
        assert chi_squared(table, margins) < 60.2


def test_copies_meet_different_futures():
    # Resampling copies a particle with its state, never its randomness.
    class Dice(AbstractPriorModel[jax.Array]):
        def root(self, state, obs, *, key):
            return state

        def step(self, node, action, *, key):
            face = jax.vmap(lambda k: jr.randint(k, (), 0, 6))(key).astype(jnp.float32)
            reward = jnp.where(node == 1, face, 0.0)
            return node + 1, reward, jnp.ones_like(reward), jnp.zeros_like(reward, bool)

        def predict(self, node, *, key):
            return jnp.zeros((*node.shape, 1)), jnp.zeros(node.shape, jnp.float32)

    planner = ParticleSearch(2, 2, resample_every=1, resampling="multinomial")
    plan = search(planner, Dice(), jnp.zeros((3000,), jnp.int32))
    # The entropy tells equal faces (log 2) from others: one pair in six is equal.
    equal = np.mean(plan.stats["entropy"][:, 1] > np.log(2) - 1e-6)
    assert abs(equal - 1 / 6) < 4 * np.sqrt(5 / 36 / 3000)


def test_illegal_actions_are_never_tried_and_rows_without_any_are_filler():
    class Masked(AbstractPriorModel[jax.Array]):
        def root(self, state, obs, *, key):
            return state

        def step(self, node, action, *, key):
            bad = jnp.where((action == 1) | (node < 0), jnp.nan, 1.0)
            return node, bad, jnp.ones_like(bad), jnp.zeros_like(bad, bool)

        def predict(self, node, *, key):
            row = jnp.array([0.0, -jnp.inf, 0.0])
            logits = jnp.where(node[:, None] < 0, -jnp.inf, row)
            return logits, jnp.zeros(node.shape, jnp.float32)

    planner = ParticleSearch(16, 3, noise=Noise(), resample_every=1)
    plan = search(planner, Masked(), jnp.array([0, -1, 0], jnp.int32))
    assert np.all(plan.stats["invalid"] == 0) and not np.any(plan.candidates[::2] == 1)
    np.testing.assert_allclose(plan.weights.sum(axis=1), [1, 0, 1], rtol=1e-5)
    assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(plan))


def test_readouts():
    state = jnp.zeros((2000,), jnp.int32)
    plans = {
        name: search(ParticleSearch(5, 1, resample_every=None, readout=name), Bandit(), state)
        for name in ("sampled", "argmax")
    }
    sampled, greedy = plans["sampled"], plans["argmax"]
    assert np.array_equal(sampled.weights, greedy.weights)
    shares = np.stack([(sampled.weights * (sampled.candidates == a)).sum(axis=1) for a in range(3)])
    played = np.stack([sampled.action == a for a in range(3)])
    error = np.sqrt((shares * (1 - shares)).sum(axis=1))
    assert np.all(np.abs((played - shares).sum(axis=1)) < 4 * error)
    # Two candidates of an action count together: the heaviest one alone need not win.
    assert np.array_equal(greedy.action, shares.argmax(axis=0))
    alone = np.take_along_axis(greedy.candidates, greedy.weights.argmax(axis=1)[:, None], axis=1)
    assert np.any(greedy.action != alone[:, 0])


def test_a_new_temperature_does_not_compile_anew():
    traces = 0

    @eqx.filter_jit
    def run(planner):
        nonlocal traces
        traces += 1
        state, key = jnp.zeros((4,), jnp.int32), jr.split(jr.key(0), 4)
        return planner.plan(Bandit(), state, None, key=key)[0].weights

    planner = ParticleSearch(6, 2, 1.0, resample_every=None)
    warm = run(planner)
    cold = run(eqx.tree_at(lambda p: p.temperature, planner, jnp.float32(0.1)))
    assert traces == 1
    np.testing.assert_allclose(cold, run(ParticleSearch(6, 2, 0.1, resample_every=None)), rtol=1e-6)
    np.testing.assert_allclose(cold, jax.nn.softmax(10 * jnp.log(warm)), rtol=1e-4, atol=1e-6)
    assert traces == 1


@pytest.mark.parametrize("resampling", ["multinomial", "systematic"])
def test_resampling_draws_by_weight(resampling):
    weights = np.array([0.0, 0.05, 0.4, 0.0, 0.3, 0.25, 0.0], np.float32)
    rows, number = 4000, len(weights)
    index = resampled(jnp.tile(weights, (rows, 1)), resampling, jr.split(jr.key(0), rows))
    counts = np.stack([np.bincount(row, minlength=number) for row in np.asarray(index)])
    assert not counts[:, weights == 0].any()
    spread = np.sqrt(number * weights * (1 - weights) / rows)
    assert np.all(np.abs(counts.mean(axis=0) - number * weights) <= 4 * spread)
    if resampling == "systematic":
        assert np.all(np.abs(counts - number * weights) < 1)
    else:
        # Independent draws: variance N w (1 - w) each.
        np.testing.assert_allclose(counts.std(axis=0), spread * np.sqrt(rows), rtol=0.1)


class Coin(AbstractPriorModel):
    """Guess which side a hidden coin shows: 1 if right, -1 if wrong."""

    def root(self, state, obs, *, key):
        del obs
        return jax.vmap(lambda k: jr.bernoulli(k).astype(jnp.int32))(key) + 0 * state

    def step(self, node, action, *, key):
        del key
        zeros = jnp.zeros(node.shape, jnp.float32)
        return node, jnp.where(action == node, 1.0, -1.0), zeros, zeros == 0

    def predict(self, node, *, key):
        del key
        return jnp.zeros((*node.shape, 2), jnp.float32), jnp.zeros(node.shape, jnp.float32)


def test_every_particle_guesses_at_what_is_hidden():
    """One guess for all would make the plan certain of a coin that nobody has seen."""
    planner = ParticleSearch(256, 1, temperature=0.1, resample_every=None)
    state, key = jnp.zeros((8,), jnp.int32), jr.split(jr.key(0), 8)
    plan, _ = quick_jit(lambda s, k: planner.plan(Coin(), s, None, key=k))(state, key)
    share = jnp.sum(jnp.where(plan.candidates == 0, plan.weights, 0.0), axis=1)
    assert jnp.all(jnp.abs(share - 0.5) < 0.2)
