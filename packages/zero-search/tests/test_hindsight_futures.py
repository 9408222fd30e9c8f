"""What the trees of hindsight see: futures and hidden states of their own, and what follows."""

import itertools
import re
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from zero_search import AbstractHiddenModel, Hindsight, MaxBackup, PUCT, SoftmaxQ, TreeSearch

from .dice import Die, expectimax, hindsight, RandomDice, UNUSED
from .helpers import chi_squared, equal, fresh, Noise, quick_jit, RandomTree
from .hidden import Tiger


def test_trees_know_neither_the_real_die_nor_each_other():
    # 10 000 plans. Chi-squared: of the faces that a tree saw, and of pairs of faces.
    number, planner, model = 10_000, Hindsight(TreeSearch(2), 3), Die()

    @quick_jit
    def run(seeds):
        state = jnp.full(seeds.shape, 7, jnp.int32)
        keys = jax.vmap(lambda s: jr.split(jr.key(s)))(seeds)
        plan, tree = fresh(planner, model, state, keys[:, 0])
        real = model.step(state, plan.action, key=keys[:, 1])[0]
        return tree.state[:, 1].reshape(-1, 3), real, plan.qvalues[:, 0], state

    seen, real, qvalues, state = map(np.asarray, run(jnp.arange(number, dtype=jnp.uint32)))
    assert np.all(state == 7)
    assert np.allclose(qvalues, seen.mean(axis=1), atol=1e-5)
    draws = {"first": seen[:, 0], "second": seen[:, 1], "third": seen[:, 2], "real": real}
    for faces in draws.values():
        assert chi_squared(np.bincount(faces, minlength=6)[None], number / 6) < 25.8
    for x, y in itertools.combinations(draws.values(), 2):
        table = np.zeros((6, 6))
        np.add.at(table, (x, y), 1)
        margins = table.sum(axis=1, keepdims=True) * table.sum(axis=0) / number
        assert chi_squared(table, margins) < 60.2


def test_converges_to_the_value_in_hindsight():
    # Games of two moves, every future of which a tree sees to the end: what is left is the luck of
    # 600 futures. The value of a player who foresees is above that of one who cannot.
    games, trees = 4, 600
    tree = RandomTree(3, (1.0,), 0.0, 0.2, horizon=2, sharpness=0.0, noise=0.0, gamma=0.8)
    model = RandomDice(tree)
    planner = Hindsight(TreeSearch(40, PUCT(50.0), backup=MaxBackup(), outcomes="frozen"), trees)
    state = tree.start(games, 3)

    @quick_jit
    def run(state, key):
        plan, grown = fresh(planner, model, state, key)
        return plan, grown.root

    plan, root = jax.tree.map(np.asarray, run(state, jr.split(jr.key(0), games)))
    legal = np.isfinite(model.predict(state, key=UNUSED)[0])
    each = root.qvalues.reshape(games, trees, 3)
    assert np.all(root.visits.reshape(each.shape).min(axis=1)[legal] > 0)
    error = each.std(axis=1)[legal] / np.sqrt(trees)
    foreseen = hindsight(model, state)[legal]
    fair = np.asarray(quick_jit(lambda s: expectimax(model, s, 2))(state))[legal]
    off = (np.asarray(plan.qvalues)[legal] - foreseen) / error
    assert np.all(np.abs(off) < 4) and np.sqrt(np.mean(off**2)) < 1.6
    gap = (foreseen - fair) / error
    assert np.all(gap > -1e-3) and np.sum(gap > 4) > 3


class Secret(NamedTuple):
    """What the player sees, and the prize of each action, which it may not."""

    seen: jax.Array
    prize: jax.Array


class Hidden(AbstractHiddenModel[Secret]):
    """One move. The prize of action 0 is known, that of action 1 is 1 or -1, more often 1. With
    `strict` action 1 may only be taken where it wins."""

    strict: bool = False

    @property
    def num_signals(self):
        return 1

    def step(self, node, action, *, key):
        reward = jnp.take_along_axis(node.prize, action[:, None], axis=1)[:, 0]
        return node, reward, jnp.zeros_like(reward), jnp.ones_like(action, bool)

    def predict(self, node, *, key):
        barred = self.strict & (node.prize < 0)
        return jnp.where(barred, -jnp.inf, 0.0), jnp.zeros(node.seen.shape, jnp.float32)

    def root(self, state, obs, *, key):
        win = jax.vmap(lambda k: jr.bernoulli(k, 0.7))(key)
        return state._replace(prize=state.prize.at[:, 1].set(jnp.where(win, 1.0, -1.0)))

    def signal(self, node, action, next_node):
        return jnp.zeros_like(action)


