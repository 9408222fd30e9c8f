"""Weighted layouts: all of them where they are few, and otherwise of the right marginals."""

import itertools

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import optimize, special

from zero_envs import sample_mines
from zero_minesweeper._layouts import calibrated, find_layouts


#: Of the layouts that are asked for of every board.
ROOM = 8
#: Boards that so many layouts show, by their numbers.
BOARDS = {
    6: np.asarray([[0, 2, -1, -1], [-1, -1, -1, -1], [-1, -1, -1, -1]], np.int8),
    8: np.asarray([[2, -1, 1, -1], [-1, -1, -1, -1], [-1, -1, -1, -1]], np.int8),
    9: np.asarray([[1, -1, -1, -1], [-1, -1, -1, -1], [-1, -1, -1, 2]], np.int8),
}
MINES = 3


def everything(number: int) -> np.ndarray:
    """All layouts that show the board of that number."""
    board, found = BOARDS[number], []
    for cells in itertools.combinations(range(12), MINES):
        mines = np.zeros(12, bool)
        mines[list(cells)] = True
        grid = np.pad(mines.reshape(3, 4), 1).astype(int)
        moved = [np.roll(grid, (i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1)]
        near = np.sum(moved, axis=0)[1:4, 1:5]
        shown = board >= 0
        if not mines.reshape(3, 4)[shown].any() and (near[shown] == board[shown]).all():
            found.append(mines.reshape(3, 4))
    assert len(found) == number
    return np.asarray(found)


def find(number: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Layouts of the board of that number, and their weights."""
    board = jnp.asarray(BOARDS[number])
    return jax.device_get(find_layouts(board, MINES, ROOM, key=jr.key(seed), max_states=32))


@pytest.fixture(scope="module")
def drawn() -> tuple[np.ndarray, np.ndarray]:
    """Layouts of the board that has one too many, and the exact probability of a mine there."""
    board = jnp.asarray(BOARDS[ROOM + 1])
    layouts, posterior = sample_mines(board, MINES, ROOM, key=jr.key(1), max_states=32)
    return np.asarray(layouts), np.asarray(posterior.probability)


@pytest.mark.parametrize("number", [ROOM, 6])
def test_if_all_layouts_fit_they_are_the_posterior(number):
    """Each once, whatever the key, and equally likely; the rest of the room counts for nothing."""
    expected = everything(number)
    layouts, weights = find(number, 0)
    known = weights > 0
    assert known.sum() == number
    np.testing.assert_allclose(weights[known], 1 / number, rtol=1e-6)
    key = lambda x: sorted(tuple(y.reshape(-1)) for y in x)
    assert key(layouts[known]) == key(expected)


def test_else_drawn_layouts_have_its_marginals(drawn):
    """Equal weights have not; one layout too many for the room makes the difference."""
    layouts, weights = find(ROOM + 1, 1)
    np.testing.assert_array_equal(layouts, drawn[0])
    assert (weights > 0).all() and weights.sum() == pytest.approx(1, abs=1e-6)
    exact = everything(ROOM + 1).mean(axis=0)
    np.testing.assert_allclose(drawn[1], exact, atol=1e-6)
    assert np.abs(layouts.mean(axis=0) - exact).max() > 0.05
    np.testing.assert_allclose(np.tensordot(weights, layouts, 1), exact, atol=2e-3)


def test_calibrated_weights_differ_least_from_equal_ones(drawn):
    """Those of scipy, which minimises the dual by other means."""
    layouts, exact = drawn
    flat, risk = layouts.astype(float).reshape(ROOM, -1), exact.astype(float).reshape(-1)
    dual = lambda x: special.logsumexp((flat - risk) @ x)
    best = optimize.minimize(dual, np.zeros(12), method="BFGS", options={"gtol": 1e-9})
    expected = special.softmax((flat - risk) @ best.x)
    weights = jax.jit(calibrated)(layouts.reshape(ROOM, -1), exact)
    np.testing.assert_allclose(weights, expected, atol=1e-3)


def test_what_layouts_cannot_show_is_left_alone():
    """A cell that is a mine in none of them stays so, and nothing becomes infinite."""
    layouts = np.asarray([[True, False, False], [False, True, False]] * 4)
    weights = jax.jit(calibrated)(layouts, np.asarray([[0.6, 0.3, 0.1]], np.float32))
    # As near as they get to 0.6 and 0.3, sharing what is missing.
    assert np.asarray(weights)[layouts[:, 0]].sum() == pytest.approx(0.65, abs=1e-3)
