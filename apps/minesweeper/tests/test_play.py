"""`minesweeper play`: a person's board shows what it may, and answers whatever is typed."""

import re
from typing import Any

import jax.random as jr
import numpy as np
import pytest

from zero_envs import Minesweeper
from zero_minesweeper._game import Game
from zero_minesweeper._play import Session
from zero_minesweeper._scene import name, percent
from zero_minesweeper._table import Table

from .helpers import exact, hidden_mines, numbers, paper, SIZE, SMALL, TABLE


class Script:
    """Types the given lines, then closes the input; a line may also be an exception."""

    def __init__(self, *lines):
        self.lines = list(lines)

    def __call__(self, prompt: str) -> str:
        assert prompt == "> "
        line = self.lines.pop(0) if self.lines else EOFError()
        if isinstance(line, BaseException):
            raise line
        return line


def run(*lines, table: Table = TABLE, seed: int = 0, **settings: Any) -> str:
    script = Script(*lines)
    console, out = paper(**settings)
    Session(table, "tiebreak", console, seed=seed, read=script).run()
    assert not script.lines, "the session ended before its input did"
    return out.getvalue()


def new(*lines, after: tuple = (), **options: Any) -> list[str]:
    """The lines that `lines` add to what was said."""
    before = run(*after, **options).removesuffix("\nYou left the game.\n")
    return run(*after, *lines, **options).removeprefix(before).splitlines()


MINES = hidden_mines(0, 0)
SAFE = [name(int(cell), SIZE) for cell in np.flatnonzero(~MINES)]
MINE = name(int(np.flatnonzero(MINES)[0]), SIZE)
NUMBERS = numbers(MINES)


def grid(lines: list[str]) -> list[str]:
    """The signs of the only board in these lines."""
    rows = [line[2:] for line in lines if re.match(r"[1-4] (?!of)", line)]
    assert len(rows) == SIZE
    return re.findall(r"\d+%|<1%|[0-8*.FXx]", " ".join(rows))


@pytest.mark.parametrize("end", ["quit", " EXIT ", EOFError(), KeyboardInterrupt()])
def test_leaving(end):
    text = run(end)
    assert text.endswith("\nYou left the game.\n") and text.isascii()
    assert "the first cell may be a mine" in text and "seed 0" in text


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("z9", '"z9" is not a cell: give a1 to d4, or row and column such as 3 2. Type "help"'),
        ("[bold]", '"[bold]" is not a cell'),
        ("f", '"" is not a cell'),
        ("f 9", '"9" is not a cell'),
        ("1 5", '"1 5" is not a cell'),
        ("undo", '"undo" is not a cell'),
    ],
)
def test_bad_input_gets_one_line_and_another_try(line, answer):
    (said, *rest) = new(line)
    assert said.startswith(answer) and rest == ["", "You left the game."]
    assert new("") == ["", "You left the game."]


def test_help_names_every_command():
    said = "\n".join(new("help"))
    for command in ("b3", "f b3", "heat", "hint, ?", "board", "new", "help", "quit"):
        assert f"  {command} " in said


def test_a_cell_opens_and_shows_its_number():
    cells = {"a1": 0, "3 2": 9} | {SAFE[-1]: int(np.flatnonzero(~MINES)[-1])}
    for word, cell in cells.items():
        if MINES.flat[cell]:
            continue
        signs = grid(new(word))
        assert signs == [str(NUMBERS.flat[i]) if i == cell else "." for i in range(SIZE * SIZE)]


def test_all_safe_cells_win_and_luck_is_told():
    said = new(" ".join(SAFE))
    game = Game(SMALL, 0, key=jr.key(0))
    for cell in np.flatnonzero(~MINES):
        game.open(int(cell))
    assert grid(said) == ["*" if n < 0 else str(n) for n in NUMBERS.flat]
    assert "won" in said and f"win estimate {game.win_estimate:.1%}" in said
    (risks,) = [line for line in said if line.startswith("risks: ")]
    first = game.risks[0]
    assert risks.startswith(f"risks: {name(first.cell, SIZE)} {first.probability:.1%}")
    needless = sum(risk.needless for risk in game.risks)
    assert any(line.startswith(f"{needless} of them needless") for line in said) == (needless > 0)


