"""Who can reach a server, how often and how much at a time, and what it does with anything else."""

import collections
import concurrent.futures
import contextlib
import functools as ft
import http.client
import json
import random
import socket
import threading
import time

import pytest
from starlette.testclient import TestClient

from zero_app import AbstractServe, Question, UsageError
from zero_app._play._http import addresses, application, BURST, Rate, server

from .noughts import asked, JSON, prefers_low_cells, service_of, URL


@pytest.fixture(scope="module")
def service():
    return service_of(prefers_low_cells)


@pytest.mark.parametrize(
    "bound, host, origin, status",
    [
        ("127.0.0.1", "127.0.0.1:8000", None, 200),
        ("127.0.0.1", "LOCALHOST:8000", "http://localhost:8000", 200),
        ("::1", "[::1]:8000", "http://[::1]:8000", 200),
        ("127.0.0.1", "127.0.0.1:8001", None, 400),
        ("127.0.0.1", "127.0.0.1", None, 400),
        ("127.0.0.1", "stranger.example:8000", None, 400),
        ("127.0.0.1", "192.168.0.7:8000", None, 400),
        ("127.0.0.1", "", None, 400),
        ("127.0.0.1", "127.0.0.1:8000", "http://stranger.example", 403),
        ("127.0.0.1", "127.0.0.1:8000", "http://127.0.0.1:9000", 403),
        ("127.0.0.1", "127.0.0.1:8000", "null", 403),
        ("0.0.0.0", "192.168.0.7:8000", None, 200),
        ("0.0.0.0", "stranger.example:8000", None, 400),
        ("192.168.0.7", "192.168.0.7:8000", None, 200),
        ("192.168.0.7", "localhost:8000", None, 400),
    ],
)
def test_only_the_address_that_was_bound_answers(service, bound, host, origin, status):
    client = TestClient(application([service], bound, 8000), URL)
    headers = {"host": host} if origin is None else {"host": host, "origin": origin}
    assert client.get("/api/games", headers=headers).status_code == status


def test_a_token_is_demanded(service):
    client = TestClient(application([service], "127.0.0.1", 8000, token="wörd"), URL)
    given = lambda text: {"authorization": text.encode()}
    assert client.get("/").status_code == 200  # the page holds no game
    for wrong in ("", "wörd", "Bearer", "Bearer word", "Bearer wörd2"):
        assert client.get("/api/games", headers=given(wrong)).status_code == 401
    assert "Bearer" in client.post("/api/0/position", json={}).headers["www-authenticate"]
    right = TestClient(application([service], "127.0.0.1", 8000, token="word"), URL)
    assert right.get("/api/games", headers=given("Bearer word")).status_code == 200


def test_the_names_of_the_machine_are_for_who_has_the_token(service, monkeypatch):
    """That they lead to this machine, the network says."""
    monkeypatch.setattr("socket.gethostname", lambda: "Table.example")

    def status(bound, token, host):
        client = TestClient(application([service], bound, 8124, token), URL)
        answer = client.get("/", headers={"host": host})
        return answer.status_code, answer.json()["error"] if answer.status_code == 400 else ""

    for bound in ("0.0.0.0", "::"):
        for name in ("table.example", "Table.local", "localhost", "10.0.0.7", "[fe80::7]"):
            assert status(bound, "word", f"{name}:8124") == (200, "")
        for name in ("stranger.example", "table.local.stranger.example", "stranger.local"):
            refused, said = status(bound, "word", f"{name}:8124")
            assert refused == 400 and said.startswith("the Host header is '")
            assert said.endswith(
                "give localhost:8124 or table.example:8124 or table.local:8124 or an IP address "
                "of this machine and this port."
            )
        assert status(bound, None, "table.local:8124")[0] == 400
    for bound, allowed in (
        ("127.0.0.1", "127.0.0.1:8124 or localhost:8124."),
        ("localhost", "localhost:8124."),
        ("::1", "[::1]:8124 or localhost:8124."),
        ("192.168.0.7", "192.168.0.7:8124."),
    ):
        for name in ("table.example", "table.local", "10.0.0.7"):
            refused, said = status(bound, "word", f"{name}:8124")
            assert refused == 400 and said.endswith(f"; give {allowed}")


