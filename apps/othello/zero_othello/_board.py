"""Squares, moves and drawings of Othello.

Columns are A to H from left to right and rows 1 to 8 from top to bottom, so A1 is the upper left
corner and action 0. Action `8 * (row - 1) + column` is a disc, action 64 a pass.
"""

from typing import Literal

import numpy as np
from jaxtyping import Int8
from rich.text import Text

from zero_app import AbstractBoard, Game, Sgf


SIZE = 8
PASS = SIZE * SIZE
COLUMNS = "ABCDEFGH"

Colour = Literal["black", "white"]


def discs(game: Game) -> Int8[np.ndarray, "8 8"]:
    """1 black, -1 white, 0 empty; row 0 is the top row. The colours take turns."""
    own, opponent = (game.features[..., plane].astype(np.int8) for plane in range(2))
    return (own - opponent) * (1 if game.num_plies % 2 == 0 else -1)


class Board(AbstractBoard):
    """The board in the terminal."""

    sides = ("black", "white")
    example = "d3"
    about = "play on that square (column A-H, row 1-8 from the top)"
    record = Sgf(SIZE, 2, lambda game: int(discs(game).sum()))

    def name(self, action: int, first: bool = True) -> str:
        """`"D3"` for a square, `"pass"` for a pass."""
        if action == PASS:
            return "pass"
        if not 0 <= action < PASS:
            raise ValueError(f"action {action} is out of range: use 0 to 63, or 64 for a pass")
        return f"{COLUMNS[action % SIZE]}{action // SIZE + 1}"

    def action(self, name: str, first: bool = True) -> int:
        """The action of a text such as `d3`, `D3` or `pass`. It may be illegal in a position.

        **Raises:** `ValueError` for other texts.
        """
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
        board = discs(game)
        text = Text("    " + "  ".join(COLUMNS) + "\n", no_wrap=True)
        for row in range(SIZE):
            text.append(f"{row + 1:>2} ")
            for column in range(SIZE):
                action, disc = SIZE * row + column, int(board[row, column])
                ground = "dark_orange3" if action == game.action else "dark_green"
                style = f"{('white', 'black', 'bright_white')[disc]} on {ground}"
                mark = ("*" if plain else "·") if action in game.legal else "." if plain else " "
                if disc:
                    mark = "X O"[1 - disc] if plain else "●"
                last = plain and action == game.action
                text.append(f"({mark})" if last else f" {mark} ", style)
            text.append("\n")
        counts = "   ".join(
            f"{colour}{f' ({sign})' * plain} {int(np.sum(board == disc))}"
            for colour, sign, disc in (("black", "X", 1), ("white", "O", -1))
        )
        turn = self.result(game) if game.over else f"{game.mover} to move"
        text.append(f"   {counts}   {turn}")
        return "\n".join(map(str.rstrip, text.plain.split("\n"))) if plain else text

    def result(self, game: Game) -> str:
        """`"black wins by 12"`, `"white wins by 4"` or `"draw"`, by the discs on the board."""
        margin = int(discs(game).sum())
        if margin == 0:
            return "draw"
        return f"{self.sides[0 if margin > 0 else 1]} wins by {abs(margin)}"
