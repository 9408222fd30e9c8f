"""Squares, moves and drawings of positions.

Columns are A to H from left to right and rows 1 to 8 from top to bottom, so A1 is the upper left
corner and action 0. Action `8 * (row - 1) + column` is a disc, action 64 a pass.
"""

import dataclasses
from typing import Literal

import numpy as np
from jaxtyping import Bool, Int8
from rich.text import Text

from zero_train.app import AbstractBoard, Game, Sgf


SIZE = 8
PASS = SIZE * SIZE
COLUMNS = "ABCDEFGH"

Colour = Literal["black", "white"]


@dataclasses.dataclass(frozen=True, eq=False)
class Position:
    """A position.

    **Attributes:**

    - `black`, `white`: masks of the discs; row 0 is the top row.
    - `colour`: the colour to move.
    - `legal`: the legal actions in ascending order; empty if the game is over.
    - `over`: whether the game is over.
    """

    black: Bool[np.ndarray, "8 8"]
    white: Bool[np.ndarray, "8 8"]
    colour: Colour
    legal: tuple[int, ...]
    over: bool

    @property
    def margin(self) -> int:
        """Black discs minus white discs."""
        return int(self.black.sum()) - int(self.white.sum())

    @property
    def discs(self) -> Int8[np.ndarray, "8 8"]:
        """1 black, -1 white, 0 empty."""
        return self.black.astype(np.int8) - self.white.astype(np.int8)

    @property
    def result(self) -> str:
        """`"black wins by 12"`, `"white wins by 4"` or `"draw"`, by the discs on the board."""
        if self.margin == 0:
            return "draw"
        return f"{'black' if self.margin > 0 else 'white'} wins by {abs(self.margin)}"


def draw(position: Position, last: int | None = None) -> str:
    """A drawing in ASCII: `X` black, `O` white, `*` a legal move, `(X)` the last move."""
    lines = ["    " + "  ".join(COLUMNS)]
    for row in range(SIZE):
        cells = []
        for column in range(SIZE):
            action = SIZE * row + column
            mark = "."
            if position.black[row, column]:
                mark = "X"
            elif position.white[row, column]:
                mark = "O"
            elif action in position.legal:
                mark = "*"
            cells.append(f"({mark})" if action == last else f" {mark} ")
        lines.append(f"{row + 1:>2} {''.join(cells)}".rstrip())
    return "\n".join([*lines, caption(position, "X", "O")])


def draw_rich(position: Position, last: int | None = None) -> Text:
    """A drawing in colour. Dots are legal moves, and the last move has a different background."""
    text = Text("    " + "  ".join(COLUMNS) + "\n", no_wrap=True)
    for row in range(SIZE):
        text.append(f"{row + 1:>2} ")
        for column in range(SIZE):
            action = SIZE * row + column
            ground = "dark_orange3" if action == last else "dark_green"
            if position.black[row, column]:
                text.append(" ● ", f"black on {ground}")
            elif position.white[row, column]:
                text.append(" ● ", f"bright_white on {ground}")
            else:
                text.append(" · " if action in position.legal else "   ", f"white on {ground}")
        text.append("\n")
    return text.append(caption(position, "", ""))


def caption(position: Position, black: str, white: str) -> str:
    """The disc counts, and the colour to move or the result; `black` and `white` are the discs'
    symbols."""
    counts = "   ".join(
        f"{colour}{f' ({sign})' if sign else ''} {int(discs.sum())}"
        for colour, sign, discs in (
            ("black", black, position.black),
            ("white", white, position.white),
        )
    )
    return f"   {counts}   {position.result if position.over else f'{position.colour} to move'}"


def position_of(game: Game) -> Position:
    """The current position of a game, in which the colours take turns."""
    black = game.num_plies % 2 == 0
    own, opponent = game.features[..., 0], game.features[..., 1]
    discs = (own, opponent) if black else (opponent, own)
    return Position(*discs, "black" if black else "white", game.legal, game.over)


class Board(AbstractBoard):
    """The board in the terminal."""

    sides = ("black", "white")
    example = "d3"
    about = "play on that square (column A-H, row 1-8 from the top)"
    record = Sgf(SIZE, 2, lambda game: position_of(game).margin)

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
        return (draw if plain else draw_rich)(position_of(game), game.action)

    def result(self, game: Game) -> str:
        return position_of(game).result
