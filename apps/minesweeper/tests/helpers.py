"""Small boards, and what is so of them by listing all layouts."""

import io
import itertools
from typing import Any

import jax.random as jr
import numpy as np
from rich.console import Console

from zero_envs import Minesweeper
from zero_minesweeper._config import Config
from zero_minesweeper._game import Game
from zero_minesweeper._table import Table


SIZE, MINES = 4, 3
SMALL = Minesweeper(SIZE, SIZE, MINES, max_states=32)
TABLE = Table(SMALL, Config(layouts=64, player_simulations=16))


def numbers(mines: np.ndarray) -> np.ndarray:
    """Of mines around each cell; -1 for a mine."""
    rows, columns = mines.shape[-2:]
    padded = np.pad(mines.astype(int), [(0, 0)] * (mines.ndim - 2) + [(1, 1), (1, 1)])
    around = sum(padded[..., i : i + rows, j : j + columns] for i in range(3) for j in range(3))
    return np.where(mines, -1, around)


def all_layouts(num_mines: int = MINES) -> np.ndarray:
    cells = list(itertools.combinations(range(SIZE * SIZE), num_mines))
    layouts = np.zeros((len(cells), SIZE * SIZE), bool)
    layouts[np.arange(len(cells))[:, None], cells] = True
    return layouts.reshape(-1, SIZE, SIZE)


LAYOUTS = all_layouts()
NUMBERS = numbers(LAYOUTS)


def exact(board: np.ndarray) -> np.ndarray:
    """The probability of a mine in each cell, given what is shown."""
    fits = ((NUMBERS == board) | (board < 0)).all(axis=(1, 2))
    assert fits.any()
    return LAYOUTS[fits].mean(axis=0)


def hidden_mines(number: int, seed: int, env: Minesweeper = SMALL) -> np.ndarray:
    """Where they are on a board that is not over."""
    return np.asarray(Game(env, number, key=jr.key(seed))._state.mines)


def paper(width: int = 100, **settings: Any) -> tuple[Console, io.StringIO]:
    """A console to write on, and what is written there."""
    out = io.StringIO()
    settings = {"force_terminal": False, "highlight": False} | settings
    return Console(file=out, width=width, **settings), out
