"""Minesweeper's posterior against enumeration in plain Python, and against itself."""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from zero_envs import mine_posterior, sample_mines

from . import mines_oracle as oracle


BOARDS, LAYOUTS = 32, 64
KINDS = (oracle.played_board, oracle.random_board, oracle.scattered_board)
Ask = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray]]


def asked(num_mines: int, num: int, max_states: int = 512) -> Ask:
    """Layouts, count and probability of up to `BOARDS` boards; compiled once for all of a size."""

    @jax.jit
    @jax.vmap
    def ask(board, key):
        return sample_mines(board, num_mines, num, key=key, max_states=max_states)

    def padded(boards: np.ndarray):
        many = np.resize(boards, (BOARDS, *boards.shape[1:]))
        layouts, found = ask(jnp.asarray(many, jnp.int32), jr.split(jr.key(0), BOARDS))
        used = slice(len(boards))
        return (
            np.asarray(layouts)[used],
            np.asarray(found.count)[used],
            np.asarray(found.probability)[used],
        )

    return padded


@pytest.fixture(scope="module")
def ask() -> Ask:
    return asked(10, LAYOUTS)


def some_boards(seed: int, number: int, rows: int, columns: int, num_mines: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    boards = [KINDS[i % 3](rng, rows, columns, num_mines) for i in range(number)]
    return np.stack(boards).astype(np.int32)


def check_against_enumeration(ask: Ask, boards: np.ndarray, num_mines: int) -> np.ndarray:
    """Counts and marginals; no layout may contradict its board. Returns the z-scores of how often
    a cell was a mine."""
    layouts, count, probability = ask(boards)
    scores = []
    for i, board in enumerate(boards):
        exact, risk = oracle.posterior(board, num_mines)
        assert count[i] == pytest.approx(exact, rel=1e-5)
        np.testing.assert_allclose(probability[i], risk, rtol=1e-5, atol=0)
        assert all(oracle.consistent(board, x, num_mines) for x in layouts[i])
        open_ = (risk > 0) & (risk < 1)
        spread = np.sqrt(risk * (1 - risk) / layouts.shape[1])[open_]
        scores.append((layouts[i].mean(axis=0) - risk)[open_] / spread)
    return np.concatenate(scores)


def test_equals_enumeration(ask: Ask):
    scores = check_against_enumeration(ask, some_boards(0, BOARDS, 10, 10, 10), 10)
    assert len(scores) > 1000
    assert abs(scores.mean()) < 0.1 and abs(scores.std() - 1) < 0.1


@pytest.mark.slow
def test_equals_enumeration_on_a_thousand_boards(ask: Ask):
    """And none of 50 000 layouts is inconsistent."""
    boards = some_boards(1, 1000, 10, 10, 10)
    scores = [
        check_against_enumeration(ask, boards[i : i + BOARDS], 10)
        for i in range(0, len(boards), BOARDS)
    ]
    scores = np.concatenate(scores)
    assert abs(scores.mean()) < 0.02 and abs(scores.std() - 1) < 0.02


def test_an_empty_board(ask: Ask):
    _, (count,), (probability,) = ask(np.full((1, 10, 10), -1))
    assert count == pytest.approx(math.comb(100, 10), rel=1e-6)
    np.testing.assert_allclose(probability, 0.1, rtol=1e-6)


def test_symmetries_and_totals(ask: Ask):
    board = some_boards(2, 3, 10, 10, 10)[2]
    turned = [np.rot90(board, k) for k in range(4)]
    turned += [x.T for x in turned]
    _, count, probability = ask(np.stack(turned))
    np.testing.assert_allclose(count, count[0], rtol=1e-6)
    np.testing.assert_allclose(probability.sum(axis=(1, 2)), 10, rtol=1e-5)
    for k in range(4):
        np.testing.assert_allclose(np.rot90(probability[k], -k), probability[0], atol=1e-6)
        np.testing.assert_allclose(np.rot90(probability[4 + k].T, -k), probability[0], atol=1e-6)


def test_what_a_cell_may_show_adds_up(ask: Ask):
    """P(cell shows n) = count(board with n there) / count(board); what is left is the mine."""
    board = some_boards(3, 3, 10, 10, 10)[2]
    _, (count,), (risk,) = ask(board[None])
    cell = np.unravel_index(np.argmin(np.abs(risk - 0.3)), risk.shape)
    boards = np.stack([board] * 9)
    boards[:, *cell] = np.arange(9)
    layouts, counts, _ = ask(boards)
    assert counts.sum() / count == pytest.approx(1 - risk[cell], rel=1e-5)
    # An impossible number: no layout, and what is returned looks like none.
    assert (counts == 0).any() and layouts[counts == 0].all()


def test_layouts_are_uniform(ask: Ask):
    """Chi-squared over all the layouts of an end game, whose mines are not all determined."""
    rng = np.random.default_rng(5)
    while True:
        mines = oracle.random_mines(rng, 10, 10, 10)
        opened = ~mines & (rng.uniform(size=mines.shape) < 0.6)
        board = oracle.shown(mines, opened)
        number = oracle.posterior(board, 10)[0]
        if 12 <= number <= 40:
            break
    layouts, _, _ = ask(np.stack([board] * BOARDS))
    drawn = np.unique(layouts.reshape(-1, 100), axis=0, return_counts=True)[1]
    assert len(drawn) == number
    expected = BOARDS * LAYOUTS / number
    chi2 = ((drawn - expected) ** 2).sum() / expected
    assert abs(chi2 - (number - 1)) < 4 * math.sqrt(2 * (number - 1))
