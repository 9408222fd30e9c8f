"""Jumanji's Minesweeper as a hidden environment with an exact posterior."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Int8, PRNGKeyArray

from ._environment import (
    absorbing_transition,
    AbstractHiddenEnvironment,
    check_count,
    check_state,
    checked_action,
    Observation,
    plain,
    Transition,
)
from ._foreign import default_numerics, import_or_explain, raw_key
from ._mine_posterior import check_max_states, mine_posterior, MinePosterior, sample_mines


# The signal of a mine; the signals below it are the numbers of a cell.
_MINE = 9
_PAYMENTS = ("cells", "fraction", "win")


class MinesweeperState(eqx.Module):
    """A state of Minesweeper.

    **Attributes:**

    - `board`: the number of neighbouring mines of each open cell, and -1 for hidden cells. As in
        Jumanji, an opened mine shows this number too.
    - `mines`: the mines, which the player does not observe.
    - `over`: whether the state is final.
    """

    board: Int8[Array, "*axes rows columns"]
    mines: Bool[Array, "*axes rows columns"]
    over: Bool[Array, "*axes"]


class Minesweeper(AbstractHiddenEnvironment[MinesweeperState]):
    """Jumanji's `Minesweeper-v0` on a board of any size.

    Action `columns * row + column` opens one cell, which then shows its number of neighbouring
    mines. No other cells are opened automatically, and the first cell may be a mine. The reward of
    a safe cell is 1. The episode terminates with a mine or a cell that is already open (both with
    reward 0) and with the last safe cell. Therefore the return is the number of opened safe cells.
    With `pays="win"` the reward is 1 for the last safe cell and 0 otherwise.

    Unlike in Jumanji, final states are absorbing. A traced action outside the board terminates the
    episode with reward 0.

    The features are `{"board": int8[rows, columns], "num_mines": int32}`. Hidden cells are legal.

    **Arguments:**

    - `rows`, `columns`: the size of the board, at least 2 each.
    - `num_mines`: the number of mines, less than the number of cells.
    - `pays`: the reward. `"cells"` is 1 for a safe cell. `"fraction"` is 1 over the number of safe
        cells for a safe cell, so the return of a win is 1. `"win"` is 1 for the last safe cell.
    - `max_states`: see [`zero_envs.mine_posterior`][]. If a board needs more states, all cells of
        the result of `resample` are mines.
    """

    rows: int = 10
    columns: int = 10
    num_mines: int = 10
    _: dataclasses.KW_ONLY
    pays: str = "cells"
    max_states: int = 512
    num_actions: int = eqx.field(init=False)
    num_signals: int = eqx.field(init=False, default=_MINE + 1)
    num_players: int = eqx.field(init=False, default=1)
    hidden: bool = eqx.field(init=False, default=True)

    def __post_init__(self):
        self.rows, self.columns, self.num_mines = map(
            plain, (self.rows, self.columns, self.num_mines)
        )
        self.num_actions = self.rows * self.columns

    def __check_init__(self):
        rows, columns, num_mines = self.rows, self.columns, self.num_mines
        check_count("Minesweeper", 2, rows=rows, columns=columns)
        check_count("Minesweeper", 0, num_mines=num_mines)
        check_max_states("Minesweeper", self.max_states)
        if num_mines >= rows * columns:
            raise ValueError(
                f"Minesweeper(rows={rows}, columns={columns}, num_mines={num_mines}): "
                f"{rows * columns} cells hold 0 to {rows * columns - 1} mines, because at least "
                "one cell is safe."
            )
        if self.pays not in _PAYMENTS:
            known = ", ".join(repr(name) for name in _PAYMENTS)
            raise ValueError(f"Minesweeper(pays={self.pays!r}): must be one of {known}.")
        _dealer(rows, columns, num_mines)  # without Jumanji this fails now, and not at `init`

    def init(self, *, key: PRNGKeyArray) -> MinesweeperState:
        """Draws a uniform layout of mines; all cells are hidden."""
        with default_numerics("jumanji's Minesweeper"):
            dealt = _dealer(self.rows, self.columns, self.num_mines)(raw_key(key))
        mines = jnp.zeros(self.num_actions, jnp.bool_).at[dealt.flat_mine_locations].set(True)
        return MinesweeperState(
            board=dealt.board.astype(jnp.int8),
            mines=mines.reshape(self.rows, self.columns),
            over=jnp.zeros((), jnp.bool_),
        )

    def step(
        self, state: MinesweeperState, action: Int[Array, ""], *, key: PRNGKeyArray
    ) -> tuple[MinesweeperState, Transition]:
        """Opens a cell; `key` is ignored."""
        del key
        action = checked_action(self, action)
        check_state(self, state.board, 2)
        inside = (action >= 0) & (action < self.num_actions)
        # Jumanji's own step uses scatters, which take six times as long. Belief search steps many
        # states, so this matters. The tests compare both.
        rows, columns = (jnp.arange(n, dtype=jnp.int32) for n in (self.rows, self.columns))
        row, column = action // self.columns, action % self.columns
        cell = (rows == row)[:, None] & (columns == column)[None] & inside
        near = (jnp.abs(rows - row) <= 1)[:, None] & (jnp.abs(columns - column) <= 1)[None]
        number = jnp.sum(near & ~cell & state.mines, dtype=jnp.int8)
        plays = jnp.any(cell & (state.board < 0)) & ~state.over
        safe = plays & ~jnp.any(cell & state.mines)
        board = jnp.where(cell & plays, number, state.board)
        won = safe & jnp.all((board < 0) == state.mines)
        unit = 1 / (self.num_actions - self.num_mines) if self.pays == "fraction" else 1.0
        reward = jnp.where(won if self.pays == "win" else safe, jnp.float32(unit), 0.0)
        transition = absorbing_transition(state.over, reward, terminated=~safe | won)
        return MinesweeperState(board, state.mines, transition.last), transition

    def observe(self, state: MinesweeperState) -> Observation:
        """The board and the number of mines."""
        check_state(self, state.board, 2)
        features = {"board": state.board, "num_mines": jnp.int32(self.num_mines)}
        return Observation(features=features, legal=(state.board < 0).reshape(-1))

    def resample(self, state: MinesweeperState, *, key: PRNGKeyArray) -> MinesweeperState:
        """Draws the mines from the exact posterior given the board. A final state is unchanged."""
        (mines,), _ = sample_mines(
            self._shown(state), self.num_mines, 1, key=key, max_states=self.max_states
        )
        return MinesweeperState(
            board=state.board, mines=jnp.where(state.over, state.mines, mines), over=state.over
        )

    def posterior(self, state: MinesweeperState) -> MinePosterior:
        """The exact posterior of the mines given the board. It is undefined for a final state."""
        return mine_posterior(self._shown(state), self.num_mines, max_states=self.max_states)

    def signal(
        self, state: MinesweeperState, action: Int[Array, ""], next_state: MinesweeperState
    ) -> Int[Array, ""]:
        """The number of the opened cell, 9 for a mine, and 0 if no cell was opened."""
        cell = jnp.clip(action, 0, self.num_actions - 1)
        before, after = (x.board.reshape(-1)[cell] for x in (state, next_state))
        number = jnp.where(state.mines.reshape(-1)[cell], _MINE, after.astype(jnp.int32))
        return jnp.where(before == after, 0, number).astype(jnp.int32)

    def won(self, state: MinesweeperState) -> Bool[Array, ""]:
        """Whether all safe cells and no mines are open.

        Jumanji's `is_solved` counts open cells, so it is also true if the last opened cell was a
        mine and one safe cell is hidden.
        """
        return jnp.all((state.board < 0) == state.mines)

    def raw(self, state: MinesweeperState) -> Any:
        """Jumanji's own state, with an arbitrary key."""
        from jumanji.environments.logic.minesweeper.types import State

        (mines,) = jnp.nonzero(state.mines.reshape(-1), size=self.num_mines)
        board = state.board.astype(jnp.int32)
        return State(
            board=board,
            step_count=jnp.sum(board >= 0, dtype=jnp.int32),
            flat_mine_locations=mines.astype(jnp.int32),
            key=raw_key(jax.random.key(0)),
        )

    def text(self, state: MinesweeperState) -> str:
        """The board for a terminal: `.` is a hidden cell, `X` an opened mine and, in a final state,
        `*` any other mine."""
        board, mines, over = (np.asarray(x) for x in (state.board, state.mines, state.over))
        mark = np.where(board < 0, np.where(mines & over, "*", "."), board.astype(str))
        mark = np.where(mines & (board >= 0), "X", mark)
        return "\n".join(" ".join(row) for row in mark)

    def _shown(self, state: MinesweeperState) -> Int8[Array, "rows columns"]:
        # A board with an opened mine contradicts all layouts, so an empty board takes its place.
        return jnp.where(state.over, jnp.int8(-1), state.board)


def _dealer(rows: int, columns: int, num_mines: int) -> Any:
    """Jumanji's generator of layouts."""
    module = import_or_explain("jumanji.environments.logic.minesweeper.generator", "Minesweeper")
    return module.UniformSamplingGenerator(rows, columns, num_mines)
