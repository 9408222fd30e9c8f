"""Games of chess as text, beside what python-chess writes and reads."""

import io
import pathlib
import random
import re
import tracemalloc
from typing import Any

import chess
import chess.pgn
import jax.random as jr
import pytest
from rich.console import Console

from zero_app import Game, Question, Service, Session
from zero_app._play._record import read_record, write_record
from zero_cli._board import Board
from zero_cli._worlds import build_world
from zero_train import indifferent, PolicyActor


#: A pawn is taken in passing and promoted, and both sides castle.
IN_PASSING = (
    "e2e4 a7a6 e4e5 d7d5 e5d6 g8f6 d6c7 g7g6 c7b8q f8g7 g1f3 e8g8 f1e2 h7h6 e1g1 d8a5 b8c8 a8c8"
)
PLAYED = [move.removesuffix("q") for move in IN_PASSING.split()]
#: Texts of the first so many moves of it.
SPELLED = [
    ("", 0),
    ("*", 0),
    ("e2e4 a7a6", 2),
    ("E2E4 A7A6 e4-e5", 3),
    ("1.e4 a6 2.e5 d5 3.exd6 Nf6 4.dxc7 g6 5.cxb8=Q Bg7 6.Nf3 O-O 7.Be2 h6 8.O-O Qa5", 16),
    ("1 e4 a6 2 e5 d5 3 exd6 e.p. Nf6 4 dxc7 g6 5 cxb8Q Bg7 6 Nf3 0-0 7 Be2 h6 8 0-0", 15),
    ("1. e2-e4 a7-a6 2. e4-e5 d7-d5 3. e5:d6 Ng8-f6! 4. d6xc7 g7-g6 5. c7xb8=Q+ Bf8g7", 10),
    ("1. e4 a6 2. e5 d5 3. exd6e.p.!? N8f6 4. dxc7# g6 5. c7b8q Bfg7 6. N1f3 o-o", 12),
    ("\ufeff% a (\r\n1.\r\ne4 ; ends ) here\r\n1... a6 $1 $255 !? 2. 1\u2026 1/2-1/2 2. e5", 2),
    ("1. e4 {a (1. d4) 1-0} (1. d4 (1. c4 {)} e5) d5 1-0 ; )\n) 1... a6 1-0", 2),
    # As ChessBase, and books, print them.
    (
        '[Annotator "CB"]\n1.e4\u00b1 a6 $146 {[%cal Gd1d5,Rb1c3][%csl Ra1] [%evp 0,2,19]} 2.e5!? '
        "+= d5\u2213 3.e\u00d7d6 \u2658f6 +- 4.dxc7 -+ g6\u25a1 5.cxb8\u2655 "
        "\u265d\ufe0eg7= 6.\u2658f3 "
        "O\u2013O +/= 7.\u2657e2 = \u2659h6 8.0\u20130 \u221e \u00bd\u2013\u00bd 8... d5",
        15,
    ),
    ("1. e4 a6 1\u20130 2. e5", 2),
    ("1. e4+- a6-+ 2. e5!+/= d5=+!? 3. exd6+-!", 5),
    *(
        (f"{tags}\r\n\r\n1. e4 {{[%clk 0:10:00]}} 1... a6 $5 1/2", 2)
        for tags in (
            '[SetUp "1"]\r\n[FEN "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1"]',
            '[FEN "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1"]\r\n[SetUp "1"]',
            '[FEN "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w HAha - 0 7"]',
            '[FEN "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR"]\r\n[Variant "Standard"]',
            '[FEN ""]',
            '[SetUp "1"]\r\n[FEN " "]',
            '[FEN "?"]\r\n[SetUp "0"]',
            '[SetUp ""]',
        )
    ),
    # Of the first game only; positions of later ones do not matter.
    ('[Event "1"]\n\n1. e4 a6 *\n\n[SetUp "1"]\n[FEN "8/8/8/8/8/8/8/8 w - - 0 1"]\n\n*', 2),
    ('1. e4 a6\n\n[SetUp "1"]\n[FEN "8/8/8/8/8/8/8/8 w - - 0 1"]\n\n*', 2),
    ('[Event "the "big" one"] [White "\\"b [c]"]\n[SetUp "0"]\n\n1. e4 a6\n\n[Event "2"] 1. d4', 2),
]
WRONG = {
    '[Variant "Antichess"]\n\n1. e3 b5 *': "this is a game of Antichess, by its tag Variant; give "
    "one of chess",
    "1. e4 e5 2. Nf6 *": "ply 3, 'Nf6', is no legal move of white there",
    "1. Nf3 d5 2. d3 c5 3. Nd2": "ply 5, 'Nd2', may be b1d2 or f3d2; give the square that it "
    "comes from",
    "e2e4 e7e9": "ply 2, 'e7e9', is no legal move of black there",
    "1. e4 e5 2. Z\u00fcg": "ply 3, 'Z\\xfcg', is no legal move of white there",
    "1. e4 -- 2. e5": "ply 2, '--', is no legal move of black there",
    "e2e4 a7a6 e4e5 d7d5 e5d6 a6a5 d6c7 a5a4 cxb8": "ply 9, 'cxb8', is no legal move of white "
    "there",
    "1. f3 e5 2. g4 Qh4# 3. Kf2": "the game was over before ply 5, 'Kf2'",
    '[FEN "8/8/8/8/8/8/8/8 w - - 0 1"] *': "this game begins with a position of its own, by its "
    "tag FEN; give a whole game",
    **{
        f'[FEN "{position}"] *': "this game begins with a position of its own, by its tag FEN; "
        "give a whole game"
        for position in (
            "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR b KQkq - 0 1",
            "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w Qkq - 0 1",
            "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBN1 w KQkq - 0 1",
            "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 9 1",
        )
    },
    '[SetUp "1"] *': "this game begins with a position of its own, by its tag SetUp; give a whole "
    "game",
    "1. e4 {a comment": "this is no PGN from character 7 on: '{a comment'",
    "[Event] 1. e4": "this is no PGN from character 1 on: '[Event] 1. e4'",
    "1. e4 (1. d4": "this is no PGN: a variation in parentheses does not end",
    "1. e4) e5": "this is no PGN: nothing is open before the ) at character 6",
}


