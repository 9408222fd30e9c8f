"""The symmetries of a board, acting on observations and on actions alike."""

import functools as ft
import operator

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Shaped


class BoardSymmetries(eqx.Module):
    """The rotations and reflections of a rectangular board.

    Eight of a square board, four of any other (a quarter turn would change its shape). The
    first `rows * columns` actions are the cells, row by row; the rest (a pass) stay where they
    are. Symmetry `index` mirrors left and right if `index >= size / 2`, then turns
    counterclockwise `index % (size / 2)` times, by 90 degrees on a square board and by 180 on
    any other; 0 is the identity. For one example: callers `jax.vmap` over examples and indices.

    Whether a game has these symmetries is the game's affair: `step` must commute with them.

    **Attributes:**

    - `rows`, `columns`: the board.
    - `num_actions`: cells and the actions that are not cells.
    """

    rows: int
    columns: int
    num_actions: int

    def __check_init__(self):
        if min(self.rows, self.columns) < 1 or self.num_actions < self.rows * self.columns:
            raise ValueError(
                f"`BoardSymmetries(rows={self.rows}, columns={self.columns}, "
                f"num_actions={self.num_actions})`: the board needs at least one cell and "
                "`num_actions` at least rows * columns, one for every cell."
            )

    @property
    def size(self) -> int:
        """The number of symmetries: indices are below it."""
        return 8 if self.rows == self.columns else 4

    def features(
        self, x: Shaped[Array, "rows columns *rest"], index: Int[Array, ""] | int | np.integer
    ) -> Shaped[Array, "rows columns *rest"]:
        """The board `x` seen through a symmetry; whatever is in a cell moves as one."""
        if x.shape[:2] != (self.rows, self.columns):
            raise ValueError(
                f"The features have shape {x.shape}; their first two axes must be "
                f"{(self.rows, self.columns)}. Use `jax.vmap` over a batch."
            )
        cells = self.rows * self.columns
        source = self._row(_sources(self.rows, self.columns, cells), index)
        return x.reshape(cells, *x.shape[2:])[source].reshape(x.shape)

    def actions(
        self, x: Shaped[Array, " actions"], index: Int[Array, ""] | int | np.integer
    ) -> Shaped[Array, " actions"]:
        """Weights, logits or a mask over all actions, seen through a symmetry."""
        if x.shape != (self.num_actions,):
            raise ValueError(
                f"The actions' values have shape {x.shape}, expected {(self.num_actions,)}. "
                "Use `jax.vmap` over a batch."
            )
        source = self._row(_sources(self.rows, self.columns, self.num_actions), index)
        return x[source]

    def action(
        self, action: Int[Array, ""], index: Int[Array, ""] | int | np.integer
    ) -> Int[Array, ""]:
        """The one action that `action` becomes: `actions(x, i)[action(a, i)] == x[a]`."""
        target = self._row(_targets(self.rows, self.columns, self.num_actions), index)
        return target[action].astype(action.dtype)

    def inverse(self, index: Int[Array, ""] | int | np.integer) -> Int[Array, ""]:
        """The index of the symmetry that undoes this one."""
        return self._row(_inverses(self.rows, self.columns), index)

    def _row(
        self, table: Int[np.ndarray, "size ..."], index: Int[Array, ""] | int | np.integer
    ) -> Int[Array, "..."]:
        try:
            number = operator.index(index)
        except TypeError:
            number = 0  # A traced index cannot be checked; JAX clamps it.
        if not 0 <= number < self.size:
            raise ValueError(f"There is no symmetry of index {number}: use 0 to {self.size - 1}.")
        return jnp.asarray(table)[index]


@ft.lru_cache
def _sources(rows: int, columns: int, num_actions: int) -> Int[np.ndarray, "size actions"]:
    # [symmetry, new place] -> old place.
    grid = np.arange(rows * columns, dtype=np.int32).reshape(rows, columns)
    turns = range(4) if rows == columns else (0, 2)
    boards = [np.rot90(b, k).reshape(-1) for b in (grid, np.fliplr(grid)) for k in turns]
    extra = np.arange(rows * columns, num_actions, dtype=np.int32)
    return np.stack([np.concatenate([board, extra]) for board in boards])


@ft.lru_cache
def _targets(rows: int, columns: int, num_actions: int) -> Int[np.ndarray, "size actions"]:
    # [symmetry, old place] -> new place.
    return np.argsort(_sources(rows, columns, num_actions), axis=1).astype(np.int32)


@ft.lru_cache
def _inverses(rows: int, columns: int) -> Int[np.ndarray, " size"]:
    # Turning back undoes a turn; a reflection, turned or not, undoes itself.
    half = 4 if rows == columns else 2
    turns = np.arange(half, dtype=np.int32)
    return np.concatenate([-turns % half, half + turns]).astype(np.int32)
