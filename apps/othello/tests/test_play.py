import dataclasses
import io
import pathlib
import re
from collections.abc import Callable
from typing import Any

import equinox as eqx
import numpy as np
import pytest
from rich.console import Console

from zero_app import Game as Played, Session
from zero_app._play._record import read_record
from zero_othello._board import Board
from zero_train import PolicyActor

from .helpers import BEFORE_PASS, by_discs, name, new_game, parse, WIPE_OUT
from .oracle import Game


class Script:
    """Types the given lines, then closes the input; a line may also be an exception."""

    def __init__(self, *lines):
        self.lines = list(lines)
        self.prompts = []

    def __call__(self, prompt: str) -> str:
        self.prompts.append(prompt)
        line = self.lines.pop(0) if self.lines else EOFError()
        if isinstance(line, BaseException):
            raise line
        return line


def run(
    *lines, colour: str = "black", start: Played | None = None, **options
) -> tuple[str, Script, Played]:
    """What was said, the script, and the game at the end."""
    script, out = Script(*lines), io.StringIO()
    console = Console(file=out, width=100, **options)
    session = Session(start or new_game(), console, read=script, first=colour == "black")
    session.run()
    assert not script.lines, "the session ended before its input did"
    return out.getvalue(), script, session.game


def replies(text: str) -> list[int]:
    words = "I play "
    said = [line[len(words) :] for line in text.splitlines() if line.startswith(words)]
    return [parse(line.rstrip(".").partition(",")[0]) for line in said]


@pytest.mark.parametrize("end", ["quit", "EXIT", "q", EOFError(), KeyboardInterrupt()])
def test_leaving(end):
    text, script, _ = run(end)
    assert "You left the game." in text and script.prompts == ["black> "]


def test_a_move_is_answered_and_both_are_drawn():
    text, _, game = run(" D3 ")
    (reply,) = replies(text)
    truth = Game()
    truth.play(parse("d3"))
    assert reply in truth.legal()
    assert game.num_plies == 2 and str(Board().draw(game, plain=True)) in text


def test_playing_white_lets_the_player_begin():
    text, script, _ = run("quit", colour="white")
    assert len(replies(text)) == 1 and script.prompts == ["white> "]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("z9", '"z9" is not a square: give a1 to h8 (column, then row) or pass. Type "help"'),
        ("[bold]", '"[bold]" is not a square'),
        ("a1", "A1 is not legal; black may play D3 C4 F5 E6."),
        ("pass", "pass is not legal; black may play D3 C4 F5 E6."),
    ],
)
def test_bad_input_gets_one_line_and_another_try(line, expected):
    text, script, _ = run("")
    quiet, _, game = run("", line)
    (answer,) = [new for new in quiet.splitlines() if new not in text.splitlines()]
    assert answer.startswith(expected)
    assert game.num_plies == 0 and len(script.prompts) == 2


def test_help_names_every_command():
    text, *_ = run("help")
    for command in ("d3", "hint, ?", "why", "moves", "undo", "board", "help", "quit"):
        assert f"  {command} " in text


def test_hint_shows_what_the_search_found_and_moves_nothing():
    text, _, game = run("hint", "moves")
    plan = game.plan
    rows = [line.strip("| ").replace(" ", "").split("|") for line in text.splitlines()]
    rows = {row[0]: row[1:] for row in rows if len(row) == 5}
    assert rows.pop("move") == ["visits", "share", "value", "prior"]
    assert sorted(parse(move) for move in rows) == list(game.legal)
    for move, (visits, share, value, prior) in rows.items():
        action = parse(move)
        assert int(visits) == plan.visits[action]
        assert float(share[:-1]) / 100 == pytest.approx(plan.weights[action], abs=6e-4)
        assert float(value) == pytest.approx(plan.qvalues[action], abs=6e-3)
        assert float(prior[:-1]) / 100 == pytest.approx(game.prior[action], abs=6e-4)
    assert list(rows)[0] == min(rows, key=lambda move: -plan.visits[parse(move)])
    line = game.line()
    assert f"Expected: {' '.join(line)}\n" in text and line[0] == name(int(plan.action)).lower()
    after = game
    for move in line:
        after = after.play(parse(move))  # which refuses what is illegal
    assert f"black wins with a chance of {(1 + plan.value) / 2:.0%}." in text
    assert "Legal: d3 c4 f5 e6\n" in text and game.num_plies == 0


def test_a_network_without_search_has_no_visits_to_show():
    start = new_game(PolicyActor(by_discs))
    text, _, game = run("hint", "c4", start=start)
    assert "visits" not in text and "share" in text
    # The evaluator prefers low squares.
    assert start.plan.action == start.legal[0] and not start.plan.visits.any()
    np.testing.assert_array_equal(start.plan.weights, start.prior)
    assert replies(text) == [min(replies(text))] and game.num_plies == 2


def test_why_explains_the_last_reply():
    text, *_ = run("why", "d3", "why", "undo", "why")
    (reply,) = replies(text)
    assert text.count("I have not moved yet.") == 2
    assert f"Why I played {'abcdefgh'[reply % 8]}{reply // 8 + 1}" in text
    # Where the player moved first, its first move stands after `undo`.
    text, _, game = run("c5", "undo", "why", colour="white")
    opening = name(replies(text)[0]).lower()
    assert game.num_plies == 1 and f"Why I played {opening}" in text


