"""Tables of the lines of a board, against walks over its cells."""

import collections
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import zero_nets

from . import nets


#: How a row, a column, and a diagonal of either kind go on, and how long each must be.
WAYS = (((0, 1), 1), ((1, 0), 1), ((1, 1), 3), ((-1, 1), 3))


def _line(shape, cell, way):
    """All cells of the line through a cell, from its beginning."""
    (row, column), (down, right) = cell, way
    inside = lambda r, c: 0 <= r < shape[0] and 0 <= c < shape[1]
    while inside(row - down, column - right):
        row, column = row - down, column - right
    cells = []
    while inside(row, column):
        cells.append((row, column))
        row, column = row + down, column + right
    return cells


def _kind(shape, cell, way, line):
    """Of which table a line is."""
    if way > 1:
        return len(line)
    at, side = cell[way], shape[way]
    return ("side", min(at, side - 1 - at)) if shape[0] == shape[1] else (way, at)


@pytest.mark.parametrize("shape", [(4, 4, 2), (3, 5, 1)])
def test_a_cell_has_an_entry_for_each_of_its_lines_as_it_is_filled(shape):
    draws = np.random.default_rng(0)
    states = [draws.integers(0, shape[2] + 1, shape[:2]) for _ in range(4)]
    states += [np.where(draws.random(shape[:2]) < 0.1, 0, x) for x in states]
    states += [states[0][::-1], states[0].T if shape[0] == shape[1] else states[0][:, ::-1]]
    boards = jnp.asarray(np.stack(states)[..., None] == np.arange(1, shape[2] + 1))
    tables = zero_nets.LineTables(shape, 1)
    assert not tables.table.any()
    first = lambda tables, x: tables(x)[..., 0]
    slopes = jax.jit(jax.vmap(jax.jacrev(first), (None, 0)))(tables, boards).table[..., 0]
    wanted, found = [], []
    for state, slope in zip(states, np.asarray(slopes), strict=True):
        for cell in itertools.product(*map(range, shape[:2])):
            lines = [(way, _line(shape, cell, go), least) for way, (go, least) in enumerate(WAYS)]
            wanted.append(
                collections.Counter(
                    (_kind(shape, cell, way, line), line.index(cell), *(state[x] for x in line))
                    for way, line, least in lines
                    if len(line) >= least
                )
            )
            times = {tuple(x): int(slope[cell][tuple(x)]) for x in np.argwhere(slope[cell])}
            found.append(collections.Counter(times))
    # As many, and the same one exactly where a line of the same table is filled in the same way.
    for one, other in itertools.combinations_with_replacement(range(len(wanted)), 2):
        shared = lambda of, one=one, other=other: (of[one] & of[other]).total()
        assert shared(found) == shared(wanted)


def test_of_a_cell_the_last_plane_counts_that_is_not_empty():
    tables = nets.random(lambda key: zero_nets.LineTables((3, 3, 2), 4))
    board = np.zeros((3, 3, 2), np.float32)
    board[1, 1] = 0.5, -2
    both, last = nets.batch(tables, jnp.asarray(np.stack([board, np.sign(np.abs(board * [0, 1]))])))
    np.testing.assert_array_equal(both, last)
    with pytest.raises(ValueError, match="shape"):
        tables(jnp.zeros((3, 4, 2)))
    with pytest.raises(
        ValueError, match=r"table of 24000000 numbers; there may be at most 8388608"
    ):
        zero_nets.LineTables((6, 6, 9), 4)


def test_sizes_of_numpy_do_not_overflow(unhooked):
    few: Any = tuple(np.array([6, 6, 2], np.uint8))
    for shape in (few, (6, 6, 2)):
        made = jax.eval_shape(lambda shape=shape: zero_nets.LineTables(shape, 3))
        assert made.table.shape == (3 * 3**6 + 3**3 + 3**4 + 3**5 + 3**6, 6, 3)
        assert {*map(type, made.board_shape)} == {int}


def test_a_network_begins_as_one_without_them_and_learns_them():
    shape, sizes = (3, 3, 2), dict(channels=4, policy_channels=2, value_channels=1)
    plain, net = (
        nets.build(zero_nets.AlphaZeroNet, shape, 10, blocks=0, lines=x, **sizes)
        for x in (False, True)
    )
    boards = jnp.asarray(np.random.default_rng(0).random((4, *shape)) < 0.4)
    jax.tree.map(np.testing.assert_array_equal, nets.batch(plain, boards), nets.batch(net, boards))
    slope = jax.jit(jax.grad(lambda net, x: jax.vmap(net)(x)[1].sum()))(net, boards)
    assert np.count_nonzero(slope.lines.table) > 10


def test_a_gradient_in_bfloat16_adds_up_over_many_boards():
    tables, boards = zero_nets.LineTables((3, 3, 2), 1), jnp.zeros((1500, 3, 3, 2))
    total = lambda tables, x: jnp.sum(jax.vmap(tables)(x).astype(jnp.float32))
    for kind in (tables, zero_nets.MixedPrecision(tables, jnp.bfloat16)):
        (slope,) = jax.tree.leaves(jax.jit(jax.grad(total))(kind, boards))
        # Four rows and columns at the edge share an entry, and so do both others.
        np.testing.assert_allclose(slope.max(), 4 * 1500, rtol=2**-8)
        np.testing.assert_allclose(slope.sum(), (9 + 9 + 6) * 1500, rtol=2**-8)
