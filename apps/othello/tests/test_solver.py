"""The solver of Othello's last moves, and the suite that it made."""

import functools as ft
import io
import pathlib
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from rich.console import Console

from zero_app import Game, Question, Service, Session, Suite
from zero_app._play._gtp import GtpEngine
from zero_envs import Othello
from zero_othello._app import APP
from zero_othello._board import Board

from .helpers import new_game, othello
from .oracle import PASS, random_game


pytest.importorskip("numba", reason="the solver needs numba, of the extra judges")

from zero_othello import _solver
from zero_othello._solver import flips, moves, position, Solver


_U = np.uint64


def legal(own: int, theirs: int, empty: int) -> list[int]:
    found = int(moves(_U(own), _U(theirs), _U(empty)))
    return [square for square in range(64) if found >> square & 1]


@ft.cache
def plain(own: int, theirs: int, empty: int) -> int:
    """The score by looking at every line of play to its end."""

    def after(square):
        flipped, bit = int(flips(square, _U(own), _U(theirs))), 1 << square
        return -plain(theirs ^ flipped, own | flipped | bit, empty ^ bit)

    if found := legal(own, theirs, empty):
        return max(map(after, found))
    if legal(theirs, own, empty):
        return -plain(theirs, own, empty)
    ours, others, rest = own.bit_count(), theirs.bit_count(), empty.bit_count()
    return ours - others + (rest if ours > others else -rest if ours < others else 0)


