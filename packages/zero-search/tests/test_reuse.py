"""What is kept of a tree between moves, and what is not."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from zero_search import AbstractPriorModel, PUCT, Rules, Tree, TreeSearch
from zero_search._rules import prepare
from zero_search._tree import COUNT, DISCOUNT, FINAL, keep, RAW, REWARD, VALUE

from .helpers import Jitted, Node, Noise, quick_jit, RandomTree, Reference


BATCH, SIMULATIONS = 10, 40


@pytest.fixture(scope="module")
def run():
    planner = TreeSearch(SIMULATIONS, PUCT(1.2), reuse=True, max_nodes=60)
    turns = (1.0, -1.0, -1.0)
    return Jitted(planner, RandomTree(num_actions=3, discounts=turns, truncate=0.1, gamma=0.9))


@pytest.fixture(scope="module")
def moved(run):
    """A plan from fresh trees, the states its actions lead to, and the carry in between."""
    state = run.model.start(BATCH)
    plan, carry = run.plan(state, run.fresh_carry(state), jr.key(0))
    after, _, _, last = run.step(state, plan.action)
    return jax.tree.map(np.asarray, (plan, carry, after, last))


def child(root, action):
    """The subtree of the reference below an action, as a root, or `None`."""
    if action not in root["children"] or root["children"][action][0]["final"]:
        return None
    return root["children"][action][0]


def test_game_with_reuse_equals_the_reference(run):
    # Four moves: kept statistics, the room they take (the tree fills up) and renumbering.
    oracle = Reference(run.planner, run.model)
    state = run.model.start(BATCH)
    carry = run.fresh_carry(state)
    single = lambda i: jax.tree.map(lambda x: np.asarray(x)[i : i + 1], state)
    roots = [oracle.node(single(i)) for i in range(BATCH)]
    playing = np.ones(BATCH, bool)
    for move in range(4):
        plan, carry = run.plan(state, carry, jr.key(move))
        plan = jax.tree.map(np.asarray, plan)
        for i in np.flatnonzero(playing):
            kept = roots[i]["visits"].sum()
            root = oracle.search(roots[i])
            assert float(plan.stats["reused"][i]) == kept
            visits = plan.weights[i] * (kept + SIMULATIONS)
            assert np.array_equal(np.round(visits), root["visits"])
            seen = root["visits"] > 0
            assert np.allclose(plan.qvalues[i][seen], root["q"][seen], atol=1e-5)
            assert int(plan.stats["nodes"][i]) == oracle.size(root)
        action = plan.action
        state, _, _, last = run.step(state, action)
        carry = run.advance(carry, action, last)
        playing &= ~np.asarray(last)
        for i in np.flatnonzero(playing):
            roots[i] = child(roots[i], int(action[i])) or oracle.node(single(i))
    assert playing.sum() >= 2


@pytest.fixture(scope="module")
def kept():
    """What a plan from states would start with."""
    return quick_jit(lambda carry, state: keep(carry.tree, carry.reached, state))


def test_kept_visits_are_those_of_the_played_edge(run, moved):
    plan, carry, after, last = moved
    again, _ = run.plan(after, run.advance(carry, plan.action, last), jr.key(1))
    # The edge's first visit is the evaluation of the child itself.
    played = plan.visits[np.arange(BATCH), plan.action]
    expected = np.where(last, 0.0, played - 1)
    assert np.array_equal(again.stats["reused"], expected)
    assert np.array_equal(np.sum(again.visits, axis=1), expected + SIMULATIONS)
    assert np.any(expected > 1)


def test_two_moves_keep_the_grandchild(run, moved, kept):
    # The opponent answers without a plan: the tree is followed by both actions.
    plan, carry, middle, last = moved
    tree, row = carry.tree, np.arange(BATCH)
    child = tree.child[row, 0, plan.action]
    reply = np.argmax(tree.edge[row, np.maximum(child, 0), 0], axis=1).astype(np.int32)
    after, _, _, ended = run.step(middle, reply)
    carry = run.advance(run.advance(carry, plan.action, last), reply, ended)
    code = tree.child[row, np.maximum(child, 0), reply]
    going = (child >= 0) & (code >= 0) & ~last & ~np.asarray(ended)
    expected = np.where(going[:, None], tree.edge[row, np.maximum(code, 0), 0], 0.0)
    below = kept(carry, after)
    assert np.array_equal(np.asarray(below.edge)[:, 0, 0], expected)
    assert np.sum(np.sum(expected, axis=1) > 1) >= 3
    again, _ = run.plan(after, carry, jr.key(1))
    assert np.array_equal(again.stats["reused"], np.sum(expected, axis=1))


@pytest.mark.parametrize("why", ["last", "another name", "another depth", "unvisited"])
def test_what_no_longer_holds_is_dropped(run, moved, kept, why):
    plan, carry, after, last = moved
    action = plan.action
    if why == "last":
        last = np.ones_like(last)
    elif why == "another name":  # two leaves of three are as they were
        after = after._replace(name=after.name + np.uint32(1))
    elif why == "another depth":
        after = after._replace(depth=after.depth + 1)
    else:
        carry = run.fresh_carry(after)
    carry, empty = run.advance(carry, action, last), run.fresh_carry(after)
    # What lies behind the last node is nobody's state.
    left = dataclasses.replace(kept(carry, after), state=empty.tree.state)
    for old, new in zip(jax.tree.leaves(left), jax.tree.leaves(empty.tree), strict=True):
        assert np.array_equal(old, new)
    # A plan on what is left is a plan from scratch.
    again, _ = run.plan(after, carry, jr.key(1))
    first, _ = run.plan(after, empty, jr.key(1))
    assert np.array_equal(again.weights, first.weights)
    assert not np.any(again.stats["reused"])


def test_only_the_differing_row_is_dropped(run, moved):
    plan, carry, after, last = moved
    row = int(np.flatnonzero(~last)[0])
    name = after.name.copy()
    name[row] += 1
    other = after._replace(name=name)
    carry = run.advance(carry, plan.action, last)
    whole, _ = run.plan(after, carry, jr.key(1))
    changed, _ = run.plan(other, carry, jr.key(1))
    whole, changed = jax.tree.map(np.asarray, (whole, changed))
    assert whole.stats["reused"][row] > 0 == changed.stats["reused"][row]
    others = np.arange(BATCH) != row
    for ours, theirs in zip(jax.tree.leaves(whole), jax.tree.leaves(changed), strict=True):
        assert np.array_equal(ours[others], theirs[others])


class Haze(NamedTuple):
    """A state with a number that may be NaN."""

    inner: Node
    haze: jax.Array


class Hazy(AbstractPriorModel[Haze]):
    """A tree whose states carry a float along."""

    tree: RandomTree

    def root(self, state, obs, *, key):
        return state

    def step(self, node, action, *, key):
        after, reward, discount, last = self.tree.step(node.inner, action, key=key)
        return Haze(after, node.haze), reward, discount, last

    def predict(self, node, *, key):
        return self.tree.predict(node.inner, key=key)


def test_nan_equals_nan_and_nothing_else():
    run = Jitted(TreeSearch(8, reuse=True), Hazy(RandomTree(num_actions=3, discounts=(-1.0,))))
    row = lambda *numbers: jnp.asarray(np.tile(np.asarray(numbers, np.float32), (BATCH, 1)))
    state = Haze(run.model.tree.start(BATCH), row(np.nan, 1))
    plan, carry = run.plan(state, run.fresh_carry(state), jr.key(0))
    after, _, _, last = run.step(state, plan.action)
    carry = run.advance(carry, plan.action, last)
    reused = lambda haze: run.plan(after._replace(haze=haze), carry, jr.key(1))[0].stats["reused"]
    assert np.sum(reused(after.haze)) > BATCH
    for other in (row(np.nan, np.nan), row(1, 1)):
        assert not np.any(reused(other))


def test_only_the_root_ever_has_noise(kept):
    planner = TreeSearch.alphazero(12, noise=Noise(), reuse=True)
    run = Jitted(planner, RandomTree(num_actions=3, illegal=0.0))
    state = run.model.start(BATCH)
    plan, carry = run.plan(state, run.fresh_carry(state), jr.key(0))

    @quick_jit
    def noisy(tree):
        """Which stored nodes have another prior than the model's."""
        states = jax.tree.map(lambda x: x.reshape(-1), tree.state)
        logits, _ = run.model.predict(states, key=jr.split(jr.key(0), states.name.shape[0]))
        clean = prepare(planner.selection, logits).reshape(tree.prior.shape)
        differs = jnp.any(jnp.abs(tree.prior - clean) > 1e-6, axis=(2, 3))
        return differs & (jnp.arange(differs.shape[1])[None] < tree.size[:, None])

    at_first = np.asarray(noisy(carry.tree))
    assert np.all(at_first[:, 0]) and not np.any(at_first[:, 1:])
    after, _, _, last = run.step(state, plan.action)
    below = kept(run.advance(carry, plan.action, last), after)
    assert np.sum(below.size) > 2 * BATCH and not np.any(noisy(below))


