"""A game of stones in the terminal and over GTP: tic-tac-toe, against a player that prefers low
cells. What Go and Othello add is tested in their apps."""

import functools as ft
import io

import jax.random as jr
import pytest
from rich.console import Console

from zero_app import Game, Session, Sgf
from zero_app._play._gtp import GtpEngine, serve_lines
from zero_app._play._record import read_record, write_record
from zero_envs import PgxEnvironment
from zero_search import TreeSearch
from zero_train import EnvironmentModel, PlanningActor

from .noughts import Cells, prefers_low_cells, WON


class Stones(Cells):
    sides = ("black", "white")
    record = Sgf(3, 0, lambda game: game.total)

    def draw(self, game, *, plain):
        return "\n".join(" ".join(".XO"[stone] for stone in row) for row in game.stones)


@pytest.fixture(scope="module")
def start():
    env = PgxEnvironment("tic_tac_toe")
    player = PlanningActor(TreeSearch.alphazero(8), EnvironmentModel(env, prefers_low_cells))
    return Game.start(env, player, Stones(), key=jr.key(0))


@pytest.fixture(scope="module")
def say(start):
    """`say(LINES)`: what a session in the terminal prints, in which these lines are typed."""

    def run(*lines: str, **options) -> str:
        typed, out = iter([*lines, "quit"]), io.StringIO()
        Session(
            start, Console(file=out, width=80), read=lambda prompt: next(typed), **options
        ).run()
        return out.getvalue()

    return run


@pytest.fixture
def gtp(start):
    """`gtp(LINES)`: the responses of an engine."""
    engine = GtpEngine(start, "stones", "1")

    def respond(*lines: str) -> list[str]:
        return ["".join(engine.respond(line)).strip() for line in lines]

    return respond


def test_a_person_plays_and_asks(say, tmp_path):
    file = tmp_path / "game.sgf"
    said = say("help", "hint", "why", "c3", "why", "moves", "board", f"save {file}", "undo", "b2")
    for part in ("You play black and move first.", "Your moves", "I have not moved yet.", "I play"):
        assert part in said
    assert "Why I played" in said and "Legal:" in said and "wins with a chance of" in said
    assert file.read_text().startswith("(;FF[4]GM[0]SZ[3];B[cc];W[")


def test_a_person_moves_second_and_is_told_what_is_wrong(say, tmp_path):
    said = say("z9", "undo", f"save {tmp_path}", "save -", "?", first=False)
    assert "You play white and move second." in said and "Thinking" in said
    assert 'Type "help"' in said and "You have no move to take back." in said
    assert "is a folder; give the name of a file." in said and "(;FF[4]" in said


def test_a_game_that_is_over_is_reviewed(say):
    """The player fills the upper row from the left, and is late by a move."""
    said = say("c3", "b3", "a3", "review", "hint")
    assert "The game is over: black wins, you win." in said and "The game so far" in said
    assert said.count("The game is over.") == 1 and "5." in said


def test_a_record_has_the_result_and_is_read_again(start):
    games = [start]
    for name in WON:
        games.append(games[-1].play(start.board.action(name)))
    text = write_record(games)
    assert "RE[B+1]" in text
    again, moves, seed = read_record(start, text)
    assert (moves, seed, again.num_plies) == (WON, 0, 0)


def test_commands_of_gtp(gtp):
    assert gtp("1 protocol_version", "name", "known_command play") == ["=1 2", "= stones", "= true"]
    assert gtp("boardsize 3", "boardsize 4", "komi x", "nonsense") == [
        "=",
        "? unacceptable size",
        "? syntax error",
        "? unknown command",
    ]
    assert gtp("play b c1", "play w c1", "play b a2", "play x a1", "undo", "undo") == [
        "=",
        "? illegal move",
        "? illegal move",
        "? syntax error",
        "=",
        "? cannot undo",
    ]
    (board,) = gtp("showboard")
    assert board.count(".") == 9


def test_an_engine_plays_within_its_time_and_says_what_it_thinks(gtp):
    gtp("time_settings 10 0 0", "time_left b 5 0", "kgs-time_settings byoyomi 1 1 3")
    played, again = gtp("genmove b", "reg_genmove w")
    assert played.startswith("= ") and again.startswith("= ")
    for command in ("lz-analyze w 10", "kata-analyze w 10 rootinfo true"):
        assert "visits" in gtp(command)[0]
    assert "play" in gtp("kata-genmove_analyze w 10")[0]
    assert gtp("lz-analyze w x") == ["? syntax error"]


def test_an_engine_saves_and_loads_games(gtp, tmp_path):
    file = tmp_path / "game.sgf"
    gtp(*(f"play {'bw'[ply % 2]} {move}" for ply, move in enumerate(WON)))
    assert gtp("final_score", f"printsgf {file}", "clear_board") == ["= B+1", "=", "="]
    assert gtp(f"loadsgf {file} 3", "printsgf")[1].endswith(";B[aa];W[ab])")
    assert gtp(f"loadsgf {tmp_path / 'none'}") == ["? cannot load file"]


def test_an_engine_is_served_until_it_is_told_to_quit(start):
    out = io.StringIO()
    lines = io.StringIO("# nothing\n\n7 name\nquit\nname\n")
    serve_lines(start, "stones", "1", lines, ft.partial(print, end="", file=out))
    assert out.getvalue() == "=7 stones\n\n=\n\n"
