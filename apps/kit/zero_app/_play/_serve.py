"""The command that serves a trained player."""

import abc
import dataclasses
import secrets
import socket
from collections.abc import Sequence
from typing import Annotated, Any

from annotated_types import Interval

from .._command._errors import UsageError
from .._run._app import App
from .._run._players import AbstractPlayerCommand
from ._service import Question, Service


@dataclasses.dataclass(frozen=True)
class AbstractServe(AbstractPlayerCommand):
    """The command `serve` of an app, which says how its game is shown.

    Bound to another address than the machine's own it demands a token, which is a part of the
    address that it prints. Needs the extra `serve` of zero-app.
    """

    host: str = "127.0.0.1"
    """The address to listen at: by default this machine alone; 0.0.0.0 for the network,
    :: for IPv6 too."""
    port: Annotated[int, Interval(ge=0, le=65535)] = 8000
    """The port to listen at; 0 for any that is free."""

    @abc.abstractmethod
    def services(self, app: App[Any]) -> Sequence[Service]:
        """The games that are served, the usual one first.

        **Raises:** [`zero_app.UsageError`][] where there are none, or they cannot be drawn.
        """

    def __call__(self, app: App[Any]) -> None:
        try:
            from ._http import addresses, application, is_loopback, server
        except ModuleNotFoundError as e:
            raise UsageError(f"serve needs {e.name}: install zero-app[serve].") from e
        services = self.services(app)
        with self._listening() as listening:
            port = listening.getsockname()[1]
            token = None if is_loopback(self.host) else secrets.token_urlsafe(16)
            print("Compiling the rules ...", flush=True)
            usual = services[0]
            first = next(iter(usual.answer(Question())["legal"]))
            usual.answer(Question((first,)))
            shown = " or ".join(addresses(self.host, port, token))
            print(f"{usual.page.title}: open {shown} (Ctrl-C stops it)", flush=True)
            server(application(services, self.host, port, token)).run(sockets=[listening])

    def _listening(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        try:
            # `::` is for IPv4 too, which the machine's name may lead to.
            both = self.host == "::" and socket.has_dualstack_ipv6()
            return socket.create_server((self.host, self.port), family=family, dualstack_ipv6=both)
        except OSError as e:
            # Python appends the address.
            why = str(e.strerror).partition(" (while attempting")[0]
            raise UsageError(
                f"cannot listen at --host {self.host} --port {self.port} ({why}); give another, or "
                "--port 0 for any free one."
            ) from e
