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

from zero_search import AbstractPriorModel, ParticleSearch
from zero_search._cloud import resampled
from zero_search._particles import move, Particles

from .dice import Die, RandomDice
from .helpers import chi_squared, Nim, Noise, quick_jit, RandomTree


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
    """`step` and `predict` of one row, which take the data of keys."""
    row = lambda f: lambda *args: f(*(jax.tree.map(lambda x: x[None], a) for a in args))
    key = lambda data: jr.wrap_key_data(data)
    step = lambda state, action, data: model.step(state, action, key=key(data))
    return quick_jit(row(step)), quick_jit(row(lambda s, data: model.predict(s, key=key(data))))


@quick_jit
def keys_of(key):
    """The data of all keys of one row: `draw` and `now` by step and particle."""
    _, predict, noise, particle, resample, _ = jr.split(key, 6)
    each = jax.vmap(lambda i: jr.fold_in(particle, i))(jnp.arange(PARTICLES))
    steps = jnp.arange(1, DEPTH + 1)
    of_step = lambda step: jax.vmap(lambda k: jr.split(jr.fold_in(k, step)))(each)
    now, first = jax.vmap(of_step)(steps), jax.vmap(lambda k: jr.fold_in(k, 0))(each)
    # A move splits its key in two, for `step` and `predict`.
    move = jax.vmap(jax.vmap(lambda k: jr.split(k)[0]))(now[..., 0])
    found = dict(predict=predict, noise=noise, first=first, move=move, draw=now[..., 1])
    found["resample"] = jax.vmap(lambda i: jr.fold_in(resample, i))(steps)
    return jax.tree.map(jr.key_data, found)


@quick_jit
def drawn(data, logits):
    return jr.categorical(jr.wrap_key_data(data), logits)


@quick_jit
def noisy(data, logits):
    return Noise()(logits[None], key=jr.wrap_key_data(data)[None])[0]


@quick_jit
def uniforms(data):
    """One, and one for every particle."""
    key = jr.wrap_key_data(data)
    return jr.uniform(key), jr.uniform(jr.clone(key), (PARTICLES,))


def log_softmax(logits) -> np.ndarray:
    return logits - logits.max() - np.log(np.sum(np.exp(logits - logits.max())))


class Oracle:
    """The search in Python, one row, one particle, one step at a time."""

    def __init__(self, planner, model):
        self.planner, self.model = planner, model
        self.step, self.predict = compiled(model)

    def judge(self, state, key):
        logits, value = map(np.asarray, self.predict(state, key))
        return logits[0], float(value[0])

    def __call__(self, state, row, key) -> dict[str, Any]:
        state = jax.tree.map(lambda x: np.asarray(x)[row], state)
        p, n, keys = self.planner, PARTICLES, jax.tree.map(np.asarray, keys_of(key))
        logits, value = self.judge(state, keys["predict"])
        wide = logits if p.noise is None else np.asarray(noisy(keys["noise"], logits))
        particles: list[dict[str, Any]] = []
        for i in range(n):
            action = int(drawn(keys["first"][i], wide))
            ratio = float(log_softmax(logits)[action] - log_softmax(wide)[action])
            ratio *= p.noise is not None and p.correct
            particles.append(
                dict(state=state, action=action, root=i, v=value, w=0.0, ratio=ratio, c=1.0)
                | dict(alive=True, rewards=0.0)
            )
        out: dict[str, Any] = dict(advantages=np.zeros(n), value=value, frozen=False, stats=[])
        out["candidates"] = [x["action"] for x in particles]
        for step in range(1, p.depth + 1):
            alive = np.mean([x["alive"] for x in particles])
            for i, x in enumerate(particles):
                x["logits"] = logits  # of filler, where a particle has stopped
                if x["alive"]:
                    delta = self.move(x, keys["move"][step - 1, i])
                    if not out["frozen"]:
                        out["advantages"][i] += p.lambda_ ** (step - 1) * delta
            weights = self.weights(particles)
            ess = 1 / np.sum(weights**2) / n
            due = self.due(step, ess)
            out["stats"].append((ess, np.mean([x["w"] for x in particles]), alive, due))
            if due:
                index = self.resample(weights, keys["resample"][step - 1])
                particles = [dict(particles[j], w=0.0, ratio=0.0) for j in index]
                out["frozen"] = True
            for i, x in enumerate(particles):
                if x["alive"]:
                    x["action"] = int(drawn(keys["draw"][step - 1, i], x["logits"]))
        out["weights"] = np.zeros(n)
        for x, weight in zip(particles, self.weights(particles), strict=True):
            out["weights"][x["root"]] += weight
        return out | {"particles": particles}

    def move(self, x, key):
        found = jax.device_get(self.step(x["state"], np.int32(x["action"]), key))
        x["state"], reward, discount, last = jax.tree.map(lambda leaf: leaf[0], found)
        # (The models here draw nothing when they predict.)
        x["logits"], value = self.judge(x["state"], key)
        discount = float(discount)
        delta = x["c"] * (float(reward) + discount * value - x["v"])
        x["rewards"] += x["c"] * float(reward)
        x["c"] *= discount
        x["v"], x["w"] = value, x["w"] + delta
        x["alive"] = not bool(last) and discount != 0
        return delta

    def weights(self, particles):
        logits = np.array([x["ratio"] + x["w"] / self.planner.temperature for x in particles])
        weights = np.exp(logits - logits.max())
        return weights / weights.sum()

    def due(self, step, ess):
        every, below = self.planner.resample_every, self.planner.resample_below
        return (every is not None and step % every == 0) or (below is not None and ess < below)

    def resample(self, weights, key):
        n, (one, each) = len(weights), uniforms(key)
        systematic = self.planner.resampling == "systematic"
        uniform = (np.arange(n) + float(one)) / n if systematic else np.asarray(each)
        return [next(i for i in range(n) if weights[: i + 1].sum() > u) for u in uniform]


