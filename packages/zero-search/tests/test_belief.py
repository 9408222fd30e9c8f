"""Belief trees: against dynamic programming over beliefs, Bayes' rule and their reductions."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from zero_search import (
    AbstractBackup,
    AbstractHiddenModel,
    AbstractPriorModel,
    Belief,
    BeliefModel,
    BeliefSearch,
    ChanceSearch,
    check_plan,
    Hindsight,
    Playout,
    PlayoutModel,
    PUCT,
    SoftmaxQ,
    TreeSearch,
)

from .helpers import equal, fresh, quick_jit
from .hidden import Doors, expectimax, HONEST, LEFT, LISTEN, RIGHT, Tiger, tiger_values


GAMMA = 0.95
TIGER = Tiger(3)


class MaxBackup(AbstractBackup):
    """The best of what was visited, so that no exploration is left in a value."""

    def __call__(self, node, outcome):
        return jnp.max(jnp.where(node.visits > 0, node.qvalues, -jnp.inf), axis=1)


# Sees all of the tiger's tree, and leaves nothing in its values but what is there.
WHOLE = TreeSearch(80, PUCT(50.0), gamma=GAMMA, backup=MaxBackup())


def keys(seed: int, number: int):
    return jr.split(jr.key(seed), number)


def first_plan(planner, model, state, seed: int = 0):
    batch = jax.tree.leaves(state)[0].shape[0]
    run = quick_jit(lambda s, k: fresh(planner, model, s, k)[0])
    return run(state, keys(seed, batch))


@pytest.mark.parametrize("locked", [0, 1])
def test_expectimax_over_beliefs_is_the_dynamic_programme(locked):
    tiger = Tiger(3, locked=locked)
    run = quick_jit(lambda b: expectimax(BeliefModel(tiger), b, GAMMA, 3))
    exact = np.full(3, -np.inf)
    exact[: 3 - 2 * locked] = tiger_values(tiger, GAMMA)
    assert np.allclose(run(tiger.belief(1))[0], exact, atol=1e-4)


@pytest.mark.parametrize("locked", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_search_over_all_that_may_be_hidden_is_exact(locked):
    tiger = Tiger(3, locked=locked)
    plan = first_plan(ChanceSearch(WHOLE, "weighted"), BeliefModel(tiger), tiger.belief(2))
    exact = tiger_values(tiger, GAMMA)
    assert np.allclose(plan.qvalues[:, : len(exact)], np.asarray(exact)[None], atol=1e-3)
    assert np.allclose(plan.value, max(exact), atol=1e-3)
    assert np.all(plan.weights[:, len(exact) :] == 0) and np.all(plan.stats["invalid"] == 0)


def test_search_finds_what_listening_is_worth_and_hindsight_does_not():
    # The tiger in hand, every tree opens the right door after whatever it hears.
    exact, batch = tiger_values(TIGER, GAMMA), 24
    seen = first_plan(BeliefSearch(ChanceSearch(WHOLE, "weighted"), 1000), TIGER, TIGER.start(batch))
    assert np.all(seen.action == LISTEN)
    error = np.std(seen.qvalues, axis=0) / np.sqrt(batch)
    assert np.all(np.abs(np.mean(seen.qvalues, axis=0) - exact) < 5 * error + 0.1)
    assert np.all(np.abs(seen.qvalues[:, LISTEN] - exact[LISTEN]) < 3)
    planner = Hindsight(WHOLE, 40, SoftmaxQ(), resample=True)
    foreseen = first_plan(planner, TIGER, TIGER.start(batch))
    assert np.allclose(foreseen.qvalues[:, LISTEN], -1 + GAMMA * 10, atol=1e-3)
    assert exact[LISTEN] < 2.4


def test_the_mean_of_few_particles_is_too_high():
    # One particle is hindsight; the more there are, the less is foreseen.
    tiger, exact = Tiger(3, noisy=True), tiger_values(TIGER, GAMMA)[LISTEN]
    model = BeliefModel(tiger)

    def listening(number: int, batch: int):
        run = lambda k: expectimax(model, model.sample(tiger.start(batch), number, key=k), GAMMA, 3)
        found = np.asarray(quick_jit(run)(keys(number, batch))[:, LISTEN])
        return found.mean(), found.std() / np.sqrt(batch)

    one, none = listening(1, 20)
    assert np.allclose(one, -1 + GAMMA * 10, atol=1e-4) and none < 1e-6
    (few, a), (more, b) = listening(4, 200), listening(64, 50)
    assert one > few + 3 * a > more + 3 * b and few - more > 3 * (a + b)
    assert exact - 3 * b < more < exact + 3


def test_one_particle_is_a_search_of_that_state():
    state = TIGER.start(4)._replace(tiger=jnp.asarray([0, 1, 0, 1], jnp.int32))
    state = state._replace(lies=jnp.asarray([[0, 0, 0], [1, 0, 1], [0, 1, 0], [1, 1, 1]], bool))
    alone = jax.tree.map(lambda x: x[:, None], state)
    belief = Belief(alone, jnp.full((4, 1), 0.3), jnp.zeros((4,), jnp.uint32))
    inner = TreeSearch(40, PUCT(1.3), gamma=GAMMA, temperature=1.0)
    seen = first_plan(inner, TIGER, state)
    assert equal(first_plan(ChanceSearch(inner), BeliefModel(TIGER), belief), seen)


def test_nothing_of_what_is_hidden_reaches_a_plan():
    planner = BeliefSearch(ChanceSearch(TreeSearch(24, temperature=1.0)), 16)
    run = quick_jit(lambda s, k: fresh(planner, TIGER, s, k))
    start = TIGER.start(5)._replace(heard=jnp.asarray([[i, 1] for i in range(5)], jnp.int32))
    plans = []
    for tiger in (0, 1):
        for lie in (False, True):
            hidden = TIGER.start(5, tiger, lie)
            state = start._replace(tiger=hidden.tiger, lies=hidden.lies)
            plans.append(run(state, keys(0, 5)))
    assert all(equal(plan, plans[0]) for plan in plans[1:])
    # It does see what was heard.
    assert not equal(plans[0], run(start._replace(heard=start.heard[::-1]), keys(0, 5)))


@pytest.fixture(scope="module")
def listened():
    """A belief of uneven weights, some of them 0, and what listening makes of it."""
    model, belief = BeliefModel(TIGER), TIGER.belief(3)
    weights = 7 * belief.weights * jr.uniform(jr.key(0), belief.weights.shape)
    weights = jnp.where(jr.bernoulli(jr.key(1), 0.3, weights.shape), 0.0, weights)
    belief = Belief(belief.particles, weights, belief.seed)

    @quick_jit
    def run(belief):
        after = model.afterstate(belief, jnp.zeros((3,), jnp.int32))
        every = lambda i: model.resolve(after, jnp.full((3,), i, jnp.int32))
        return after, [every(i) for i in range(TIGER.num_signals)]

    return belief, *run(belief)


def test_the_expected_next_belief_is_the_belief(listened):
    belief, after, resolved = listened
    now = np.asarray(belief.weights / jnp.sum(belief.weights, axis=1, keepdims=True))
    chance = np.asarray(jax.nn.softmax(after.logits))
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
    logits, value = BeliefModel(TIGER).predict(belief, key=keys(0, 3))
    assert np.all(np.isneginf(logits)) and np.all(value == 0)


def test_rows_without_weights_and_final_rows_are_filler():
    belief, start = TIGER.belief(3), TIGER.start(3)
    belief = eqx.tree_at(lambda b: b.weights, belief, belief.weights.at[1].set(0.0))
    plan = first_plan(ChanceSearch(TreeSearch(8)), BeliefModel(TIGER), belief)
    assert np.allclose(np.sum(plan.weights, axis=1), [1, 0, 1])
    final = start._replace(over=jnp.asarray([False, True, False]))
    drawn = first_plan(BeliefSearch(ChanceSearch(TreeSearch(8)), 4), TIGER, final)
    assert np.allclose(np.sum(drawn.weights, axis=1), [1, 0, 1])
    for x in (plan, drawn):
        assert all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(x))
        assert np.all(x.stats["invalid"] == 0)


class Known(AbstractPriorModel[Doors], AbstractHiddenModel[Doors]):
    """The tiger, its evaluator telling where it is: 1 or 2 behind the doors."""

    tiger: Tiger
    num_signals: int = 3

    def step(self, state, action, *, key):
        return self.tiger.step(state, action, key=key)

    def resample(self, state, *, key):
        return self.tiger.resample(state, key=key)

    def signal(self, state, action, next_state):
        return self.tiger.signal(state, action, next_state)

    def predict(self, state, *, key):
        logits, _ = self.tiger.predict(state, key=key)
        return logits, 1.0 + state.tiger.astype(jnp.float32)


def test_the_evaluator_is_asked_about_a_particle_drawn_by_weight():
    number, belief = 4000, TIGER.belief(1)
    weights = jnp.where(belief.particles.tiger == 0, 0.7, 0.3) * belief.weights
    weights = weights.at[:, 0].set(0.0).at[:, -1].set(0.0)
    belief = eqx.tree_at(lambda b: b.weights, belief, weights)
    rows = jax.tree.map(lambda x: jnp.repeat(x, number, axis=0), belief)
    value = quick_jit(lambda k: BeliefModel(Known(TIGER)).predict(rows, key=k)[1])(keys(0, number))
    share = float(jnp.sum(jnp.where(belief.particles.tiger == 0, weights, 0)) / jnp.sum(weights))
    assert abs(np.mean(value == 1) - share) < 4 * np.sqrt(share * (1 - share) / number)
    # Of a single one that is alive, always that.
    for alive in range(16):
        weights = jnp.zeros((1, 16)).at[0, alive].set(1e-30)
        one = eqx.tree_at(lambda b: b.weights, belief, weights)
        told = BeliefModel(Known(TIGER)).predict(one, key=keys(alive, 1))[1]
        assert told == 1 + belief.particles.tiger[0, alive]


def test_a_belief_in_too_few_is_worth_what_the_evaluator_says(listened):
    belief, after, resolved = listened
    left = np.sum(np.asarray(resolved[0][0].weights) > 0, axis=1)
    for least in (1, int(left.min()) + 1, 100):
        model = BeliefModel(TIGER, least)
        _, reward, discount, last = model.resolve(after, jnp.zeros((3,), jnp.int32))
        assert np.array_equal(last, left < least)
        assert np.all(discount == 1) and np.all(reward == -1)
    # In the tree: after one roar half of the particles are left, and nothing more is planned.
    planner = BeliefSearch(ChanceSearch(WHOLE, "weighted"), 8, min_particles=8)
    plan = first_plan(planner, Known(TIGER), TIGER.start(6))
    listening = -1 + GAMMA * np.asarray([1.0, 2.0])  # and then it is told where the tiger is
    assert np.all(plan.qvalues[:, LISTEN] >= listening[0] - 1e-3)
    assert np.all(plan.qvalues[:, LISTEN] <= listening[1] + 1e-3)


def test_every_particle_has_a_frozen_future_of_its_own():
    tiger, batch, number = Tiger(3, noisy=True), 3, 1500
    model, steps = BeliefModel(tiger), 3
    belief = quick_jit(lambda k: model.sample(tiger.start(batch), number, key=k))(keys(0, batch))

    @quick_jit
    def listen(belief):
        after = model.afterstate(belief, jnp.zeros((batch,), jnp.int32))
        # Everybody lives on.
        return Belief(after.particles, belief.weights, after.seed), after.signal

    def lies(belief):
        found, true = [], belief.particles.tiger
        for _ in range(steps):
            belief, signal = listen(belief)
            found.append(np.asarray(signal != true))
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
    other = model.afterstate(belief, jnp.full((batch,), LEFT, jnp.int32))
    assert np.array_equal(other.seed, model.afterstate(belief, jnp.zeros_like(other.seed, int)).seed)


class Torn(AbstractPriorModel[Doors], AbstractHiddenModel[Doors]):
    """A tiger that breaks a rule of signals: in rows of an honest first roar none is broken."""

    rule: str = eqx.field(static=True)
    num_signals: int = 3

    def step(self, state, action, *, key):
        after, reward, discount, last = TIGER.step(state, action, key=key)
        lied = state.lies[:, 0]
        if self.rule == "last":
            last = last | lied
        if self.rule == "discount":
            discount = jnp.where(lied, -discount, discount)
        return after, reward, discount, last

    def resample(self, state, *, key):
        return TIGER.resample(state, key=key)

    def signal(self, state, action, next_state):
        signal = TIGER.signal(state, action, next_state)
        if self.rule == "range":
            signal = jnp.where(state.lies[:, 0], 3 - 4 * state.tiger, signal)
        return signal

    def predict(self, state, *, key):
        return TIGER.predict(state, key=key)


@pytest.mark.parametrize("rule", ["last", "discount", "range"])
def test_signals_that_tell_too_little_are_counted(rule):
    # The second row believes in truthful roars alone.
    belief, model = TIGER.belief(2), BeliefModel(Torn(rule))
    lied = jnp.any(belief.particles.lies, axis=2) & jnp.asarray([[False], [True]])
    belief = eqx.tree_at(lambda b: b.weights, belief, jnp.where(lied, 0.0, belief.weights))
    plan = first_plan(ChanceSearch(TreeSearch(12)), model, belief)
    assert plan.stats["invalid"][0] > 0 and plan.stats["invalid"][1] == 0
    assert all(bool(jnp.all(jnp.isfinite(x))) for x in jax.tree.leaves(plan))
    with pytest.raises(ValueError, match="`model.signal` of a hidden model must tell"):
        check_plan(plan)


def test_leaves_may_be_judged_by_playouts():
    # A playout from one particle is an unbiased sample: its mean is that over the belief.
    model = PlayoutModel(TIGER, Playout(3))
    assert model.num_signals == 3 and PlayoutModel(_Plain(), Playout(1)).num_signals == 0
    number = 3000
    rows = jax.tree.map(lambda x: jnp.repeat(x, number, axis=0), TIGER.belief(1))
    value = quick_jit(lambda k: BeliefModel(model).predict(rows, key=k)[1])(keys(0, number))
    value = np.asarray(value)
    # A third listens; the doors are 10 and -100 with equal odds.
    door = (10 - 100) / 2
    exact = (2 / 3) * door + (1 / 3) * (-1 + (2 / 3) * door + (1 / 3) * (-1 + 2 / 3 * door - 1 / 3))
    assert abs(value.mean() - exact) < 4 * value.std() / np.sqrt(number)
    plan = first_plan(BeliefSearch(ChanceSearch(TreeSearch(30)), 64), model, TIGER.start(3))
    assert np.all(plan.action == LISTEN) and np.all(plan.stats["invalid"] == 0)


class _Plain(AbstractPriorModel[jax.Array]):
    def step(self, state, action, *, key):
        return state, jnp.zeros_like(state), jnp.zeros_like(state), jnp.ones_like(state, bool)

    def predict(self, state, *, key):
        return jnp.zeros((*state.shape, 1)), jnp.zeros_like(state)


def test_a_policy_by_values_over_several_beliefs():
    inner = BeliefSearch(ChanceSearch(WHOLE, "weighted"), 50)
    plan = first_plan(Hindsight(inner, 4, SoftmaxQ()), TIGER, TIGER.start(3))
    assert np.array_equal(plan.weights, np.eye(3)[[LISTEN] * 3])
    assert np.allclose(plan.value, plan.qvalues[:, LISTEN])
    assert np.allclose(plan.qvalues[:, LEFT] + plan.qvalues[:, RIGHT], -90, atol=1e-2)


def test_moves_are_counted_and_it_is_traced_once():
    planner, traces = BeliefSearch(ChanceSearch(TreeSearch(4)), 3), []
    carry = planner.init(TIGER, TIGER.start(2))

    @quick_jit
    def run(state, carry, key):
        traces.append(1)
        return planner.plan(TIGER, state, carry, key=key)

    for ply in range(3):
        plan, carry = run(TIGER.start(2), carry, keys(ply, 2))
        last = jnp.asarray([False, ply == 1])
        carry = planner.advance(carry, plan.action, TIGER.start(2), last)
        assert carry.ply.tolist() == [ply + 1, (1, 0, 1)[ply]]
    assert len(traces) == 1
