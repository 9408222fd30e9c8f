"""The command that serves a trained player."""

import abc
import dataclasses
import secrets
import socket
from typing import Any, ClassVar

from .._app import App
from .._config import Bounds
from .._errors import UsageError
from .._players import AbstractPlayerCommand, Trained
from ._service import Page, Question, Service


@dataclasses.dataclass(frozen=True)
class AbstractServe(AbstractPlayerCommand):
    """The command `serve` of an app, which says how its game is shown.

    Bound to another address than the machine's own it demands a token, which is a part of the
    address that it prints. Needs the extra `serve` of zero-train.
    """

    host: str = "127.0.0.1"
    """The address to listen at: by default this machine alone; 0.0.0.0 for the network."""
    port: int = 8000
    """The port to listen at; 0 for any that is free."""

    bounds: ClassVar[Bounds] = {"port": (0, 65535)}

    @abc.abstractmethod
    def page(self, trained: Trained[Any]) -> Page:
        """How the game of a run is shown.

        **Raises:** [`zero_train.app.UsageError`][] where it is none of two players, or cannot be
        drawn.
        """

    def __call__(self, app: App[Any]) -> None:
        try:
            from ._http import address, application, is_loopback, run
        except ModuleNotFoundError as e:
            raise UsageError(f"serve needs {e.name}: install zero-train[serve].") from e
        trained = self.load(app)
        env: Any = trained.loop.env  # whose actions are discrete
        player: Any = trained.player  # which searches
        service = Service(env, player, self.page(trained))
        with self._listening() as listening:
            port = listening.getsockname()[1]
            token = None if is_loopback(self.host) else secrets.token_urlsafe(16)
            print("Compiling the rules ...", flush=True)
            first = service.answer(Question())["legal"][0]
            service.answer(Question((first,)))
            shown = address(self.host, port, token)
            print(f"{service.page.title}: open {shown} (Ctrl-C stops it)", flush=True)
            run(application(service, self.host, port, token), listening)

    def _listening(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        try:
            return socket.create_server((self.host, self.port), family=family)
        except OSError as e:
            raise UsageError(
                f"cannot listen at --host {self.host} --port {self.port} ({e.strerror}); give "
                "another, or --port 0 for any free one."
            ) from e