CONFIGURATIONS = {
    "after the last step": dict(resample_every=DEPTH, temperature=0.7),
    "every other step": dict(resample_every=2, lambda_=0.8, temperature=0.5),
    "in either case": dict(
        resample_every=DEPTH,
        resample_below=0.6,
        resampling="systematic",
        noise=Noise(),
        temperature=0.4,
    ),
    "never": dict(resample_every=None, noise=Noise(), correct=False, temperature=0.6),
}


# The first has nothing that the others have not.
SLOW = pytest.param("after the last step", marks=pytest.mark.slow)


@pytest.mark.parametrize("name", [SLOW, *list(CONFIGURATIONS)[1:]])
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
        if name == "never":
            # What the way was worth above the root: A = sum(r) + V_h - V_0, and the weights go by
            # exp(A / temperature).
            ends = [x["rewards"] + x["c"] * x["v"] - slow["value"] for x in slow["particles"]]
            close(plan.advantages[row], ends)
            tilted = np.exp(plan.advantages[row] / 0.6)
            close(plan.weights[row], tilted / tilted.sum())
        deaths += sum(not x["alive"] for x in slow["particles"])
        resampled += sum(x[3] for x in slow["stats"][:-1])
    assert 0 < deaths < BATCH * PARTICLES
    assert (resampled > 0) == (name in ("every other step", "in either case"))
    assert np.all(plan.stats["invalid"] == 0)


# What a row is paid, thinks and where it ends, step by step; then the sums of its errors.
CHAINS = {
    # 1.8, 1.7, 1.6 and 1.4, each discounted once more than the one before.
    "discounted": ((1, 1, 1, 0), (1, 2, 3, 4, 6), (0.9,) * 4, 9, (1.8, 3.33, 4.626, 5.6466)),
    # The end counts, what comes after it does not.
    "terminal": ((0, 0, 1, 7), (0.5,) * 5, (1, 1, 0, 1), 2, (0, 0, 0.5, 0.5)),
    "truncated": ((1,) * 4, (0.5, 0.7, 9, 9, 9), (1,) * 4, 0, (1.2,) * 4),
    "not truncated": ((1,) * 4, (0.5, 0.7, 9, 9, 9), (0, 1, 1, 1), 0, (0.5,) * 4),
}


class Chains(AbstractPriorModel[tuple[jax.Array, jax.Array]]):
    """The one action goes to a chain's next state; what follows is written down."""

    def root(self, state, obs, *, key):
        return state

    def column(self, number: int) -> jax.Array:
        return jnp.asarray(np.asarray([x[number] for x in CHAINS.values()], np.float32))

    def step(self, node, action, *, key):
        chain, at = node
        last = at == self.column(3)[chain].astype(jnp.int32)
        return (chain, at + 1), self.column(0)[node], self.column(2)[node], last

    def predict(self, node, *, key):
        return jnp.zeros((*node[0].shape, 1)), self.column(1)[node]


def test_sums_by_hand():
    planner, start = ParticleSearch(2, 4, 0.5, resample_every=None), np.zeros(4, np.int32)
    plan = search(planner, Chains(), (np.arange(4, dtype=np.int32), start))
    for row, (*_, last, sums) in enumerate(CHAINS.values()):
        np.testing.assert_allclose(plan.advantages[row], [sums[-1]] * 2, atol=1e-5)
        np.testing.assert_allclose(plan.stats["gain"][row], sums, atol=1e-5)
        assert plan.stats["alive"][row].tolist() == [float(i <= last) for i in range(4)]
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
    plan = search(ParticleSearch(3, 1, resample_every=None), Bandit(), np.zeros((64,), np.int32))
    assert np.array_equal(plan.advantages, 1 - plan.candidates)
    soft = np.exp(1.0 - plan.candidates)
    np.testing.assert_allclose(plan.weights, soft / soft.sum(axis=1, keepdims=True), rtol=1e-5)
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
    plan = search(planner, Bandit(), np.zeros((16,), np.int32))
    ess = 8 * plan.stats["ess_fraction"]
    assert np.all(ess[:, 0] < 8) and np.all((ess >= 1 - 1e-5) & (ess <= 8 + 1e-5))
    np.testing.assert_allclose(ess[:, 1:], 8, rtol=1e-5)
    # Shares of one particle; the advantages stay those of the first actions, in their order.
    assert np.all(plan.weights * 8 == np.round(plan.weights * 8))
    assert np.array_equal(plan.advantages, 1 - plan.candidates)