def test_default_room_holds_the_kept_and_the_new_nodes():
    planner, model = TreeSearch(12, reuse=True), RandomTree()

    def shape(planner):
        return jax.eval_shape(lambda s: planner.init(model, s), model.start(2)).tree.child.shape

    assert shape(planner) == (2, 25, 6)
    assert shape(TreeSearch(12, reuse=True, max_nodes=7)) == (2, 7, 6)


class Unsure(AbstractPriorModel[Node]):
    """A tree whose evaluator says something else every time."""

    tree: RandomTree

    def root(self, state, obs, *, key):
        return state

    def step(self, node, action, *, key):
        return self.tree.step(node, action, key=key)

    def predict(self, node, *, key):
        logits, value = self.tree.predict(node, key=key)
        return logits, value + jax.vmap(lambda k: jr.normal(k, (), jnp.float32))(key)


def test_no_evaluation_is_lost_when_a_full_tree_gets_room():
    # A node's value is the mean of its own evaluation and of all that its edges have seen, also
    # where an edge was visited before there was room for its child, final or not.
    planner = TreeSearch(SIMULATIONS, reuse=True, max_nodes=6)
    tree = RandomTree(num_actions=3, discounts=(1.0, -1.0), illegal=0.0, truncate=0.3)
    run = Jitted(planner, Unsure(tree))
    state = run.model.tree.start(BATCH)
    carry, late, late_final = run.fresh_carry(state), 0, 0
    for move in range(3):
        plan, carry = run.plan(state, carry, jr.key(move))
        tree = jax.tree.map(np.asarray, carry.tree)
        visits, qvalues = tree.edge[:, 1:, 0], tree.edge[:, 1:, 1]
        total = tree.node[:, 1:, RAW] + np.sum(visits * qvalues, axis=-1)
        live = np.arange(1, 6)[None] < tree.size[:, None]
        assert np.allclose(
            (tree.node[:, 1:, VALUE] * tree.node[:, 1:, COUNT])[live], total[live], atol=1e-3
        )
        code = tree.child[:, 1:]
        below = tree.node[np.arange(BATCH)[:, None, None], np.maximum(code, FINAL - code)]
        late += np.sum((code >= 0) & (visits > below[..., COUNT]) & live[..., None])
        first = below[..., REWARD] + below[..., DISCOUNT] * below[..., RAW]
        late_final += np.sum((code <= FINAL) & (np.abs(qvalues - first) > 1e-3) & live[..., None])
        state, _, _, last = run.step(state, plan.action)
        carry = run.advance(carry, plan.action, last)
    assert late > 0 and late_final > 0  # else no edge was visited before its child had room


