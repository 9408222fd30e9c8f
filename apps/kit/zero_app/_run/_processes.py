"""Several processes of one run: how they find each other, check that they belong together, and hear
of one that ended.

JAX's coordination service says after its heartbeat timeout that a process is gone, and ends the
others with a stack trace of C++. A connection to process 0 says so at once, and who it was.
"""

import contextlib
import dataclasses
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import platform
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

import jax

# What processes tell each other before they compute together; JAX has no public name for it.
from jax._src.distributed import global_state

from zero_train import together

from .._command._errors import flag, UsageError
from ._options import Launch, Options


#: Seconds in which all processes have to have started.
_PATIENCE = 300
#: Seconds in which a process has to say who it is once it is connected to process 0.
_SILENCE = 5
#: What a process says before it leaves in order.
_BYE = "bye"
_PORT = "zero_train/port"


def join(launch: Launch) -> None:
    """Connects this process to the others of the run, if there are any, before JAX starts."""
    if jax.distributed.is_initialized():
        return
    if launch.coordinator is not None:
        if launch.process_id:
            _reach(launch.coordinator, launch.process_id)
        elif _listens(launch.coordinator) is None:
            raise UsageError(
                f"--process-id 0 was given, and somebody listens at --coordinator "
                f"{launch.coordinator} already; give each process an id of its own, and each run a "
                "port of its own."
            )
        with _patient(launch):
            jax.distributed.initialize(
                launch.coordinator,
                launch.num_processes,
                launch.process_id,
                initialization_timeout=2 * _PATIENCE,
                cluster_detection_method="deactivate",
            )
    elif launch.processes > 1 or _in_slice():
        try:
            with _patient(launch):
                jax.distributed.initialize(initialization_timeout=2 * _PATIENCE)
        except (ValueError, RuntimeError) as e:
            if launch.processes == 1:
                return  # JAX found no others
            raise UsageError(
                f"the launcher's {launch.processes} processes could not be found "
                f"({str(e).splitlines()[0][:200]}); give --coordinator, --process-id and "
                "--num-processes. For a run each, give --num-processes 1, --process-id 0 and a "
                "--coordinator with a port of its own."
            ) from e


def _in_slice() -> bool:
    """Whether this may be one of several processes that only JAX can count: an indexed job of
    Kubernetes, or a TPU slice."""
    # Without this package JAX does not ask Kubernetes, and the pods of a job may have a run each.
    if "JOB_COMPLETION_INDEX" in os.environ and importlib.util.find_spec("kubernetes") is not None:
        return True
    if "tpu" not in os.environ.get("JAX_PLATFORMS", "tpu"):
        return False
    chips = any(pathlib.Path(path).exists() for path in ("/dev/accel0", "/dev/vfio/0"))
    return chips and importlib.util.find_spec("libtpu") is not None


