import dataclasses
from typing import Any

import numpy as np
import pytest

from zero_app import Game
from zero_app._play._commands import _board_of_two, Play
from zero_othello import _board
from zero_othello._app import APP, pretrained
from zero_othello._board import Board, PASS

from .helpers import name, new_game, parse, WIPE_OUT


def played(*moves: str) -> Game:
    game = new_game()
    for move in moves:
        game = game.play(parse(move))
    return game


def draw(game: Game) -> str:
    return str(Board().draw(game, plain=True))


def test_names_and_actions_are_one_to_one():
    names = [name(action) for action in range(65)]
    assert len(set(names)) == 65
    assert [parse(text) for text in names] == list(range(65))
    assert [parse(text.lower()) for text in names] == list(range(65))


def test_columns_are_letters_from_the_left_and_rows_numbers_from_the_top():
    corners = {"a1": 0, "h1": 7, "a8": 56, "h8": 63, " D3 ": 8 * 2 + 3, "Pass": PASS}
    assert {text: parse(text) for text in corners} == corners


@pytest.mark.parametrize(
    "text", ["i1", "a9", "a0", "3d", "d33", "d", "", "a\u00b2", "\u0661a", "d 3"]
)
def test_what_is_no_square_gets_one_line_that_says_what_is(text):
    with pytest.raises(ValueError, match="a1 to h8") as error:
        parse(text)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("action", [-1, 65])
def test_actions_out_of_range_have_no_name(action):
    with pytest.raises(ValueError, match=f"action {action}"):
        name(action)


def test_drawing_of_the_start():
    assert draw(played()) == (
        "    A  B  C  D  E  F  G  H\n"
        " 1  .  .  .  .  .  .  .  .\n"
        " 2  .  .  .  .  .  .  .  .\n"
        " 3  .  .  .  *  .  .  .  .\n"
        " 4  .  .  *  O  X  .  .  .\n"
        " 5  .  .  .  X  O  *  .  .\n"
        " 6  .  .  .  .  *  .  .  .\n"
        " 7  .  .  .  .  .  .  .  .\n"
        " 8  .  .  .  .  .  .  .  .\n"
        "   black (X) 2   white (O) 2   black to move"
    )


def test_drawing_marks_the_last_move_and_the_replies():
    assert draw(played("d3")) == (
        "    A  B  C  D  E  F  G  H\n"
        " 1  .  .  .  .  .  .  .  .\n"
        " 2  .  .  .  .  .  .  .  .\n"
        " 3  .  .  * (X) *  .  .  .\n"
        " 4  .  .  .  X  X  .  .  .\n"
        " 5  .  .  *  X  O  .  .  .\n"
        " 6  .  .  .  .  .  .  .  .\n"
        " 7  .  .  .  .  .  .  .  .\n"
        " 8  .  .  .  .  .  .  .  .\n"
        "   black (X) 4   white (O) 1   white to move"
    )


def test_colours_say_the_same_as_letters():
    # Cell by cell: what a person with colours sees is what a person without them sees.
    game = played("d3", "c3")
    cells = [line[3:27] for line in draw(game).splitlines()[1:9]]
    text: Any = Board().draw(game, plain=False)
    for row, line in enumerate(text.split("\n")[1:9]):
        for column in range(8):
            plain = cells[row].ljust(24)[3 * column : 3 * column + 3]
            styles = [str(s.style) for s in line.spans if s.start <= 4 + 3 * column < s.end]
            mark = line.plain[4 + 3 * column]
            assert (mark == "●") == (plain[1] in "XO")
            assert (mark == "·") == (plain[1] == "*")
            assert any("orange" in style for style in styles) == (plain[0] == "(")
            if plain[1] in "XO":
                want = "black on" if plain[1] == "X" else "white on"
                assert any(want in style for style in styles)


def test_results():
    def final(black: int, white: int) -> str:
        squares = np.arange(64).reshape(8, 8)
        planes = [squares < black, (squares >= black) & (squares < black + white)]
        game = dataclasses.replace(new_game(), over=True)
        vars(game)["features"] = np.stack(planes, axis=-1)  # which it keeps once computed
        return Board().result(game)

    assert final(13, 0) == "black wins by 64" and final(0, 20) == "white wins by 64"
    assert final(30, 31) == "white wins by 4" and final(31, 31) == "draw"
    assert final(20, 44) == "white wins by 24"
    assert final(32, 32) == "draw"
    game = played(*WIPE_OUT)
    assert game.over and game.legal == () and draw(game).endswith("black wins by 64")


def test_it_is_said_where_endings_are_not_solved(monkeypatch, capsys):
    monkeypatch.setattr(_board, "find_spec", lambda name: None)
    board = _board_of_two(Play(), APP, pretrained())
    (said,) = capsys.readouterr().err.splitlines()
    assert board.solve is None and "needs numba" in said and "uv run --extra judges" in said