def test_a_mine_loses_and_only_then_are_the_others_shown():
    said = new(MINE, after=(SAFE[0],))
    signs = np.asarray(grid(said)).reshape(SIZE, SIZE)
    assert signs[MINES].tolist().count("X") == 1 and signs[MINES].tolist().count("*") == 2
    assert f"lost: {MINE} was a mine" in said
    assert not {"X", "*"} & set(grid(new("board", after=(SAFE[0],))))
    over = 'This game is over; "new" starts another.'
    for line in (SAFE[1], "hint", f"f {SAFE[1]}"):
        (answer, *_) = new(line, after=(MINE,))
        assert answer.startswith(over[:-1])


def test_heat_is_exact_and_of_the_visible_board_alone():
    after = (" ".join(SAFE[:3]),)
    board = np.where(
        np.isin(np.arange(16), [np.flatnonzero(~MINES)[:3]]).reshape(4, 4), NUMBERS, -1
    )
    truth = exact(board)
    signs = grid(new("heat", after=after))
    assert signs == [
        str(shown) if shown >= 0 else percent(p)
        for shown, p in zip(board.flat, truth.flat, strict=True)
    ]
    assert "%" not in "".join(new("heat", after=(*after, "heat")))


def test_flags_guard_and_go_away_again():
    assert grid(new(f"f {MINE}")).count("F") == 1
    assert grid(new(f"F {MINE}", after=(f"flag {MINE}",))).count("F") == 0
    (said, *_) = new(MINE, after=(f"f {MINE}",))
    assert said.startswith(f'{MINE} has a flag; "f {MINE}" removes it')
    (said, *_) = new(f"f {SAFE[0]}", after=(SAFE[0],))
    assert said.startswith(f"{SAFE[0]} is open and cannot have a flag")


def test_an_open_cell_opens_what_is_around_it_if_its_flags_are_there():
    cells = [i for i in np.flatnonzero(~MINES) if NUMBERS.flat[i] > 0]
    row, column = divmod(int(cells[0]), SIZE)
    near = [
        (i, j)
        for i in range(max(0, row - 1), min(SIZE, row + 2))
        for j in range(max(0, column - 1), min(SIZE, column + 2))
        if (i, j) != (row, column)
    ]
    here = name(int(cells[0]), SIZE)
    (said, *_) = new(here, after=(here,))
    assert said.startswith(f"{here} is open: it shows {NUMBERS[row, column]} and has 0 flags")
    flags = "f " + " ".join(name(SIZE * i + j, SIZE) for i, j in near if MINES[i, j])
    signs = np.asarray(grid(new(here, after=(here, flags)))).reshape(SIZE, SIZE)
    for i, j in near:
        assert signs[i, j] == ("F" if MINES[i, j] else str(NUMBERS[i, j]))
    (said, *_) = new(here, after=(here, flags, here))
    assert said.startswith(f"{here} and all its neighbours without a flag are open")


def test_around_a_zero_everything_opens():
    """With one mine in a corner all other numbers follow from any 0, at no risk."""
    env = Minesweeper(SIZE, SIZE, 1, max_states=32)
    number = next(i for i in range(99) if hidden_mines(i, 0, env)[0, 0])
    said = new("d4 d4", after=("new",) * number, table=Table(env))
    assert "won" in said and "risks: d4 6.2%" in said
    assert grid(said) == ["*"] + [str(n) for n in [1, 0, 0, 1, 1, 0, 0] + 8 * [0]]


def test_a_hint_opens_nothing_and_is_what_the_agent_would_do():
    said = new("hint")
    advice = Game(SMALL, 0, key=jr.key(0)).ask(TABLE.agent("tiebreak"))
    cell = name(advice.cell, SIZE)
    assert said[:2] == [
        "tiebreak is planning ...",
        f"{cell}: a guess of risk 18.8%; no cell is safer",
    ]
    assert set(grid(new("board", after=("?",)))) == {"."}


def test_new_gives_another_board_and_the_seed_says_which():
    opened = ["a1 b1 c1 d1 a2 b2 c2 d2", "a4 b4 c4 d4"]
    assert run("new", *opened) == run("new", *opened)
    mines = [hidden_mines(i, 0).tolist() for i in range(3)]
    assert mines[0] != mines[1] != mines[2] and hidden_mines(0, 1).tolist() != mines[0]
    assert set(grid(new("new", after=(SAFE[0],)))) == {"."}


def test_colours_where_the_terminal_has_them():
    settings: Any = {"force_terminal": True, "color_system": "truecolor", "no_color": False}
    assert "\x1b[" in run("a1", "heat", **settings) and "\x1b[" not in run("a1", "heat")
    assert "\x1b[4" not in run("a1", "heat", **settings | {"no_color": True})
