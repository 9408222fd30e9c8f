"""Jumanji's Minesweeper, whose mines can be drawn anew from the exact posterior."""

import functools as ft
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int, Int8, PRNGKeyArray

from ._environment import AbstractHiddenEnvironment, Observation, Transition
from ._foreign import raw_key
from ._jumanji import JumanjiEnvironment
from ._mine_posterior import check_max_states, mine_posterior, MinePosterior, sample_mines


# What `signal` says of a mine; below it are the numbers.
_MINE = 9
_PAYMENTS = ("cells", "fraction", "win")


class MinesweeperState(eqx.Module):
    """One position. Final where `over`.

    **Attributes:**

    - `board`: what the player sees: -1 where hidden, else how many neighbours are mines. A mine
        that was stepped on shows its number too, as in Jumanji.
    - `mines`: what the player does not see.
    """

    board: Int8[Array, "*axes rows columns"]
    mines: Bool[Array, "*axes rows columns"]
    over: Bool[Array, "*axes"]


class Minesweeper(AbstractHiddenEnvironment[MinesweeperState]):
    """Jumanji's `Minesweeper-v0` for any board: same deals, rules and rewards.

    Action `columns * row + column` opens one cell, which shows how many of its neighbours are
    mines; nothing opens by itself, and the first cell may be a mine. A safe cell pays 1. A mine, a
    cell that is open already and the last safe cell end the episode, the first two paying 0. So
    the return is the number of safe cells opened; the player has [`won`][zero_envs.Minesweeper.won]
    where it is all of them. With `pays="win"` the return is 1 for that and else 0.

    Unlike in Jumanji, final states are absorbing, and an action outside the board is refused
    where its value is at hand and else ends the episode, paying 0.

    The player sees `{"board": int8[rows, columns], "num_mines": int32}`, the board with -1 where
    hidden. Hidden cells are legal.
    """

    rows: int
    columns: int
    num_mines: int
    pays: str
    max_states: int
    num_actions: int
    num_signals: int
    hidden: bool
    _jumanji: JumanjiEnvironment

    def __init__(
        self,
        rows: int = 10,
        columns: int = 10,
        num_mines: int = 10,
        *,
        pays: str = "cells",
        max_states: int = 512,
    ):
        """**Arguments:**

        - `rows`, `columns`: at least 2 each.
        - `num_mines`: fewer than cells.
        - `pays`: `"cells"` is 1 for a safe cell; `"fraction"` its share of the safe cells, so that
            the return is the fraction explored, 1 for a win; `"win"` 1 for the last safe cell.
        - `max_states`: a power of two, as for [`zero_envs.sample_mines`][], which `resample` calls.
            Where a board needs more, all cells of what `resample` returns are mines.

        **Raises:** `ValueError` naming the figures for a board that there is not; `ImportError`
        naming the package to install.
        """
        call = f"Minesweeper(rows={rows}, columns={columns}, num_mines={num_mines})"
        check_max_states("Minesweeper", max_states)
        if rows < 2 or columns < 2:
            raise ValueError(f"{call}: a board has at least 2 rows and 2 columns.")
        if not 0 <= num_mines < rows * columns:
            raise ValueError(
                f"{call}: {rows * columns} cells hold 0 to {rows * columns - 1} mines, for one "
                "cell at least is safe."
            )
        if pays not in _PAYMENTS:
            known = ", ".join(repr(name) for name in _PAYMENTS)
            raise ValueError(f"Minesweeper(pays={pays!r}): must be one of {known}.")
        self.rows = rows
        self.columns = columns
        self.num_mines = num_mines
        self.pays = pays
        self.max_states = max_states
        self.num_actions = rows * columns
        self.num_signals = _MINE + 1
        self.hidden = True
        self._jumanji = _jumanji(rows, columns, num_mines)

    def init(self, *, key: PRNGKeyArray) -> MinesweeperState:
        """Nothing is open; every layout is as likely."""
        dealt = self._jumanji.init(key=key).position
        mines = jnp.zeros(self.num_actions, jnp.bool_).at[dealt.flat_mine_locations].set(True)
        return MinesweeperState(
            board=dealt.board.astype(jnp.int8),
            mines=mines.reshape(self.rows, self.columns),
            over=jnp.zeros((), jnp.bool_),
        )

    def step(
        self, state: MinesweeperState, action: Int[Array, ""], *, key: PRNGKeyArray
    ) -> tuple[MinesweeperState, Transition]:
        """Opens a cell; `key` decides nothing.

        **Raises:** `ValueError` for an action outside the board, where its value is at hand.
        """
        del key
        action = jnp.asarray(action).astype(jnp.int32)
        if not isinstance(action, Tracer) and not 0 <= action < self.num_actions:
            raise ValueError(
                f"Minesweeper: action {action} is outside the board of {self.rows} x "
                f"{self.columns} cells; actions are 0 to {self.num_actions - 1}."
            )
        inside = (action >= 0) & (action < self.num_actions)
        # Not Jumanji's own step, which the tests hold this one to: a planner steps a state for
        # every particle of a belief, and its scatters cost six times as much.
        rows, columns = (jnp.arange(n, dtype=jnp.int32) for n in (self.rows, self.columns))
        row, column = action // self.columns, action % self.columns
        cell = (rows == row)[:, None] & (columns == column)[None] & inside
        near = (jnp.abs(rows - row) <= 1)[:, None] & (jnp.abs(columns - column) <= 1)[None]
        number = jnp.sum(near & ~cell & state.mines, dtype=jnp.int8)
        plays = jnp.any(cell & (state.board < 0)) & ~state.over
        safe = plays & ~jnp.any(cell & state.mines)
        board = jnp.where(cell & plays, number, state.board)
        won = safe & jnp.all((board < 0) == state.mines)
        last = ~safe | won
        transition = Transition(
            reward=jnp.where(won if self.pays == "win" else safe, self._share, 0.0),
            discount=jnp.where(last, 0.0, 1.0).astype(jnp.float32),
            last=last,
        )
        return MinesweeperState(board=board, mines=state.mines, over=last), transition

    def observe(self, state: MinesweeperState) -> Observation:
        """The visible board and the number of mines."""
        features = {"board": state.board, "num_mines": jnp.int32(self.num_mines)}
        return Observation(features=features, legal=(state.board < 0).reshape(-1))

    def resample(self, state: MinesweeperState, *, key: PRNGKeyArray) -> MinesweeperState:
        """Other mines, each layout that shows this board alike. A final state stays as it is."""
        (mines,), _ = sample_mines(
            self._shown(state), self.num_mines, 1, key=key, max_states=self.max_states
        )
        return MinesweeperState(
            board=state.board,
            mines=jnp.where(state.over, state.mines, mines),
            over=state.over,
        )

    def posterior(self, state: MinesweeperState) -> MinePosterior:
        """What the visible board says of the mines, exactly; means nothing of a final state."""
        return mine_posterior(self._shown(state), self.num_mines, max_states=self.max_states)

    def signal(
        self, state: MinesweeperState, action: Int[Array, ""], next_state: MinesweeperState
    ) -> Int[Array, ""]:
        """The number that the cell shows, 9 for a mine; 0 where nothing was opened."""
        cell = jnp.clip(action, 0, self.num_actions - 1)
        before, after = (x.board.reshape(-1)[cell] for x in (state, next_state))
        number = jnp.where(state.mines.reshape(-1)[cell], _MINE, after.astype(jnp.int32))
        return jnp.where(before == after, 0, number).astype(jnp.int32)

    def won(self, state: MinesweeperState) -> Bool[Array, ""]:
        """Every safe cell is open and no mine is.

        Jumanji's `is_solved` counts open cells, and so calls a game won whose last cell but one
        was a mine.
        """
        return jnp.all((state.board < 0) == state.mines)

    def raw(self, state: MinesweeperState) -> Any:
        """Jumanji's own state, for its viewers; its key is that of no episode."""
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
        """The board for a terminal: `.` hidden; at the end `*` mines, `X` the one stepped on."""
        board, mines, over = (np.asarray(x) for x in (state.board, state.mines, state.over))
        mark = np.where(board < 0, np.where(mines & over, "*", "."), board.astype(str))
        mark = np.where(mines & (board >= 0), "X", mark)
        return "\n".join(" ".join(row) for row in mark)

    def _shown(self, state: MinesweeperState) -> Int8[Array, "rows columns"]:
        # A board on which a mine was stepped on shows what no layout shows.
        return jnp.where(state.over, jnp.int8(-1), state.board)

    @property
    def _share(self) -> Float[Array, ""]:
        """What the player is paid at a time."""
        cells = self.num_actions - self.num_mines
        return jnp.float32(1 / cells if self.pays == "fraction" else 1.0)


@ft.cache
def _jumanji(rows: int, columns: int, num_mines: int) -> JumanjiEnvironment:
    """Always the same object for the same game, so that nothing is traced twice."""
    try:
        from jumanji.environments.logic.minesweeper import env, generator
    except ImportError as error:
        raise ImportError(
            "Minesweeper needs jumanji, which is not installed: install zero-envs with its extra "
            "`jumanji`."
        ) from error
    return JumanjiEnvironment(
        env.Minesweeper(generator=generator.UniformSamplingGenerator(rows, columns, num_mines))
    )
