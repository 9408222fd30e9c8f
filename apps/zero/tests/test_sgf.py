"""Games of Go as other programs write them, and GTP as they speak it; beside sgfmill."""

import pathlib
import random
import tracemalloc
import warnings
from typing import Any

import jax.random as jr
import pytest

from zero_app import Game, Question, Service
from zero_app._play._gtp import GtpEngine
from zero_app._play._record import read_record, write_record
from zero_app._play._sgf import decode, handicap_points
from zero_cli._board import Board
from zero_cli._worlds import build_world, World
from zero_train import indifferent, PolicyActor


with warnings.catch_warnings(action="ignore"):  # of its docstrings, where it is compiled
    from sgfmill import boards, sgf, sgf_moves


NO_MOVES = "which no moves and passes lead to"
#: Texts, the moves that they hold, and their komi and handicap.
SPELLED: dict[str, tuple[str, float | None, int]] = {
    "\ufeff(;GM[1]SZ[9];B[cc])": ("c7", None, 0),
    "From: bob (the :-) one)\r\n\r\n(\r\n;GM [1]\r\nSZ\t[9]\r\n;B\r\n[cc];W[]\r\n)": (
        "c7 pass",
        None,
        0,
    ),
    "(;SZ[9];B[cc];W[dd]": ("c7 d6", None, 0),
    "(;SZ[9](;B[cc](;W[dd];B[ee];W[]": ("c7 d6 e5 pass", None, 0),
    "((;SZ[9];;;B[cc];;;W[dd];))": ("c7 d6", None, 0),
    "(;SZ[9];B[tt];W[cc])(;SZ[19];B[dd])": ("pass c7", None, 0),
    # IGS ends a game by three passes, and the AGA's rules by four if white was not the last.
    "(;SZ[9];B[cc];W[tt];B[tt];W[tt])": ("c7 pass pass", None, 0),
    "(;SZ[9];B[cc];W[dd];B[];W[];B[];W[])": ("c7 d6 pass pass", None, 0),
    "(;GaMe[1]SiZe[9]KoMi[0.5]HAndicap[2]AddBlack[cg][gc];White[ee]Comment[x];Black[ce])": (
        "c3 pass g7 e5 c5",
        0.5,
        2,
    ),
    "(;FF[4]GM[1]SZ[9:9]C[;B[aa\\];\\\\]KM[-3.5]_X1[a]N2[b\\:c];B[cc]BL[9]LB[aa:1][bb:2])": (
        "c7",
        -3.5,
        0,
    ),
    "(;SZ[9]KM[6,5]HA[0]PB[a (b;)]PW[\\[9p\\]]RE[W+R];B[cc](;W[dd];B[ee])(;W[ff]))": (
        "c7 d6 e5",
        6.5,
        0,
    ),
    "(;SZ[9]KM[]HA[]RU[Japanese];B[cc];B[dd];W[ee])": ("c7 pass d6 e5", None, 0),
    "(;SZ[9]KM[ ]HA[1];B[cc]W[dd])": ("c7 d6", None, 0),
    # Fox has hundredths of points, or of stones. Its handicaps are moves.
    "(;SZ[9]KM[375]HA[0]RU[Chinese]AP[GNU Go:3.8]AP[foxwq];W[cc])": ("pass c7", 7.5, 0),
    "(;SZ[9]KM[50]HA[2]AP[foxwq];B[cc];B[gg];W[cg])": ("c7 pass g3 c3", 0.5, 2),
    "(;SZ[9]KM[50];B[cc])": ("c7", 50.0, 0),
    "(;SZ[9]KM[650];B[cc])": ("c7", 6.5, 0),
    "(;SZ[9]KM[6 1/2];B[cc])": ("c7", 6.5, 0),
    "(;SZ[9]KM[-5\u00bd];B[cc])": ("c7", -5.5, 0),
    "(;SZ[9]KM[1/2];B[cc])": ("c7", 0.5, 0),
    "(;SZ[9]KM[-1/2];B[cc])": ("c7", -0.5, 0),
    "A game (;-) at home\n(;SZ[9];B[cc])": ("c7", None, 0),
    "(;SZ[9]HA[4]KM[0]AB[cc:gg]AE[dc:fg][cd:gf])": ("c7 pass g7 pass c3 pass g3", 0, 4),
    "(;SZ[9]AB[cc][gg]PL[B])": ("c7 pass g3 pass", None, 0),
    "(;SZ[9]AB[cc]AB[gg]PL[W];W[aa])": ("c7 pass g3 a9", None, 0),
    "(;SZ[9];AB[aa]AW[cc][dd][ee]PL[b])": ("a9 c7 pass d6 pass e5", None, 0),
    "(;SZ[9];B[aa];W[bb];AB[cc]AW[dd]AE[ee];B[ff])": ("a9 b8 c7 d6 f4", None, 0),
    "(;SZ[9]AE[aa:ii];PL[White];B[aa])": ("a9", None, 0),
    "(;SZ[9];B[aa];AW[bb];PL[w])": ("a9 b8 pass", None, 0),
}
WRONG = {
    "(;SZ[9];B[cc": "this is no SGF: it breaks off at character 10",
    "(;SZ[9];B[cc\\]": "this is no SGF: it breaks off at character 10",
    "(;SZ[9];B[cc]];W[dd])": "this is no SGF: it breaks off at character 14",
    "(SZ[9];B[cc])": "this is no SGF: no semicolon follows its first parenthesis",
    "(;SZ[19];B[cc])": "this is a game GM[1] of size 19; give one of GM[1] and size 9",
    "(;B[cc])": "this is a game GM[1] of size 19; give one of GM[1] and size 9",
    "(;SZ[9]KM[nan])": "'nan' is no komi; give a number up to 81",
    "(;SZ[9]KM[374])": "'374' is no komi; give a number up to 81",
    "(;SZ[9]KM[11/2])": "'11/2' is no komi; give a number up to 81",
    "(;SZ[9]HA[x])": "HA[x] is no handicap; give a number of stones up to 81, or leave HA out",
    "(;SZ[9]HA[82])": "HA[82] is no handicap; give a number of stones up to 81",
    "(;SZ[9]HA[2];B[cc];W[dd];B[ee])": "HA[2] says that black has 2 stones before white's first",
    "(;SZ[9]HA[2];W[cc])": "HA[2] says that black has 2 stones before",
    "(;SZ[9]HA[3]AB[cc][gg];W[dd])": "HA[3] says that black has 3 stones before",
    "(;SZ[9]HA[2])": "HA[2] says that black has 2 stones before",
    "(;SZ[9]HA[2]AB[cc:dd];W[ee])": "HA[2] says that black has 2 stones before",
    "(;GM[2]SZ[9])": "this is a game GM[2] of size 9; give one of GM[1] and size 9",
    "(;SZ[9]AB[jj])": "'jj' is no point of a board of size 9",
    "(;SZ[9]AB[aa:])": "'aa:' is no point of a board of size 9",
    "(;SZ[9]AB[])": "'' is no point of a board of size 9",
    "(;SZ[9]AB[aa:bb:cc])": "'aa:bb:cc' is no point of a board of size 9",
    # A stone without a liberty, one that would be taken, one that goes, one that changes sides.
    "(;SZ[9]AB[aa]AW[ab][ba])": NO_MOVES,
    "(;SZ[9];B[aa];W[ab];AW[ba])": NO_MOVES,
    "(;SZ[9];B[aa];AE[aa])": NO_MOVES,
    "(;SZ[9];B[aa];AW[aa])": NO_MOVES,
    # Two passes in a row would end the game.
    "(;SZ[9];B[aa];W[];AW[cc])": NO_MOVES,
}


