"""Games of pieces that move from square to square: chess and shogi, large and small.

pgx turns the board to the side to move. Here squares are called as its books do: in chess a1 is
white's lower left corner, in shogi 1a the upper right one as black sees it.
"""

import dataclasses
import functools as ft
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from zero_app import AbstractBoard, Game, Page


_LETTERS = "abcdefghi"
_CHESS_PIECES = ("pawn", "knight", "bishop", "rook", "queen", "king")
_SHOGI_PIECES = (
    *("pawn", "lance", "knight", "silver", "bishop", "rook", "gold", "king"),
    *("promoted pawn", "promoted lance", "promoted knight", "promoted silver", "horse", "dragon"),
)
_ANIMALS = ("chick", "elephant", "giraffe", "lion", "hen")
#: What a direction is called (up, left, right, down, and the jumps of the knight), and the steps of
#: columns and rows to the place that a piece comes from.
_SHOGI_STEPS = {
    "u": (0, 1),
    "ul": (-1, 1),
    "ur": (1, 1),
    "l": (-1, 0),
    "r": (1, 0),
    "d": (0, -1),
    "dl": (-1, -1),
    "dr": (1, -1),
    "jl": (-1, 2),
    "jr": (1, 2),
}


@dataclasses.dataclass(frozen=True)
class Pieces:
    """How a game of pieces is shown.

    **Attributes:**

    - `rows`, `columns`: of the board.
    - `chess`: whether squares are called as in chess, not as in shogi.
    - `kinds`: what the pieces are called, by the number on the board.
    - `letters`: those of its books, for the kinds.
    - `move`: the name of an action in three parts: squares, and what stands before and behind them.
        Squares are pgx's own, from the side to move; the last one is where the piece goes, or is
        dropped, and -1 is no square.
    - `board`: of a state, the numbers on the squares, column by column.
    - `origin`: of a board and an action, the square that the piece comes from, `None` for a drop;
        by default it is one of the squares of the name.
    - `hand`: of a state, the pieces in hand of the side to move and of the other one.
    - `glyphs`: signs of the kinds for the browser, of the side that moves first and of the other
        one. By default the letters, which every machine has.
    """

    rows: int
    columns: int
    chess: bool
    kinds: Sequence[str]
    letters: Sequence[str]
    move: Callable[[int], tuple[str, tuple[int, ...], str]]
    board: Callable[[Any], Any]
    origin: Callable[[np.ndarray, int], int | None] | None = None
    hand: Callable[[Any], Any] | None = None
    glyphs: tuple[Sequence[str], Sequence[str]] | None = None

    def cell(self, square: int, first: bool) -> int:
        """The cell of a square, row by row from the upper left corner as the first side sees it."""
        column, row = divmod(square, self.rows)
        if self.chess:
            row = self.rows - 1 - row if first else row
        else:
            # Shogi's columns are counted from the right, and the other side sees all turned round.
            column = self.columns - 1 - column if first else column
            row = row if first else self.rows - 1 - row
        return self.columns * row + column

    @ft.cached_property
    def names(self) -> list[str]:
        """What the cells are called."""
        cells = (divmod(cell, self.columns) for cell in range(self.rows * self.columns))
        if self.chess:
            return [f"{_LETTERS[column]}{self.rows - row}" for row, column in cells]
        return [f"{self.columns - column}{_LETTERS[row]}" for row, column in cells]

    def name(self, action: int, first: bool) -> str:
        """What an action is called when whoever moves first makes it, or the other side. Moves that
        leave the board have a number only."""
        before, squares, behind = self.move(action)
        if min(squares) < 0:
            return str(action)
        return before + "".join(self.names[self.cell(x, first)] for x in squares) + behind

    def page(self, title: str, board: AbstractBoard, style: Any) -> Page:
        """How the browser shows the game."""
        return Page(
            title,
            board,
            shape=(self.rows, self.columns),
            style=style,
            names=self.names,
            cells=self.cells,
            places=self.places,
            glyphs=self._by_words(board.sides, self.glyphs or (self.letters, self.letters)),
            note=None if self.hand is None else self.in_hand,
        )

    def _by_words(
        self, sides: tuple[str, str], of_sides: tuple[Sequence[str], Sequence[str]]
    ) -> dict[str, str]:
        return {
            f"{side} {kind}": sign
            for side, signs in zip(sides, of_sides, strict=True)
            for kind, sign in zip(self.kinds, signs, strict=True)
        }

    def draw(self, game: Game) -> str:
        """The board in lines, and the pieces in hand. Whoever moved first has the capital letters,
        as in the notations FEN and SFEN."""
        sides, names, words = game.board.sides, self.names, self.cells(game)
        small = [letter.lower() for letter in self.letters]
        signs = {"": "."} | self._by_words(sides, (self.letters, small))
        width = 1 + max(map(len, self.letters))
        line = lambda head, entries: head + "".join(entry.rjust(width) for entry in entries)
        lines = [line(" ", [name[0] for name in names[: self.columns]])]
        for i in range(0, len(names), self.columns):
            lines.append(line(names[i][1], [signs[word] for word in words[i : i + self.columns]]))
        lines.append(f"{sides[0]} in capital letters, {sides[1]} in small ones")
        return "\n".join(lines if self.hand is None else [*lines, self.in_hand(game)])

    def cells(self, game: Game) -> list[str]:
        """The pieces on the cells, in words."""
        first, sides = game.num_plies % 2 == 0, game.board.sides
        words = [""] * (self.rows * self.columns)
        for square, number in enumerate(self._numbers(game)):
            if number:
                side = sides[0] if (number > 0) == first else sides[1]
                words[self.cell(square, first)] = f"{side} {self.kinds[abs(number) - 1]}"
        return words

    def places(self, game: Game, action: int) -> list[int]:
        """The cells of a legal move: from where and to where, or where a piece is dropped."""
        _, squares, _ = self.move(action)
        if self.origin is not None:
            start = self.origin(np.asarray(self.board(game.state.position)), action)
            squares = squares if start is None else (start, *squares)
        return [self.cell(square, game.first_moves) for square in squares]

    def in_hand(self, game: Game) -> str:
        """The pieces that both sides may drop."""
        assert self.hand is not None
        hands = np.asarray(self.hand(game.state.position))
        if game.num_plies % 2:
            hands = hands[::-1]
        said = []
        for side, counts in zip(game.board.sides, hands.tolist(), strict=True):
            held = [f"{n} {self.kinds[i]}" for i, n in enumerate(counts) if n]
            said.append(f"{side}: {', '.join(held) or 'none'}")
        return f"In hand: {'; '.join(said)}"

    def _numbers(self, game: Game) -> list[int]:
        """From 1 the pieces of the side to move, from -1 those of the other, 0 for none."""
        board = np.asarray(self.board(game.state.position))
        if self.chess:
            return board.tolist()
        kinds = len(self.kinds)
        pieces = np.where(board < kinds, board + 1, kinds - 1 - board)
        return np.where(board < 0, 0, pieces).tolist()


