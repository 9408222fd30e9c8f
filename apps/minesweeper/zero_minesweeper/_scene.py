"""Drawings of a board for a terminal, in colour or in ASCII, without JAX."""

import dataclasses
import re
import string
from itertools import product

import numpy as np
from jaxtyping import Bool, Float, Int8
from rich.color import blend_rgb
from rich.color_triplet import ColorTriplet
from rich.style import Style
from rich.text import Text


# These greys are among the 256 colours of older terminals. Neighbouring cells have different ones.
_FLOORS, _COVERS, _LAST = ("#1c1c1c", "#262626"), ("#4e4e4e", "#585858"), "#3a3a6c"
_NUMBERS = (
    "#9e9e9e",
    "#6ea8fe",
    "#5fd787",
    "#ff6b6b",
    "#c792ea",
    "#ffb454",
    "#56d4dd",
    "#e4e4e4",
    "#9e9e9e",
)
_SAFE = "#00875f"
# The colours of risks; most risks of good play are small.
_RISKS = (
    (0.0, ColorTriplet(0xD7, 0xD7, 0xAF)),
    (0.1, ColorTriplet(0xD7, 0xAF, 0x5F)),
    (0.25, ColorTriplet(0xFF, 0xAF, 0x00)),
    (0.5, ColorTriplet(0xFF, 0x5F, 0x00)),
    (1.0, ColorTriplet(0xAF, 0x00, 0x00)),
)
# `a` to `z`, then `aa`; more than any board has.
_COLUMNS = [*string.ascii_lowercase, *map("".join, product(string.ascii_lowercase, repeat=2))]
_MARK = Style(color="#000000", bgcolor="#ffffff", bold=True)
#: Of a cell, with percents and a space between them or without.
_WIDTHS = {False: (3, 2, 1), True: (4, 3, 2, 1)}
_MEANINGS = (("*", "mine"), ("X", "opened mine"), ("F", "your flag"), ("x", "wrong flag"))


@dataclasses.dataclass(frozen=True, eq=False)
class Picture:
    """The contents of a drawing.

    **Attributes:**

    - `board`: the visible board; hidden cells are -1.
    - `heat`: the probability of a mine in each cell, NaN if unknown; `None` to leave it out.
    - `flags`: the cells with a flag.
    - `mark`: the next cell to be opened.
    - `last`: the last opened cell.
    - `mines`: the mines, at the end only.
    """

    board: Int8[np.ndarray, "rows columns"]
    heat: Float[np.ndarray, "rows columns"] | None = None
    flags: frozenset[int] = frozenset()
    mark: int | None = None
    last: int | None = None
    mines: Bool[np.ndarray, "rows columns"] | None = None


def name(cell: int, columns: int) -> str:
    """`"b3"` for the cell in the second column of the third row from the top. Column `aa` follows
    `z`."""
    return f"{_COLUMNS[cell % columns]}{cell // columns + 1}"


def parse(text: str, rows: int, columns: int) -> list[int]:
    """The cells of a text such as `b3`, `b3 c4`, or `3 2` (row and column); another text raises a
    `ValueError`."""
    words = text.lower().replace(",", " ").split()
    if len(words) == 2 and all(re.fullmatch("[0-9]{1,6}", word) for word in words):
        places = [(int(words[0]), int(words[1]))]
    else:
        # A word that is no name stands for a place outside the board.
        found = [re.fullmatch("([a-z]{1,2})([0-9]{1,6})", word) for word in words]
        places = [(int(x[2]), _COLUMNS.index(x[1]) + 1) if x else (0, 0) for x in found]
    if not places or not all(1 <= i <= rows and 1 <= j <= columns for i, j in places):
        last = name(rows * columns - 1, columns)
        raise ValueError(
            f'"{text.strip()}" is not a cell: give a1 to {last}, or row and column such as 3 2'
        )
    return [columns * (row - 1) + column - 1 for row, column in places]


def percent(probability: float) -> str:
    """A percentage of at most three characters: `*` is a certain mine, `?` an unknown risk."""
    if np.isnan(probability):
        return "?"
    if probability > 1 - 1e-6:
        return "*"
    whole = round(100 * probability)
    return "<1%" if whole < 1 and probability > 0 else f"{min(whole, 99)}%"


def width_of(columns: int, rows: int, cell: int) -> int:
    """The width of a board with cells of this width."""
    return len(str(rows)) + 1 + cell * columns


