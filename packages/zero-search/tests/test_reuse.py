"""What is kept of a tree between moves, and what is not."""

import dataclasses

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from zero_search import AbstractPriorModel, PUCT, TreeSearch
from zero_search._select import prepare
from zero_search._tree import COUNT, DISCOUNT, FINAL, plant, RAW, REWARD, VALUE

from .helpers import Jitted, Node, Noise, quick_jit, RandomTree, Reference


BATCH, SIMULATIONS = 10, 40


@pytest.fixture(scope="module")
def run():
    planner = TreeSearch(SIMULATIONS, PUCT(1.2), gamma=0.9, reuse=True, max_nodes=60)
    return Jitted(planner, RandomTree(num_actions=3, discounts=(1.0, -1.0, -1.0), truncate=0.1))


@pytest.fixture(scope="module")
def moved(run):
    """A plan from fresh trees, the states its actions lead to, and the carry in between."""
    state = run.model.root(BATCH)
    plan, carry = run.plan(state, run.planner.init(run.model, state), jr.key(0))
    after, _, _, last = run.step(state, plan.action)
    return plan, carry, after, last


def child(root, action):
    """The subtree of the reference below an action, as a root, or `None`."""
    if action not in root["children"] or root["children"][action][0]["final"]:
        return None
    return root["children"][action][0]


def test_game_with_reuse_equals_the_reference(run):
    # Four moves: kept statistics, the room they take (the tree fills up) and renumbering.
    oracle = Reference(run.planner, run.model)
    state = run.model.root(BATCH)
    carry = run.planner.init(run.model, state)
    single = lambda i: jax.tree.map(lambda x: x[i : i + 1], state)
    roots = [oracle.node(single(i)) for i in range(BATCH)]
    playing = np.ones(BATCH, bool)
    for move in range(4):
        plan, carry = run.plan(state, carry, jr.key(move))
        for i in np.flatnonzero(playing):
            kept = roots[i]["visits"].sum()
            root = oracle.search(roots[i])
            assert float(plan.stats["reused"][i]) == kept
            visits = np.asarray(plan.weights[i]) * (kept + SIMULATIONS)
            assert np.array_equal(np.round(visits), root["visits"])
            seen = root["visits"] > 0
            assert np.allclose(plan.qvalues[i][seen], root["q"][seen], atol=1e-5)
            assert int(plan.stats["nodes"][i]) == oracle.size(root)
        action = plan.action
        state, _, _, last = run.step(state, action)
        carry = run.advance(carry, action, state, last)
        playing &= ~np.asarray(last)
        for i in np.flatnonzero(playing):
            roots[i] = child(roots[i], int(action[i])) or oracle.node(single(i))
    assert playing.sum() >= 2


def test_kept_visits_are_those_of_the_played_edge(run, moved):
    plan, carry, after, last = moved
    kept = run.advance(carry, plan.action, after, last).tree
    visits = carry.tree.edge[jnp.arange(BATCH), 0, 0, plan.action]
    # The edge's first visit is the evaluation of the child itself.
    expected = jnp.where(last, 0.0, visits - 1)
    assert jnp.array_equal(jnp.sum(kept.edge[:, 0, 0], axis=1), expected)
    assert jnp.any(expected > 1)


@pytest.mark.parametrize("why", ["last", "another state", "unvisited"])
def test_what_no_longer_holds_is_dropped(run, moved, why):
    plan, carry, after, last = moved
    action = plan.action
    if why == "last":
        last = jnp.ones_like(last)
    elif why == "another state":
        after = Node(after.name + jnp.uint32(1), after.depth, after.done)
    else:
        fresh = run.planner.init(run.model, after)
        carry = type(carry)(ply=carry.ply, tree=fresh.tree)
    carry = run.advance(carry, action, after, last)
    empty = run.planner.init(run.model, after)
    # What lies behind the last node is nobody's state.
    kept = dataclasses.replace(carry.tree, state=empty.tree.state)
    for old, new in zip(jax.tree.leaves(kept), jax.tree.leaves(empty.tree), strict=True):
        assert jnp.array_equal(old, new)
    # A plan on what is left is a plan from scratch.
    again, _ = run.plan(after, carry, jr.key(1))
    first, _ = run.plan(after, empty, jr.key(1))
    assert jnp.array_equal(again.weights, first.weights)


