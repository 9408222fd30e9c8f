"""Games against a trained player over HTTP: what is answered, and which questions are refused."""

import json

import jax.numpy as jnp
import pytest
from starlette.testclient import TestClient

from zero_app._play._http import application, MAX_BODY, MAX_SAVED
from zero_app._play._service import MAX_MOVES

from .noughts import asked, DRAWN, JSON, prefers_low_cells, service_of, TRACES, URL, WON


@pytest.fixture(scope="module")
def service():
    return service_of(prefers_low_cells)


@pytest.fixture
def client(service):
    with TestClient(application([service], "127.0.0.1", 8000), URL) as client:
        yield client


def test_a_game_is_replayed_with_its_end(client):
    (game,) = client.get("/api/games").json()
    assert (game["rows"], game["columns"], game["names"][7]) == (3, 3, "b3")
    places = {name: [cell] for cell, name in enumerate(game["names"])}
    sides, stones = [], []
    for n in range(len(WON) + 1):
        answer = asked(client, WON[:n]).json()
        sides.append(answer["side"])
        stones.append(answer["cells"])
        assert answer["last"] == (places[WON[n - 1]][0] if n else None)
        left = {name: cells for name, cells in places.items() if name not in WON[:n]}
        assert answer["legal"] == (left if n < 5 else {}) and answer["text"] == " ".join(WON[:n])
    assert sides[:5] == [0, 1, 0, 1, 0] and stones[-1] == [*"XXXOO", "", "", "", ""]
    end = asked(client, WON).json()
    assert end["over"] and (end["winner"], end["result"]) == (0, "X wins") and not any(stones[0])
    assert asked(client, "a1 a2 b1 b2 c3 c2".split()).json()["winner"] == 1
    drawn = asked(client, DRAWN).json()
    assert drawn["over"] and drawn["winner"] is None and "" not in drawn["cells"]
    # Fewer moves are the game before: nothing was kept.
    assert asked(client, WON[:2]).json()["cells"] == stones[2]


@pytest.mark.parametrize(
    "moves, said",
    [
        (["a1", "a1"], "move 2, 'a1', is not legal there"),
        (["a1", "z9"], "move 2, 'z9', is no move of this game"),
        (["\ud800", "a1"], "move 1, '\\ud800', is no move"),
        ([*WON, "c3"], "the game was over before move 6, 'c3'"),
        ([*WON, "a1"], "the game was over before move 6, 'a1'"),
    ],
)
def test_a_move_that_cannot_be_made_is_named(client, moves, said):
    body = json.dumps({"moves": moves})  # JSON may escape what no text can hold
    answer = client.post(
        "/api/0/position", content=body, headers={"content-type": "application/json"}
    )
    assert answer.status_code == 422 and said in answer.json()["error"]
    assert answer.json()["error"].count("\n") == 0


def test_the_player_moves_and_says_why(client, service):
    # X wins at c1, and the search sees it.
    before = WON[:4]
    found = asked(client, before, think=True, simulations=64).json()["thought"]
    assert found["move"] == "c1" and found["line"] == ["c1"] and found["value"] > 0.5
    assert {move["name"] for move in found["moves"]} == {"c1", "c2", "a3", "b3", "c3"}
    assert sum(move["visits"] for move in found["moves"]) == 64
    assert sum(move["weight"] for move in found["moves"]) == pytest.approx(1, abs=1e-3)
    # O must not let it: the value is that of the player to move.
    worse = asked(client, [*WON[:2], "b1", "c3"], think=True, simulations=64).json()["thought"]
    assert worse["move"] == "c1" and worse["value"] > 0
    alone = asked(client, before, think=True).json()["thought"]
    assert alone["move"] == "c1" and alone["line"] == [] and alone["value"] == 0
    assert all(move["value"] is None and not move["visits"] for move in alone["moves"])
    assert alone["moves"][0]["prior"] == alone["moves"][0]["weight"] > 0.2
    assert asked(client, WON, think=True).json()["thought"] is None
    traced = len(TRACES)
    for n in range(4):
        asked(client, WON[:n], think=True, simulations=64)
    assert len(TRACES) == traced and asked(client, simulations=64).json()["compiled"]
    assert not asked(client, simulations=256).json()["compiled"]


