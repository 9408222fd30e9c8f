"""The symmetries of a board, applied to observations and to actions."""

import functools as ft
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray, PyTree, Shaped

from ._checks import check_index, check_sizes, checked_action


Row = TypeVar("Row", bound=PyTree)
#: The number of a symmetry.
Index = Int[Array, ""] | int | np.integer


class BoardSymmetries(eqx.Module):
    """The rotations and reflections of a rectangular board.

    A square board has eight, any other board four (a quarter turn would change its shape), and a
    board that may only be mirrored two. Symmetry `index` mirrors left and right if
    `index >= size / 2`, and then turns counterclockwise `index % (size / 2)` times, by 90 degrees
    on a square board and by 180 degrees on any other. Index 0 is the identity. Methods take one
    example and one index; use `jax.vmap` over batches.

    Called with a row of experience and a key it applies one of them at random, so it is the
    `augment` of a `zero_train.Loop`.

    The game must have these symmetries: `step` must commute with them.

    **Attributes:**

    - `rows`, `columns`: the size of the board.
    - `num_actions`: the number of actions.
    - `places`: the row and column of each action, which moves as a stone there would. By default
        the first `rows * columns` actions are the cells, row by row, and any other actions, such as
        a pass, do not move. Places may be on another board than the cells: the four directions are
        `((0, 1), (1, 2), (2, 1), (1, 0))` for up, right, down and left, and columns to drop a stone
        into are `((0, 0), (0, 1), ...)`.
    - `mirror_only`: whether left and right may be exchanged and nothing else.
    """

    rows: int
    columns: int
    num_actions: int
    places: tuple[tuple[int, int], ...] | None = None
    mirror_only: bool = False

    def __check_init__(self):
        check_sizes(rows=self.rows, columns=self.columns, num_actions=self.num_actions)
        places = () if self.places is None else self.places
        if not isinstance(places, tuple) or any(np.shape(place) != (2,) for place in places):
            raise ValueError(
                f"`BoardSymmetries(places={places!r})`: give a tuple of pairs, row and column."
            )
        for row, column in places:
            check_sizes(0, row=row, column=column)
        least = self.rows * self.columns if self.places is None else len(self.places)
        if self.num_actions < least:
            raise ValueError(
                f"`BoardSymmetries(rows={self.rows}, columns={self.columns}, "
                f"num_actions={self.num_actions})`: `num_actions` must be at least "
                f"{least}, one for every place."
            )
        self._sources()

    @property
    def size(self) -> int:
        """The number of symmetries."""
        if self.mirror_only:
            return 2
        return 8 if self.rows == self.columns else 4

    def __call__(self, row: Row, *, key: PRNGKeyArray) -> Row:
        """Applies a uniformly drawn symmetry to a row, or the same one to all rows of a window; see
        `turned`."""
        return self.turned(row, jr.randint(key, (), 0, self.size))

    def turned(self, row: Row, index: Index) -> Row:
        """Applies a symmetry to a `zero_train.Experience` without a batch axis.

        Of its observation and its record, the leaves `[rows, columns, *rest]` turn as boards and
        the leaves `[num_actions]` as values of all actions; other leaves stay. Of a record that has
        `candidates`, these turn as actions, and their weights stay.
        """
        given: Any = row
        has_candidates = getattr(given.record, "candidates", None) is not None

        def turn(x: Array, *, of_actions: bool = True) -> Array:
            if x.shape[:2] == (self.rows, self.columns):
                return self.features(x, index)
            return self.actions(x, index) if of_actions and x.shape == (self.num_actions,) else x

        def one(row: Any) -> Any:
            record = jax.tree.map(ft.partial(turn, of_actions=not has_candidates), row.record)
            if has_candidates:
                turned = jax.vmap(self.action, (0, None))(row.record.candidates, index)
                record = eqx.tree_at(lambda record: record.candidates, record, turned)
            parts = jax.tree.map(turn, row.obs), self.action(row.action, index), record
            return eqx.tree_at(lambda row: (row.obs, row.action, row.record), row, parts)

        for _ in range(given.last.ndim):
            one = jax.vmap(one)
        return one(row)

    def features(
        self, x: Shaped[Array, "rows columns *rest"], index: Index
    ) -> Shaped[Array, "rows columns *rest"]:
        """Applies a symmetry to the board `x`; the trailing axes are the contents of a cell."""
        if x.shape[:2] != (self.rows, self.columns):
            raise ValueError(
                f"The features have shape {x.shape}; their first two axes must be "
                f"{(self.rows, self.columns)}. Use `jax.vmap` over a batch."
            )
        cells = self.rows * self.columns
        source = self._row(_turned_cells(self.rows, self.columns, self.mirror_only), index)
        return x.reshape(cells, *x.shape[2:])[source].reshape(x.shape)

    def actions(self, x: Shaped[Array, " actions"], index: Index) -> Shaped[Array, " actions"]:
        """Applies a symmetry to weights, logits or a mask over all actions."""
        if x.shape != (self.num_actions,):
            raise ValueError(
                f"The actions' values have shape {x.shape}, expected {(self.num_actions,)}. "
                "Use `jax.vmap` over a batch."
            )
        return x[self._row(self._sources(), index)]

    def action(self, action: Int[Array, ""], index: Index) -> Int[Array, ""]:
        """Applies a symmetry to one action, so that `actions(x, i)[action(a, i)] == x[a]`. A traced
        action that does not exist becomes -1."""
        check_index("action", action, self.num_actions)
        # [symmetry, old action] -> new action.
        targets = np.argsort(self._sources(), axis=1).astype(np.int32)
        target = self._row(targets, index)
        wide = checked_action(action, ())
        exists = (wide >= 0) & (wide < self.num_actions)
        return jnp.where(exists, target[wide], -1).astype(jnp.result_type(action))

    def inverse(self, index: Index) -> Int[Array, ""]:
        """The index of the symmetry that undoes this one."""
        # The inverse of a rotation is the opposite rotation; a reflection is its own inverse.
        half = self.size // 2
        turns = np.arange(half, dtype=np.int32)
        return self._row(np.concatenate([-turns % half, half + turns]).astype(np.int32), index)

    def _sources(self) -> Int[np.ndarray, "size actions"]:
        # [symmetry, new action] -> old action.
        places = self.places
        if places is None:
            places = tuple(np.ndindex(self.rows, self.columns))
        return _turned_places(places, self.num_actions, self.size, self.mirror_only)

    def _row(self, table: Int[np.ndarray, "size ..."], index: Index) -> Int[Array, "..."]:
        check_index("index", index, self.size)
        return jnp.asarray(table)[index]


