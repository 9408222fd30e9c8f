import functools as ft
import importlib.metadata
import io
from collections.abc import Sequence

import pytest

from zero_othello._gtp import GtpEngine, serve

from .helpers import BEFORE_PASS, new_game, parse, WIPE_OUT
from .oracle import Game


COMMANDS = """boardsize clear_board final_score genmove known_command komi list_commands name play
protocol_version quit reg_genmove showboard time_left time_settings undo version""".split()


VERSION = importlib.metadata.version("zero-othello")


@pytest.fixture
def engine():
    return GtpEngine(new_game())


def session(engine: GtpEngine, *lines: str) -> list[str]:
    """Responses without the empty line that ends each."""
    responses = []
    for line in lines:
        response = engine.respond(line)
        assert response is not None and response.endswith("\n\n")
        body = response[:-2]
        assert body and "\n\n" not in body and not body.endswith("\n")
        responses.append(body)
    return responses


def into(stdout: io.StringIO) -> ft.partial:
    return ft.partial(print, end="", flush=True, file=stdout)


def alternately(moves: Sequence[str]) -> list[str]:
    return [f"play {'bw'[ply % 2]} {move}" for ply, move in enumerate(moves)]


def test_administration(engine):
    assert session(engine, "protocol_version", "1 name", "02 version") == [
        "= 2",
        "=1 zero-othello",
        f"=02 {VERSION}",
    ]
    assert session(engine, "list_commands") == ["= " + "\n".join(COMMANDS)]
    for command in COMMANDS:
        assert session(engine, f"known_command {command}") == ["= true"]
    assert session(engine, "known_command loadsgf", "3 known_command PLAY") == [
        "= false",
        "=3 false",
    ]


def test_setting_up_and_clocks_are_accepted(engine):
    accepted = ["boardsize 8", "komi 6.5", "komi -0", "time_settings 0 30 1", "time_left b 12 0"]
    assert session(engine, *accepted, "time_left White 0 5") == ["="] * 6
    assert session(engine, "7 boardsize 19", "boardsize 0") == ["?7 unacceptable size"] * 1 + [
        "? unacceptable size"
    ]


@pytest.mark.parametrize(
    "line",
    [
        "boardsize", "boardsize eight", "boardsize 8 8", "komi", "komi much", "time_settings 1 2",
        "time_settings 1 2 x", "time_settings -1 2 3", "time_left b 1", "time_left red 1 1",
        "time_left b one 1", "time_left b 1 -1", "known_command", "play b", "play d3",
        "play b d3 x", "play red d3", "play b i9", "play b d33", "genmove", "genmove red",
        "genmove b w",
        "reg_genmove", "undo 2", "quit now", "name x", "clear_board x", "showboard 1",
        "final_score x", "list_commands x", "version x", "protocol_version x",
    ],
)  # fmt: skip
def test_syntax_errors_change_nothing(engine, line):
    before = session(engine, "showboard")
    assert session(engine, f"41 {line}") == ["?41 syntax error"]
    assert session(engine, "showboard") == before and engine.running


def test_unknown_commands(engine):
    assert session(engine, "loadsgf x.sgf", "12 Genmove b", "5") == [
        "? unknown command",
        "?12 unknown command",
        "?5 unknown command",
    ]


def test_lines_are_cleaned_before_they_are_read(engine):
    for line in ("", "\n", "   \t ", "# a comment", "  # 1 name", "\x07\r\n"):
        assert engine.respond(line) is None
    assert session(engine, "8\tpl\x00ay\tB  d3 # the usual\r\n", " komi\t0\n") == ["=8", "="]
    assert session(engine, "play w \u00b2\u00b2", "\u00b2 name") == [
        "? syntax error",
        "? unknown command",
    ]


def test_moves_board_and_score(engine):
    responses = session(
        engine,
        "play black D3",
        "1 play w c3",
        "2 play W c4",
        "play b d3",
        "play b pass",
        "3 showboard",
        "final_score",
        "undo",
        "final_score",
        "4 undo",
        "5 undo",
        "final_score",
    )
    board = (
        "=3 \n"
        "    A  B  C  D  E  F  G  H\n"
        " 1  .  .  .  .  .  .  .  .\n"
        " 2  .  .  .  .  .  .  .  .\n"
        " 3  .  * (O) X  .  .  .  .\n"
        " 4  .  .  *  O  X  .  .  .\n"
        " 5  .  .  .  X  O  *  .  .\n"
        " 6  .  .  .  .  *  .  .  .\n"
        " 7  .  .  .  .  .  .  .  .\n"
        " 8  .  .  .  .  .  .  .  .\n"
        "   black (X) 3   white (O) 3   black to move"
    )
    assert responses == [
        "=", "=1", "?2 illegal move", "? illegal move", "? illegal move", board, "= 0",
        "=", "= B+3", "=4", "?5 cannot undo", "= 0",
    ]  # fmt: skip


