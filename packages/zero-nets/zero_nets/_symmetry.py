"""The symmetries of a board, applied to observations and to actions."""

import functools as ft
import operator

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Shaped


class BoardSymmetries(eqx.Module):
    """The rotations and reflections of a rectangular board.

    A square board has eight, any other board four (a quarter turn would change its shape). The
    first `rows * columns` actions are the cells, row by row; any other actions, such as a pass, do
    not move. Symmetry `index` mirrors left and right if `index >= size / 2`, and then turns
    counterclockwise `index % (size / 2)` times, by 90 degrees on a square board and by 180 degrees
    on any other. Index 0 is the identity. Methods take one example and one index; use `jax.vmap`
    over batches.

    The game must have these symmetries: `step` must commute with them.

    **Attributes:**

    - `rows`, `columns`: the size of the board.
    - `num_actions`: the number of actions, including those that are not cells.
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
        """The number of symmetries."""
        return 8 if self.rows == self.columns else 4

    def features(
        self, x: Shaped[Array, "rows columns *rest"], index: Int[Array, ""] | int | np.integer
    ) -> Shaped[Array, "rows columns *rest"]:
        """Applies a symmetry to the board `x`; the trailing axes are the contents of a cell."""
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
        """Applies a symmetry to weights, logits or a mask over all actions."""
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
        """Applies a symmetry to one action, so that `actions(x, i)[action(a, i)] == x[a]`."""
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
            number = 0  # A traced index cannot be checked; JAX clips it.
        if not 0 <= number < self.size:
            raise ValueError(f"There is no symmetry of index {number}: use 0 to {self.size - 1}.")
        return jnp.asarray(table)[index]


@ft.lru_cache
def _sources(rows: int, columns: int, num_actions: int) -> Int[np.ndarray, "size actions"]:
    # [symmetry, new action] -> old action.
    grid = np.arange(rows * columns, dtype=np.int32).reshape(rows, columns)
    turns = range(4) if rows == columns else (0, 2)
    boards = [np.rot90(b, k).reshape(-1) for b in (grid, np.fliplr(grid)) for k in turns]
    extra = np.arange(rows * columns, num_actions, dtype=np.int32)
    return np.stack([np.concatenate([board, extra]) for board in boards])


@ft.lru_cache
def _targets(rows: int, columns: int, num_actions: int) -> Int[np.ndarray, "size actions"]:
    # [symmetry, old action] -> new action.
    return np.argsort(_sources(rows, columns, num_actions), axis=1).astype(np.int32)


@ft.lru_cache
def _inverses(rows: int, columns: int) -> Int[np.ndarray, " size"]:
    # The inverse of a rotation is the opposite rotation; a reflection is its own inverse.
    half = 4 if rows == columns else 2
    turns = np.arange(half, dtype=np.int32)
    return np.concatenate([-turns % half, half + turns]).astype(np.int32)
