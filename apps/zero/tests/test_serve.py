"""Runs in the browser: what their boards and moves become."""

import random
import re
import socket
from typing import Any

import pytest

from zero_app import GAME_COMMANDS, Question, Service, Trained, UsageError
from zero_cli._agents import OWN_APPS
from zero_cli._apps import APP
from zero_cli._board import Board
from zero_cli._config import presets
from zero_cli._pieces import PIECES
from zero_cli._worlds import build_world
from zero_envs import known_environments
from zero_train import indifferent, PolicyActor, RandomActor


_NAME = re.escape(socket.gethostname())


def test_a_run_is_served(tiny_run):
    serve: Any = GAME_COMMANDS["serve"]
    (service,) = serve(str(tiny_run)).services(APP)
    about = service.about()
    assert (about["title"], about["rows"], about["columns"]) == ("Tic tac toe", 3, 3)
    moves = ("b2", "a1", "b1", "a2")
    answer = service.answer(Question(moves, think=True))
    assert answer["cells"] == ["O", "X", "", "O", "X", "", "", "", ""] and answer["last"] == 3
    assert answer["thought"]["move"] in answer["legal"] and answer["side"] == 0
    # At the end pgx has changed the player to move once more; the stones keep their sides.
    over = service.answer(Question((*moves, "b3")))
    assert over["winner"] == 0 and over["cells"] == ["O", "X", "", "O", "X", "", "", "X", ""]


@pytest.mark.parametrize(
    "host, shown",
    [
        ("127.0.0.1", r"http://127\.0\.0\.1:%d/"),
        ("0.0.0.0", rf"(?:http://[\d.]+:\d+/#\S{{22}} or )?http://{_NAME}:%d/#\S{{22}}"),
    ],
)
def test_the_address_to_open_is_printed(zero, tiny_run, monkeypatch, host, shown):
    """With a token where others reach it."""
    ports = []
    stop = lambda self, sockets: ports.append(sockets[0].getsockname()[1])
    monkeypatch.setattr("uvicorn.Server.run", stop)
    code, out, err = zero("serve", tiny_run, "--host", host, "--port", "0")
    assert (code, err) == (0, "") and re.search(f"Tic tac toe: open {shown % ports[0]} \\(", out)


@pytest.mark.parametrize(
    "env, said",
    [
        ("2048", "2048 has one player; `zero watch r` shows"),
        ("zero_envs.testing:Nim", "cannot be drawn"),
    ],
)
def test_what_cannot_be_served_is_named(env, said, monkeypatch):
    serve: Any = GAME_COMMANDS["serve"]
    config = presets(env, "expert", 84)["tiny"]
    trained = Trained(config, APP.build(config), RandomActor(), 0)
    monkeypatch.setattr(serve, "load", lambda command, app: trained)
    with pytest.raises(UsageError, match=said):
        serve("r").services(APP)


@pytest.mark.parametrize(
    "size, action, white, black",
    [
        (8, 89, "a2a3", "a7a6"),
        (8, 90, "a2a4", "a7a5"),
        (8, 652, "b1a3", "b8a6"),
        (8, 73 * 6 + 7, "a7b8n", "a2b1n"),
        (8, 73 * 6, "a7a8r", "a2a1r"),
        (8, 73 * 6 + 16, "a7a8", "a2a1"),
        (8, 8, "8", "8"),
        (5, 49 * 3 + 4, "a4b5b", "a2b1b"),
        (5, 49 * 1 + 13, "a2a3", "a4a3"),
    ],
)
def test_moves_of_chess_are_called_by_their_squares(size, action, white, black):
    name = PIECES["pgx/chess" if size == 8 else "pgx/gardner_chess"].name
    assert (name(action, True), name(action, False)) == (white, black)


#: Every game of two players that an agent can play here; the slow ones compile for long.
FAST = ("pgx/animal_shogi", "pgx/go_9x9")
BOARDS = [
    pytest.param(name, marks=[] if name in FAST else pytest.mark.slow)
    for name, facts in known_environments().items()
    if facts.num_players == 2 and not facts.hidden and name not in OWN_APPS
]


def _service(name: str) -> Service:
    """With a player that knows nothing."""
    env: Any = build_world(name).env
    page: Any = Board(build_world(name)).page
    return Service(env, {0: PolicyActor(indifferent)}, page)