def test_what_became_illegal_leaves_the_root(run, moved, kept):
    # By another network, or noise that leaves out moves: neither its visits nor its outcomes count.
    plan, carry, after, last = moved
    below = jax.tree.map(np.asarray, kept(run.advance(carry, plan.action, last), after))
    visits, qvalues = below.edge[:, 0, 0], below.edge[:, 0, 1]
    gone = np.eye(3, dtype=bool)[np.argmax(visits, axis=1)] & (visits > 0)
    gone = gone & (np.arange(BATCH)[:, None] % 2 == 0)

    @quick_jit
    def planted(below, after, gone):
        logits, value = run.model.predict(after, key=jr.split(jr.key(0), BATCH))
        prior = Rules(run.planner.selection).prior(jnp.where(gone, -jnp.inf, logits))
        return Tree.plant(below, after, prior, value), value

    tree, value = jax.tree.map(np.asarray, planted(below, after, gone))
    left = np.where(gone, 0.0, visits)
    assert np.array_equal(tree.edge[:, 0, 0], left)
    count, mean = tree.node[:, 0, COUNT], tree.node[:, 0, VALUE]
    assert np.array_equal(count, 1 + np.sum(left, axis=1))
    assert np.allclose(count * mean, value + np.sum(left * qvalues, axis=1), atol=1e-4)
    same = (below.size > 0) & ~np.any(gone, axis=1)
    assert np.array_equal(mean[same], below.node[:, 0, VALUE][same])
    assert np.any(same) and np.any(np.sum(left, axis=1)[np.any(gone, axis=1)] > 0)


class Seen(NamedTuple):
    """An observation."""

    features: jax.Array


class Learned(AbstractPriorModel):
    """Its nodes are made of what the player observes."""

    def root(self, state, obs, *, key):
        return 2.0 * obs.features

    def step(self, node, action, *, key):
        one = jnp.ones(node.shape)
        return node + 1.0, one, one, one == 0

    def predict(self, node, *, key):
        return jnp.stack([node, -node], axis=1), jnp.tanh(node)


def test_over_a_model_that_needs_the_observation_reuse_is_refused_in_one_line():
    state, planner, model = jnp.zeros((2,)), TreeSearch.muzero(4), Learned()
    carry, key = planner.init(model, state), jr.split(jr.key(0), 2)
    plan = quick_jit(lambda obs: planner.plan(model, state, carry, key=key, obs=obs)[0])
    assert plan(Seen(jnp.asarray([0.1, -0.1]))).action.tolist() == [0, 1]
    with pytest.raises(ValueError, match=r"Learned.root\(.*AttributeError.*Leave `reuse` out") as e:
        TreeSearch.muzero(4, reuse=True).init(model, state)
    assert "\n" not in str(e.value)