def test_particles_do_not_depend_on_one_another():
    order = np.random.default_rng(1).permutation(PARTICLES)
    spread = lambda x: np.repeat(np.asarray(x)[:, None], PARTICLES, axis=1)
    numbers = np.arange(BATCH * PARTICLES, dtype=np.float32).reshape(BATCH, -1)
    fields = dict(
        state=jax.tree.map(spread, DICE.tree.start(BATCH)),
        action=(numbers % 4).astype(np.int32),
        ancestor=numbers.astype(np.int32),
        gain=numbers / 10,
        log_ratio=-numbers,
        scale=1 - numbers / 50,
        value=numbers / 7,
        alive=numbers % 5 > 0,
    )
    particles = Particles(**jax.tree.map(jnp.asarray, fields))
    permute = lambda tree: jax.tree.map(lambda x: np.asarray(x)[:, order], tree)

    @quick_jit
    def run(particles, order):
        keys = jr.split(jr.key(2), (BATCH, PARTICLES))[:, order]
        return move(SHORT_SIGHTED, particles, keys), particles.weights(jnp.float32(0.5))

    moved, weights = permute(run(particles, np.arange(PARTICLES)))
    permuted, others = jax.tree.map(np.asarray, run(permute(particles), order))
    pairs = zip(jax.tree.leaves(moved), jax.tree.leaves(permuted), strict=True)
    assert all(np.array_equal(x, y) for x, y in pairs)
    np.testing.assert_allclose(weights, others, rtol=1e-6)


def test_one_particle_is_a_rollout():
    model, depth = RandomTree(4, (1.0,), illegal=0.4, gamma=0.9), 4
    planner = ParticleSearch(1, depth, lambda_=0.8, resample_every=None)
    state, key = model.start(3, 2), jr.split(jr.key(0), 3)
    plan = search(planner, model, state)
    actions, rewards, values = [], [], []

    @quick_jit
    def play(state, step):
        """What a particle draws at a step, and what comes of it."""
        logits, value = model.predict(state, key=key)

        def draw(key, logits):
            particle = jr.fold_in(jr.split(key, 6)[3], 0)
            first, later = jr.fold_in(particle, 0), jr.split(jr.fold_in(particle, step))[1]
            data = jnp.where(step == 0, jr.key_data(first), jr.key_data(later))
            return jr.categorical(jr.wrap_key_data(data), logits)

        action = jax.vmap(draw)(jr.clone(key), logits).astype(jnp.int32)
        state, reward, _, _ = model.step(state, action, key=key)
        return action, reward, value, state

    for step in range(depth + 1):
        action, reward, value, state = play(state, np.int32(step))
        actions.append(np.asarray(action))
        rewards.append(np.asarray(reward))
        values.append(np.asarray(value))
    advantage = np.zeros(3)
    for step in reversed(range(depth)):
        delta = rewards[step] + 0.9 * values[step + 1] - values[step]
        advantage = delta + 0.9 * 0.8 * advantage
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
    plan = search(planner, Dice(), np.zeros((3000,), np.int32))
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
    plan = search(planner, Masked(), np.array([0, -1, 0], np.int32))
    assert np.all(plan.stats["invalid"] == 0) and not np.any(plan.candidates[::2] == 1)
    np.testing.assert_allclose(plan.weights.sum(axis=1), [1, 0, 1], rtol=1e-5)
    assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(plan))


def test_readouts():
    state = np.zeros((2000,), np.int32)
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
    tenth = np.asarray(warm, np.float64) ** 10
    expected = tenth / tenth.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(cold, expected, rtol=1e-4, atol=1e-6)
    assert traces == 1


@pytest.mark.parametrize("resampling", ["multinomial", "systematic"])
def test_resampling_draws_by_weight(resampling):
    weights = np.array([0.0, 0.05, 0.4, 0.0, 0.3, 0.25, 0.0], np.float32)
    rows, number = 4000, len(weights)
    run = quick_jit(lambda k: resampled(jnp.tile(weights, (rows, 1)), resampling, k))
    index = run(jr.split(jr.key(0), rows))
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
    plan = search(planner, Coin(), np.zeros((8,), np.int32))
    share = np.sum(np.where(plan.candidates == 0, plan.weights, 0.0), axis=1)
    assert np.all(np.abs(share - 0.5) < 0.2)


@pytest.mark.parametrize("number", [5, 7, 12, 20, 24, 48])
def test_equal_weights_are_never_drawn_anew(number):
    """Rounded, their effective sample size is a little below the number of particles."""
    planner = ParticleSearch(number, 1, resample_every=None, resample_below=1.0)
    stats = search(planner, Nim(), jnp.full((2,), 20, jnp.int32)).stats
    assert not stats["resampled"].any() and np.allclose(stats["ess_fraction"], 1)