#: Of GTP's specification: the points of fixed handicaps, and which of them so many stones take.
HANDICAPS = {
    9: "C3 G7 C7 G3 C5 G5 E3 E7 E5".split(),
    19: "D4 Q16 D16 Q4 D10 Q10 K4 K16 K10".split(),
    13: "D4 K10 D10 K4 D7 K7 G4 G10 G7".split(),
    11: "C3 J9 C9 J3 C6 J6 F3 F9 F6".split(),
    8: "C3 F6 C6 F3".split(),
    7: "C3 E5 C5 E3".split(),
    14: "D4 L11 D11 L4".split(),
    6: [],
}
TAKEN = {number: [*range(number - number % 2), *[8] * (number % 2)] for number in range(5, 10)} | {
    number: [*range(number)] for number in (2, 3, 4)
}


@pytest.fixture(scope="module")
def world() -> World:
    return build_world("pgx/go_9x9")


@pytest.fixture(scope="module")
def start(world) -> Game:
    board = Board(world, pathlib.Path("unused"))
    return Game.start(world.env, PolicyActor(indifferent), board, key=jr.key(0))


@pytest.fixture
def engine(start) -> GtpEngine:
    return GtpEngine(start, "zero", "0")


@pytest.fixture(scope="module")
def service(world) -> Service:
    env: Any = world.env
    page: Any = Board(world).page
    return Service(env, {0: PolicyActor(indifferent)}, page)


