"""The network: any board, and nothing but what the player sees."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from zero_minesweeper._network import MineNet
from zero_nets import BoardSymmetries


def seen(board: np.ndarray, mines: int) -> dict:
    return {"board": jnp.asarray(board, jnp.int8), "num_mines": jnp.int32(mines)}


@pytest.fixture(scope="module")
def net() -> MineNet:
    """Not as it starts, when its blocks do nothing."""
    net = eqx.filter_jit(MineNet)(8, 2, key=jr.key(0))
    rng = np.random.default_rng(0)
    shake = lambda x: jnp.asarray(x + 0.1 * rng.normal(size=x.shape), jnp.float32)
    return jax.tree.map(shake, jax.device_get(net))


#: What a network says, compiled.
said = eqx.filter_jit(lambda net, features: net(features))


@pytest.mark.parametrize(("rows", "columns"), [(3, 3), (4, 7)])
def test_one_network_for_all_boards(net, rows, columns):
    board = np.full((rows, columns), -1)
    logits, value, mines = said(net, seen(board, 2))
    assert logits.shape == (rows * columns,) and mines.shape == (rows, columns)
    assert value.shape == () and 0 < value < 1


def test_every_cell_hears_of_every_other_and_of_the_number_of_mines(net):
    """Two blocks of 3 x 3 see four cells far; the rest is global."""
    board = np.full((3, 20), -1)
    changed = board.copy()
    changed[1, 19] = 2
    seen_by_it = [seen(*x) for x in ((board, 5), (changed, 5), (board, 6))]
    outputs = [jax.device_get(said(net, x)) for x in seen_by_it]
    for other in outputs[1:]:
        assert abs(other[0][0] - outputs[0][0][0]) > 1e-6
        assert abs(other[2][0, 0] - outputs[0][2][0, 0]) > 1e-6
        assert abs(other[1] - outputs[0][1]) > 1e-6


def test_the_policy_is_of_cells_row_by_row(net):
    """A mirrored board and mirrored filters give mirrored logits."""
    mirror = BoardSymmetries(3, 4, 12)
    board = np.asarray([[-1, 1, -1, -1], [-1, 2, -1, 0], [-1, -1, 1, -1]])
    flipped = jax.tree.map(lambda w: w[:, ::-1] if w.ndim == 4 else w, net)
    logits, value, mines = said(net, seen(board, 3))
    index = mirror.size // 2

    @jax.jit
    def turned(board, logits, mines):
        return [
            mirror.features(board, index),
            mirror.actions(logits, index),
            mirror.features(mines, index),
        ]

    turned_board, turned_logits, turned_mines = turned(jnp.asarray(board), logits, mines)
    other = said(flipped, seen(np.asarray(turned_board), 3))
    np.testing.assert_allclose(other[0], turned_logits, atol=1e-5)
    np.testing.assert_allclose(other[1], value, atol=1e-5)
    np.testing.assert_allclose(other[2], turned_mines, atol=1e-5)
