"""Squares, moves and drawings of Othello.

Columns are A to H from left to right and rows 1 to 8 from top to bottom, so A1 is the upper left
corner and action 0, also over the Go Text Protocol, unlike in Go. Action `8 * (row - 1) + column`
is a disc, action 64 a pass, which is legal only for a side without a move.
"""

import functools as ft
import pathlib
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np
from jaxtyping import PRNGKeyArray
from rich.text import Text

from zero_app import AbstractBoard, Frame, Game, game_frames, Page, Sgf, Trained

from ._config import Config


SIZE = 8
PASS = SIZE * SIZE
COLUMNS = "ABCDEFGH"
#: From so many empty squares on games are played exactly, which takes milliseconds.
SOLVED = 12


def solve(game: Game) -> dict[int, int] | None:
    """The difference of discs that each move ends with, from 12 empty squares on. Needs the extra
    `judges`."""
    solver, discs = _solver(), np.ravel(game.stones)
    if np.sum(discs == 0) > SOLVED:
        return None
    mine = 1 if game.first_moves else -1
    own, theirs, empty = (
        sum(1 << i for i in np.flatnonzero(discs == disc).tolist()) for disc in (mine, -mine, 0)
    )
    return solver(16).scores(own, theirs, empty)


@ft.cache
def _solver() -> Any:
    """`Solver`, compiled, which takes a second or more. No clock of a later move should count it,
    so the first position of a game has to wait for it."""
    from ._solver import Solver  # numba

    Solver(1).scores(1 << 28 | 1 << 35, 1 << 27 | 1 << 36, 0b111111 << 16)
    return Solver


def _margin(game: Game) -> int:
    """Black's lead in discs. In the end the empty squares are the winner's, as in tournaments."""
    lead = int(game.stones.sum())
    return lead + game.over * int(np.sign(lead) * np.sum(game.stones == 0))


class Board(AbstractBoard):
    """The board, on which the score counts discs."""

    sides = ("black", "white")
    example = "d3"
    about = "play on that square (column A-H, row 1-8 from the top)"
    record: Sgf = Sgf(SIZE, 2, _margin)

    def __init__(self):
        if find_spec("numba") is None:
            self.unsolved = (
                f"The last {SOLVED} moves are not played exactly, which needs numba: begin the "
                "command with `uv run --extra judges` or install it with `pip install numba`."
            )
        else:
            self.solve = solve
        # A win by all 64 discs pays the most, see `zero_envs.Othello`.
        self.worth = lambda scores, most: np.sign(scores) + (most - 1) / 64 * scores
        self.page = Page("Othello", self, shape=(SIZE, SIZE))

    def name(self, action: int, first: bool = True) -> str:
        """`"D3"` for a square, `"pass"` for a pass."""
        if action == PASS:
            return "pass"
        if not 0 <= action < PASS:
            raise ValueError(f"action {action} is out of range: use 0 to 63, or 64 for a pass")
        return f"{COLUMNS[action % SIZE]}{action // SIZE + 1}"

    def action(self, name: str, first: bool = True) -> int:
        move = name.strip().upper()
        if move == "PASS":
            return PASS
        if len(move) == 2 and move[0] in COLUMNS and move[1] in "12345678":
            return SIZE * (int(move[1]) - 1) + COLUMNS.index(move[0])
        raise ValueError(
            f'"{name.strip()}" is not a square: give a1 to h8 (column, then row) or pass'
        )

    def draw(self, game: Game, *, plain: bool) -> str | Text:
        """A drawing with the legal moves, the last move, the numbers of discs, and the colour to
        move or the result. Without colours `X` is black, `O` white, `*` a legal move and `(X)` the
        last one."""
        discs = game.stones
        text = Text("    " + "  ".join(COLUMNS) + "\n", no_wrap=True)
        for row in range(SIZE):
            text.append(f"{row + 1:>2} ")
            for column in range(SIZE):
                action, disc = SIZE * row + column, int(discs[row, column])
                ground = "dark_orange3" if action == game.action else "dark_green"
                style = f"{('white', 'black', 'bright_white')[disc]} on {ground}"
                mark = ("*" if plain else "·") if action in game.legal else "." if plain else " "
                if disc:
                    mark = "X O"[1 - disc] if plain else "●"
                last = plain and action == game.action
                text.append(f"({mark})" if last else f" {mark} ", style)
            text.append("\n")
        counts = "   ".join(
            f"{colour}{f' ({sign})' * plain} {int(np.sum(discs == disc))}"
            for colour, sign, disc in (("black", "X", 1), ("white", "O", -1))
        )
        turn = self.result(game) if game.over else f"{game.mover} to move"
        text.append(f"   {counts}   {turn}")
        return "\n".join(map(str.rstrip, text.plain.split("\n"))) if plain else text

    def result(self, game: Game) -> str:
        """`"black wins by 12"`, `"white wins by 4"` or `"draw"`; empty squares are the winner's."""
        return self.record.result(game)


def board(trained: Trained[Config], picture: pathlib.Path) -> Board:
    """How the game of a player is shown: a terminal can show all of it."""
    del trained, picture
    return Board()


def episode(trained: Trained[Config], key: PRNGKeyArray) -> Iterator[Frame]:
    """The pictures of a game for the report."""
    return game_frames(trained, Board(), key)