@ft.lru_cache
def _turned_cells(rows: int, columns: int, mirror_only: bool) -> Int[np.ndarray, "size cells"]:
    # [symmetry, new cell] -> old cell.
    grid = np.arange(rows * columns, dtype=np.int32).reshape(rows, columns)
    turns = (0,) if mirror_only else range(4) if rows == columns else (0, 2)
    boards = [np.rot90(board, k) for board in (grid, np.fliplr(grid)) for k in turns]
    return np.stack([board.reshape(-1) for board in boards])


@ft.lru_cache
def _turned_places(
    places: tuple[tuple[int, int], ...], num_actions: int, size: int, mirror_only: bool
) -> Int[np.ndarray, "size actions"]:
    rows, columns = (1 + max(place[axis] for place in places) for axis in (0, 1))
    turned = _turned_cells(rows, columns, mirror_only)
    numbers = np.full(rows * columns, -1, np.int32)
    numbers[[row * columns + column for row, column in places]] = np.arange(len(places))
    filled = numbers >= 0
    if len(turned) != size or not (filled[turned] == filled).all() or filled.sum() != len(places):
        raise ValueError(
            f"`BoardSymmetries(places={places})`: the places must differ, and every symmetry of "
            "the board must turn one into another; see `mirror_only` for boards of fewer."
        )
    moved = [numbers[board][[r * columns + c for r, c in places]] for board in turned]
    extra = np.arange(len(places), num_actions, dtype=np.int32)
    return np.stack([np.concatenate([actions, extra]) for actions in moved]).astype(np.int32)