def draw(picture: Picture, *, width: int, plain: bool) -> Text:
    """The board with the names of its rows and columns, and the widest cells that fit.

    Without colours `>` is the mark, and the last opened cell is in parentheses. If there is no room
    for percents, `o` is a safe cell.
    """
    rows, columns = picture.board.shape
    widths = _WIDTHS[picture.heat is not None]
    size = next((w for w in widths if width_of(columns, rows, w) <= width), 1)
    margin = len(str(rows))
    text = _header(columns, size, margin, plain)
    for row in range(rows):
        text.append(f"\n{row + 1:>{margin}} ", "dim")
        cells = range(columns * row, columns * (row + 1))
        signs = [(cell, _sign(picture, cell)) for cell in cells]
        if plain:
            line = "".join(_plain(picture, cell, sign, size) for cell, sign in signs)
            text.append(line.rstrip())
            continue
        for cell, sign in signs:
            text.append(_coloured(sign, size).ljust(size), _style(picture, cell, sign))
    return text


def legend(picture: Picture) -> str:
    """The meanings of the letters on a board."""
    signs = {_sign(picture, cell) for cell in range(picture.board.size)}
    said = [f"{sign} {meaning}" for sign, meaning in _MEANINGS if sign in signs]
    return "   ".join(said)


def _header(columns: int, size: int, margin: int, plain: bool) -> Text:
    """The names of the columns, written downwards if they are too long."""
    names = _COLUMNS[:columns]
    longest = len(names[-1])
    lines = [names]
    if longest >= max(size, 2):
        names = [one.rjust(longest) for one in names]
        lines = [[one[i] for one in names] for i in range(longest)]
    fit = lambda one: one.rjust(size) if plain and size > 3 else one.center(size)
    drawn = [" " * (margin + 1) + "".join(map(fit, line)).rstrip() for line in lines]
    text = Text(no_wrap=True, overflow="ignore")
    return text.append("\n".join(drawn), "dim")


def _sign(picture: Picture, cell: int) -> str:
    shown, flagged = int(picture.board.flat[cell]), cell in picture.flags
    mine = picture.mines is not None and bool(picture.mines.flat[cell])
    if shown >= 0:
        return "X" if mine else str(shown)
    if flagged:
        return "F" if mine or picture.mines is None else "x"
    if picture.mines is not None:
        return "*" if mine else "."
    return "." if picture.heat is None else percent(float(picture.heat.flat[cell]))


def _plain(picture: Picture, cell: int, sign: str, size: int) -> str:
    if sign[-1] == "%" and size < 3:
        # There is no room for two digits.
        sign = "o" if sign == "0%" else "."
    if cell == picture.mark and size > 1:
        return ">" + (sign if len(sign) < size else sign[:-1]).rjust(size - 1)
    if cell == picture.last and size > 2:
        return f"({sign})".rjust(size)
    # In the middle, apart from percents on both sides.
    return sign.center(size) if size == 3 and len(sign) == 1 else sign.rjust(size)


def _coloured(sign: str, size: int) -> str:
    if sign[-1] == "%":
        return "" if size == 1 else sign.rjust(size) if size > 2 else sign[:-1].rjust(size)
    return ("" if sign in ("0", ".") else sign).center(size)


def _style(picture: Picture, cell: int, sign: str) -> Style:
    shade = sum(divmod(cell, picture.board.shape[1])) % 2
    if cell == picture.mark:
        return _MARK
    if sign == "X":
        return Style(color="#ffffff", bgcolor="#d70000", bold=True)
    if picture.board.flat[cell] >= 0:
        floor = _LAST if cell == picture.last else _FLOORS[shade]
        return Style(color=_NUMBERS[int(sign)], bgcolor=floor, bold=sign != "0")
    if picture.mines is not None:
        colours = {"*": "#ff8787", "F": "#87ff87", "x": "#ff5f5f"}
        return Style(color=colours.get(sign), bgcolor=_COVERS[shade], bold=True)
    if picture.heat is None or np.isnan(picture.heat.flat[cell]):
        return Style(color="#ffd75f", bgcolor=_COVERS[shade], bold=sign == "F")
    return _warmth(float(picture.heat.flat[cell]), bold=sign in "F*")


def _warmth(risk: float, *, bold: bool) -> Style:
    if risk == 0:
        return Style(color="#ffffff", bgcolor=_SAFE, bold=True)
    for (low, cold), (high, hot) in zip(_RISKS, _RISKS[1:], strict=False):
        if risk <= high:
            colour = blend_rgb(cold, hot, (risk - low) / (high - low)).hex
            dark = "#ffffff" if risk > 0.6 else "#000000"
            return Style(color=dark, bgcolor=colour, bold=bold)
    raise ValueError(f"{risk} is no probability")