def small(size: int) -> tuple[int, int, int]:
    """The start of Othello on a smaller board, in the middle of the large one."""
    inner = range((8 - size) // 2, (8 + size) // 2)
    board = sum(1 << 8 * row + column for row in inner for column in inner)
    own, theirs, _ = position([])
    return own, theirs, board & ~own & ~theirs


def with_empty(seed: int, number: int) -> tuple[int, int, int]:
    """A board of a game of random moves with so many empty squares, or fewer if it ends before."""
    board, played = position([]), []
    for action in random_game(seed):
        if board[2].bit_count() == number and (
            legal(*board) or legal(board[1], board[0], board[2])
        ):
            break
        played.append(action)
        board = position(played)
    return board


def test_it_plays_by_the_rules_of_zero_envs():
    """Through whole games, in some of which a side passes."""
    env, games = Othello(), [random_game(seed) for seed in range(6)]
    assert any(PASS in game for game in games)

    @jax.jit
    def states(actions):
        start = env.init(key=jr.key(0))
        step = lambda state, action: (env.step(state, action, key=jr.key(0))[0], state.words)
        return jax.lax.scan(step, start, actions)[1]

    for game in games:
        padded = jnp.asarray(game + [PASS] * (128 - len(game)), jnp.int32)
        for i, words in enumerate(np.asarray(states(padded))[: len(game)]):
            sets = [int(low) | int(high) << 32 for low, high in words[:3]]
            board = position(game[:i])
            assert [*board[:2]] == sets[:2]
            assert int(moves(*map(_U, board))) == sets[2]


@pytest.mark.parametrize("number", [1, 2, 4, 6, 8])
def test_its_scores_are_those_of_plain_minimax(number):
    solver = Solver(12)  # so small that positions replace each other
    for seed in range(8):
        board = with_empty(seed, number)
        assert solver.score(*board) == plain(*board)
        found = solver.scores(*board)
        assert max(found.values()) == plain(*board)
        for square, score in found.items():
            own, theirs, empty = board
            if square < 64:
                flipped, bit = int(flips(square, _U(own), _U(theirs))), 1 << square
                own, theirs, empty = own | flipped | bit, theirs ^ flipped, empty ^ bit
            assert score == -plain(theirs, own, empty)


def test_narrow_windows_bound_the_score():
    board = with_empty(3, 9)
    score = plain(*board)
    for low in range(-64, 64, 5):
        found = Solver(10).score(*board, low, low + 1)
        assert (found <= low) == (score <= low)
        assert score <= found if found <= low else score >= found


def test_the_first_player_loses_on_four_by_four_by_eight_discs():
    """11 to 3, and two squares stay empty, which count for the winner."""
    solver = Solver()
    assert solver.score(*small(4)) == plain(*small(4)) == 3 - 11 - 2
    assert solver.nodes < 2000


#: Perfect play on six by six by Feinstein, 1993, who needed two weeks:
#: www.maths.nottingham.ac.uk/plp/pmzjff/Othello/6x6sol.html
SIX = (
    "d3 c5 d6 e3 f5 f4 e2 d2 c2 e6 e7 g5 c4 c3 g4 g3 "
    "f3 c7 b5 d7 b7 b3 c6 b6 f7 f6 b4 b2 g6 g7 f2 g2"
).split()


@pytest.mark.parametrize("empty", [16, 22, pytest.param(26, marks=pytest.mark.slow)])
def test_the_first_player_loses_on_six_by_six_by_four_discs(empty):
    """In each position of perfect play from so many empty squares on."""
    board, black, solver = small(6), 1, Solver()
    for square in (8 * int(name[1]) - 8 + "abcdefgh".index(name[0]) for name in SIX):
        if square not in legal(*board):
            board, black = (board[1], board[0], board[2]), -black
        if board[2].bit_count() <= empty:
            assert solver.score(*board) == -4 * black
        own, theirs, rest = board
        flipped, bit = int(flips(square, _U(own), _U(theirs))), 1 << square
        assert flipped
        board, black = (theirs ^ flipped, own | flipped | bit, rest ^ bit), -black
    assert board[2] == 0 and {board[0].bit_count(), board[1].bit_count()} == {16, 20}


def test_compiled_functions_are_kept_for_the_next_process(tmp_path, monkeypatch):
    """Numba's cache ends processes whose functions call themselves with other types than those that
    they were called with (numba issue 6061)."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    code = (
        "from zero_othello._solver import *; from zero_othello._solver import _search;"
        "s = Solver(12); print(s.score(3, 4, 0x3f0078));"
        "print(sum(_search.stats.cache_hits.values()))"
    )
    run = lambda: subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    first, second = run(), run()
    assert first.returncode == second.returncode == 0, second.stderr
    (score, misses), (again, hits) = first.stdout.split(), second.stdout.split()
    assert score == again and (misses, hits) == ("0", "1")
    assert not list(pathlib.Path(_solver.__file__).parent.rglob("*.nbi"))


def test_a_change_in_another_file_is_compiled(tmp_path, monkeypatch):
    """What one function takes from another file is in what was compiled of it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "game"
    folder.mkdir()
    (folder / "__init__.py").touch()
    one = "from zero_app import compiled\n\ndef {}(x):\n    return {}\n\n{} = compiled({})\n"
    (folder / "two.py").write_text("from .one import f\n" + one.format("g", "f(x) * 10", "g", "g"))
    results = []
    for times in (2, 6):
        (folder / "one.py").write_text(one.format("f", f"x * {times}", "f", "f"))
        code = "from game.two import g; print(g(1))"
        run = subprocess.run(
            [sys.executable, "-B", "-c", code], cwd=tmp_path, capture_output=True, text=True
        )
        results.append(run.stdout.strip() or run.stderr)
    assert results == ["20", "60"]


def test_the_suite_is_what_the_solver_says():
    """Of every fiftieth position. In each some moves keep the result, and others do not."""
    assert APP.suites is not None
    suite, solver = Suite.read(APP.suites / "endgames.npz"), Solver(20)
    known = suite.scores > -128
    assert len(suite.moves) == len({tuple(x) for x in suite.moves}) == 500
    signs = np.where(known, np.sign(suite.scores), 0)
    best = signs.max(axis=1, where=known, initial=-1)
    assert (best > signs.min(axis=1, where=known, initial=1)).all()
    for actions, scores in zip(suite.moves[::50], suite.scores[::50], strict=True):
        board = position(actions[actions >= 0].tolist())
        assert 10 <= board[2].bit_count() <= 16
        found = {action: int(score) for action, score in enumerate(scores) if score > -128}
        assert solver.scores(*board) == found


@pytest.fixture(scope="module")
def ending() -> Game:
    """Twelve squares are empty."""
    game, rng = new_game(), np.random.default_rng(3)
    while np.sum(game.stones == 0) > 12:
        assert game.scores is None
        game = game.play(int(rng.choice(game.legal)))
    return game


def test_games_are_played_exactly_from_twelve_empty_squares_on(ending):
    """Whatever the player's search or network says."""
    game = ending
    actions = [game.board.action(name) for name in game.moves]
    found = Solver().scores(*position(actions))
    choice = int(game.plan.action)
    assert game.scores == found and found[choice] == max(found.values())
    out = io.StringIO()
    read = iter(["why", "quit"])
    session = Session(
        game, Console(file=out, width=100), read=lambda _: next(read), first=not game.first_moves
    )
    session.run()
    said = f"I play {game.name(choice).lower()}, which ends {max(found.values()):+d} for me."
    assert said in out.getvalue() and "Solved, with the best moves of both:" in out.getvalue()
    sign = 1 if game.first_moves else -1
    while not game.over:  # both play perfectly, so what was promised is what comes
        game = game.play(int(game.plan.action))
    assert sign * game.board.record.margin(game) == max(found.values())
    said = f"{game.board.sides[0 if sign * max(found.values()) > 0 else 1]} wins by"
    assert not max(found.values()) or said in game.board.result(game)


def test_what_solved_moves_pay_is_what_the_game_pays(ending):
    """Where the lead in discs counts as well."""
    env = Othello(disc_weight=0.5)
    game = Game.start(env, ending.actor, Board(), key=jr.key(0))
    for move in ending.moves:
        game = game.play(game.board.action(move))
    first, value = game.first_moves, float(game.plan.value)
    while not game.over:
        game = game.play(int(game.plan.action))
    assert value == pytest.approx(game.total if first else -game.total, abs=1e-6) and value % 1
    page = Board().page
    assert page is not None
    service = Service.of_search(env, ending.actor, page)
    assert service.about()["points"] and service.about()["max_value"] == 1.5
    answer = service.answer(Question(game.moves, 64))
    assert answer["over"] and answer["total"] == pytest.approx(game.total)


def test_endings_are_played_exactly_and_told_over_gtp_and_in_the_browser(ending):
    assert ending.scores is not None
    best = max(ending.scores.values())
    move = ending.name(int(ending.plan.action))
    waiting = iter([True] * 9)
    engine = GtpEngine(ending, "zero-othello", "1", pending=lambda: next(waiting))
    side = ending.mover
    assert "".join(engine.respond(f"reg_genmove {side}")) == f"= {move}\n\n"
    (_, line, end) = engine.respond(f"kata-analyze {side}")
    told = re.findall(r"move (\w+) .*? scoreLead (-?\d+)", line)
    assert told[0] == (move, str(best)) and end == "\n"
    assert {ending.board.action(name): int(score) for name, score in told} == ending.scores
    assert f"play {move}\n" in [*engine.respond(f"lz-genmove_analyze {side}")]
    page = Board().page
    assert page is not None
    service = Service.of_search(othello(), ending.actor, page)
    answer = service.answer(Question(ending.moves, 64, think=True))
    thought = answer["thought"]
    assert (thought["move"], thought["score"]) == (move.lower(), best) and not answer["compiled"]
    assert thought["value"] == np.sign(best)
    assert {move["name"]: move["value"] for move in thought["moves"]} == {
        ending.name(action).lower(): np.sign(score) for action, score in ending.scores.items()
    }
    # The network's own policy is told beside it.
    assert sum(move["prior"] for move in thought["moves"]) == pytest.approx(1, abs=1e-3)