def test_genmove_plays_and_reg_genmove_does_not(engine):
    before = session(engine, "showboard")
    (proposal,) = session(engine, "reg_genmove b")
    assert session(engine, "showboard") == before
    assert session(engine, "undo") == ["? cannot undo"]
    assert session(engine, "genmove black") == [proposal]
    move = proposal[2:]
    assert parse(move) in Game().legal()
    assert session(engine, f"play b {move}") == ["? illegal move"]
    assert session(engine, "7 genmove b", "undo") == ["?7 white is to move", "="]
    assert session(engine, "showboard") == before


def test_a_whole_game_against_itself(engine):
    game, passes = Game(), 0
    while not game.over:
        (answer,) = session(engine, f"genmove {'b' if game.mover == 1 else 'w'}")
        move = parse(answer[2:])
        assert move in game.legal()
        passes += move == 64
        game.play(move)
    margin = int(game.board.sum())
    score = f"= {'B' if margin > 0 else 'W'}+{abs(margin)}" if margin else "= 0"
    assert session(engine, "final_score", "genmove b", "genmove w") == [score, "= pass", "= pass"]
    assert session(engine, "play b pass", "final_score") == ["=", score]
    # What was passed after the end is undone like any move.
    assert session(engine, "undo", "undo", "undo", "play b d3") == ["=", "=", "=", "? illegal move"]
    assert session(engine, "undo", "clear_board", "undo") == ["=", "=", "? cannot undo"]


def test_a_forced_pass_may_be_said_or_left_out(engine):
    game = Game()
    for move in BEFORE_PASS:
        game.play(parse(move))
    assert game.legal() == [64] and game.mover == 1
    game.play(64)
    replies = [f"{'ABCDEFGH'[a % 8]}{a // 8 + 1}" for a in game.legal()]
    assert session(engine, *alternately(BEFORE_PASS)) == ["="] * 8
    before = session(engine, "showboard")
    # Said: by the side that must, and by genmove.
    assert session(engine, "play b a1", "play b pass", "undo") == ["? illegal move", "=", "="]
    assert session(engine, "reg_genmove b", "genmove b", "undo") == ["= pass", "= pass", "="]
    assert session(engine, "showboard") == before
    # Left out: white's move comes after it, and one undo takes back both.
    assert session(engine, "play w h8", "play w pass") == ["? illegal move"] * 2
    assert session(engine, "showboard") == before
    (proposal,) = session(engine, "reg_genmove w")
    assert proposal[2:] in replies
    assert session(engine, "genmove w", "undo") == [proposal, "="]
    assert session(engine, f"play w {replies[0]}", "undo") == ["=", "="]
    assert session(engine, "showboard") == before


def test_the_end_before_the_board_is_full(engine):
    assert session(engine, *alternately(WIPE_OUT)) == ["="] * 9
    answers = session(engine, "genmove w", "final_score", "play w a1", "9 play w pass", "undo")
    assert answers == ["= pass", "= B+13", "? illegal move", "=9", "="]


def test_serving_stops_at_quit_and_at_the_end_of_input(engine):
    stdout = io.StringIO()
    serve(engine, io.StringIO("1 name\n\n# nothing\n2 quit\n3 name\n"), into(stdout))
    assert stdout.getvalue() == "=1 zero-othello\n\n=2\n\n" and not engine.running
    stdout = io.StringIO()
    serve(GtpEngine(new_game()), io.StringIO("name\nversion\n"), into(stdout))
    assert stdout.getvalue() == f"= zero-othello\n\n= {VERSION}\n\n"


def test_a_controller_that_has_gone_ends_it(engine):
    class Broken(io.StringIO):
        def flush(self):
            raise BrokenPipeError

    serve(engine, iter(["name", "genmove b"]), into(Broken()))
    assert engine.respond("undo") == "? cannot undo\n\n"


def test_every_answer_is_flushed_and_stray_bytes_are_only_a_syntax_error(engine):
    class Pipe(io.StringIO):
        seen: list[str] = []

        def flush(self):
            self.seen.append(self.getvalue())

    stdin = io.TextIOWrapper(io.BytesIO(b"1 play b \xff\xfe\n2 name\n"), encoding="utf-8")
    stdout = Pipe()
    serve(engine, stdin, into(stdout))
    assert stdout.seen == [
        "?1 syntax error\n\n",
        "?1 syntax error\n\n=2 zero-othello\n\n",
    ]
