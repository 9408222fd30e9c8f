"""Several leaves at a time: against a slow reference that waits for its leaves too."""

import jax
import jax.random as jr
import numpy as np
import pytest

from zero_search import PUCT, Tree, TreeSearch

from .helpers import Jitted, Nim, Node, quick_jit, RandomTree, Reference


BATCH, SIMULATIONS, LEAVES = 8, 40, 4


class Marked(Reference):
    """A reference whose walks mark their edges until all leaves of the group are known."""

    def with_losses(self, node) -> dict:
        marks, seen = node.setdefault("marks", np.zeros_like(node["visits"])), node["visits"] > 0
        low = min(node["mean"], np.where(seen, node["q"], node["mean"]).min())
        share = node["visits"] / np.maximum(node["visits"] + self.planner.virtual_loss * marks, 1)
        mean = np.where(marks > 0, low + share * (node["q"] - low), node["q"])
        return node | {"visits": node["visits"] + marks, "q": mean}

    def walk(self, root) -> list[tuple[dict, int]]:
        node, path = root, []
        while True:
            action = self.select(root, self.with_losses(node))
            path.append((node, action))
            node["marks"][action] += 1
            child = node["children"].get(action)
            if child is None or child[0]["final"]:
                return path
            node = child[0]

    def search(self, root) -> dict:
        for _ in range(self.planner.num_simulations // self.planner.num_leaves):
            paths = [self.walk(root) for _ in range(self.planner.num_leaves)]
            known = [action in node["children"] for node, action in (path[-1] for path in paths)]
            for path, revisit in zip(paths, known, strict=True):
                for node, action in path:
                    node["marks"][action] -= 1
                node, action = path[-1]
                # Two walks to one leaf are one visit.
                if revisit or action not in node["children"]:
                    self.enter(root, path)
        return root

    def enter(self, root, path) -> None:
        actions = iter([action for _, action in path])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self, "select", lambda *_: next(actions))
            self.simulate(root, root, 1)


@pytest.mark.parametrize(
    "loss, max_nodes",
    [pytest.param(x, None, marks=pytest.mark.slow) for x in (1.0, 0.0)] + [(3.0, 12)],
)
def test_equals_a_slow_reference(loss, max_nodes):
    # Truncated and final states, players who move twice, and with 12 nodes a tree that fills up.
    planner = TreeSearch(
        SIMULATIONS, PUCT(1.5), max_nodes=max_nodes, num_leaves=LEAVES, virtual_loss=loss
    )
    model = RandomTree(num_actions=4, truncate=0.1, gamma=0.9)
    state = model.start(BATCH)
    plan, _, tree = quick_jit(
        lambda s, k: planner.grow(model, s, planner.init(model, s), key=jr.split(k, BATCH))
    )(state, jr.key(0))
    edge = np.asarray(tree.edge)
    assert np.array_equal(plan.visits, edge[:, 0, 0])
    oracle = Marked(planner, model)
    repeated = 0
    for row in range(BATCH):
        root = oracle.agrees(plan, state, row)
        repeated += SIMULATIONS - root["visits"].sum()
    assert repeated > 0  # else the rule for such walks was never needed
    assert not np.any(edge[:, :, 2])


def sums_hold(tree: Tree) -> None:
    """Every node has one visit more than its edges, and as many as the edge above."""
    tree = jax.tree.map(np.asarray, tree)
    visits, count = tree.edge[:, :, 0], tree.node[..., 0]
    for row, size in enumerate(tree.size):
        assert np.array_equal(count[row, :size], 1 + visits[row, :size].sum(axis=1))
        for parent, action in zip(*np.nonzero(tree.child[row] >= 0), strict=True):
            child = int(tree.child[row, parent, action])
            assert visits[row, parent, action] == count[row, child]


def test_kept_subtrees_and_rows_without_moves(getkey):
    tree_model = RandomTree(num_actions=5)
    planner = TreeSearch.alphazero(16, num_leaves=8, reuse=True, temperature=1.0)
    run = Jitted(planner, tree_model)
    state = tree_model.start(BATCH)
    carry = run.fresh_carry(state)
    for _ in range(3):
        plan, carry = run.plan(state, carry, getkey())
        assert np.allclose(np.sum(plan.weights, axis=1), 1.0)
        sums_hold(carry.tree)
        state, _, _, last = run.step(state, plan.action)
        carry = run.advance(carry, plan.action, last)
    assert isinstance(state, Node)


@pytest.mark.slow
def test_wins_nim():
    heaps = np.asarray([1, 2, 3, 5, 6, 7, 9, 10], np.int32)
    plan = Jitted(TreeSearch(400, PUCT(), num_leaves=8), Nim()).fresh(heaps)
    assert np.array_equal(plan.action, heaps % 4 - 1)