def _chess(size: int, board: Callable[[Any], Any]) -> Pieces:
    return Pieces(
        rows=size,
        columns=size,
        chess=True,
        kinds=_CHESS_PIECES,
        letters="PNBRQK",
        move=ft.partial(_chess_move, size),
        board=board,
        glyphs=("\u2659\u2658\u2657\u2656\u2655\u2654", "\u265f\u265e\u265d\u265c\u265b\u265a"),
    )


def _chess_move(size: int, action: int) -> tuple[str, tuple[int, int], str]:
    """Where a move begins and ends, such as e2e4, and the piece of an underpromotion. pgx numbers
    squares column by column from the mover's side, and from each has 9 underpromotions, the queen's
    moves and the knight's."""
    square, plane = divmod(action, 8 * (size - 1) + 17)
    if plane < 9:
        rows, columns, piece = 1, (0, 1, -1)[plane % 3], "rbn"[plane // 3]
    else:
        (rows, columns), piece = _chess_steps(size)[plane - 9], ""
    column, row = divmod(square, size)
    to_column, to_row = column + columns, row + rows
    if not (0 <= to_column < size and 0 <= to_row < size) or (piece and row != size - 2):
        return "", (square, -1), piece
    return "", (square, size * to_column + to_row), piece


@ft.cache
def _chess_steps(size: int) -> list[tuple[int, int]]:
    """Rows and columns of the queen's and the knight's moves, as pgx numbers them."""
    ups, downs = list(range(1, size)), list(range(1 - size, 0))
    still = [0] * (size - 1)
    rows = [*downs, *ups, *still, *still, *downs, *ups, *ups[::-1], *downs[::-1]]
    columns = [*still, *still, *downs, *ups, *downs, *ups, *downs, *ups]
    knight = [(-1, -2), (1, -2), (-2, -1), (2, -1), (-1, 2), (1, 2), (-2, 1), (2, 1)]
    return [*zip(rows, columns, strict=True), *knight]


def _shogi_move(action: int) -> tuple[str, tuple[int], str]:
    """Where a piece goes and in which direction it moves, as its own side sees it, with + for a
    promotion: `7fu`; of a drop the piece as well: `p*5e`."""
    direction, to = divmod(action, 81)
    if direction >= 20:
        return f"{'plnsbrg'[direction - 20]}*", (to,), ""
    return "", (to,), f"{list(_SHOGI_STEPS)[direction % 10]}{'+' if direction >= 10 else ''}"


def _shogi_origin(board: np.ndarray, action: int) -> int | None:
    """A piece comes from the first square on the way that has one."""
    direction, to = divmod(action, 81)
    if direction >= 20:
        return None
    columns, rows = list(_SHOGI_STEPS.values())[direction % 10]
    column, row = divmod(to, 9)
    while True:
        column, row = column + columns, row + rows
        if not (0 <= column < 9 and 0 <= row < 9):
            raise ValueError(f"no piece can make the move {action} of shogi")
        if 0 <= board[9 * column + row] < len(_SHOGI_PIECES):
            return 9 * column + row


def _animal_move(action: int) -> tuple[str, tuple[int, ...], str]:
    """The squares of a move such as 2c2b, and of a drop the piece: `c*2b`."""
    direction, square = divmod(action, 12)
    if direction >= 8:
        return f"{'ceg'[direction - 8]}*", (square,), ""
    steps = [(-1, -1), (-1, 0), (-1, 1), (0, -1), (0, 1), (1, -1), (1, 0), (1, 1)]
    column, row = square // 4 + steps[direction][0], square % 4 + steps[direction][1]
    inside = 0 <= column < 3 and 0 <= row < 4
    return "", (square, 4 * column + row if inside else -1), ""


#: By environment.
PIECES = {
    "pgx/chess": _chess(8, lambda position: position._x.board),
    "pgx/gardner_chess": _chess(5, lambda position: position._board),
    "pgx/shogi": Pieces(
        rows=9,
        columns=9,
        chess=False,
        kinds=_SHOGI_PIECES,
        letters=(*"PLNSBRGK", "+P", "+L", "+N", "+S", "+B", "+R"),
        move=_shogi_move,
        board=lambda position: position._x.board,
        origin=_shogi_origin,
        hand=lambda position: position._x.hand,
    ),
    "pgx/animal_shogi": Pieces(
        rows=4,
        columns=3,
        chess=False,
        kinds=_ANIMALS,
        letters="CEGLH",
        move=_animal_move,
        board=lambda position: position._board,
        hand=lambda position: position._hand,
    ),
}