def test_the_address_in_the_network_is_printed_first(monkeypatch):
    assert addresses("127.0.0.1", 80, None) == ["http://127.0.0.1:80/"]
    assert addresses("::1", 8000, "word") == ["http://[::1]:8000/#word"]

    class Routes:
        """A network without IPv4, in which no packet is sent."""

        def __init__(self, family, kind):
            assert kind is socket.SOCK_DGRAM
            self._family = family

        def connect(self, address):
            if self._family == socket.AF_INET:
                raise OSError("Network is unreachable")

        def getsockname(self):
            return "2001:db8::7", 9, 0, 0

        __enter__ = lambda self: self
        __exit__ = lambda self, *error: None

    monkeypatch.setattr("socket.gethostname", lambda: "table")
    monkeypatch.setattr("zero_app._play._http.socket.socket", Routes)
    named = "http://table:1/#w"
    assert addresses("::", 1, "w") == ["http://[2001:db8::7]:1/#w", named]
    assert addresses("0.0.0.0", 1, "w") == [named]


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_all_addresses_of_ipv6_are_those_of_ipv4_too():
    class Serve(AbstractServe):
        def services(self, app):
            raise AssertionError

    with Serve(host="::", port=0)._listening() as listening:
        for host in ("127.0.0.1", "::1"):
            socket.create_connection((host, listening.getsockname()[1]), 30).close()


def test_searches_at_a_time_are_limited(service, monkeypatch):
    began, goes_on = threading.Event(), threading.Event()

    def answer(question):
        if question.searches:
            began.set()
            assert goes_on.wait(30)
        return {"thought": None}

    monkeypatch.setattr(service, "answer", answer)
    monkeypatch.setattr("zero_app._play._http.PATIENCE", 0.1)
    monkeypatch.setattr("zero_app._play._http.MAX_SEARCHES", 1)
    with _served(service) as (where, _):
        search = lambda: _posted(where, simulations=16, think=True)
        with concurrent.futures.ThreadPoolExecutor() as pool:
            first = pool.submit(search)
            assert began.wait(30)
            status, headers, _ = search()
            assert status == 503 and headers["retry-after"] == "1"
            assert _posted(where)[0] == 200  # no search
            monkeypatch.setattr("zero_app._play._http.MAX_REQUESTS", 1)
            status, headers, said = _posted(where)
            assert status == 503 and headers["retry-after"] == "1"
            assert "1 requests are being" in said["error"]
            goes_on.set()
            assert first.result()[0] == 200
        assert search()[0] == 200


def test_searches_wait_for_one_that_is_compiled(service, monkeypatch):
    """Those of more tabs, as many as may; and thoughts without a search wait for nothing."""
    began, goes_on = threading.Event(), threading.Event()

    def search(game, question, known):
        began.set()
        assert goes_on.wait(30)
        return game

    monkeypatch.setattr(service, "_search", search)
    monkeypatch.setattr(service, "_compiled", set())
    monkeypatch.setattr("zero_app._play._http.MAX_WAITING", 3)
    monkeypatch.setattr("zero_app._play._http.MAX_SEARCHES", 1)
    with _served(service) as (where, _):
        with concurrent.futures.ThreadPoolExecutor() as pool:
            tabs = [pool.submit(_posted, where, simulations=16, think=True) for _ in range(4)]
            assert began.wait(30)
            more = [pool.submit(_posted, where, simulations=16, think=True) for _ in range(2)]
            refused, _ = concurrent.futures.wait(
                tabs + more, 30, concurrent.futures.FIRST_COMPLETED
            )
            assert [each.result()[0] for each in refused] == [503] * len(refused) != []
            _, _, answer = _posted(where, think=True)
            assert answer["thought"]["move"] == "a1"
            goes_on.set()
            statuses = [tab.result()[0] for tab in tabs + more]
        # One searches and three wait.
        assert sorted(statuses) == [200] * 4 + [503] * 2