def test_every_tree_draws_a_root():
    model, batch, trees = Hidden(), 50, 40
    planner = Hindsight(TreeSearch(32, PUCT(4.0), readout=SoftmaxQ()), trees)

    @quick_jit
    def run(prize):
        state = Secret(
            jnp.zeros((batch,), jnp.int32), jnp.stack([jnp.full_like(prize, 0.2), prize], 1)
        )
        plan, tree = fresh(planner, model, state, jr.split(jr.key(0), batch))
        return plan, tree.state.prize[:, 0, 1]

    # Nothing of the plan depends on what is hidden.
    ones = np.ones((batch,), np.float32)
    won, seen = jax.tree.map(np.asarray, run(ones))
    lost, again = run(-ones)
    assert equal(won, lost) and np.array_equal(seen, again)
    drawn = batch * trees
    assert abs(np.mean(seen == 1) - 0.7) < 4 * np.sqrt(0.7 * 0.3 / drawn)
    share = seen.reshape(batch, trees).mean(axis=1)
    assert np.allclose(won.qvalues[:, 1], share, atol=1e-5)
    assert np.array_equal(won.action, (share > 0.2).astype(int)) and 0 < np.sum(won.action) < batch


def test_an_action_that_is_illegal_in_one_tree_gets_no_weight():
    model, batch, rows = Hidden(strict=True), 60, np.arange(60)
    planners = [
        Hindsight(TreeSearch.alphazero(8), 3),
        Hindsight(TreeSearch(8, readout=SoftmaxQ(1.0)), 3, "zero"),
        Hindsight(TreeSearch.gumbel(8), 3),
    ]

    @quick_jit
    def run(key):
        prize = jnp.tile(jnp.asarray([[0.2, 1.0]]), (batch, 1))
        state = Secret(jnp.zeros((batch,), jnp.int32), prize)
        found = [fresh(x, model, state, jr.clone(key)) for x in planners]
        return [plan for plan, _ in found], found[0][1].state.prize[:, 0, 1]

    plans, drawn = jax.tree.map(np.asarray, run(jr.split(jr.key(0), batch)))
    barred = np.any(drawn.reshape(batch, 3) < 0, axis=1)
    assert 10 < barred.sum() < 50
    for plan in plans:
        assert np.all(plan.weights[barred, 1] == 0) and np.all(plan.weights[~barred, 1] > 0)
        assert np.all(plan.visits[barred, 1] == 0) and np.all(plan.action[barred] == 0)
        assert np.allclose(np.sum(plan.weights, axis=1), 1)
        assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(plan))
        assert np.all(plan.weights[rows, plan.action] > 0)


def test_drawn_trees_have_the_documented_keys():
    # Tree by tree and bit by bit the inner planner's, from a root drawn for that tree alone.
    model, inner = Tiger(2), TreeSearch.alphazero(6, noise=Noise())
    batch, trees = 3, 4
    planner, state = Hindsight(inner, trees), model.start(batch)

    @quick_jit
    def run(key):
        own = lambda k: jax.vmap(lambda i: jr.fold_in(k, i))(jnp.arange(trees))
        rows = jax.tree.map(lambda x: jnp.repeat(x, trees, axis=0), state)
        alone = fresh(inner, model, rows, jax.vmap(own)(key).reshape(-1))[1]
        return fresh(planner, model, state, jr.clone(key))[1], alone

    grown, alone = run(jr.split(jr.key(0), batch))
    assert equal(grown, alone) and len(np.unique(np.asarray(grown.state.tiger)[:, 0])) == 2


def test_what_a_state_alone_decides_is_worked_out_once_a_row():
    # Where the tiger is likely to be has the only sigmoid there is.
    model, planner = Tiger(2), Hindsight(TreeSearch(2), 4)

    def run(state, key):
        return fresh(planner, model, state, key)[0]

    text = str(jax.make_jaxpr(run)(model.start(3), jr.split(jr.key(0), 3)))
    assert re.findall(r"f32\[([\d,]*)\] = logistic", text) == ["3"]