@pytest.mark.parametrize("name", BOARDS)
def test_every_game_is_played_to_an_end(name):
    """With random moves: what is shown before and after each explains it."""
    service, draws = _service(name), random.Random(0)
    about = service.about()
    moves: list[str] = []
    answer = service.answer(Question())
    while not answer["over"] and len(moves) < 300:
        assert len(about["names"]) == len(answer.get("cells", ())) and answer["legal"]
        side = about["sides"][answer["side"]]
        if answer.get("cells"):
            assert all(word in about["glyphs"] for word in answer["cells"] if " " in word)
        if about["style"] in ("pieces", "wood"):
            for cells in answer["legal"].values():
                start, end = answer["cells"][cells[0]], answer["cells"][cells[-1]]
                assert not end.startswith(side) or len(cells) == 1 and end == ""
                assert start.startswith(side) if len(cells) == 2 else start == ""
        before, move = answer, draws.choice(list(answer["legal"]))
        moves.append(move)
        answer = service.answer(Question(tuple(moves)))
        cells = before["legal"][move]
        if cells and about["style"] != "picture":
            assert answer["cells"][answer["last"]].startswith(side) and answer["last"] in cells
            assert len(cells) == 1 or about["style"] == "holes" or answer["cells"][cells[0]] == ""
        elif about["style"] == "picture":
            assert answer["svg"].startswith("<svg")
    assert service.read(answer["text"])["moves"] == moves
    if answer["over"] and answer["winner"] is not None:
        assert answer["result"].startswith(about["sides"][answer["winner"]])


@pytest.mark.parametrize("seed", range(3))
def test_the_score_of_go_says_who_has_won(seed):
    """pgx counts for itself."""
    service, draws = _service("pgx/go_9x9"), random.Random(seed)
    moves: list[str] = []
    while not (answer := service.answer(Question(tuple(moves))))["over"]:
        stones = [move for move in answer["legal"] if move != "pass"]
        moves.append(draws.choice(stones) if stones and len(moves) < 100 else "pass")
    side = service.about()["sides"][answer["winner"]]
    assert answer["result"].startswith(f"{side} wins by ")
    assert f"RE[{side[0].upper()}+{answer['result'].split()[-1]}]" in answer["text"]


def test_go_is_called_as_in_its_books(tiny_run):
    names = _service("pgx/go_9x9").about()["names"]
    assert (names[0], names[8], names[72], names[80]) == ("a9", "j9", "a1", "j1")
    played = _service("pgx/go_9x9").answer(Question(("c3", "pass", "j9")))
    assert played["text"] == "(;FF[4]GM[1]KM[7.5]SZ[9];B[cg];W[];B[ia])"


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, moves, winner",
    [
        ("pgx/chess", "e2e4 e7e5 d1h5 b8c6 f1c4 g8f6 h5f7", 0),
        ("pgx/chess", "f2f3 e7e5 g2g4 d8h4", 1),
    ],
)
def test_the_shortest_mates_of_chess(name, moves, winner):
    service = _service(name)
    answer = service.answer(Question(tuple(moves.split())))
    assert answer["over"] and answer["winner"] == winner
    about = service.about()
    assert about["names"][0] == "a8" and about["glyphs"]["white king"] == "\u2654"
    assert service.answer(Question())["cells"][60] == "white king"  # e1


@pytest.mark.slow
def test_an_opening_of_shogi():
    """The bishops are exchanged, and one is dropped."""
    service = _service("pgx/shogi")
    start = service.answer(Question())
    names = service.about()["names"]
    assert (names[0], names[80]) == ("9a", "1i") and start["cells"][
        names.index("5i")
    ] == "black king"
    assert start["legal"]["7fu"] == [names.index("7g"), names.index("7f")]
    moves = ("7fu", "3du", "2bur+")
    taken = service.answer(Question(moves))
    assert taken["cells"][names.index("2b")] == "black horse"
    assert taken["note"] == "In hand: black: 1 bishop; white: none"
    dropped = service.answer(Question((*moves, "2br" if "2br" in taken["legal"] else "2bl")))
    assert dropped["cells"][names.index("2b")].startswith("white")
    assert any(move.startswith("b*") for move in dropped["legal"])
