import dataclasses
import io

import numpy as np
import pytest
from rich.console import Console

from zero_othello._board import Colour, draw, parse
from zero_othello._play import Session
from zero_othello._player import NetworkAlone

from .helpers import BEFORE_PASS, new_player, WIPE_OUT
from .oracle import Game


@pytest.fixture(scope="module")
def player():
    return new_player()


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


def run(player, *lines, colour: Colour = "black", **options) -> tuple[str, Script]:
    script, out = Script(*lines), io.StringIO()
    Session(player, Console(file=out, width=100, **options), read=script, colour=colour).run()
    assert not script.lines, "the session ended before its input did"
    return out.getvalue(), script


def replies(text: str) -> list[int]:
    words = "I play "
    return [parse(line[len(words) : -1]) for line in text.splitlines() if line.startswith(words)]


@pytest.mark.parametrize("end", ["quit", "EXIT", EOFError(), KeyboardInterrupt()])
def test_leaving(player, end):
    text, script = run(player, end)
    assert "You left the game." in text and script.prompts == ["black> "]


def test_a_move_is_answered_and_both_are_drawn(player):
    text, _ = run(player, " D3 ")
    (reply,) = replies(text)
    game = Game()
    game.play(parse("d3"))
    assert reply in game.legal()
    assert player.num_plies == 2 and draw(player.position, reply) in text


def test_playing_white_lets_the_player_begin(player):
    text, script = run(player, "quit", colour="white")
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
def test_bad_input_gets_one_line_and_another_try(player, line, expected):
    text, script = run(player, "")
    quiet, _ = run(player, "", line)
    (answer,) = [new for new in quiet.splitlines() if new not in text.splitlines()]
    assert answer.startswith(expected)
    assert player.num_plies == 0 and len(script.prompts) == 2


def test_help_names_every_command(player):
    text, _ = run(player, "help")
    for command in ("d3", "hint", "why", "undo", "board", "help", "quit"):
        assert f"  {command}" in text


def test_hint_shows_what_the_search_found_and_moves_nothing(player):
    text, _ = run(player, "hint")
    thought = player.think()
    rows = [line.strip("| ").replace(" ", "").split("|") for line in text.splitlines()]
    rows = {row[0]: row[1:] for row in rows if len(row) == 5}
    assert rows.pop("move") == ["visits", "share", "value", "prior"]
    assert sorted(parse(move) for move in rows) == list(player.position.legal)
    for move, (visits, share, value, prior) in rows.items():
        action = parse(move)
        assert int(visits) == thought.visits[action]
        assert float(share[:-1]) / 100 == pytest.approx(thought.weights[action], abs=6e-4)
        assert float(value) == pytest.approx(thought.qvalues[action], abs=6e-3)
        assert float(prior[:-1]) / 100 == pytest.approx(thought.prior[action], abs=6e-4)
    assert list(rows)[0] == min(rows, key=lambda move: -thought.visits[parse(move)])
    assert f"player to move is {thought.value:+.2f}" in text
    assert player.num_plies == 0


def test_a_network_without_search_has_no_visits_to_show():
    player = new_player(NetworkAlone())
    text, _ = run(player, "hint", "c4")
    assert "visits" not in text and "share" in text
    thought = player.think()
    # The evaluator prefers low squares.
    assert thought.action == player.position.legal[0] and not thought.visits.any()
    np.testing.assert_array_equal(thought.weights, thought.prior)
    assert replies(text) == [min(replies(text))] and player.num_plies == 2


def test_why_explains_the_last_reply(player):
    text, _ = run(player, "why", "d3", "why", "undo", "why")
    (reply,) = replies(text)
    assert text.count("I have not moved yet.") == 2
    assert f"Why I played {'abcdefgh'[reply % 8]}{reply // 8 + 1}" in text


def test_undo_takes_back_a_move_and_its_reply(player):
    run(player, "d3")
    after = player.position
    text, _ = run(player, "undo", "d3", "?", "undo", "undo", "d3")
    assert text.count("You have no move to take back.") == 2
    assert player.position.legal == after.legal and player.num_plies == 2
    (first, second) = replies(text)
    assert first == second
    # White has nothing to take back before its first move, although black has moved.
    text, _ = run(player, "undo", colour="white")
    assert "You have no move" in text and player.num_plies == 1


@pytest.fixture
def line(player, monkeypatch):
    """Makes the player follow a prepared line of moves as far as it goes."""

    def follow(moves):
        search = player.think

        def think():
            thought = search()
            if player.num_plies >= len(moves):
                return thought
            return dataclasses.replace(thought, action=parse(moves[player.num_plies]))

        monkeypatch.setattr(player, "think", think)

    return follow


@pytest.mark.parametrize(
    ("colour", "verdict"), [("black", "you win"), ("white", "you lose")], ids=["win", "loss"]
)
def test_the_end(player, line, colour, verdict):
    line(WIPE_OUT)
    mine = WIPE_OUT[0::2] if colour == "black" else WIPE_OUT[1::2]
    text, _ = run(player, *mine, colour=colour)
    assert text.endswith(f"The game is over: black wins by 13, {verdict}.\n")
    assert "left" not in text


@pytest.mark.parametrize("colour", ["black", "white"])
def test_forced_passes_are_announced_and_undone_with_the_move_before(player, line, colour):
    line(BEFORE_PASS)
    if colour == "black":
        text, script = run(player, *BEFORE_PASS[0::2])
        assert text.count("You have no move and must pass.") == 1
        # White has moved after the pass; the move before it can still be taken back.
        assert player.num_plies == 10
        text, _ = run(player, *BEFORE_PASS[0::2], "undo")
        assert player.num_plies == 6
    else:
        text, script = run(player, *BEFORE_PASS[1::2], "undo", colour="white")
        assert text.count("I have no move and must pass.") == 1
        assert player.num_plies == 7
    assert set(script.prompts) == {f"{colour}> "}


def test_colours_where_the_terminal_has_them(player):
    text, _ = run(player, "d3", "hint", force_terminal=True, color_system="truecolor")
    assert "●" in text and "\x1b[" in text and "(X)" not in text
    text, _ = run(player, "d3", "hint")
    assert text.isascii()
