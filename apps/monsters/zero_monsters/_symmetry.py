"""Random symmetries of the board, applied to windows of experience."""

from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray, PyTree, Shaped

from zero_nets import BoardSymmetries
from zero_train import Experience


Features = TypeVar("Features", bound=PyTree)

# The cells after the moves stay, up, down, left and right, on a 3 x 3 board around the agent.
_AROUND = BoardSymmetries(rows=3, columns=3, num_actions=9)
_MOVES = np.asarray([4, 1, 7, 3, 5])


def random_symmetry(window: Experience, *, key: PRNGKeyArray) -> Experience:
    """Applies one uniformly drawn symmetry to all rows `[time]` of a window.

    The rules have all eight symmetries: `step` commutes with them.
    """
    return turned(window, jr.randint(key, (), 0, _AROUND.size))


def turned(window: Experience, index: Int[Array, ""] | int) -> Experience:
    """Applies symmetry `index` of [`zero_nets.BoardSymmetries`][] to all rows of a window."""
    moves = jax.vmap(lambda x: _turned_moves(x, index))
    obs, record, number = window.obs, window.record, len(_MOVES)
    played = moves(window.action[:, None] == jnp.arange(number, dtype=window.action.dtype)[None])
    return eqx.tree_at(
        lambda w: (w.obs.features, w.obs.legal, w.action, w.record.weights),
        window,
        (
            jax.vmap(lambda x: _turned_board(x, index))(obs.features),
            moves(obs.legal),
            jnp.argmax(played, axis=1).astype(window.action.dtype),
            moves(record.weights),
        ),
    )


def _turned_board(features: Features, index: Int[Array, ""] | int) -> Features:
    """Applies a symmetry to all features of cells; the held item stays."""

    def turn(x: Shaped[Array, "..."]) -> Shaped[Array, "..."]:
        if x.ndim < 2:
            return x
        rows, columns = x.shape[:2]
        return BoardSymmetries(rows, columns, rows * columns).features(x, index)

    return jax.tree.map(turn, features)


def _turned_moves(
    x: Shaped[Array, " moves"], index: Int[Array, ""] | int
) -> Shaped[Array, " moves"]:
    around = jnp.zeros(_AROUND.num_actions, x.dtype).at[_MOVES].set(x)
    return _AROUND.actions(around, index)[_MOVES]