#: White has three queens that reach one square: one of the same column, one of the same row.
QUEENS = (
    "b2b4 b8c6 h2h3 c6e5 c2c3 e5d3 e2d3 g8h6 g2g4 h8g8 c3c4 a8b8 b4b5 g8h8 b5b6 h8g8 b6a7 g8h8 "
    "a7b8q h6f5 g4f5 h8g8 d1b3 g8h8 f5f6 h8g8 f6g7 g8h8 g7g8q c7c6 d3d4 d8c7 f1g2 c7b6 b8g3"
)


@pytest.fixture(scope="module")
def start() -> Game:
    world = build_world("pgx/chess")
    board = Board(world, pathlib.Path("unused"))
    return Game.start(world.env, PolicyActor(indifferent), board, key=jr.key(0))


@pytest.fixture(scope="module")
def games(start) -> list[tuple[list[Game], chess.Board]]:
    """Games at each of their positions, and their ends by python-chess."""
    made = [_random(start, random.Random(seed)) for seed in (8, 52)]
    made += [_played(start, text) for text in (IN_PASSING, QUEENS)]
    texts = "\n".join(write_record(game) for game, _ in made)
    # Of each kind of move there is one: rooks of a column, three queens, in passing, and so on.
    kinds = ["[NR][1-8]x?[a-h]", "Q[a-h][1-8][a-h]", "O-O ", "O-O-O", "=Q", "=[NRB]", "[+] ", "#"]
    assert all(re.search(kind, texts) for kind in kinds), texts
    return made


def _random(start: Game, draws: random.Random) -> tuple[list[Game], chess.Board]:
    """In which rare moves are not rare."""
    games, board = [start], chess.Board()
    while not games[-1].over:
        moves = list(board.legal_moves)
        rare = [m for m in moves if m.promotion or board.is_en_passant(m) or board.is_castling(m)]
        move = draws.choice(rare or moves)
        board.push(move)
        games.append(_after(games[-1], move))
    return games, board


def _played(start: Game, names: str) -> tuple[list[Game], chess.Board]:
    games, board = [start], chess.Board()
    for name in names.split():
        move = chess.Move.from_uci(name)
        assert board.is_legal(move)
        board.push(move)
        games.append(_after(games[-1], move))
    return games, board


def _after(game: Game, move: chess.Move) -> Game:
    # A promotion without a letter is that to a queen.
    return game.play(game.board.action(move.uci().removesuffix("q"), game.first_moves))


def test_what_is_written_is_what_python_chess_writes(games):
    for game, board in games:
        for count in (0, 1, 16, len(game) - 1):
            before = chess.Board()
            for move in board.move_stack[:count]:
                before.push(move)
            truth = chess.pgn.Game.from_board(before)
            end = game[count]
            truth.headers["Result"] = before.result(claim_draw=True) if end.over else "*"
            text = write_record(game[: count + 1])
            assert text == truth.accept(chess.pgn.StringExporter(columns=80))
            drawn = end.board.draw(end, plain=True)
            assert isinstance(drawn, str)
            assert [line[2:] for line in drawn.splitlines()[1:9]] == str(before).splitlines()
            read = chess.pgn.read_game(io.StringIO(text))
            assert read is not None and not read.errors
            assert list(read.mainline_moves()) == board.move_stack[:count]