def said(engine: GtpEngine, *lines: str) -> list[str]:
    return ["".join(engine.respond(line)).removesuffix("\n\n") for line in lines]


def vertex(name: str) -> tuple[int, int]:
    """The row from below and the column of a point."""
    return int(name[1:]) - 1, "ABCDEFGHJKLMNOPQRST".index(name[0])


def replayed(start: Game, names: list[str]) -> Game:
    for name in names:
        start = start.play(start.board.action(name))
    return start


def stones(game: Game) -> dict[tuple[int, int], str]:
    """By row and column from below, as sgfmill has them."""
    planes = game.features[..., :2] > 0
    colours = "bw" if game.num_plies % 2 == 0 else "wb"
    return {
        (8 - row, column): colours[plane]
        for row in range(9)
        for column in range(9)
        for plane in range(2)
        if planes[row, column, plane]
    }


def listed(board: Any) -> dict[tuple[int, int], str]:
    return {point: colour for colour, point in board.list_occupied_points()}


def randomly(start: Game, draws: random.Random, plies: int) -> list[Game]:
    games = [start]
    while len(games) <= plies and not games[-1].over:
        legal = games[-1].legal
        # Few passes, and no two in a row.
        passes = draws.random() < 0.1 and games[-1].moves[-1:] != ("pass",)
        games.append(games[-1].play(81 if passes else draws.choice(legal[:-1] or legal)))
    return games


@pytest.mark.parametrize("text", SPELLED)
def test_games_are_read_as_programs_write_them(start, text):
    begun, names, seed = read_record(start, text)
    assert (" ".join(names), begun.komi, begun.handicap) == SPELLED[text] and seed == 0
    assert replayed(begun, names).moves == tuple(names)


@pytest.mark.parametrize("text", WRONG)
def test_what_is_no_such_game_is_refused_in_one_line(start, text):
    with pytest.raises(ValueError) as e:
        read_record(start, text)
    assert WRONG[text] in str(e.value) and "\n" not in str(e.value)


@pytest.mark.parametrize("seed", range(4))
def test_games_are_those_of_sgfmill_both_ways(start, seed):
    """Moves, komi, handicap and, at every tenth move, the score."""
    draws = random.Random(seed)
    komi, number = draws.choice([0.0, 0.5, -3.5, 6.5]), (0, 2, 5, 9)[seed]
    theirs = sgf.Sgf_game(size=9)
    theirs.root.set("KM", komi)
    points = [vertex(HANDICAPS[9][point]) for point in TAKEN.get(number, [])]
    if number:
        theirs.root.set("HA", number)
        theirs.root.set_setup_stones(points, [])
    begun, names, _ = read_record(start, theirs.serialise().decode())
    games = randomly(replayed(begun, names), draws, 40)
    game = games[-1]
    read = sgf.Sgf_game.from_string(write_record(games))
    assert (read.get_komi(), read.get_handicap()) == (komi, number or None)
    board, plays = sgf_moves.get_setup_and_moves(read)
    assert set(listed(board)) == set(points)
    for colour, point in plays:
        if point is not None:
            row, column = point
            board.play(row, column, colour)
    assert listed(board) == stones(game) and len(plays) == len(game.moves) - len(names)
    lead = start.board.record.lead(game)
    assert lead == board.area_score() - komi
    # What is written is read again, and written as before.
    again, moves, _ = read_record(start, write_record(games))
    assert (again.komi, again.handicap) == (komi, number) and tuple(moves) == game.moves
    assert write_record([replayed(again, moves)]) == write_record(games)


