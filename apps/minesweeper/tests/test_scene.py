"""Boards as they are drawn, and cells as they are named."""

import re

import numpy as np
import pytest

from zero_minesweeper._scene import draw, legend, name, parse, percent, Picture

from .helpers import paper


@pytest.mark.parametrize("columns", [2, 26, 27, 30, 60])
def test_every_cell_has_a_name_of_its_own(columns):
    cells = range(3 * columns)
    names = [name(cell, columns) for cell in cells]
    assert len(set(names)) == len(names)
    assert [parse(one, 3, columns) for one in names] == [[cell] for cell in cells]
    assert [parse(f"{cell // columns + 1} {cell % columns + 1}", 3, columns) for cell in cells] == [
        [cell] for cell in cells
    ]


def test_names_that_people_type():
    assert name(62, 30) == "c3" and name(59, 30) == "ad2"
    assert parse(" B3 c1,a2 ", 10, 10) == [21, 2, 10]
    assert parse("3, 2", 10, 10) == parse("b3", 10, 10)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "b",
        "3",
        "k1",
        "a11",
        "a0",
        "0 1",
        "1 2 3",
        "b3 z9",
        "[bold]",
        "a²",
        "a" * 99,
        "a" + "9" * 99,
    ],
)
def test_what_is_no_cell_gets_one_line(text):
    with pytest.raises(
        ValueError, match=r"is not a cell: give a1 to j10, or row and column"
    ) as found:
        parse(text, 10, 10)
    assert "\n" not in str(found.value)


def test_only_what_is_certain_looks_certain():
    assert [percent(p) for p in (0, 1e-4, 0.1, 0.996, 1, np.nan)] == [
        "0%", "<1%", "10%", "99%", "*", "?",
    ]  # fmt: skip


def made(rows: int, columns: int) -> Picture:
    """A picture with everything on it."""
    rng = np.random.default_rng(0)
    board = rng.integers(-1, 4, (rows, columns)).astype(np.int8)
    heat = np.where(board < 0, rng.choice([0, 0.002, 0.1, 0.5, 1], board.shape), 0.0)
    flag, mark, *_ = np.flatnonzero(board < 0)
    (last, *_) = np.flatnonzero(board >= 0)
    return Picture(board, heat, frozenset([int(flag)]), int(mark), int(last))


COLOURED = {"force_terminal": True, "color_system": "truecolor", "no_color": False}


@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.parametrize(
    ("rows", "columns", "width"),
    [(10, 10, 80), (10, 10, 24), (16, 30, 100), (16, 30, 80), (16, 30, 60)],
)
def test_a_board_fits(rows, columns, width, plain):
    picture = made(rows, columns)
    text = draw(picture, width=width, plain=plain)
    lines = text.plain.splitlines()
    assert max(map(len, lines)) <= width and text.plain.isascii()
    assert [int(line.split()[0]) for line in lines[-rows:]] == list(range(1, rows + 1))
    console, out = paper(width, **({} if plain else COLOURED))
    console.print(text)
    # One line for each, whatever the console makes of it.
    assert out.getvalue().count("\n") == len(lines)
    assert ("\x1b[" in out.getvalue()) != plain


def test_plain_text_says_all_of_a_cell():
    board = np.asarray([[-1, -1, 2], [-1, -1, -1]], np.int8)
    heat = np.asarray([[0.0, 0.25, 0.0], [1.0, 0.004, np.nan]])
    text = draw(Picture(board, heat, frozenset([1]), 4, 2), width=40, plain=True).plain
    assert text.split() == "a b c 1 0% F (2) 2 *><1% ?".split()
    text = draw(Picture(board, None, frozenset([1]), last=2), width=40, plain=True).plain
    assert text.split() == "a b c 1 . F (2) 2 . . .".split()


def test_the_end_shows_the_mines_and_what_was_right():
    board = np.asarray([[-1, -1, 1], [-1, 1, -1]], np.int8)
    mines = np.asarray([[True, False, False], [True, True, False]])
    picture = Picture(board, None, frozenset([0, 1]), last=4, mines=mines)
    text = draw(picture, width=40, plain=True).plain
    assert text.split() == "a b c 1 F x 1 2 * (X) .".split()
    assert [one.strip()[0] for one in legend(picture).split("   ")] == ["*", "X", "F", "x"]


def test_the_likelier_a_mine_the_redder():
    board = np.full((2, 12), -1, np.int8)
    heat = np.linspace(0, 1, 24).reshape(2, 12)
    text = draw(Picture(board, heat), width=80, plain=False)
    console, out = paper(80, **COLOURED)
    console.print(text)
    grounds = re.findall(r"48;2;(\d+);(\d+);(\d+)m", out.getvalue())
    greens = [int(green) - int(red) for red, green, _ in grounds]
    assert len(grounds) == 24 and greens[0] > 0
    assert all(np.diff(greens) < 0)