def test_what_python_chess_writes_is_read(start, games):
    """With comments, judgements and variations, which have variations of their own."""
    draws = random.Random(0)
    for game, board in games:
        plies = min(80, len(board.move_stack))
        truth = chess.pgn.Game(
            {"Event": 'a "quoted" \\ [name]', "White": "1. e4 {", "Annotator": "a;(b"}
        )
        node: chess.pgn.GameNode = truth
        for move in board.move_stack[:plies]:
            other = draws.choice(list(node.board().legal_moves))
            node = node.add_main_variation(
                move, comment=draws.choice(["", "", "a (b; 1-0 {c", "[%clk 0:01:02]\n$1"])
            )
            node.nags = set(draws.sample(range(1, 140), draws.choice([0, 0, 1, 3])))
            assert node.parent is not None
            if other != move:
                aside = node.parent.add_variation(other, comment=") 1. e4", starting_comment="(")
                for _ in range(draws.randint(0, 2)):
                    for reply in list(aside.board().legal_moves)[:2]:
                        aside.add_variation(reply)
                    aside = aside.variations[0] if aside.variations else aside
        _, names, _ = read_record(start, str(truth))
        assert tuple(names) == game[plies].moves


@pytest.mark.parametrize("text, count", SPELLED)
def test_moves_are_read_as_people_write_them(start, text, count):
    for line_end in ("\n", "\r\n", "\r"):
        written = text.replace("\r\n", "\n").replace("\n", line_end)
        assert read_record(start, written)[1:] == (PLAYED[:count], 0)


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_text_is_refused_in_one_line(start, text):
    with pytest.raises(ValueError) as e:
        read_record(start, text)
    assert str(e.value) == WRONG[text]


def test_a_long_comment_takes_little_memory(start):
    size = 1_000_000
    for text in (
        f"1. e4 {{{'a' * size}}} a6",
        f"1. e4 ;{'a' * size}\n a6",
        f'[White "{"a" * size}"]\n1. e4 a6',
        f"1. e4 ({'d4 d5 ' * (size // 50)}) a6",
    ):
        tracemalloc.start()
        try:
            assert read_record(start, text)[1] == PLAYED[:2]
            assert tracemalloc.get_traced_memory()[1] < 2 * size
        finally:
            tracemalloc.stop()


KNIGHTS = "g1f3 g8f6 f3g1 f6g8".split()


@pytest.mark.parametrize(
    "opening, counted",
    [
        # The first position of all, and that after a double step that no pawn can take.
        ([], False),
        (["e2e4"], False),
        (["e2e4", "e7e5"], False),
        (["e2e3"], True),
        (["e2e3", "e7e6"], True),
    ],
)
def test_what_the_page_says_of_the_third_repetition_is_so(start, opening, counted):
    """By the rules it is a draw. pgx may count one time less, and then ends it a move later, where
    the next position comes for the third time."""
    board, game = chess.Board(), start
    turn = KNIGHTS if len(opening) % 2 == 0 else ["g8f6", "g1f3", "f6g8", "f3g1"]
    for move in [*opening, *turn, *turn]:
        board.push_uci(move)
        assert not game.over
        game = game.play(game.board.action(move, game.first_moves))
    assert board.is_repetition(3) and game.over == counted
    if not counted:
        game = game.play(game.board.action(turn[0], game.first_moves))
    assert game.over and game.total == 0


def test_a_damaged_text_is_a_game_or_is_refused(start):
    text = '[White "a"]\n\n1. e4 {b} c5 (1... e5 $1) 2. Nf3 d6 ; c\n3. d4 cxd4 1/2-1/2\n'
    draws, refused = random.Random(0), 0
    for _ in range(400):
        damaged = list(text)
        for _ in range(draws.randint(1, 4)):
            damaged[draws.randrange(len(damaged))] = draws.choice('([{;$"%}])\\x+#=18aNO\0\u00e9\n')
        try:
            _, names, _ = read_record(start, "".join(damaged))
        except ValueError as e:
            assert "\n" not in str(e) and str(e).isascii()
            refused += 1
        else:
            assert len(names) <= 12
    assert 100 < refused < 400


def test_the_browser_and_the_terminal_keep_games_as_pgn(start, tmp_path):
    world = build_world("pgx/chess")
    env: Any = world.env
    page: Any = Board(world).page
    service = Service(env, {0: PolicyActor(indifferent)}, page)
    assert service.about()["notation"] == "PGN"
    moves = PLAYED[:3]
    answer = service.answer(Question(tuple(moves)))
    assert answer["text"].endswith("\n\n1. e4 a6 2. e5 *")
    assert service.read(answer["text"]) == {"moves": moves, "seed": 0}
    # A move that was taken back is not in the file.
    path = tmp_path / "game.pgn"
    lines = iter(["e2e4", "undo", "d2d4", f"save {path}", "quit"])
    session = Session(start, Console(file=io.StringIO()), read=lambda prompt: next(lines))
    session.run()
    _, names, _ = read_record(start, path.read_text())
    assert names[0] == "d2d4" and tuple(names) == session.game.moves and len(names) == 2


def test_a_long_word_takes_no_longer(start):
    """Minutes of a regular expression would stop a server for everybody."""
    with pytest.raises(ValueError) as e:
        read_record(start, f"1. {'+' * 200_000}x")
    assert len(str(e.value)) < 200