@contextlib.contextmanager
def _patient(launch: Launch) -> Iterator[None]:
    """Ends this process with a line where not all come; JAX would with a stack trace of C++."""

    def give_up() -> None:
        which = "" if launch.process_id is None else f" {launch.process_id}"
        number = f"all of {launch.processes}" if launch.processes > 1 else "the other"
        _leave_with(
            f"process{which} waited {_PATIENCE} s for {number} processes; start each of them with "
            "a --process-id of its own and the same --coordinator.",
            2,
        )

    timer = threading.Timer(_PATIENCE, give_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _reach(coordinator: str, process: int) -> None:
    """Waits until process 0 listens."""
    began = time.monotonic()
    while (problem := _listens(coordinator)) is not None:
        if time.monotonic() - began > _PATIENCE:
            raise UsageError(
                f"process {process} could not reach process 0 at --coordinator {coordinator} for "
                f"{_PATIENCE} s ({problem}); start process 0 there, and let connections to its "
                "ports through."
            )
        time.sleep(0.5)


def _listens(address: str) -> str | None:
    """`None` where somebody does, or what is in the way."""
    host, port = _host(address), address.rpartition(":")[2]
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except OSError as e:
        return e.strerror or str(e)
    return None


def _host(address: str) -> str:
    return address.rpartition(":")[0].strip("[]")


@contextlib.contextmanager
def watched(config: Any, options: Options) -> Iterator[None]:
    """Checks that all processes of a run belong together, and inside the `with` block ends this one
    with a line when another one ends. Does nothing where there is only one."""
    if jax.process_count() == 1:
        yield
        return
    peers = _Peers(_identity(config, options))
    try:
        yield
    except BaseException as e:
        if isinstance(e, jax.errors.JaxRuntimeError):
            # Sums over devices fail where another process has ended: the thread that watches it
            # says which, and ends this one.
            time.sleep(3)
        peers.leave(" ".join(str(e).split())[:300] or type(e).__name__)
        raise
    together("the end of the run")
    peers.leave()
    jax.distributed.shutdown()  # waits for the others


def _identity(config: Any, options: Options) -> dict[str, Any]:
    """What must be the same in all processes, each with a name for messages."""
    ours = [f"zero-{name}" for name in ("envs", "search", "memory", "nets", "train")]
    names = ("jax", "jaxlib", "equinox", "optax", "orbax-checkpoint", *ours)
    launch, given = options.launch, dataclasses.asdict(config)
    for part, fields in ((options, ("out", "resume")), (launch, ("devices", "fsdp"))):
        given |= {name: getattr(part, name) for name in fields}
    same = {
        "Python": platform.python_version(),
        **{name: _version(name) for name in names},
        "devices of its own": len(jax.local_devices()),
        "platform": jax.devices()[0].platform,
        **{flag(name): value for name, value in given.items()},
    }
    return json.loads(json.dumps(same, default=str))


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "none"


class _Peers:
    """The other processes, seen from this one: process 0 is connected to all, they to it."""

    def __init__(self, identity: Mapping[str, Any]):
        self._me = f"process {jax.process_index()} on {socket.gethostname()}"
        self._connections: list[socket.socket] = []
        self._leaving = False
        if jax.process_index() == 0:
            self._serve(identity)
        else:
            self._follow(identity)

    def leave(self, reason: str | None = None) -> None:
        """Says good-bye, or why this process stops; then the others stop too."""
        self._leaving = True
        self._say(_BYE if reason is None else f"{self._me} stopped: {reason}")
        if reason is not None:
            _go_last()

    def _serve(self, identity: Mapping[str, Any]) -> None:
        """Meets all others, compares them with this process, and watches over them."""
        dual = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if dual else socket.AF_INET
        options: Any = {"family": family, "backlog": 1024, "dualstack_ipv6": dual}
        with socket.create_server(("", 0), **options) as server:
            client: Any = global_state.client
            client.key_value_set(_PORT, str(server.getsockname()[1]))
            who, complaint = self._meet(server, identity)
        self._say(complaint or "welcome")
        if complaint:
            _go_last()
            raise UsageError(complaint)
        for connection, name in zip(self._connections, who, strict=True):
            self._watch(connection, name)

    def _meet(self, server: socket.socket, identity: Mapping[str, Any]) -> tuple[list[str], str]:
        """Who the others are, and what is wrong with them, if anything."""
        who, complaint, until = [], "", time.monotonic() + _PATIENCE
        while len(who) < jax.process_count() - 1:
            server.settimeout(max(0.1, until - time.monotonic()))
            try:
                connection, _ = server.accept()
            except OSError as e:
                complaint = (
                    f"process 0 met {len(who)} of {jax.process_count() - 1} others within "
                    f"{_PATIENCE} s ({e}); let connections to all its ports through."
                )
                break
            other = _introduction(connection)
            if other is None:
                connection.close()
                continue
            name, has = other
            self._connections.append(connection)
            who.append(name)
            for what, value in identity.items():
                if has.get(what) != value and not complaint:
                    complaint = (
                        f"{name} has {what} {has.get(what)}, and {self._me} has {value}; start all "
                        "with the same command and the same versions."
                    )
        return who, complaint

    def _follow(self, identity: Mapping[str, Any]) -> None:
        """Shows this process to process 0, and waits for its word."""
        client: Any = global_state.client
        port = int(client.blocking_key_value_get(_PORT, 1000 * _PATIENCE))
        host = _host(str(global_state.coordinator_address))
        said = json.dumps({"who": self._me, "is": identity})
        try:
            connection = socket.create_connection((host, port), timeout=_PATIENCE)
            connection.sendall(f"{said}\n".encode())
            answer = _line(connection).strip()
        except OSError as e:
            raise UsageError(
                f"{self._me} could not reach process 0 at {host}:{port} ({e}); let connections to "
                "all its ports through."
            ) from e
        if answer != "welcome":
            raise UsageError(answer or f"process 0 on {host} ended while all met.")
        self._connections.append(connection)
        self._watch(connection, f"process 0 on {host}")

    def _say(self, line: str, besides: socket.socket | None = None) -> None:
        for connection in self._connections:
            if connection is not besides:
                with contextlib.suppress(OSError):
                    connection.sendall(f"{line}\n".encode())

    def _watch(self, connection: socket.socket, who: str) -> None:
        """Ends this process when the other end of the connection closes without a good-bye."""
        connection.settimeout(None)
        # A host that lost its power says nothing: after 20 s of silence it is asked, every 5 s.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in (("TCP_KEEPIDLE", 20), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4)):
            if hasattr(socket, name):
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)

        def listen() -> None:
            heard = ""
            with contextlib.suppress(OSError):
                heard = _line(connection).strip()
            if heard == _BYE or self._leaving:
                return
            gone = heard or f"{who} ended without a word"
            if heard:
                time.sleep(1)  # the same reason may be about to end this process by itself
            if self._leaving:
                return
            self._say(gone, besides=connection)
            _leave_with(
                f"{gone}; this process stops too. Start all of them again with --resume.", 1
            )

        threading.Thread(target=listen, name=f"zero-watch {who}", daemon=True).start()


def _introduction(connection: socket.socket) -> tuple[str, dict[str, Any]] | None:
    """Who is at the other end, and its identity; `None` where it is no process of a run, such as
    somebody who looks at open ports."""
    connection.settimeout(_SILENCE)
    try:
        said = json.loads(_line(connection))
        return str(said["who"]), dict(said["is"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _line(connection: socket.socket) -> str:
    """The next line, without reading past it; empty where the connection closes before its end."""
    with connection.makefile("rb", buffering=0) as file:
        found = file.readline()
    return found.decode(errors="replace") if found.endswith(b"\n") else ""


def _leave_with(line: str, code: int) -> NoReturn:
    """Ends this process, whose main thread may wait for another one inside XLA."""
    cursor = "\x1b[?25h" if sys.stderr.isatty() else ""
    os.write(2, f"{cursor}{line}\n".encode())
    _go_last()
    os._exit(code)


def _go_last() -> None:
    """Has process 0 stop after the others, which JAX ends with a stack trace when it is gone."""
    if jax.distributed.is_initialized() and jax.process_index() == 0:
        time.sleep(3)
