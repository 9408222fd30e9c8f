"""Leaves judged by playouts: against exact random returns, NumPy, and the laws of a model."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from zero_search import (
    AbstractHiddenModel,
    AbstractPriorModel,
    Hindsight,
    MaxBackup,
    PlainQ,
    PlayoutModel,
    TreeSearch,
    UCB1,
)

from .dice import branches, RandomDice, UNUSED
from .helpers import Nim, Node, quick_jit, RandomTree


STEPS = 3
MODES = {
    "playout": (dict(), False, 1.0),
    "then the evaluator": (dict(bootstrap=True), True, 1.0),
    "mean": (dict(mixing=0.5), False, 0.5),
}


def random_return(step, predict, state, steps: int, bootstrap: bool) -> np.ndarray:
    """The exact expected return of uniformly random legal actions, by enumeration."""
    logits, value = (np.asarray(x) for x in predict(state))
    end = value if bootstrap else np.zeros_like(value)
    if steps == 0:
        return end
    legal, (batch, actions) = np.isfinite(logits), logits.shape
    total = np.zeros((batch, actions))
    for action in range(actions):
        each = np.full((batch,), action, np.int32)
        after, reward, discount, last = step(state, each)
        follows = random_return(step, predict, after, steps - 1, bootstrap)
        cut = np.asarray(predict(after)[1]) if bootstrap else np.zeros(batch)
        follows = np.where(last, cut, follows)
        total[:, action] = np.asarray(reward) + np.asarray(discount) * follows
    mean = (total * legal).sum(axis=1) / np.maximum(legal.sum(axis=1), 1)
    return np.where(legal.any(axis=1), mean, end)


class Stuck(AbstractPriorModel[Node]):
    """A tree in which some states have no legal action, and where nothing may be stepped after
    the end: that gives NaN.
    """

    tree: RandomTree

    def root(self, state, obs, *, key):
        return state

    def step(self, node, action, *, key):
        after, reward, discount, last = self.tree.step(node, action, key=key)
        bad = jnp.where(node.done | ~self.moves(node), jnp.nan, 0.0)
        return after, reward + bad, discount + bad, last

    def moves(self, state):
        return state.name % jnp.uint32(5) != 0

    def predict(self, node, *, key):
        logits, value = self.tree.predict(node, key=key)
        return jnp.where(self.moves(node)[:, None], logits, -jnp.inf), value


TREE = RandomTree(3, (1.0, -1.0, -1.0, 0.0), truncate=0.1, illegal=0.3, gamma=0.8)


@pytest.fixture(scope="module")
def sampled():
    """Values of 10 states by 2000 playouts each, by every mode."""
    model, number = Stuck(TREE), 2000

    @quick_jit
    def run(state):
        wide = jax.tree.map(lambda x: jnp.repeat(x, number), state)
        values, logits = [], wide.name
        for seed, (options, *_) in enumerate(MODES.values()):
            playout = PlayoutModel(model, STEPS, **options)
            logits, value = playout.predict(wide, key=jr.split(jr.key(seed), 10 * number))
            values.append(value.reshape(-1, number))
        return values, logits[::number]

    state = TREE.start(10)
    values, logits = run(state)
    step = quick_jit(lambda s, a: model.step(s, a, key=UNUSED))
    predict = quick_jit(lambda s: model.predict(s, key=UNUSED))
    assert np.array_equal(logits, predict(state)[0])
    stuck = np.asarray(state.name) % 5 == 0
    exact = lambda bootstrap: random_return(step, predict, state, STEPS, bootstrap)
    found = dict(zip(MODES, map(np.asarray, values), strict=True))
    return found, exact, np.asarray(predict(state)[1]), stuck


@pytest.mark.parametrize("mode", MODES)
def test_mean_playout_is_the_exact_random_return(mode, sampled):
    # Ends, truncated episodes, players who move twice, illegal actions and states without any.
    values, enumerate_all, own, stuck = sampled
    _, bootstrap, mixing = MODES[mode]
    exact = (1 - mixing) * own + mixing * enumerate_all(bootstrap)
    found = values[mode]
    assert np.all(np.isfinite(found))
    error = found.std(axis=1) / np.sqrt(found.shape[1])
    assert np.all(np.abs(found.mean(axis=1) - exact) < 4.5 * error + 1e-5)
    assert 0 < stuck.sum() < 5 and np.sum(error > 0.001) >= 4
    assert np.allclose(found[stuck], exact[stuck, None])


def test_one_line_is_followed_to_the_end():
    # A single legal action leaves no luck: the sum of a loop, step by step.
    tree = RandomTree(1, (1.0, -1.0, -1.0), illegal=0.0, horizon=7, gamma=0.9)
    state = tree.start(8)
    models = [PlayoutModel(tree, 4, bootstrap=True), PlayoutModel(tree, 20)]
    predict = quick_jit(lambda s, k: [m.predict(s, key=jr.clone(k))[1] for m in models])
    values = predict(state, jr.split(jr.key(1), 8))
    step = quick_jit(lambda s: tree.step(s, jnp.zeros((8,), jnp.int32), key=UNUSED))
    at, total, scale, totals = state, np.zeros(8), np.ones(8), []
    for _ in range(7):
        after, reward, discount, _ = step(at)
        at, total = after, total + scale * np.asarray(reward)
        scale = scale * np.asarray(discount)
        totals.append((total, scale, at))
    total, scale, at = totals[3]
    ended = quick_jit(lambda s: tree.predict(s, key=UNUSED)[1])(at)
    assert np.any(scale) and np.allclose(values[0], total + scale * ended, atol=1e-5)
    total, scale, _ = totals[-1]
    assert not np.any(scale) and np.allclose(values[1], total, atol=1e-5)


def test_a_playout_returns_what_a_tree_backs_up():
    # Where there is but one line, a search of as many simulations ends where the playout ends.
    tree = RandomTree(1, (1.0, -1.0, -1.0), illegal=0.0, horizon=7, gamma=0.9)
    state, planner = tree.start(8), TreeSearch(4, backup=MaxBackup())

    @quick_jit
    def run(key):
        value = PlayoutModel(tree, 4, bootstrap=True).predict(state, key=key)[1]
        plan, _ = planner.plan(tree, state, planner.init(tree, state), key=jr.clone(key))
        return value, plan.value

    assert np.allclose(*run(jr.split(jr.key(0), 8)), atol=1e-6)


class Uniform(AbstractPriorModel[Node]):
    """The rules of a tree without its evaluator."""

    tree: RandomTree

    def root(self, state, obs, *, key):
        return state

    def step(self, node, action, *, key):
        return self.tree.step(node, action, key=key)

    def predict(self, node, *, key):
        logits, value = self.tree.predict(node, key=key)
        return jnp.where(logits > -jnp.inf, 0.0, -jnp.inf), jnp.full_like(value, jnp.nan)


@pytest.mark.parametrize("bootstrap", [False, True])
def test_rules_spare_the_model(bootstrap):
    # The same values, while the model is asked about the leaf and, to bootstrap, the state reached,
    # and never steps.
    asked, stepped = [], []

    class Counted(AbstractPriorModel[Node]):
        def root(self, state, obs, *, key):
            return state

        def step(self, node, action, *, key):
            jax.debug.callback(lambda: stepped.append(1))
            return TREE.step(node, action, key=key)

        def predict(self, node, *, key):
            jax.debug.callback(lambda: asked.append(1))
            return TREE.predict(node, key=key)

    state, values, calls = TREE.start(6), [], []
    for rules in (None, Uniform(TREE)):
        asked.clear()
        stepped.clear()
        model = PlayoutModel(Counted(), 5, bootstrap, playouts_in=rules)
        run = quick_jit(lambda s, m=model: m.predict(s, key=jr.split(jr.key(0), 6))[1])
        values.append(run(state))
        jax.effects_barrier()
        calls.append((len(asked), len(stepped)))
    assert np.array_equal(*values) and np.all(np.isfinite(values[0]))
    assert calls[0][0] > 3 and calls[0][1] > 1 and calls[1] == (1 + bootstrap, 0)


def test_dice_stay_dice():
    # The search over playouts, with everything one move from the end: no luck but that of
    # the dice, whose outcomes it weighs.
    tree = RandomTree(2, (0.0,), illegal=0.0)
    dice, state = RandomDice(tree), tree.start(20)
    model = PlayoutModel(dice, 5, bootstrap=True)
    assert model.num_outcomes == 3 and model.num_signals == 0
    planner = TreeSearch(200)

    @quick_jit
    def run(state, key):
        plan, _ = planner.plan(model, state, planner.init(model, state), key=key)
        _, reward, _, probs, _ = branches(dice, state)
        return plan, jnp.sum(probs * reward, axis=2)

    plan, exact = run(state, jr.split(jr.key(0), 20))
    assert np.allclose(np.max(plan.qvalues, axis=1), np.max(exact, axis=1), atol=0.05)
    assert np.allclose(plan.stats["invalid"], 0)


def test_playouts_win_nim():
    # UCT as it began: no evaluator at all.
    heaps = jnp.asarray(np.asarray([2, 3, 5, 6, 7, 9], np.int32))
    model = PlayoutModel(Nim(), 12)
    planner = TreeSearch(400, UCB1(1.0, PlainQ(), epsilon=1e-3))

    @quick_jit
    def run(key):
        return planner.plan(model, heaps, planner.init(model, heaps), key=key)[0]

    assert np.array_equal(run(jr.split(jr.key(0), 6)).action, np.asarray(heaps) % 4 - 1)


class Veiled(AbstractHiddenModel[jax.Array]):
    """One move, whose prize is hidden."""

    @property
    def num_signals(self):
        return 1

    def step(self, node, action, *, key):
        return node, node, jnp.zeros_like(node), jnp.ones_like(node, bool)

    def predict(self, node, *, key):
        return jnp.zeros((*node.shape, 1)), jnp.zeros_like(node)

    def root(self, state, obs, *, key):
        return jax.vmap(lambda k: jr.uniform(k, (), jnp.float32))(key)

    def signal(self, node, action, next_node):
        return jnp.zeros_like(action)


def test_what_is_hidden_stays_hidden():
    model, state = PlayoutModel(Veiled(), 2), jnp.full((4,), 9.0)
    planner = Hindsight(TreeSearch(3), 5)

    @quick_jit
    def run(key):
        return planner.plan(model, state, planner.init(model, state), key=key)[0]

    value = np.asarray(run(jr.split(jr.key(0), 4)).qvalues)
    assert np.all((0 < value) & (value < 1)) and len(np.unique(value)) == 4
    start, keys = TREE.start(3), jr.split(jr.key(0), 3)
    assert PlayoutModel(TREE, 2).root(start, None, key=keys) is start


ARGUMENTS: list[tuple[Any, tuple[Any, ...], str]] = [
    (PlayoutModel, (TREE, 0), r"`PlayoutModel\(num_steps=0\)`: must be an integer, 1 or more"),
    (PlayoutModel, (TREE, 5, False, -0.5), r"`PlayoutModel\(mixing=-0.5\)`: must be from 0 to 1"),
    (PlayoutModel, (TREE, 5, False, 1.0, 3), r"`PlayoutModel\(playouts_in=3\)`: must be an inst"),
    (PlayoutModel, (3, 5), r"`PlayoutModel\(model=3\)`: must be an instance"),
]


@pytest.mark.parametrize("part, fields, message", ARGUMENTS)
def test_bad_arguments_are_named(unhooked, part, fields, message):
    with pytest.raises(ValueError, match=message) as error:
        part(*fields)
    assert "\n" not in str(error.value)


class Wide(AbstractPriorModel[Node]):
    """A tree whose rewards, discounts and values have the default precision."""

    tree: RandomTree = RandomTree(2)

    def root(self, state, obs, *, key):
        return state

    def step(self, node, action, *, key):
        after, reward, _, last = self.tree.step(node, action, key=key)
        return after, reward.astype(float), jnp.ones(last.shape), last

    def predict(self, node, *, key):
        logits, value = self.tree.predict(node, key=key)
        return logits.astype(float), value.astype(float)


@pytest.mark.parametrize("parts", [{}, {"bootstrap": True}, {"mixing": 0.5}])
def test_models_may_be_of_double_precision(float64, parts):
    planner, model = TreeSearch(4), PlayoutModel(Wide(), 3, **parts)
    run = lambda s, k: planner.plan(model, s, planner.init(model, s), key=k)[0]
    plan = jax.eval_shape(run, Wide().tree.start(2), jr.split(jr.key(0), 2))
    assert plan.value.dtype == jnp.float32