def test_undo_takes_back_a_move_and_its_reply():
    _, _, after = run("d3")
    text, _, game = run("undo", "d3", "?", "undo", "undo", "d3")
    assert text.count("You have no move to take back.") == 2
    assert game.legal == after.legal and game.num_plies == 2
    (first, second) = replies(text)
    assert first == second
    # White has nothing to take back before its first move, although black has moved.
    text, _, game = run("undo", colour="white")
    assert "You have no move" in text and game.num_plies == 1


@pytest.fixture
def line(monkeypatch) -> Callable[[list[str]], None]:
    """Makes the player follow a prepared line of moves as far as it goes."""

    def follow(moves: list[str]) -> None:
        search = Played.__dict__["plan"].fget

        def plan(game):
            found = search(game)
            if game.num_plies < len(moves):
                found = eqx.tree_at(lambda x: x.action, found, parse(moves[game.num_plies]))
            return found

        monkeypatch.setattr(Played, "plan", property(plan))

    return follow


@pytest.mark.parametrize(
    ("colour", "verdict"), [("black", "you win"), ("white", "you lose")], ids=["win", "loss"]
)
def test_the_end(line, colour, verdict):
    line(WIPE_OUT)
    mine = WIPE_OUT[0::2] if colour == "black" else WIPE_OUT[1::2]
    text, *_ = run(*mine, colour=colour)
    assert f"The game is over: black wins by 64, {verdict}.\n" in text
    assert text.endswith("You left the game.\n")


@pytest.mark.parametrize("colour", ["black", "white"])
def test_forced_passes_are_announced_and_undone_with_the_move_before(line, colour):
    line(BEFORE_PASS)
    if colour == "black":
        text, script, game = run(*BEFORE_PASS[0::2])
        assert text.count("You have no move and must pass.") == 1
        # White has moved after the pass; the move before it can still be taken back.
        assert game.num_plies == 10
        text, _, game = run(*BEFORE_PASS[0::2], "undo")
        assert game.num_plies == 6
    else:
        text, script, game = run(*BEFORE_PASS[1::2], "undo", colour="white")
        assert text.count("I have no move and must pass.") == 1
        assert game.num_plies == 7
    assert set(script.prompts) == {f"{colour}> "}


def test_colours_where_the_terminal_has_them():
    colours: Any = {"force_terminal": True, "color_system": "truecolor", "no_color": False}
    text, *_ = run("d3", "hint", **colours)
    assert "●" in text and "\x1b[" in text and "(X)" not in text
    text, *_ = run("d3", "hint")
    assert text.isascii()


def test_a_game_is_saved_and_reviewed(tmp_path):
    path = tmp_path / "game.sgf"
    other = tmp_path / "evaluations.jsonl"
    other.write_text("work\n")
    refused = [f"save {where}" for where in (tmp_path, ".", other, tmp_path / "none" / "a.sgf")]
    # What the session has written itself it may write again.
    text, *_ = run(f"save {path}", "d3", f"save {path}", "review", *refused, "save", "save -")
    played = ["d3", name(replies(text)[0]).lower()]
    _, moves, _ = read_record(new_game(), path.read_text())
    assert moves == played and text.count(f"The game is in {path}.") == 2
    assert f"{tmp_path} is a folder; give the name of a file." in text
    assert "\n. is a folder; give the name of a file." in text
    assert f"{other} exists; give another name." in text and other.read_text() == "work\n"
    assert "a.sgf cannot be written (No such file or directory); give another file." in text
    assert "save needs a text after it" in text
    assert text.count(path.read_text()) == 1 and not pathlib.Path("-").exists()
    # Discs say how likely a win is; what a move costs is seen in the position after it.
    lines = [line.strip("| ").split() for line in text.splitlines()]
    rows = [words for words in lines if words and words[0] in ("1.", "2.")]
    game, wanted = new_game(), []
    for move in played:
        game = game.play(parse(move))
        value = float(game.plan.value) * (1 if game.first_moves else -1)
        wanted.append((move, f"{(1 + value) / 2:.0%}"))
    assert [(row[2], row[4]) for row in rows] == wanted


def test_a_result_is_told_where_a_win_may_pay_more_than_another():
    """As in backgammon, where a certain plain win has a third of the greatest value."""
    game = dataclasses.replace(new_game(), max_value=3.0)
    text, *_ = run("hint", "d3", "review", start=game)
    assert re.search(r"black expects a result of [+-]\d\.\d\d\.", text)
    assert "wins with a chance" not in text
    review = text.partition("The game so far")[2]
    assert "black expects" in review and re.search(r"[+-]\d\.\d\d", review) and "%" not in review


def test_a_blunder_is_named_and_the_end_may_be_taken_back(line, monkeypatch):
    """Black's third move and white's last one cost their sides much."""
    line(WIPE_OUT)
    # Of the side to move: black, white, black, ...
    chances = [0.5, 0.5, 0.6, 0.5, 0.5, 0.9, 0.2, 0.7, 0.9]
    plan = vars(Played)["plan"].fget
    value = lambda game: np.float32(2 * chances[game.num_plies] - 1)
    judged = lambda game: eqx.tree_at(lambda p: p.value, plan(game), value(game))
    monkeypatch.setattr(Played, "plan", property(judged))
    mine = [move for i, move in enumerate(WIPE_OUT) if i % 2 == 0]
    text, _, game = run(*mine, "review", "hint", "e1", "undo")
    assert "The game is over.\n" in text and "E1 cannot be played: the game is over" in text
    bad = [line.strip("| ").split()[0] for line in text.splitlines() if "a blunder: " in line]
    assert bad == ["5.", "8."] and "a blunder: 40% lost" in text and "a blunder: 60% lost" in text
    assert game.num_plies == len(WIPE_OUT) - 1 and not game.over