@pytest.mark.parametrize("seed", range(3))
def test_positions_are_set_up(start, seed):
    """Those of games, in which every stone has a liberty."""
    game = randomly(start, random.Random(seed), 30 + 15 * seed)[-1]
    board = boards.Board(9)
    by_colour = {
        colour: [point for point, of in stones(game).items() if of == colour] for colour in "bw"
    }
    assert board.apply_setup(by_colour["b"], by_colour["w"], [])
    theirs = sgf.Sgf_game(size=9)
    theirs.root.set_setup_stones(by_colour["b"], by_colour["w"])
    theirs.root.set("PL", "w")
    begun, names, _ = read_record(start, theirs.serialise().decode())
    after = replayed(begun, names)
    assert stones(after) == stones(game) == listed(board) and after.mover == "white"


def test_a_long_comment_takes_little_memory(start):
    """Of plain characters, of escaped ones, of values and of what is before the game."""
    size = 4_000_000
    for text in (
        f"(;SZ[9]C[{'a' * size}];B[cc])",
        f"(;SZ[9]C[{chr(92)}]{'a' * size}];B[cc])",
        f"(;SZ[9]C[{(chr(92) + ']') * (size // 2)}];B[cc])",
        f"(;SZ[9]LB{'[aa:1]' * (size // 20)};B[cc])",
        f"{' ' * size}(;SZ[9];B[cc]",
    ):
        tracemalloc.start()
        try:
            assert read_record(start, text)[1] == ["c7"]
            assert tracemalloc.get_traced_memory()[1] < 2 * size
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize(
    "charset", ["utf-8", "utf-8-sig", "utf-16", "latin-1", "gbk", "big5", "shift_jis"]
)
def test_files_are_read_in_their_character_sets(engine, tmp_path, charset):
    """In some a letter ends with the byte of a backslash or a bracket."""
    name = {"gbk": "\u4e5a", "big5": "\u529f", "shift_jis": "\u30bd"}.get(charset, "\u00e9")
    if charset == "gbk":
        name = b"\x81]".decode("gbk")
    declared = "" if charset in ("utf-16", "latin-1") else f"CA[{charset.removesuffix('-sig')}]"
    text = f"(;GM[1]SZ[9]{declared}PB[{name}];B[cc])"
    path = tmp_path / "game.sgf"
    path.write_bytes(text.encode(charset))
    assert decode(path.read_bytes()) == text
    assert said(engine, f"loadsgf {path}", "printsgf")[1].endswith(";B[cc])")


def test_unknown_character_sets_are_read_as_they_can_be():
    for named in ("nonsense", "hex", "utf-8", "idna"):
        text = f"(;CA[{named}]PB[\u00e9];B[cc])"
        assert decode(text.encode("latin-1")) == text


# ---- GTP


@pytest.mark.parametrize("number", range(12))
def test_fixed_handicaps_are_those_of_the_specification(engine, number):
    (answer,) = said(engine, f"fixed_handicap {number}")
    if not 2 <= number <= 9:
        assert answer == "? invalid number of stones"
        return
    names = [HANDICAPS[9][point] for point in TAKEN[number]]
    assert answer == f"= {' '.join(names)}"
    (text,) = said(engine, "printsgf")
    assert sgf.Sgf_game.from_string(text[2:]).get_handicap() == number
    # The same by other commands, and by moves in a row.
    for lines in (
        [f"place_free_handicap {number}"],
        [f"set_free_handicap {' '.join(names).lower()}"],
    ):
        assert said(engine, "undo", "fixed_handicap x", "undo") == [
            "=",
            "? syntax error",
            "? cannot undo",
        ]
        assert said(engine, *lines)[0][0] == "=" and said(engine, "printsgf") == [text]
    before = said(engine, "showboard")
    assert said(engine, "clear_board", *(f"play b {name}" for name in names)) == ["="] * (
        number + 1
    )
    assert said(engine, "showboard") == before and said(engine, "play w e4") == ["="]