def test_a_failure_of_the_server_is_one_line_and_its_log_says_why(service, monkeypatch, caplog):
    def fail(question):
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(service, "answer", fail)
    client = TestClient(application([service], "127.0.0.1", 8000), URL)
    answer = asked(client)
    assert answer.status_code == 500 and "its log says why" in answer.json()["error"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "secret" not in answer.text and "\n" not in answer.text
    assert "ZeroDivisionError: secret" in caplog.text and "POST /api/0/position" in caplog.text


def test_a_client_that_asks_too_often_is_told_when_to_come_again(service, monkeypatch):
    now = [0.0]
    rate = Rate(3, 2.0, lambda: now[0])
    assert [rate.wait("a") for _ in range(4)] == [0, 0, 0, 0.5]
    assert rate.wait("b") == 0, "others are let in"
    now[0] = 0.5
    assert [rate.wait("a") for _ in range(2)] == [0, 0.5]
    now[0] = 100.0
    assert [rate.wait("a") for _ in range(4)] == [0, 0, 0, 0.5], "no more than at first"
    for number in range(5000):
        rate.wait(str(number))
    assert len(rate._left) == 1000

    stopped = ft.partial(Rate, clock=lambda: 0.0)
    monkeypatch.setattr("zero_app._play._http.Rate", stopped)
    client = TestClient(application([service], "127.0.0.1", 8000), URL)
    answers = [client.get("/api/games") for _ in range(BURST + 20)]
    assert {answer.status_code for answer in answers[:BURST]} == {200}
    assert {answer.status_code for answer in answers[BURST:]} == {429}
    refused = answers[-1]
    assert (
        refused.headers["retry-after"] == "1" and "20 requests a second" in refused.json()["error"]
    )
    assert refused.headers["x-content-type-options"] == "nosniff"


@contextlib.contextmanager
def _served(*services):
    """Where a real server answers, and what connects to it."""
    with socket.create_server(("127.0.0.1", 0)) as listening, contextlib.ExitStack() as stack:
        where = listening.getsockname()
        serving = server(application(services, *where))
        thread = threading.Thread(target=serving.run, args=([listening],))
        thread.start()
        try:
            yield where, lambda: stack.enter_context(socket.create_connection(where, 30))
        finally:
            serving.should_exit = True
            thread.join()


def _status_of(where):
    asking = http.client.HTTPConnection(*where, timeout=30)
    with contextlib.closing(asking):
        asking.request("GET", "/api/games")
        return asking.getresponse().status


def _posted(where, **question):
    """The status, the headers and the answer to a question."""
    asking = http.client.HTTPConnection(*where, timeout=60)
    with contextlib.closing(asking):
        asking.request("POST", "/api/0/position", json.dumps(question), JSON)
        answer = asking.getresponse()
        return answer.status, answer.headers, json.loads(answer.read())


def test_the_longest_idle_connection_makes_room_for_a_new_one(monkeypatch):
    monkeypatch.setattr("zero_app._play._http._MAX_CONNECTIONS", 8)
    monkeypatch.setattr("zero_app._play._http._HEAD_SECONDS", 600)
    with _served() as (where, connect):
        idle = [connect() for _ in range(80)]
        assert _status_of(where) == 200
        assert [each.recv(1) for each in idle[:72]] == [b""] * 72
        idle[-1].sendall(b"GET /nothing HTTP/1.1\r\n\r\n")
        assert idle[-1].recv(12) == b"HTTP/1.1 400", "the newest are kept"


def test_a_request_that_does_not_come_is_not_waited_for(monkeypatch):
    monkeypatch.setattr("zero_app._play._http._HEAD_SECONDS", 0.2)
    with _served() as (where, connect):
        nothing, half, second = connect(), connect(), connect()
        half.sendall(b"GET / HTTP/1.1\r\n")
        # The second half request of a connection, which keep-alive does not end.
        second.sendall(
            b"HEAD /icon.svg HTTP/1.1\r\nHost: %s:%d\r\n\r\nGET" % (b"127.0.0.1", where[1])
        )
        answered = b""
        while received := second.recv(4096):
            answered += received
        assert answered.startswith(b"HTTP/1.1 200") and answered.count(b"HTTP/1.1") == 1
        assert nothing.recv(1) == half.recv(1) == b""
        assert _status_of(where) == 200


def test_a_server_that_stops_waits_for_no_search(service, monkeypatch):
    released, began = threading.Event(), threading.Event()

    def answer(question):
        began.set()
        released.wait(60)

    monkeypatch.setattr(type(service), "answer", lambda self, question: answer(question))
    with concurrent.futures.ThreadPoolExecutor(1) as asking:
        with _served(service) as (where, _):
            asked = asking.submit(_posted, where, think=True, simulations=16)
            began.wait(60)
            stopped = time.monotonic()
        assert time.monotonic() - stopped < 20
        assert not released.is_set()
        status, headers, said = asked.result()
    released.set()
    assert (status, said) == (503, {"error": "the server is stopping."})
    assert headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "host, port",
    [("127.0.0.1", None), ("nowhere.invalid", 0), ("\u00e4" * 64, 0), ("\udcff", 0)],
    ids=["taken", "unknown", "too long", "no text"],
)
def test_an_address_that_cannot_be_had_is_named(host, port):
    class Serve(AbstractServe):
        def services(self, app):
            raise AssertionError

    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1] if port is None else port
        with pytest.raises(UsageError, match=f"cannot listen at --host {host} --port {number}"):
            Serve(host=host, port=number)._listening()


@pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded", "X-Real-IP", "Client-IP"])
def test_nobody_escapes_the_limit_by_saying_who_they_are(service, monkeypatch, header):
    few = ft.partial(Rate, burst=3, clock=lambda: 0.0)
    monkeypatch.setattr("zero_app._play._http.Rate", few)
    with _served(service) as (where, _):
        asking = http.client.HTTPConnection(*where, timeout=30)
        statuses, said = [], b""
        with contextlib.closing(asking):
            for number in range(5):
                asking.request("GET", "/api/games", headers={header: f"10.0.0.{number}"})
                answer = asking.getresponse()
                said = answer.read()
                statuses.append(answer.status)
    assert statuses == [200, 200, 200, 429, 429] and b"from 127.0.0.1;" in said


