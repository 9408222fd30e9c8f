"""Belief trees: against dynamic programming over beliefs, Bayes' rule and their reductions."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from zero_search import (
    AbstractHiddenModel,
    AbstractPriorModel,
    Belief,
    BeliefModel,
    CompletedByMixedValue,
    Hindsight,
    MaxBackup,
    PlayoutModel,
    PUCT,
    SoftmaxQ,
    TreeSearch,
)

from .helpers import equal, fresh, quick_jit
from .hidden import Doors, expectimax, HONEST, LEFT, LISTEN, RIGHT, Tiger, tiger_values


GAMMA = 0.95
TIGER = Tiger(3, gamma=GAMMA)


# Sees all of the tiger's tree, and leaves nothing in its values but what is there.
WHOLE = TreeSearch(150, PUCT(50.0), backup=MaxBackup(), outcomes="weighted", max_nodes=80)
TREE = TreeSearch(80, PUCT(50.0), backup=MaxBackup())  # of one hidden state


def keys(seed: int, number: int):
    return jr.split(jr.key(seed), number)


def first_plan(planner, model, state, seed: int = 0):
    batch = jax.tree.leaves(state)[0].shape[0]
    run = quick_jit(lambda s, k: fresh(planner, model, s, k)[0])
    return jax.tree.map(np.asarray, run(state, keys(seed, batch)))


def test_expectimax_over_beliefs_is_the_dynamic_programme():
    tiger = lambda locked: Tiger(3, locked=locked, gamma=GAMMA)
    run = quick_jit(lambda b, locked: expectimax(BeliefModel(tiger(locked)), b, 3))
    for locked in (0, 1):
        exact = np.full(3, -np.inf)
        exact[: 3 - 2 * locked] = tiger_values(tiger(locked))
        assert np.allclose(run(TIGER.belief(1), np.int32(locked))[0], exact, atol=1e-4)


@pytest.mark.parametrize("locked", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_search_over_all_that_may_be_hidden_is_exact(locked):
    # The third row knows nothing: filler. The weights of the last three are none, which is counted.
    tiger = Tiger(3, locked=locked, gamma=GAMMA)
    belief = tiger.belief(6)
    weights = np.array(belief.weights)
    weights[2], weights[3], weights[4, 3], weights[5, 3] = 0.0, np.nan, -0.1, np.inf
    plan = first_plan(WHOLE, BeliefModel(tiger), eqx.tree_at(lambda b: b.weights, belief, weights))
    assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(plan))
    exact = np.asarray([tiger_values(tiger)])
    assert np.allclose(plan.qvalues[:2, : exact.size], exact, atol=1e-3)
    assert np.allclose(plan.value[:2], exact.max(), atol=1e-3)
    assert np.all(plan.weights[:, exact.size :] == 0)
    assert np.allclose(np.sum(plan.weights[:3], axis=1), [1, 1, 0])
    # A row of NaN looks like filler, which is no news.
    assert np.array_equal(plan.stats["invalid"] > 0, [False] * 3 + [True] * 3)
    with pytest.raises(ValueError, match="in rows .3, 4, 5.: .* weights of a `Belief`"):
        plan.check()


def test_search_finds_what_listening_is_worth_and_hindsight_does_not():
    # The tiger in hand, every tree opens the right door after whatever it hears.
    exact, batch = np.asarray(tiger_values(TIGER)), 16
    seen = first_plan(WHOLE, BeliefModel(TIGER, 400), TIGER.start(batch))
    assert np.all(seen.action == LISTEN)
    found = np.asarray(seen.qvalues)
    error = found.std(axis=0) / np.sqrt(batch)
    assert np.all(np.abs(found.mean(axis=0) - exact) < 4 * error + 0.5)
    assert np.all(np.abs(found[:, LISTEN] - exact[LISTEN]) < 4)
    foreseen = first_plan(Hindsight(TREE, 8), TIGER, TIGER.start(batch))
    assert np.allclose(foreseen.qvalues[:, LISTEN], -1 + GAMMA * 10, atol=1e-3)
    assert exact[LISTEN] < 2.4


def test_the_mean_of_few_particles_is_too_high():
    # One particle is hindsight; the more there are, the less is foreseen.
    tiger = Tiger(2, noisy=True, gamma=GAMMA)
    exact = tiger_values(tiger)[LISTEN]

    model, batch = BeliefModel(tiger, 100), 300

    @quick_jit
    def run(number, key):
        belief = model.root(tiger.start(batch), None, key=key)
        weights = jnp.where(jnp.arange(100)[None] < number, belief.weights, 0.0)
        belief = eqx.tree_at(lambda b: b.weights, belief, weights)
        return expectimax(model, belief, 2)[:, LISTEN]

    def listening(number: int):
        found = np.asarray(run(np.int32(number), keys(number, batch)))
        return found.mean(), found.std() / np.sqrt(batch)

    one, none = listening(1)
    assert np.allclose(one, -1 + GAMMA * 10, atol=1e-4) and none < 1e-6
    (few, a), (more, b) = listening(6), listening(100)
    assert one > few + 4 * a and few - more > 4 * (a + b)
    assert exact - 4 * b < more < exact + 0.5


def test_one_particle_is_a_search_of_that_state():
    state = TIGER.start(4)._replace(tiger=np.asarray([0, 1, 0, 1], np.int32))
    state = state._replace(lies=np.asarray([[0, 0, 0], [1, 0, 1], [0, 1, 0], [1, 1, 1]], bool))
    alone = jax.tree.map(lambda x: np.asarray(x)[:, None], state)
    parts = (alone, np.full((4, 1), 0.25, np.float32), np.zeros((4,), np.uint32))
    belief = Belief(*jax.tree.map(jnp.asarray, parts))
    planner = TreeSearch.alphazero(40, c=1.3, temperature=1.0)
    # The state itself, where `root` would guess another one.
    seen = first_plan(planner, Tiger(3, gamma=GAMMA, leaks=True), state)
    assert equal(first_plan(planner, BeliefModel(TIGER), belief), seen)


def test_gumbel_search_approaches_the_best_over_beliefs():
    # So soft a policy that inside the tree, too, everything is tried.
    parts: dict[str, Any] = dict(gumbel_scale=0.0, qtransform=CompletedByMixedValue(0.01))
    parts |= dict(backup=MaxBackup(), outcomes="weighted")
    exact, model, belief = np.asarray(tiger_values(TIGER)), BeliefModel(TIGER), TIGER.belief(1)

    plan = first_plan(TreeSearch.gumbel(400, **parts), model, belief)
    # The evaluator, which says 0 of everything, is wrong by more than 2.
    assert np.max(np.abs(exact)) > 2 and np.allclose(plan.qvalues[0], exact, rtol=0, atol=1e-3)
    assert plan.action[0] == LISTEN == np.argmax(exact)
    assert np.argmax(plan.weights[0]) == LISTEN


def test_nothing_of_what_is_hidden_reaches_a_plan():
    planner, traces = TreeSearch.alphazero(24, temperature=1.0), []
    model = BeliefModel(TIGER, 16)

    @quick_jit
    def run(state, carry, key):
        traces.append(1)
        plan, carry, tree = planner.grow(model, state, carry, key=key)
        return plan, planner.advance(carry, plan.action, state.over), tree

    over = np.asarray([False, False, False, True, False])
    start = TIGER.start(5)._replace(heard=np.asarray([[i, 1] for i in range(5)], np.int32))
    start = jax.tree.map(jnp.asarray, start._replace(over=over))
    carry, plans = quick_jit(lambda s: planner.init(model, s))(start), []
    for tiger in (0, 1):
        for lie in (False, True):
            hidden = TIGER.start(5, tiger, lie)
            state = start._replace(tiger=hidden.tiger, lies=hidden.lies)
            plans.append(run(state, carry, keys(0, 5)))
    assert all(equal(plan, plans[0]) for plan in plans[1:])
    # It does see what was heard.
    heard = np.asarray(start.heard)[::-1]
    plan, carry, _ = run(start._replace(heard=heard), plans[0][1], keys(0, 5))
    assert not equal(plan, plans[0][0])
    assert carry.ply.tolist() == [2, 2, 2, 0, 2] and len(traces) == 1
    # The fourth game is over: filler.
    assert np.allclose(np.sum(plan.weights, axis=1), [1, 1, 1, 0, 1])
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(plan))


@pytest.fixture(scope="module")
def listened():
    """A belief of uneven weights, some of them 0, and what listening makes of it."""
    model, belief, rng = BeliefModel(TIGER), TIGER.belief(3), np.random.default_rng(0)
    weights = 7 * np.asarray(belief.weights) * rng.random(belief.weights.shape, np.float32)
    weights = np.where(rng.random(weights.shape) < 0.3, np.float32(0.0), weights)
    belief = Belief(belief.particles, jnp.asarray(weights), belief.seed)

    @quick_jit
    def run(belief):
        after = model.afterstate(belief, jnp.zeros((3,), jnp.int32))
        every = lambda i: model.resolve(after, jnp.full((3,), i, jnp.int32))
        return after, [every(i) for i in range(TIGER.num_signals)]

    return jax.tree.map(np.asarray, (belief, *run(belief)))


def test_the_expected_next_belief_is_the_belief(listened):
    belief, after, resolved = listened
    now = belief.weights / np.sum(belief.weights, axis=1, keepdims=True)
    chance = np.exp(after.logits)
    chance /= chance.sum(axis=1, keepdims=True)
    assert np.allclose(chance.sum(axis=1), 1) and np.all(chance[:, 2] == 0)
    nexts = [np.asarray(found[0].weights) for found in resolved]
    mean = sum(chance[:, i, None] * weights for i, weights in enumerate(nexts))
    assert np.allclose(mean, now, atol=1e-6)
    for weights in nexts[:2]:
        assert np.allclose(weights.sum(axis=1), 1, atol=1e-6)
        assert not np.any((weights > 0) & (now == 0))


def test_a_signal_that_nobody_gave_is_the_end(listened):
    _, _, resolved = listened
    belief, reward, discount, last = resolved[2]
    assert np.all(belief.weights == 0) and np.all(last)
    assert np.all(reward == 0) and np.all(discount == 0)
    predict = quick_jit(lambda b, k: BeliefModel(TIGER).predict(b, key=k))
    logits, value = predict(belief, keys(0, 3))
    assert np.all(np.isneginf(logits)) and np.all(value == 0)


class Known(AbstractHiddenModel[Doors]):
    """The tiger, its evaluator telling where it is: 1 or 2 behind the doors."""

    tiger: Tiger

    @property
    def num_signals(self):
        return 3

    def step(self, node, action, *, key):
        return self.tiger.step(node, action, key=key)

    def root(self, state, obs, *, key):
        return self.tiger.root(state, obs, key=key)

    def signal(self, node, action, next_node):
        return self.tiger.signal(node, action, next_node)

    def predict(self, node, *, key):
        logits, _ = self.tiger.predict(node, key=key)
        return logits, 1.0 + node.tiger.astype(jnp.float32)


def test_the_evaluator_is_asked_about_a_particle_drawn_by_weight():
    number, belief = 4000, jax.tree.map(np.asarray, TIGER.belief(1))
    weights = np.where(belief.particles.tiger == 0, 0.7, 0.3) * belief.weights
    weights[:, [0, -1]] = 0.0
    share = np.sum(weights[belief.particles.tiger == 0]) / np.sum(weights)
    # In the last rows a single one is alive: always that.
    rows = jax.tree.map(lambda x: np.repeat(x, number + 16, axis=0), belief)
    weights = np.concatenate([np.repeat(weights, number, axis=0), 1e-30 * np.eye(16)])
    rows = eqx.tree_at(lambda b: b.weights, rows, weights.astype(np.float32))
    predict = quick_jit(lambda b, k: BeliefModel(Known(TIGER)).predict(b, key=k)[1])
    value = np.asarray(predict(rows, keys(0, number + 16)))
    error = np.sqrt(share * (1 - share) / number)
    assert abs(np.mean(value[:number] == 1) - share) < 4 * error
    assert np.array_equal(value[number:], 1 + belief.particles.tiger[0])


def test_a_belief_in_too_few_is_worth_what_the_evaluator_says(listened):
    belief, after, resolved = listened
    left = np.sum(np.asarray(resolved[0][0].weights) > 0, axis=1)
    least = (1, int(left.min()) + 1, 100)
    models = [BeliefModel(TIGER, 100, number) for number in least]
    resolve = quick_jit(lambda a: [x.resolve(a, jnp.zeros((3,), jnp.int32))[1:] for x in models])
    for number, (reward, discount, last) in zip(least, resolve(after), strict=True):
        assert np.array_equal(last, left < number)
        assert np.allclose(discount, GAMMA) and np.all(np.asarray(reward) == -1)


@pytest.mark.slow
def test_nothing_is_planned_beyond_a_belief_in_too_few():
    # After one roar fewer particles are left than there were.
    model = BeliefModel(Known(TIGER), 8, min_particles=8)
    plan = first_plan(WHOLE, model, TIGER.start(6))
    told = (np.asarray(plan.qvalues)[:, LISTEN] + 1) / GAMMA  # of where the tiger is: 1 or 2
    assert np.all((told > 1 - 1e-3) & (told < 2 + 1e-3))


def test_every_particle_has_a_frozen_future_of_its_own():
    tiger, batch, number = Tiger(3, noisy=True), 3, 1500
    model, steps = BeliefModel(tiger, number), 3
    belief = quick_jit(lambda k: model.root(tiger.start(batch), None, key=k))(keys(0, batch))

    @quick_jit
    def listen(belief, action):
        after = model.afterstate(belief, action)
        # Everybody lives on.
        return Belief(after.particles, belief.weights, after.seed), after.signal

    def lies(belief):
        found, true = [], np.asarray(belief.particles.tiger)
        for _ in range(steps):
            belief, signal = listen(belief, np.full((batch,), LISTEN, np.int32))
            found.append(np.asarray(signal) != true)
        return np.stack(found)

    told = lies(belief)
    assert np.array_equal(told, lies(belief))
    flat, size = told.reshape(steps * batch, number), number
    error = np.sqrt(HONEST * (1 - HONEST) / size)
    assert np.all(np.abs(flat.mean(axis=1) - (1 - HONEST)) < 5 * error)
    # No two steps and no two rows agree more often than chance has it.
    both = np.corrcoef(flat)[~np.eye(len(flat), dtype=bool)]
    assert np.all(np.abs(both) < 5 / np.sqrt(size))
    # Doors do not change what would have been heard.
    opened, heard = (listen(belief, np.full((batch,), x, np.int32))[0] for x in (LEFT, LISTEN))
    assert np.array_equal(opened.seed, heard.seed)


class Torn(AbstractHiddenModel[Doors]):
    """A tiger that breaks a rule of signals: in rows of an honest first roar none is broken."""

    rule: str = eqx.field(static=True)

    @property
    def num_signals(self):
        return 3

    def step(self, node, action, *, key):
        after, reward, discount, last = TIGER.step(node, action, key=key)
        lied = node.lies[:, 0]
        if self.rule == "last":
            last = last | lied
        if self.rule == "discount":
            discount = jnp.where(lied, -discount, discount)
        return after, reward, discount, last

    def root(self, state, obs, *, key):
        return TIGER.root(state, obs, key=key)

    def signal(self, node, action, next_node):
        signal = TIGER.signal(node, action, next_node)
        if self.rule == "range":
            signal = jnp.where(node.lies[:, 0], 3 - 4 * node.tiger, signal)
        return signal

    def predict(self, node, *, key):
        return TIGER.predict(node, key=key)


def half_believed() -> Belief:
    """About the tiger; the second row believes in truthful roars alone."""
    belief = TIGER.belief(2)
    lied = np.any(belief.particles.lies, axis=2) & np.asarray([[False], [True]])
    weights = np.where(lied, np.float32(0.0), belief.weights)
    return eqx.tree_at(lambda b: b.weights, belief, weights)


@pytest.mark.parametrize("rule", ["last", "discount", "range"])
def test_signals_that_tell_too_little_are_no_law(rule):
    model = BeliefModel(Torn(rule))
    listen = quick_jit(lambda b: model.afterstate(b, jnp.zeros((2,), jnp.int32)).logits)
    logits = np.asarray(listen(half_believed()))
    assert np.all(np.isnan(logits[0]))
    odds = np.exp(logits[1])
    assert np.allclose(odds / odds.sum(), [0.5, 0.5, 0.0])


@pytest.mark.slow
def test_signals_that_tell_too_little_are_counted():
    plan = first_plan(TreeSearch(12), BeliefModel(Torn("last")), half_believed())
    assert plan.stats["invalid"][0] > 0 and plan.stats["invalid"][1] == 0
    assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(plan))
    with pytest.raises(ValueError, match="`model.signal` of a hidden model must tell"):
        plan.check()


def test_leaves_may_be_judged_by_playouts():
    # A playout from one particle is an unbiased sample: its mean is that over the belief.
    model = PlayoutModel(Tiger(3), 3)
    assert model.num_signals == 3 and model.num_outcomes == 0
    assert PlayoutModel(_Plain(), 1).num_signals == 0
    number = 3000
    rows = jax.tree.map(lambda x: np.repeat(x, number, axis=0), TIGER.belief(1))
    value = quick_jit(lambda k: BeliefModel(model).predict(rows, key=k)[1])(keys(0, number))
    value = np.asarray(value)
    # A third listens; the doors are 10 and -100 with equal odds.
    door = (10 - 100) / 2
    exact = (2 / 3) * door + (1 / 3) * (-1 + (2 / 3) * door + (1 / 3) * (-1 + 2 / 3 * door - 1 / 3))
    assert abs(value.mean() - exact) < 4 * value.std() / np.sqrt(number)


class _Plain(AbstractPriorModel[jax.Array]):
    def root(self, state, obs, *, key):
        return state

    def step(self, node, action, *, key):
        return node, jnp.zeros_like(node), jnp.zeros_like(node), jnp.ones_like(node, bool)

    def predict(self, node, *, key):
        return jnp.zeros((*node.shape, 1)), jnp.zeros_like(node)


@pytest.mark.slow
def test_a_policy_by_values_over_several_beliefs():
    inner = dataclasses.replace(WHOLE, readout=SoftmaxQ())
    plan = first_plan(Hindsight(inner, 4), BeliefModel(TIGER, 50), TIGER.start(3))
    assert np.array_equal(plan.weights, np.eye(3)[[LISTEN] * 3])
    assert np.allclose(plan.value, plan.qvalues[:, LISTEN])
    assert np.allclose(plan.qvalues[:, LEFT] + plan.qvalues[:, RIGHT], -90, atol=1e-2)
