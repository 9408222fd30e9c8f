"""From a root to a policy, with every number known."""

import dataclasses

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from zero_search import LowerBound, NodeStatistics, RootStatistics, SoftmaxQ, Temperature


def test_softmax_of_q_values_breaks_ties_by_index(getkey):
    # Rows: a tie; a tie behind an unknown action; filler; extreme values.
    huge = 1e30
    qvalues = jnp.asarray([[0.5, 1.0, 1.0], [9.0, -2.0, -2.0], [1.0, 2.0, 3.0], [huge, -huge, 0.0]])
    known = jnp.asarray([[True] * 3, [False, True, True], [False] * 3, [True] * 3])
    root = statistics_of(qvalues, known)

    def read(temperature):
        read_out = SoftmaxQ(temperature)(root, key=jr.split(getkey(), 4))
        action, weights, value = map(np.asarray, read_out)
        worth = np.sum(np.where(weights > 0, weights * np.asarray(qvalues), 0.0), axis=1)
        assert np.allclose(value[[0, 1, 3]], worth[[0, 1, 3]]) and value[2] == 7
        return action, weights

    action, weights = read(0.0)
    assert action.tolist() == [1, 1, 0, 0]
    assert np.array_equal(weights, [[0, 1, 0], [0, 1, 0], [0, 0, 0], [1, 0, 0]])
    action, weights = read(1e-30)
    assert np.array_equal(weights, [[0, 0.5, 0.5], [0, 0.5, 0.5], [0, 0, 0], [1, 0, 0]])
    action, weights = read(2.0)
    e = np.exp(0.25)
    assert np.allclose(weights[0], np.asarray([1, e, e]) / (1 + 2 * e))
    assert np.allclose(weights[1:], [[0, 0.5, 0.5], [0, 0, 0], [1, 0, 0]])
    cooled, _ = read(Temperature(first=0.0, then=1.0, moves=1))
    assert cooled.tolist() == [1, 1, 0, 0]


@pytest.mark.parametrize(
    "width, share", [(0.0, 0.0), (0.3, 0.1), (2.0, 0.0), (0.3, 1.0), (1.0, 0.1)]
)
def test_the_highest_lower_bound_is_that_of_a_loop(width, share):
    rng = np.random.default_rng(0)
    visits = rng.integers(0, 40, (64, 6)) * (rng.random((64, 6)) < 0.8)
    visits[0] = 0
    visits[1:4, :2] = [[1, 10], [2, 20], [3, 30]]  # just enough of them for a share of 0.1
    qvalues = np.round(rng.uniform(-1, 1, visits.shape), 1)  # with equal ones
    sound = rng.random(visits.shape) < 0.8
    root = statistics_of(jnp.asarray(qvalues, jnp.float32), jnp.asarray(visits > 0))
    node = dataclasses.replace(root.node, visits=jnp.asarray(visits, jnp.float32))
    root = dataclasses.replace(root, node=node, sound=jnp.asarray(sound))
    read = lambda readout, seed: readout(root, key=jr.split(jr.key(seed), len(visits)))
    action, weights, value = jax.jit(read, static_argnums=0)(LowerBound(width, share), 0)
    counted = np.where(sound, visits, 0)
    assert np.allclose(weights, counted / np.maximum(counted.sum(axis=1, keepdims=True), 1))
    assert np.array_equal(value, root.node.value)
    for row in range(len(visits)):
        most = max([n for n, ok in zip(visits[row], sound[row], strict=True) if ok], default=0)
        best, highest = 0, -np.inf
        for a, n in enumerate(visits[row]):
            if n > 0 and sound[row, a] and n >= share * most:
                bound = qvalues[row, a] - width / np.sqrt(n)
                if bound > highest + 1e-6:
                    best, highest = a, bound
        assert action[row] == best, row


def statistics_of(qvalues, known):
    zeros = jnp.zeros_like(qvalues)
    each = zeros[:, 0]
    node = NodeStatistics(zeros[:, None], zeros, qvalues, each, each + 7, each)
    count = jnp.zeros(each.shape, jnp.int32)
    return RootStatistics(node, zeros, known, zeros, zeros, zeros, count + zeros.shape[1], count)
