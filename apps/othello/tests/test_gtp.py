import functools as ft
import importlib.metadata
import io
import os
import pathlib
import random
from collections.abc import Sequence

import pytest

from zero_app._play._gtp import GtpEngine, serve_lines
from zero_app._play._record import read_record

from .helpers import BEFORE_PASS, name, new_game, parse, WIPE_OUT
from .oracle import Game


COMMANDS = """boardsize clear_board final_score genmove kata-analyze kata-genmove_analyze
kgs-time_settings known_command komi list_commands loadsgf lz-analyze lz-genmove_analyze name play
printsgf protocol_version quit reg_genmove showboard time_left time_settings undo version""".split()


VERSION = importlib.metadata.version("zero-othello")


@pytest.fixture
def engine():
    return GtpEngine(new_game(), "zero-othello", VERSION)


def session(engine: GtpEngine, *lines: str) -> list[str]:
    """Responses without the empty line that ends each."""
    responses = []
    for line in lines:
        response = "".join(engine.respond(line))
        assert response.endswith("\n\n")
        body = response[:-2]
        assert body and "\n\n" not in body and not body.endswith("\n")
        responses.append(body)
    return responses


def serve(stdin, stdout: io.StringIO) -> None:
    say = ft.partial(print, end="", flush=True, file=stdout)
    serve_lines(new_game(), "zero-othello", VERSION, stdin, say)


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
    assert session(engine, "known_command gogui-play", "3 known_command PLAY") == [
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
        "boardsize", "loadsgf", "loadsgf x y", "boardsize eight", "boardsize 8 8", "komi",
        "komi much", "lz-analyze \u00b2", "time_settings 1 2",
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
    assert session(engine, "kata-search x", "12 Genmove b", "5") == [
        "? unknown command",
        "?12 unknown command",
        "?5 unknown command",
    ]


def test_lines_are_cleaned_before_they_are_read(engine):
    for line in ("", "\n", "   \t ", "# a comment", "  # 1 name", "\x07\r\n"):
        assert list(engine.respond(line)) == []
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
    assert answers == ["= pass", "= B+64", "? illegal move", "=9", "="]


def test_serving_stops_at_quit_and_at_the_end_of_input():
    stdout = io.StringIO()
    serve(io.StringIO("1 name\n\n# nothing\n2 quit\n3 name\n"), stdout)
    assert stdout.getvalue() == "=1 zero-othello\n\n=2\n\n"
    stdout = io.StringIO()
    serve(io.StringIO("name\nversion\n"), stdout)
    assert stdout.getvalue() == f"= zero-othello\n\n= {VERSION}\n\n"


def test_a_controller_that_has_gone_ends_it():
    class Broken(io.StringIO):
        def flush(self):
            raise BrokenPipeError

    serve(iter(["name", "genmove b"]), Broken())


def test_every_answer_is_flushed_and_stray_bytes_are_only_a_syntax_error():
    class Pipe(io.StringIO):
        seen: list[str] = []

        def flush(self):
            self.seen.append(self.getvalue())

    stdin = io.TextIOWrapper(io.BytesIO(b"1 play b \xff\xfe\n2 name\n"), encoding="utf-8")
    stdout = Pipe()
    serve(stdin, stdout)
    assert stdout.seen == ["?1 syntax error\n\n", "?1 syntax error\n\n=2 zero-othello\n\n"]


def lines_of(answer: list[str]) -> list[dict[str, dict[str, str]]]:
    """By line and move, the figures of an analysis, whose ends are checked."""
    assert answer[0] == "=\n" and answer[-1] == "\n"
    lines = []
    for line in answer[1:-1]:
        assert line.endswith("\n") and line.startswith("info move ")
        moves = {}
        for info in line.split("info ")[1:]:
            figures, _, pv = info.partition(" pv ")
            words = figures.split()
            figures = dict(zip(words[::2], words[1::2], strict=True))
            moves[figures["move"]] = {**figures, "pv": pv.strip()}
        lines.append(moves)
    return lines


@pytest.mark.parametrize("style", ["lz", "kata"])
def test_an_analysis_grows_until_a_command_comes(style):
    waiting = iter([False, False, True])
    engine = GtpEngine(new_game(), "zero-othello", VERSION, pending=lambda: next(waiting))
    session(engine, "play b d3")
    lines = lines_of(list(engine.respond(f"{style}-analyze w 0")))
    visits = [sum(int(move["visits"]) for move in line.values()) for line in lines]
    assert len(lines) == 3 and visits == sorted(set(visits)), "each line is of a longer search"
    first = list(lines[-1].values())[0]
    assert first["order"] == "0" and first["pv"].split()[0] == first["move"]
    # The principal variation is a game.
    for ply, move in enumerate(first["pv"].split()):
        assert session(engine, f"play {'wb'[ply % 2]} {move}") == ["="]
    shares = [float(move["prior"]) for move in lines[-1].values()]
    whole, wins = (10_000, 10_000) if style == "lz" else (1.0, 1.0)
    assert sum(shares) == pytest.approx(whole, rel=0.01)
    assert all(0 <= float(move["winrate"]) <= wins for move in lines[-1].values())


def test_an_analysis_says_of_whom_and_how_much(engine):
    every = lines_of(list(engine.respond("kata-analyze B interval 50 minmoves 4")))[0]
    assert set(every) == {"D3", "C4", "E6", "F5"}
    assert set(lines_of(list(engine.respond("lz-analyze 50 maxmoves 1")))[0]) < set(every)
    assert len(lines_of(list(engine.respond("lz-analyze 50 maxmoves 0")))[0]) == 1
    assert session(engine, "3 lz-analyze w", "lz-analyze x", "lz-analyze ownership true") == [
        "?3 black is to move",
        "? syntax error",
        "? syntax error",
    ]
    for key in ("allow", "avoid"):
        assert session(engine, f"kata-analyze b 50 minmoves 1 {key} b d3,c4 1") == [
            f"? unsupported: {key}; every legal move is searched"
        ]
    *said, move, end = engine.respond("lz-genmove_analyze b 100")
    assert said[0] == "=\n" and end == "\n" and move.startswith("play ")
    best = next(iter(lines_of([*said, end])[-1]))
    assert move == f"play {best}\n"
    assert session(engine, "genmove b") == ["? white is to move"]
    session(engine, "clear_board", *alternately(WIPE_OUT))
    assert list(engine.respond("kata-genmove_analyze w")) == ["=\n", "play pass\n", "\n"]
    assert list(engine.respond("kata-analyze w")) == ["=\n", "\n"]


def test_what_an_analysis_may_say_in_addition_is_left_out(engine):
    """KataGo's keys, the first of which Sabaki sends; of the root everything is known."""
    plain = list(engine.respond("kata-analyze B 50"))
    for key in ("ownership", "ownershipStdev", "movesOwnership", "pvVisits", "pvEdgeVisits"):
        assert list(engine.respond(f"kata-analyze B 50 {key} true maxmoves 99")) == plain
    for wrong in ("ownership", "ownership maybe", "ownershp true"):
        assert session(engine, f"kata-analyze B 50 {wrong}") == ["? syntax error"]
    begin, line, end = engine.respond("kata-analyze B 50 ownership true rootInfo true")
    moves, _, root = line.partition(" rootInfo ")
    assert [begin, f"{moves}\n", end] == plain
    words = root.split()
    figures = dict(zip(words[::2], map(float, words[1::2]), strict=True))
    visits = [int(move["visits"]) for move in lines_of(plain)[0].values()]
    assert figures["visits"] == sum(visits) > 0
    assert figures["winrate"] == pytest.approx((1 + figures["utility"]) / 2, abs=1e-4)


@pytest.mark.parametrize(
    "settings, left, share",
    [
        ("time_settings 300 0 0", None, 0.9 * 10),
        ("time_settings 0 30 10", None, 0.9 * 3),
        # After the main time a move gets three seconds.
        ("time_settings 300 30 10", "time_left b 60 0", 0.9 * 3),
        ("time_settings 300 30 10", "time_left b 120 0", 0.9 * 4),
        ("time_settings 300 30 10", "time_left b 20 5", 0.9 * 4),
        ("kgs-time_settings absolute 300", None, 0.9 * 10),
        ("kgs-time_settings canadian 300 30 10", "time_left b 20 5", 0.9 * 4),
        # Of five periods of ten seconds each is for one move.
        ("kgs-time_settings byoyomi 300 10 5", "time_left b 10 5", 0.9 * 10),
        ("kgs-time_settings none", None, None),
        ("time_settings 0 30 0", None, None),
    ],
)
def test_a_clock_is_shared_among_the_moves(engine, settings, left, share):
    assert session(engine, settings, *([left] if left else [])) == ["="] * (2 if left else 1)
    clock = engine._clocks.get("black")
    assert (clock and clock.share()) == (share and pytest.approx(share))


def test_a_search_ends_when_its_time_is_over(engine):
    session(engine, "time_settings 9 0 0")
    (unhurried,) = session(engine, "reg_genmove b")
    session(engine, "time_left b 0 1")
    (hurried,) = session(engine, "genmove b")
    session(engine, "time_left w 9 0")
    list(engine.respond("lz-genmove_analyze w"))
    assert engine._clocks["white"].seconds < 9
    # A move that is not played takes no stone of the period.
    session(engine, "time_settings 0 2 3", "reg_genmove b")
    assert engine._clocks["black"].moves == 3
    session(engine, "genmove b", "lz-genmove_analyze w")
    assert [engine._clocks[side].moves for side in ("black", "white")] == [2, 2]
    assert {unhurried[2:], hurried[2:]} <= {"D3", "C4", "E6", "F5"}
    assert (
        session(engine, "kgs-time_settings", "kgs-time_settings hourglass 3")
        == ["? syntax error"] * 2
    )


@pytest.mark.parametrize(
    "node, moves", [("B[cd]W[cc]", ["c4", "c3"]), ("W[cd]B[cc]", ["pass", "c4", "c3"])]
)
def test_moves_of_one_node_are_in_the_order_of_the_file(node, moves):
    assert read_record(new_game(), f"(;GM[2]SZ[8];{node})")[1:] == (moves, 0)


def test_games_are_saved_and_loaded(engine, tmp_path):
    path = tmp_path / "game.sgf"
    session(engine, *alternately(BEFORE_PASS))
    before = session(engine, "showboard")
    text = "(;FF[4]GM[2]SZ[8];B[cd];W[cc];B[ef];W[bd];B[ad];W[ae];B[cb];W[ac])"
    assert session(engine, "printsgf", f"printsgf {path}") == [f"= {text}", "="]
    assert session(engine, "clear_board", f"loadsgf {path}", "showboard") == ["=", "=", *before]
    assert session(engine, f"loadsgf {path} 2", "play w c3") == ["=", "="]  # before the second move
    before = session(engine, "showboard")
    wrong = ["(;GM[1]SZ[8];B[cd])", "(;GM[2]SZ[8]AB[aa];W[cc])", "(;GM[2]SZ[8];B[zz])"]
    for content in (*wrong, text.replace("cc", "aa"), "(;B[cd", ""):
        path.write_text(content)
        assert session(engine, f"loadsgf {path}") == ["? cannot load file"]
    assert session(engine, "loadsgf nowhere.sgf", f"printsgf {tmp_path}") == [
        "? cannot load file",
        "? cannot save file",
    ]
    assert session(engine, "showboard") == before


def test_stones_that_are_those_of_the_beginning_are_no_others():
    """Programs write them; a pass is illegal there, so other ones cannot be reached."""
    usual = "(;GM[2]FF[4]AB[ed][de]AW[dd][ee]PL[B];B[cd])"
    assert read_record(new_game(), usual)[1:] == (["c4"], 0)
    for wrong in ("AB[aa]", "AE[dd]", "AB[dd][ee]AW[ed][de]"):
        with pytest.raises(ValueError, match="stones that were not played"):
            read_record(new_game(), f"(;GM[2]SZ[8]{wrong};B[cd])")


def test_a_komi_and_a_handicap_are_no_part_of_the_game(engine):
    assert session(engine, "komi 6.5", "final_score", "printsgf") == [
        "=",
        "= 0",
        "= (;FF[4]GM[2]SZ[8])",
    ]
    assert session(engine, "fixed_handicap 2") == ["? unknown command"]
    assert session(engine, "komi nan", "play w c3") == ["? syntax error", "? illegal move"]


def test_what_is_no_ordinary_file_is_neither_read_nor_replaced(engine, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    for link, target in (("zeros", "/dev/zero"), ("full", "/dev/full"), ("loop", "loop")):
        os.symlink(target, link)
    pathlib.Path("long.sgf").touch()
    os.truncate("long.sgf", 2**30)
    pathlib.Path("-").write_text("(;GM[2]SZ[8];B[cd])")
    before = sorted((path.name, os.lstat(path).st_mode) for path in tmp_path.iterdir())
    # Without their control characters, as of all lines, the last two would be another name.
    special = ["pipe", "zeros", "full", "loop", "/dev/zero", "/dev/full", "a\0b", "a\x1bb"]
    for path in special:
        assert session(engine, f"printsgf {path}") == ["? cannot save file"], path
    for path in (*special, "long.sgf", "-"):
        assert session(engine, f"loadsgf {path}") == ["? cannot load file"], path
    # Nor is there a file of a name that stands for the output.
    assert session(engine, "printsgf -") == ["= (;FF[4]GM[2]SZ[8])"]
    assert sorted((path.name, os.lstat(path).st_mode) for path in tmp_path.iterdir()) == before
    assert pathlib.Path("/dev/full").is_char_device()


def test_a_file_that_is_written_over_is_named(engine, tmp_path, capsys):
    path = tmp_path / "game.sgf"
    assert session(engine, f"printsgf {path}") == ["="] and capsys.readouterr().err == ""
    assert session(engine, f"printsgf {path}") == ["="]
    assert capsys.readouterr().err == f"{path} was there, and has been written anew.\n"


def test_a_damaged_file_is_a_game_or_is_refused():
    text = "(;FF[4]GM[2]SZ[8];B[cd]C[a \\] b](;W[cc];B[ef])(;W[]))"
    draws, refused, start = random.Random(0), 0, new_game()
    for _ in range(3000):
        damaged = list(text)
        for _ in range(draws.randint(1, 6)):
            damaged[draws.randrange(1, len(damaged))] = draws.choice("([;])\\Bzt\u00e9\n")
        try:
            _, moves, seed = read_record(start, "".join(damaged))
        except ValueError as e:
            assert "\n" not in str(e)
            refused += 1
        else:
            assert seed == 0 and all(start.board.action(move) <= 64 for move in moves)
    assert 500 < refused < 3000


def test_the_main_variation_is_read_and_a_pass_that_was_left_out(engine, tmp_path):
    game = Game()
    for move in [*map(parse, BEFORE_PASS), 64]:
        game.play(move)
    reply = game.legal()[0]
    point = "abcdefgh"[reply % 8] + "abcdefgh"[reply // 8]
    moves = [
        f";{'BW'[i % 2]}[{m[0]}{'abcdefgh'[int(m[1]) - 1]}]" for i, m in enumerate(BEFORE_PASS)
    ]
    # White's second move in a row says that black has passed.
    main = f"C[a \\] ;B[aa\\] here](;White[{point}]LB[aa:1][bb:2])(;W[{point}];B[aa])"
    path = tmp_path / "game.sgf"
    path.write_text(f"\n(;SZ[8] GM[2]\n{''.join(moves)}{main})")
    assert session(engine, f"loadsgf {path}") == ["="]
    loaded = session(engine, "showboard")
    played = session(engine, "clear_board", *alternately(BEFORE_PASS), f"play w {name(reply)}")
    assert played == ["="] * 10 and session(engine, "showboard") == loaded