@pytest.mark.parametrize(
    "field, value, said",
    [
        ("moves", "a1", "a list of names"),
        ("moves", [1], "a list of names"),
        ("moves", ["a1"] * (MAX_MOVES + 1), f"at most {MAX_MOVES} are"),
        ("simulations", 17, "give one of 0, 16, 64, 256"),
        ("simulations", True, "simulations is True"),
        ("simulations", 16.0, "simulations is 16.0; give a whole number"),
        ("simulations", {"a": 1}, "simulations is an object"),
        ("seed", -1, "seed is -1"),
        ("seed", 2**32, "from 0 to 4294967295"),
        ("komi", "7", "komi is '7'"),
        ("komi", True, "give a number up to 361, or null"),
        ("komi", 362, "komi is 362"),
        ("handicap", -1, "handicap is -1"),
        ("handicap", 2.0, "give a whole number from 0 to 361"),
        ("think", 1, "give true or false"),
        ("side", 0, "no field is called 'side'; give moves,"),
        ("\ud800" * 99, 0, "no field is called '\\ud800"),
    ],
)
def test_a_wrong_field_is_named(client, field, value, said):
    answer = client.post("/api/0/position", content=json.dumps({field: value}), headers=JSON)
    assert answer.status_code == 400 and said in answer.json()["error"]


def test_what_is_no_question_is_refused(client):
    def status(content, kind="application/json"):
        answer = client.post("/api/0/position", content=content, headers={"content-type": kind})
        assert answer.json()["error"].count("\n") == 0
        return answer.status_code

    assert status(b"{}", "text/plain") == 415
    assert [status(x) for x in (b"", b"[]", b"7", b"\xff", b"[" * 9000, b"1" * 9000)] == [400] * 6
    assert status(b" " * (MAX_BODY + 1)) == 413
    assert status(b" " * 1000 for _ in range(1000)) == 413  # without a Content-Length
    assert [status(x) for x in (b"[" * 30_000, b'{"a":' * 6000, b'{"seed":NaN}')] == [400] * 3
    assert status(b'{"simulations": -Infinity}') == status(b'{"seed": %s}' % (b"9" * 5000)) == 400
    assert client.get("/api/0/position").status_code == 405
    assert client.get("/secrets").json() == {"error": "Not Found"}


def test_the_page_is_whole_and_loads_nothing_else(client):
    page = client.get("/")
    assert page.headers["content-type"].startswith("text/html")
    for name, kind in (
        ("page.css", "text/css"),
        *((f"{part}.js", "text/javascript") for part in ("page", "api", "board", "draw", "mines")),
    ):
        found = client.get(f"/{name}")
        assert found.headers["content-type"].startswith(kind)
        assert "http://" not in found.text.replace("http://www.w3.org/", "")
    for answer in (page, client.get("/nothing"), asked(client, ["z9"])):
        assert answer.headers["content-security-policy"].startswith("default-src 'self';")
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_saved_games_are_read(client):
    def read(text):
        return client.post("/api/0/read", json={"text": text})

    assert read(" A1 b2\nC3 ").json() == {"moves": ["a1", "b2", "c3"], "seed": 0}
    assert read("seed:7 a1").json() == {"moves": ["a1"], "seed": 7}
    assert read("seed:4294967295 a1").json()["seed"] == 2**32 - 1
    assert read("seed:x a1").status_code == read("seed:4294967296 a1").status_code == 422
    assert "no game in an empty text" in read(" ").json()["error"]
    assert "at most 600 are replayed" in read("a1 " * 601).json()["error"]
    assert read(7).status_code == 400
    comments = " " * (MAX_SAVED - 100)
    assert read(f"a1 {comments} b2").json()["moves"] == ["a1", "b2"]
    assert f"larger than {MAX_SAVED} bytes" in read(f"{comments}{comments}").json()["error"]
    assert "give text" in client.post("/api/0/read", json={"moves": []}).json()["error"]
    for number in ("1", "-1", "00", "0x0", "9" * 5000, "%F0%9F%98%80"):
        unknown = client.post(f"/api/{number}/read", json={"text": ""})
        assert unknown.status_code == 404 and "there is no game '" in unknown.json()["error"]
    # JSON may escape what no text can hold. The moves are answered as they are, and then refused.
    escaped = client.post("/api/0/read", content=r'{"text": "a1 \ud800"}', headers=JSON)
    assert escaped.json()["moves"] == ["a1", "\ud800"]


def test_a_network_that_says_nan_is_named():
    broken = service_of(lambda obs: (jnp.full(9, jnp.nan), jnp.zeros(())))
    client = TestClient(application([broken], "127.0.0.1", 8000), URL)
    answer = asked(client, think=True)
    assert answer.status_code == 422 and "returned NaN or infinity" in answer.json()["error"]
