"""Weighted layouts: all of them where they are few, and otherwise of the right marginals."""

import itertools

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import optimize, special

from zero_envs import mine_posterior, MinePosterior, sample_mines
from zero_minesweeper._layouts import calibrated, find_layouts


BOARD = jnp.asarray([[1, -1, -1, -1], [-1, -1, -1, -1], [-1, -1, -1, 2]], jnp.int8)
MINES = 3


def everything() -> np.ndarray:
    """All layouts that show `BOARD`."""
    board, found = np.asarray(BOARD), []
    for cells in itertools.combinations(range(12), MINES):
        mines = np.zeros(12, bool)
        mines[list(cells)] = True
        grid = np.pad(mines.reshape(3, 4), 1).astype(int)
        moved = [np.roll(grid, (i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1)]
        near = np.sum(moved, axis=0)[1:4, 1:5]
        shown = board >= 0
        if not mines.reshape(3, 4)[shown].any() and (near[shown] == board[shown]).all():
            found.append(mines.reshape(3, 4))
    return np.asarray(found)


@pytest.fixture(scope="module")
def posterior() -> MinePosterior:
    return mine_posterior(BOARD, MINES, max_states=32)


@pytest.fixture(scope="module")
def find():
    """As many layouts as asked for, and their weights."""
    return lambda number, key: find_layouts(BOARD, MINES, number, key=key, max_states=32)


@pytest.mark.parametrize("room", [0, 3])
def test_if_all_layouts_fit_they_are_the_posterior(find, room):
    """Each once, whatever the key, and equally likely; the rest of the room counts for nothing."""
    expected = everything()
    layouts, weights = (np.asarray(x) for x in find(len(expected) + room, jr.key(0)))
    known = weights > 0
    assert known.sum() == len(expected)
    np.testing.assert_allclose(weights[known], 1 / len(expected), rtol=1e-6)
    key = lambda x: sorted(tuple(y.reshape(-1)) for y in x)
    assert key(layouts[known]) == key(expected)


def test_else_drawn_layouts_have_its_marginals(posterior, find):
    """Equal weights have not; one layout too many for the room makes the difference."""
    number = len(everything()) - 1
    layouts, weights = find(number, jr.key(1))
    drawn, _ = sample_mines(BOARD, MINES, number, key=jr.key(1), max_states=32)
    np.testing.assert_array_equal(layouts, drawn)
    weights = np.asarray(weights)
    assert (weights > 0).all() and weights.sum() == pytest.approx(1, abs=1e-6)
    exact, flat = np.asarray(posterior.probability), np.asarray(layouts, float)
    assert np.abs(flat.mean(axis=0) - exact).max() > 0.05
    np.testing.assert_allclose(np.tensordot(weights, flat, 1), exact, atol=2e-3)


def test_calibrated_weights_differ_least_from_equal_ones(posterior):
    """Those of scipy, which minimises the dual by other means."""
    layouts, _ = sample_mines(BOARD, MINES, 12, key=jr.key(1), max_states=32)
    flat = np.asarray(layouts, float).reshape(12, -1)
    risk = np.asarray(posterior.probability, float).reshape(-1)
    dual = lambda x: special.logsumexp((flat - risk) @ x)
    best = optimize.minimize(dual, np.zeros(12), method="BFGS", options={"gtol": 1e-9})
    expected = special.softmax((flat - risk) @ best.x)
    weights = jax.jit(calibrated)(layouts.reshape(12, -1), posterior.probability)
    np.testing.assert_allclose(weights, expected, atol=1e-3)


def test_what_layouts_cannot_show_is_left_alone():
    """A cell that is a mine in none of them stays so, and nothing becomes infinite."""
    layouts = jnp.asarray([[True, False, False], [False, True, False]] * 4)
    weights = calibrated(layouts, jnp.asarray([[0.6, 0.3, 0.1]], jnp.float32))
    # As near as they get to 0.6 and 0.3, sharing what is missing.
    left = float(jnp.sum(jnp.where(layouts[:, 0], weights, 0.0)))
    assert left == pytest.approx(0.65, abs=1e-3)