@pytest.mark.slow
def test_ten_thousand_requests_of_a_stranger(service, monkeypatch):
    """Never an error of the server's own, never one that takes long or is not answered."""
    monkeypatch.setattr("zero_app._play._http.Rate.wait", lambda self, client: 0.0)
    monkeypatch.setattr("zero_app._play._http._BODY_SECONDS", 0.2)
    draws, counts, slowest = random.Random(0), collections.Counter(), 0.0
    for simulations in (0, 16):  # compiled before
        service.answer(Question((), simulations, think=True))
    with _served(service) as (where, _):
        for _ in range(10_000):
            method, request = _strange(draws, "{}:{}".format(*where))
            began = time.monotonic()
            with socket.create_connection(where, 30) as connection:
                connection.sendall(request)
                answer = http.client.HTTPResponse(connection, method=method)
                answer.begin()
                said = answer.read()
            slowest = max(slowest, time.monotonic() - began)
            counts[answer.status] += 1
            assert 200 <= answer.status < 500, (request, said)
            # What is no HTTP is refused by uvicorn, before the application hears of it.
            known = method == "HEAD" or said == b"Invalid HTTP request received."
            if answer.status >= 400 and not known:
                assert json.loads(said)["error"].count("\n") == 0
    print(counts, slowest)
    assert counts[200] > 1000 and counts[400] > 1000 and counts[422] > 500 and slowest < 20
    assert service.answer(Question())["side"] == 0


def _strange(draws: random.Random, host: str) -> tuple[str, bytes]:
    """A method and its request: random bytes, random JSON, or a good one with something changed."""
    kind = draws.randrange(4)
    if kind == 0:
        content = draws.randbytes(draws.randrange(200))
    elif kind == 1:
        content = json.dumps(_any(draws, 3)).encode()
    else:
        moves = [f"{draws.choice('abc')}{draws.randint(1, 3)}" for _ in range(draws.randrange(7))]
        question = {"moves": moves, "simulations": draws.choice((0, 16)), "think": True, "seed": 1}
        if draws.random() < 0.3:
            question[draws.choice([*question, "more"])] = _any(draws, 2)
        if question["simulations"] in (64, 256):  # to compile these is not what is asked here
            question["simulations"] = 0
        content = bytearray(json.dumps(question).encode())
        if draws.random() < 0.2:
            content[draws.randrange(len(content))] = draws.randrange(256)
        content = bytes(content)
    method = "POST" if draws.random() < 0.95 else draws.choice(("GET", "PUT", "HEAD", "OPTIONS"))
    path = "/api/0/position"
    if draws.random() < 0.1:
        path = "/api/0/read"
        if draws.random() < 0.8:
            content = json.dumps({"text": _text(draws)}).encode()
    elif draws.random() < 0.05:
        number = draws.choice(("1", "-1", "9" * 30, "9" * 5000, "%ED%A0%80", "%F0%9F%98%80"))
        others = (
            "/",
            "/%00",
            "/api/games",
            "/..",
            f"/api/{number}/position",
            f"/api/{number}/read",
        )
        path = draws.choice(others)
    headers = {"Host": host, "Content-Length": str(len(content)), **JSON}
    headers = {name: value.encode() for name, value in headers.items()}
    if draws.random() < 0.05:
        name = draws.choice(("Host", "origin", "content-type", "authorization", "Content-Length"))
        headers[name] = draws.choice((b"", b"x", b"\xff\xe9", b"9" * 30, b"999", b"[::", b"a:b"))
    lines = [f"{method} {path} HTTP/1.1".encode()]
    lines += [name.encode() + b": " + value for name, value in headers.items()]
    request = b"\r\n".join([*lines, b"", b""]) + content
    if draws.random() < 0.02:
        request = bytearray(request)
        request[draws.randrange(len(lines[0]))] = draws.randrange(256)
    return method, bytes(request)


def _text(draws: random.Random) -> str:
    """What may be a saved game."""
    parts = (
        "a1",
        "b2",
        " ",
        "\n",
        "\ud800",
        "\udfff",
        "seed:",
        "9" * 20,
        "9" * 5000,
        "(;",
        "B[",
        "]",
    )
    return "".join(draws.choices(parts, k=draws.randrange(12)))


def _any(draws: random.Random, depth: int):
    leaf = draws.choice(
        (None, True, -1, 0, 16, 2**70, 1.5, 1e308, float("nan"), "", "a1", "\ud800", "\n", "x" * 99)
    )
    kind = draws.randrange(3 if depth else 1)
    if kind == 0:
        return leaf
    several = [_any(draws, depth - 1) for _ in range(draws.randrange(4))]
    names = ("moves", "think", "seed", "simulations", "\x00", "\udfff")
    return several if kind == 1 else {draws.choice(names): each for each in several}