def test_handicaps_of_all_sizes_are_those_of_the_specification():
    for size, names in HANDICAPS.items():
        for number in range(12):
            taken = TAKEN.get(number, [])
            wanted = (
                [vertex(names[point]) for point in taken]
                if max(taken, default=99) < len(names)
                else []
            )
            assert handicap_points(size, number) == [
                size * (size - 1 - row) + column for row, column in wanted
            ], (size, number)


def test_handicaps_are_refused_where_there_is_no_place(engine):
    assert said(
        engine,
        "set_free_handicap c3",
        "set_free_handicap c3 pass",
        "set_free_handicap c3 c3",
        "set_free_handicap c3 i3",
        "place_free_handicap 1",
        "place_free_handicap 81",
        "place_free_handicap 80",
        "fixed_handicap 2",
        "undo",
        "play b c3",
        "set_free_handicap d4 e5",
    ) == [
        "? syntax error",
        "? bad vertex list",
        "? bad vertex list",
        "? syntax error",
        "? invalid number of stones",
        "? invalid number of stones",
        "= C3 G7 C7 G3 C5 G5 E3 E7 E5",
        "? board not empty",
        "=",
        "=",
        "? board not empty",
    ]


def test_a_side_that_moves_twice_leaves_one_pass_and_no_end(engine):
    assert said(engine, "play w c3", "play w d4", "play b pass", "play b e5") == [
        "=",
        "=",
        "=",
        # White's pass would be the second one in a row.
        "? illegal move",
    ]
    text = "(;FF[4]GM[1]KM[7.5]SZ[9];B[];W[cg];B[];W[df];B[])"
    assert said(engine, "printsgf", "genmove b") == [f"= {text}", "? white is to move"]
    assert said(engine, "undo", "undo", "printsgf", "undo", "undo") == [
        "=",
        "=",
        "= (;FF[4]GM[1]KM[7.5]SZ[9];B[];W[cg])",
        "=",
        "? cannot undo",
    ]
    # A pass on top of one that was left out would end the game.
    assert said(engine, "play b c3", "play b pass", "play w d4", "play b pass", "printsgf") == [
        "=",
        "? illegal move",
        "=",
        "=",
        "= (;FF[4]GM[1]KM[7.5]SZ[9];B[cg];W[df];B[])",
    ]


@pytest.mark.parametrize("komi", ["0", "0.5", "6.5", "-3.5", "7", "-0", "+5"])
def test_the_komi_counts(engine, tmp_path, komi):
    path = tmp_path / "game.sgf"
    game = ["play b e5", f"komi {komi}", "final_score", "play w pass", "play b pass"]
    assert said(engine, *game)[:2] == ["=", "="]
    lead = 81 - float(komi)
    assert said(engine, "final_score") == [f"= B+{lead:g}"]
    (text,) = said(engine, f"printsgf {path}", "printsgf")[1:]
    assert f"KM[{float(komi) + 0.0:g}]" in text and f"RE[B+{lead:g}]" in text
    assert sgf.Sgf_game.from_string(text[2:]).get_komi() == float(komi)
    assert said(engine, "clear_board", "komi 1", f"loadsgf {path}", "printsgf")[3] == text
    # It stays until another is set.
    assert said(engine, "clear_board", "play w e5", "final_score") == [
        "=",
        "=",
        f"= W+{81 + float(komi):g}",
    ]


@pytest.mark.parametrize(
    "komi", ["nan", "inf", "-Infinity", "1e9", "82", "1_0", "\u0663", "", "six", "0x6", "7 5"]
)
def test_what_is_no_komi_is_refused(engine, komi):
    assert said(engine, f"komi {komi}", "printsgf") == [
        "? syntax error",
        "= (;FF[4]GM[1]KM[7.5]SZ[9])",
    ]
    assert said(engine, "boardsize 0_9", "boardsize \u0669") == ["? syntax error"] * 2