def test_only_the_differing_row_is_dropped(run, moved):
    plan, carry, after, last = moved
    row = int(np.flatnonzero(~np.asarray(last))[0])
    other = Node(after.name.at[row].add(jnp.uint32(1)), after.depth, after.done)
    sizes = run.advance(carry, plan.action, after, last).tree.size
    changed = run.advance(carry, plan.action, other, last).tree.size
    assert sizes[row] > 0
    assert jnp.array_equal(changed, sizes.at[row].set(0))


def test_only_the_root_ever_has_noise():
    planner = TreeSearch(12, noise=Noise(), reuse=True)
    run = Jitted(planner, RandomTree(num_actions=3, illegal=0.0))
    state = run.model.root(BATCH)
    plan, carry = run.plan(state, planner.init(run.model, state), jr.key(0))

    @quick_jit
    def noisy(tree):
        """Which stored nodes have another prior than the model's."""
        states = jax.tree.map(lambda x: x.reshape(-1), tree.state)
        logits, _ = run.model.predict(states, key=jr.split(jr.key(0), states.name.shape[0]))
        clean = prepare(planner.selection, logits).reshape(tree.prior.shape)
        differs = jnp.any(jnp.abs(tree.prior - clean) > 1e-6, axis=(2, 3))
        return differs & (jnp.arange(differs.shape[1])[None] < tree.size[:, None])

    assert jnp.all(noisy(carry.tree)[:, 0]) and not jnp.any(noisy(carry.tree)[:, 1:])
    after, _, _, last = run.step(state, plan.action)
    kept = run.advance(carry, plan.action, after, last).tree
    assert jnp.sum(kept.size) > 2 * BATCH and not jnp.any(noisy(kept))


def test_default_room_holds_the_kept_and_the_new_nodes():
    planner, model = TreeSearch(12, reuse=True), RandomTree()
    shape = lambda planner: planner.init(model, model.root(2)).tree.child.shape
    assert shape(planner) == (2, 25, 6)
    assert shape(TreeSearch(12, reuse=True, max_nodes=7)) == (2, 7, 6)


class Unsure(AbstractPriorModel[Node]):
    """A tree whose evaluator says something else every time."""

    tree: RandomTree

    def step(self, state, action, *, key):
        return self.tree.step(state, action, key=key)

    def predict(self, state, *, key):
        logits, value = self.tree.predict(state, key=key)
        return logits, value + jax.vmap(lambda k: jr.normal(k, (), jnp.float32))(key)


def test_no_evaluation_is_lost_when_a_full_tree_gets_room():
    # A node's value is the mean of its own evaluation and of all that its edges have seen, also
    # where an edge was visited before there was room for its child, final or not.
    planner = TreeSearch(SIMULATIONS, reuse=True, max_nodes=6)
    tree = RandomTree(num_actions=3, discounts=(1.0, -1.0), illegal=0.0, truncate=0.3)
    run = Jitted(planner, Unsure(tree))
    state = run.model.tree.root(BATCH)
    carry, late, late_final = planner.init(run.model, state), 0, 0
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
        carry = run.advance(carry, plan.action, state, last)
    assert late > 0 and late_final > 0  # else no edge was visited before its child had room


def test_what_became_illegal_leaves_the_root(run, moved):
    # By another network, or noise that leaves out moves: neither its visits nor its outcomes count.
    plan, carry, after, last = moved
    kept = run.advance(carry, plan.action, after, last).tree
    visits, qvalues = kept.edge[:, 0, 0], kept.edge[:, 0, 1]
    gone = jax.nn.one_hot(jnp.argmax(visits, axis=1), 3, dtype=jnp.bool_) & (visits > 0)
    gone = gone & (jnp.arange(BATCH)[:, None] % 2 == 0)
    logits, value = run.model.predict(after, key=jr.split(jr.key(0), BATCH))
    logits = jnp.where(gone, -jnp.inf, logits)
    tree = quick_jit(plant)(kept, run.planner.selection, after, logits, value)
    left = jnp.where(gone, 0.0, visits)
    assert jnp.array_equal(tree.edge[:, 0, 0], left)
    count, mean = tree.node[:, 0, COUNT], tree.node[:, 0, VALUE]
    assert jnp.array_equal(count, 1 + jnp.sum(left, axis=1))
    assert jnp.allclose(count * mean, value + jnp.sum(left * qvalues, axis=1), atol=1e-4)
    same = (kept.size > 0) & ~jnp.any(gone, axis=1)
    assert jnp.array_equal(mean[same], kept.node[:, 0, VALUE][same])
    assert jnp.any(same) and jnp.any(jnp.sum(left, axis=1)[jnp.any(gone, axis=1)] > 0)
