"""What a node's value becomes is a part that can be replaced."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from zero_search import (
    AbstractBackup,
    AbstractSelection,
    MaxBackup,
    MeanBackup,
    PUCT,
    safe_softmax,
    TreeSearch,
)

from .helpers import exact_values, Jitted, quick_jit, RandomTree, Reference


class Blend(AbstractBackup):
    """Half the softmax-weighted Q-values, and the rest of what a backup is given."""

    def __call__(self, node, outcome):
        visited = node.visits > 0
        weights = safe_softmax(jnp.where(visited, 3 * node.qvalues, -jnp.inf))
        average = jnp.sum(weights * jnp.where(visited, node.qvalues, 0.0), axis=1)
        other = 0.2 * node.value + 0.1 * node.raw_value + 0.2 * outcome / node.count
        return 0.5 * average + other


def blend(node, outcome):
    seen = node["visits"] > 0
    weights = np.exp(3 * node["q"][seen])
    average = np.sum(weights * node["q"][seen]) / weights.sum()
    count = 1 + node["visits"].sum()
    return 0.5 * average + 0.2 * node["mean"] + 0.1 * node["raw"] + 0.2 * outcome / count


@pytest.mark.parametrize(
    "planner",
    [
        TreeSearch(60, PUCT(1.5), max_nodes=25, backup=Blend()),
        pytest.param(
            TreeSearch.gumbel(60, max_num_considered_actions=3, gumbel_scale=0.0, backup=Blend()),
            marks=pytest.mark.slow,
        ),
    ],
    ids=["puct", "gumbel"],
)
def test_search_with_another_backup_equals_the_reference(planner):
    model, rows = RandomTree(num_actions=4, truncate=0.1, gamma=0.9), 10
    state = model.start(rows)
    plan = Jitted(planner, model).fresh(state)
    oracle = Reference(planner, model, blend)
    for row in range(rows):
        oracle.agrees(plan, state, row)


class Everything(AbstractSelection):
    """Takes actions in turn, so that a small tree is soon complete."""

    def prepare(self, logits):
        return safe_softmax(logits)[:, None]

    def score(self, node):
        return -node.visits


@pytest.mark.parametrize(
    "backup", [MaxBackup(), pytest.param(MeanBackup(), marks=pytest.mark.slow)], ids=["max", "mean"]
)
@pytest.mark.parametrize("leaves", [1, pytest.param(4, marks=pytest.mark.slow)])
def test_max_backup_of_a_complete_tree_is_exact(backup, leaves):
    # Moving twice, rewards on the way, gamma below 1, episodes cut off: all in one law, which the
    # mean of all outcomes does not obey.
    model = RandomTree(3, (1.0, -1.0, -1.0, 0.0), truncate=0.15, horizon=3, gamma=0.8)
    planner = TreeSearch(200, Everything(), max_nodes=41, backup=backup, num_leaves=leaves)

    def run(state, key):
        plan, _ = planner.plan(model, state, planner.init(model, state), key=key)
        return plan, exact_values(model, state, levels=3)

    plan, exact = quick_jit(run)(model.start(64), jr.split(jr.key(0), 64))
    plan, exact = jax.tree.map(np.asarray, (plan, exact))
    legal = np.isfinite(exact)
    error = np.where(legal, np.abs(plan.qvalues - np.where(legal, exact, 0.0)), 0.0)
    if isinstance(backup, MaxBackup):
        assert np.max(error) < 1e-5
        assert np.allclose(plan.value, np.max(exact, axis=1), atol=1e-5)
    else:
        assert np.mean(np.max(error, axis=1)) > 0.1