def test_a_game_is_loaded_up_to_one_of_its_moves(engine, tmp_path):
    """Moves are counted as the file has them: without stones set up and passes left out. The side
    that makes the next move is to move."""
    path = tmp_path / "game.sgf"
    path.write_text("\ufeffmail\n(;SZ[9]HA[2]KM[0.5]AB[cc][gg];W[ee];W[dd];B[];W[aa]")
    begun = "= (;FF[4]GM[1]KM[0.5]SZ[9]HA[2]AB[cc][gg]"
    for move, rest in (
        (" 1", ""),
        (" 2", ";W[ee];B[]"),
        (" 3", ";W[ee];B[];W[dd]"),
        (" 99", ";W[ee];B[];W[dd];B[];W[aa]"),
        ("", ";W[ee];B[];W[dd];B[];W[aa]"),
    ):
        assert said(engine, f"loadsgf {path}{move}", "printsgf") == ["=", f"{begun}{rest})"]
    assert said(engine, "clear_board", "printsgf") == ["=", "= (;FF[4]GM[1]KM[0.5]SZ[9])"]
    path.write_text("(;SZ[9]PL[W];W[cc])")
    assert said(engine, f"loadsgf {path} 1", "printsgf")[1].endswith("SZ[9];B[])")


def test_what_clients_send_before_a_game(engine):
    """GoGui, Sabaki, gtp2ogs, twogtp and kgsGtp, with comments, numbers, tabs and CRLF."""
    lines = [
        "\ufeffprotocol_version\r\n", "1 name", "2\tversion\r", "list_commands # all",
        "boardsize 9", "clear_board", "komi 0.5", "known_command set_free_handicap",
        "time_settings 0 10 1", "kgs-time_settings byoyomi 600 30 5", "time_left black 600 0",
        "5 play B C3", "play BLACK G7", "play b c7\t# the third", "play W e5", "genmove b",
        "undo", "undo", "play w d4", "final_score", "showboard", "play b PASS",
    ]  # fmt: skip
    answers = said(engine, *lines)
    assert all(answer.startswith("=") for answer in answers), answers
    assert answers[11] == "=5" and answers[7] == "= true"
    (text,) = said(engine, "printsgf")
    assert text.endswith(";B[cg];W[];B[gc];W[];B[cc];W[df];B[])")


# ---- the browser


def test_komi_and_handicap_survive_the_browser(service):
    text = "(;FF[4]GM[1]KM[0]SZ[9]RE[B+79]HA[2]AB[cc][gg];W[];B[])"
    read = service.read(text)
    assert read == {
        "moves": "c7 pass g3 pass pass".split(), "seed": 0, "komi": 0, "handicap": 2,
    }  # fmt: skip
    (moves, terms) = tuple(read.pop("moves")), read
    answer = service.answer(Question(moves, **terms))
    assert answer["text"] == text.replace("B+79", "B+81")
    assert (answer["winner"], answer["result"]) == (0, "black wins by 81")
    # Another komi says another winner; as much as black has, nobody.
    for komi, winner, result in ((81, None, "draw"), (-82, 0, "black wins by 163")):
        answer = service.answer(Question(moves, komi=komi))
        assert (answer["winner"], answer["result"]) == (winner, result)
    assert service.answer(Question(("pass", "pass"), komi=-1))["winner"] == 0
    assert service.answer(Question(("pass", "pass")))["result"] == "white wins by 7.5"


def test_who_repeats_a_position_has_lost_without_counting(service):
    """White gives two stones, takes one, and has made a position again; pgx ends the game there."""
    names = tuple("a8 b9 b8 c8 pass d9 pass a9 c9 b9".split())
    answer = service.answer(Question(names, komi=60.0))
    assert (answer["winner"], answer["result"]) == (0, "black wins")
    assert "RE[B+F]" in answer["text"]


def test_many_blanks_take_no_longer(start):
    """Minutes of a regular expression would stop a server for everybody."""
    with pytest.raises(ValueError, match="'1 1' is no komi"):
        read_record(start, f"(;SZ[9]KM[1{' ' * 200_000}1])")
