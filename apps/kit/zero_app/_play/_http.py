"""The service over HTTP: what is let in, and what goes out."""

import asyncio
import contextlib
import importlib.resources
import ipaddress
import json
import logging
import math
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from .._command._config import MAX_SEED
from .._run._background import in_background
from ._service import MAX_MOVES, MAX_POINTS, Question, Refusal, Service


#: Bytes of a request's body: the longest game is shorter, unless it was saved with comments.
MAX_BODY, MAX_SAVED = 32 * 1024, 256 * 1024
#: Searches at a time, how many others wait for their end, and for how many seconds: as long as one
#: that is compiled may take.
MAX_SEARCHES, MAX_WAITING, PATIENCE = 2, 16, 60.0
#: Requests that a client may make at once, and how many more in a second. The page needs about
#: three for a move.
BURST, RATE = 100, 20.0
#: Clients that are counted at a time.
_MAX_CLIENTS = 1000
_HEAD_SECONDS, _BODY_SECONDS = 10, 10
#: Requests that are answered at a time, and connections with and without a request.
MAX_REQUESTS, _MAX_CONNECTIONS = 64, 256
_FILES = ("icon.svg", "page.css", "page.js", "api.js", "board.js", "draw.js", "mines.js")
_KINDS = {"css": "text/css", "html": "text/html", "js": "text/javascript", "svg": "image/svg+xml"}
_EVERYWHERE = ("", "0.0.0.0", "::")
_HEADERS = {
    # Boards that are pictures are shown from a blob: as an image, an SVG runs no scripts.
    "Content-Security-Policy": "default-src 'self'; img-src 'self' blob:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}

_SOON = {"Retry-After": "1"}
_LOG = logging.getLogger(__name__)


def application(
    services: Sequence[Service], host: str, port: int, token: str | None = None
) -> Starlette:
    """The application that listens at an address, with the games of which a person chooses one.
    Questions about games must bring the bearer `token`. `MAX_SEARCHES` may search at a time, some
    others wait, and those that are more are told to come again."""
    searches = threading.BoundedSemaphore(MAX_SEARCHES)
    waiting = threading.BoundedSemaphore(MAX_WAITING)
    numbered = {str(number): service for number, service in enumerate(services)}

    def asked(request: Request) -> Service:
        number = request.path_params["game"]
        # As text, since a number may have more digits than Python reads.
        if number not in numbered:
            raise Refusal(404, f"there is no game {_shown(number)}; /api/games lists them.")
        return numbered[number]

    async def position(request: Request) -> Response:
        service, question = asked(request), read_question(await _body(request))
        if not question.searches:
            return _json(await run_in_threadpool(service.answer, question))
        if not await _acquired(searches, waiting, request):
            said = f"{MAX_SEARCHES} searches are running and others wait; ask again in a second."
            raise Refusal(503, said)
        try:
            # A search that is not waited for any more does not keep a server that stops.
            searching = in_background(lambda: service.answer(question))
            return _json(await asyncio.wrap_future(searching))
        finally:
            searches.release()

    async def read(request: Request) -> Response:
        service, said = asked(request), _object(await _body(request, MAX_SAVED), ("text",))
        text = said.get("text")
        if not isinstance(text, str):
            raise Refusal(400, "text must be a game that was saved.")
        return _json(await run_in_threadpool(service.read, text))

    routes = [
        Route("/api/games", lambda request: _json([service.about() for service in services])),
        Route("/api/{game}/position", position, methods=["POST"]),
        Route("/api/{game}/read", read, methods=["POST"]),
        Route("/", _file("index.html")),
        *(Route(f"/{name}", _file(name)) for name in _FILES),
    ]
    app = Starlette(
        routes=routes,
        exception_handlers={Refusal: _refused, HTTPException: _failed, ClientDisconnect: _left},
    )
    app.add_middleware(_Guard, host=host, port=port, token=token)
    return app


async def _acquired(
    searches: threading.BoundedSemaphore, waiting: threading.BoundedSemaphore, request: Request
) -> bool:
    """Waits for one of the searches to end, without a thread; not where too many wait already.
    `ClientDisconnect` is raised where nobody wants the answer any more."""
    if searches.acquire(blocking=False):
        return True
    if not waiting.acquire(blocking=False):
        return False
    try:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            await asyncio.sleep(0.05)
            if await request.is_disconnected():
                raise ClientDisconnect
            if searches.acquire(blocking=False):
                return True
        return False
    finally:
        waiting.release()


def server(app: Starlette) -> uvicorn.Server:
    """The server of an application, which runs until a signal comes or `should_exit` is set."""
    config = uvicorn.Config(
        app,
        log_config=None,
        log_level="error",
        access_log=False,
        server_header=False,
        # A client on this machine could otherwise evade the rate limit by a header.
        proxy_headers=False,
        date_header=False,
        lifespan="off",
        ws="none",
        http=_Connection,
        loop="asyncio",
        timeout_keep_alive=5,
        timeout_graceful_shutdown=3,
    )
    return uvicorn.Server(config)


class _Connection(H11Protocol):
    """A connection that does not wait for ever until a request comes. It is closed after some
    seconds without the whole head of one, and before where it has waited the longest of too many.
    """

    _deadline: asyncio.TimerHandle

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._await_request()
        all_of_them = cast("set[_Connection]", self.connections)
        alive = [each for each in all_of_them if not each.transport.is_closing()]
        if len(alive) > _MAX_CONNECTIONS:
            waiting = [each for each in alive if not each._has_request()]
            min(waiting, key=lambda each: each._deadline.when()).transport.abort()

    def on_response_complete(self) -> None:
        self._deadline.cancel()
        self._await_request()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._deadline.cancel()
        super().connection_lost(exc)

    def _await_request(self) -> None:
        self._deadline = self.loop.call_later(_HEAD_SECONDS, self._give_up)

    def _give_up(self) -> None:
        # The body of a request has a limit of its own.
        if not self._has_request():
            self.transport.abort()

    def _has_request(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete


def read_question(body: bytes) -> Question:
    """The question of a request's body. A field that is unknown or not allowed is refused."""
    said = _object(body, tuple(Question.__dataclass_fields__))
    moves = said.get("moves", [])
    if not isinstance(moves, list) or not all(isinstance(move, str) for move in moves):
        raise Refusal(400, "moves must be a list of names of moves.")
    if len(moves) > MAX_MOVES:
        raise Refusal(400, f"{len(moves)} moves were given; at most {MAX_MOVES} are replayed.")
    for name, (fits, allowed) in _FIELDS.items():
        if name in said and not fits(said[name]):
            raise Refusal(400, f"{name} is {_shown(said[name])}; give {allowed}.")
    return Question(**{**said, "moves": tuple(moves)})


def _up_to(most: int) -> tuple[Callable[[Any], bool], str]:
    return lambda x: type(x) is int and 0 <= x <= most, f"a whole number from 0 to {most}"


#: Of the other fields of a question what may be given, and that in words.
_FIELDS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "simulations": (lambda x: type(x) is int, "a whole number"),
    "seed": _up_to(MAX_SEED),
    "think": (lambda x: isinstance(x, bool), "true or false"),
    "komi": (
        lambda x: x is None or (type(x) in (int, float) and abs(x) <= MAX_POINTS),
        f"a number up to {MAX_POINTS}, or null",
    ),
    "handicap": _up_to(MAX_POINTS),
}


def _object(body: bytes, known: Sequence[str]) -> dict[str, Any]:
    """The fields of a request's body."""
    try:
        said = json.loads(body)
    except (ValueError, RecursionError) as e:
        raise Refusal(400, "the body is no JSON; send an object.") from e
    if not isinstance(said, dict):
        raise Refusal(400, f"the body is {_kind(said)} in JSON; send an object.")
    for name in said:
        if name not in known:
            raise Refusal(400, f"no field is called {_shown(name)}; give {', '.join(known)}.")
    return said


def _shown(value: Any) -> str:
    """A value in a message: short, and in ASCII, which every text can be sent in."""
    text = ascii(value) if isinstance(value, str | int | float) else _kind(value)
    return text if len(text) <= 40 else f"{text[:36]} ..."


def _kind(value: Any) -> str:
    kinds = {dict: "an object", list: "a list", str: "a text", bool: "a boolean"}
    return "null" if value is None else kinds.get(type(value), "a number")


async def _body(request: Request, most: int = MAX_BODY) -> bytes:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Refusal(415, "the content type must be application/json.")

    async def read() -> bytes:
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > most:
                raise Refusal(413, f"the body is larger than {most} bytes.")
        return bytes(body)

    try:
        return await asyncio.wait_for(read(), _BODY_SECONDS)
    except TimeoutError as e:
        raise Refusal(408, f"the body did not come within {_BODY_SECONDS} seconds.") from e


def _file(name: str) -> Any:
    content = (importlib.resources.files(__spec__.parent) / "page" / name).read_bytes()
    kind = _KINDS[name.rpartition(".")[2]]
    return lambda request: Response(content, media_type=kind)


def _json(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    # In ASCII: of what was asked an answer may repeat surrogates, which UTF-8 cannot hold.
    text = json.dumps(content, allow_nan=False, separators=(",", ":"))
    return Response(text, status, headers, "application/json")


def _error(status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    return _json({"error": message}, status, headers)


def _refused(request: Request, error: Any) -> Response:
    return _error(error.status, str(error), _SOON if error.status == 503 else {})


def _failed(request: Request, error: Any) -> Response:
    return _error(error.status_code, str(error.detail), error.headers)


def _left(request: Request, error: Exception) -> Response:
    return _error(400, "the request was broken off.")


class Rate:
    """How often each client may ask: `burst` times at once, and `rate` more times a second."""

    def __init__(
        self, burst: int = BURST, rate: float = RATE, clock: Callable[[], float] = time.monotonic
    ):
        self._burst, self._rate, self._clock = burst, rate, clock
        # By client: how many requests are left, and when they were counted.
        self._left: dict[str, tuple[float, float]] = {}

    def wait(self, client: str) -> float:
        """Counts a request, or says after how many seconds one is let in."""
        now = self._clock()
        left, since = self._left.pop(client, (float(self._burst), now))
        left = min(self._burst, left + self._rate * (now - since))
        let_in = left >= 1
        # The newest last; the oldest have most likely all their requests again.
        self._left[client] = (left - let_in, now)
        if len(self._left) > _MAX_CLIENTS:
            del self._left[next(iter(self._left))]
        return 0.0 if let_in else (1 - left) / self._rate


class _Guard:
    """Admits requests to this address that come from the page itself or from no page, not too often
    and with the token where they ask about games. Every response, also that to a request at which
    the server fails, has the headers that tell a browser what it may do with it.

    Other pages in the same browser could otherwise send requests, also by a host name of their own
    that they point to this address (DNS rebinding).
    """

    def __init__(self, app: ASGIApp, host: str, port: int, token: str | None):
        self._app, self._host, self._port, self._token = app, host, port, token
        self._names, self._rate, self._running = _names(host, token), Rate(), 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)

        started = False

        async def with_headers(message: Message) -> None:
            nonlocal started
            started = True
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
            await send(message)

        client, _ = scope.get("client") or ("", 0)
        seconds = self._rate.wait(client)
        if seconds > 0:
            refused = _error(
                429,
                f"more than {RATE:.0f} requests a second came from {client}; ask again later.",
                {"Retry-After": str(math.ceil(seconds))},
            )
        elif self._running >= MAX_REQUESTS:
            said = f"{MAX_REQUESTS} requests are being answered; ask again in a second."
            refused = _error(503, said, _SOON)
        else:
            refused = self._refused(Headers(scope=scope), scope["path"])
        self._running += 1
        try:
            await (refused or self._app)(scope, receive, with_headers)
        except asyncio.CancelledError:
            if started:
                raise
            await _error(503, "the server is stopping.")(scope, receive, with_headers)
        except Exception:
            if started:
                raise
            asked = ascii(f"{scope['method']} {scope['path'][:200]}")
            _LOG.exception("The server failed at %s.", asked)
            failed = _error(500, "the server failed at this request; its log says why.")
            await failed(scope, receive, with_headers)
        finally:
            self._running -= 1

    def _refused(self, headers: Headers, path: str) -> Response | None:
        hosts, origin = headers.getlist("host"), headers.get("origin")
        if len(hosts) != 1 or not self._is_bound(hosts[0].lower()):
            allowed = [f"{name}:{self._port}" for name in self._names]
            if self._host in _EVERYWHERE:
                allowed.append("an IP address of this machine and this port")
            given = _shown(", ".join(hosts))
            return _error(400, f"the Host header is {given}; give {' or '.join(allowed)}.")
        if origin is not None and origin.lower() != f"http://{hosts[0].lower()}":
            return _error(403, "other pages may not ask.")
        if self._token is not None and path.startswith("/api/"):
            given = headers.get("authorization", "").encode()
            if not secrets.compare_digest(given, f"Bearer {self._token}".encode()):
                wanted = {"WWW-Authenticate": "Bearer"}
                return _error(401, "open the whole address that was printed, #... too.", wanted)
        return None

    def _is_bound(self, given: str) -> bool:
        """Whether a Host header names what was bound."""
        name, _, port = given.rpartition(":") if not given.endswith("]") else (given, "", "80")
        if not name:
            name, port = port, "80"
        number = _number_of(name)
        if port != str(self._port):
            return False
        if number is None:
            return name in self._names
        # Bound to all addresses, any of them will do: DNS rebinding needs a name.
        return (
            self._host in _EVERYWHERE
            or number == _number_of(self._host)
            or (number.is_loopback and is_loopback(self._host))
        )


def _names(host: str, token: str | None) -> list[str]:
    """The names that a Host header may have. Host names are resolved by the network, which may be
    hostile, so they are accepted only with a token."""
    if host not in _EVERYWHERE:
        usual = ["localhost"] if is_loopback(host) else []
        return list(dict.fromkeys([_bracketed(host.lower()), *usual]))
    own = socket.gethostname().lower()
    return ["localhost", *([own, f"{own.partition('.')[0]}.local"] if token else [])]


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    number = _number_of(host)
    return host == "localhost" if number is None else number.is_loopback


def _number_of(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return None


def addresses(host: str, port: int, token: str | None) -> list[str]:
    """The addresses that a person opens. Bound to all addresses, they are that in the network and
    the machine's name, which other machines may not know."""
    shown = [*_in_network(host), socket.gethostname()] if host in _EVERYWHERE else [host]
    return [f"http://{_bracketed(name)}:{port}/{f'#{token}' if token else ''}" for name in shown]


def _bracketed(name: str) -> str:
    return f"[{name}]" if ":" in name else name


def _in_network(host: str) -> Iterator[str]:
    """The address of this machine in its network, if it has one."""
    outside = [(socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")]
    for family, address in outside if host == "::" else outside[:1]:
        # To connect a socket of datagrams sends nothing, and chooses the interface.
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((address, 9))
            yield probe.getsockname()[0]
