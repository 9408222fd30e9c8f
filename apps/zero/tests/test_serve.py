"""Runs in the browser: what their boards and moves become."""

import re
import socket
from typing import Any

import jax
import pytest

from zero_cli._apps import APP
from zero_cli._board import _chess_move
from zero_cli._config import presets
from zero_cli._serve import Serve
from zero_train.app import load, Question, Service, Trained, UsageError


_NAME = re.escape(socket.gethostname())


def test_a_run_is_served(tiny_run):
    trained: Any = load(APP, tiny_run)
    page = Serve(str(tiny_run)).page(trained)
    service = Service(trained.loop.env, trained.player, page)
    about = service.about()
    assert (about["title"], about["rows"], about["columns"]) == ("Tic tac toe", 3, 3)
    moves = ("b2", "a1", "b1", "a2")
    answer = service.answer(Question(moves, think=True))
    assert answer["cells"] == [2, 1, 0, 2, 1, 0, 0, 0, 0] and answer["last"] == 3
    assert answer["thought"]["move"] in answer["legal"] and answer["side"] == 0
    # At the end pgx has changed the player to move once more; the stones keep their sides.
    over = service.answer(Question((*moves, "b3")))
    assert over["winner"] == 0 and over["cells"] == [2, 1, 0, 2, 1, 0, 0, 1, 0]


@pytest.mark.parametrize(
    "host, shown",
    [("127.0.0.1", r"http://127\.0\.0\.1:%d/ "), ("0.0.0.0", rf"http://{_NAME}:%d/#\S{{22}} ")],
)
def test_the_address_to_open_is_printed(zero, tiny_run, monkeypatch, host, shown):
    """With a token where others reach it."""
    ports = []
    stop = lambda app, listening: ports.append(listening.getsockname()[1])
    monkeypatch.setattr("zero_train.app._serve._http.run", stop)
    code, out, err = zero("serve", tiny_run, "--host", host, "--port", "0")
    assert (code, err) == (0, "") and re.search(f"Tic tac toe: open {shown % ports[0]}", out)


@pytest.mark.parametrize(
    "env, said",
    [
        ("2048", "2048 has one player; `zero watch r` shows"),
        ("zero_envs.testing:Nim", "cannot be drawn"),
    ],
)
def test_what_cannot_be_served_is_named(small_config, tiny_run, env, said):
    trained = load(APP, tiny_run)
    other = Trained(presets(env, "alphazero", 8)["tiny"], trained.loop, trained.player, 0)
    with pytest.raises(UsageError, match=said):
        Serve("r").page(other)


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
    assert (_chess_move(action, size, True), _chess_move(action, size, False)) == (white, black)


@pytest.mark.slow
def test_a_game_of_chess():
    """The shortest mates are replayed by their names, and drawn."""
    config = presets("pgx/chess", "alphazero", 7616)["tiny"]
    loop: Any = APP.build(config)
    player: Any = loop.agent.actor(loop.agent.init(key=jax.random.key(0)), explore=False)
    page = Serve("run").page(Trained(config, loop, player, 0))
    service = Service(loop.env, player, page)
    for moves, winner in (
        ("e2e4 e7e5 d1h5 b8c6 f1c4 g8f6 h5f7", 0),
        ("f2f3 e7e5 g2g4 d8h4", 1),
    ):
        answer = service.answer(Question(tuple(moves.split())))
        assert answer["over"] and answer["winner"] == winner and answer["svg"].startswith("<svg")
    answer = service.answer(Question(("e2e4",), think=True))
    assert "e7e5" in answer["legal"] and answer["thought"]["move"] in answer["legal"]
