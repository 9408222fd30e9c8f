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
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

import jax
import numpy as np
from jax.experimental.multihost_utils import broadcast_one_to_all

from ._config import flag, Launch
from ._errors import UsageError


#: Seconds in which all processes have to have started.
_PATIENCE = 300
#: What a process says before it leaves in order.
_BYE = "bye"


def join(launch: Launch) -> None:
    """Connects this process to the others of the run, if there are any, before JAX starts.

    **Raises:** [`zero_train.app.UsageError`][] where process 0 does not answer, or there are two.
    """
    if jax.distributed.is_initialized():
        return
    if launch.coordinator is not None:
        _check_coordinator(launch.coordinator, int(launch.process_id or 0))
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
            raise UsageError(
                f"the launcher's processes could not be found ({str(e).splitlines()[0][:200]}); "
                "give --coordinator, --process-id and --num-processes."
            ) from e


@contextlib.contextmanager
def _patient(launch: Launch) -> Iterator[None]:
    """Ends this process with a line where not all come; JAX would with a stack trace of C++."""

    def give_up() -> None:
        which = "" if launch.process_id is None else f" {launch.process_id}"
        print(
            f"process{which} waited {_PATIENCE} s for all of {launch.processes} processes; start "
            "each of them with a --process-id of its own and the same --coordinator.",
            file=sys.stderr,
            flush=True,
        )
        os._exit(2)

    timer = threading.Timer(_PATIENCE, give_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _in_slice() -> bool:
    """Whether this may be one of several processes that only JAX can count: an indexed job of
    Kubernetes, or a TPU slice."""
    # Without this package JAX does not ask Kubernetes, and the pods of a job may have a run each.
    if "JOB_COMPLETION_INDEX" in os.environ and importlib.util.find_spec("kubernetes") is not None:
        return True
    chips = any(pathlib.Path(path).exists() for path in ("/dev/accel0", "/dev/vfio/0"))
    return chips and importlib.util.find_spec("libtpu") is not None


def _check_coordinator(coordinator: str, process: int) -> None:
    """Waits until process 0 listens; nobody may listen there before process 0 does."""
    host, port = coordinator.rsplit(":", 1)
    until = time.monotonic() + (_PATIENCE if process else 0)
    while True:
        try:
            socket.create_connection((host, int(port)), timeout=10).close()
            break
        except OSError as e:
            if process and (time.monotonic() > until or isinstance(e, socket.gaierror)):
                raise UsageError(
                    f"process {process} could not reach process 0 at --coordinator {coordinator} "
                    f"for {_PATIENCE} s ({e.strerror or e}); start process 0 there, and let "
                    "connections to this port through."
                ) from e
        if not process:
            return
        time.sleep(0.5)
    if not process:
        raise UsageError(
            f"--process-id 0 was given, and somebody listens at --coordinator {coordinator} "
            "already; give each process an id of its own, and each run a port of its own."
        )


@contextlib.contextmanager
def watched(config: Any) -> Iterator[None]:
    """Checks that all processes of a run belong together, and inside the `with` block ends this one
    with a line when another one ends. Does nothing where there is only one.

    **Raises:** [`zero_train.app.UsageError`][] where the processes differ in the number of their
    devices, the configuration or the versions of the packages.
    """
    if jax.process_count() == 1:
        yield
        return
    _meet(config)
    try:
        yield
    except BaseException as e:
        reason = " ".join(str(e).split())[:300] or type(e).__name__
        _say(f"process {jax.process_index()} on {socket.gethostname()} stopped: {reason}")
        raise
    _say(_BYE)
    jax.distributed.shutdown()  # waits for the others


def _meet(config: Any) -> None:
    _check_devices()
    server = _listening() if jax.process_index() == 0 else None
    said = f"{socket.gethostname()} {server.getsockname()[1] if server else 0}".encode()
    address = np.zeros((256,), np.uint8)
    address[: len(said)] = np.frombuffer(said, np.uint8)
    host, port = bytes(broadcast_one_to_all(address)).rstrip(b"\0").decode().split()
    me = {"process": jax.process_index(), "host": socket.gethostname(), "is": _identity(config)}
    if server is not None:
        _serve(server, me)
    else:
        _follow(host, int(port), me)


def _say(line: str) -> None:
    for connection in _connections:
        with contextlib.suppress(OSError):
            connection.sendall(f"{line}\n".encode())


_connections: list[socket.socket] = []


def _check_devices() -> None:
    """JAX's own functions for several processes need as many devices in each."""
    owners = [device.process_index for device in jax.devices()]
    numbers = [owners.count(process) for process in range(jax.process_count())]
    if len(set(numbers)) > 1:
        has = ", ".join(f"process {i} has {number}" for i, number in enumerate(numbers))
        raise UsageError(f"{has} devices; give every process as many.")


def _identity(config: Any) -> dict[str, Any]:
    """What must be the same in all processes, each with a name for messages."""
    names = ("jax", "jaxlib", "equinox", "optax", "zero-train", "zero-search", "zero-memory")
    versions = {name: _version(name) for name in names}
    given = {flag(name): value for name, value in dataclasses.asdict(config).items()}
    return json.loads(json.dumps({**versions, **given}, default=str))


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "none"


def _listening() -> socket.socket:
    server = socket.create_server(("", 0), backlog=1024)
    server.settimeout(_PATIENCE)
    return server


def _serve(server: socket.socket, me: Mapping[str, Any]) -> None:
    """Process 0: meets all others, compares them with itself, and watches over them."""
    others: dict[int, tuple[socket.socket, str]] = {}
    complaint = ""
    while len(others) < jax.process_count() - 1:
        connection, _ = server.accept()
        connection.settimeout(_PATIENCE)
        other = json.loads(_line(connection))
        others[other["process"]] = connection, other["host"]
        differing = [k for k, v in me["is"].items() if other["is"].get(k) != v]
        if differing and not complaint:
            name = differing[0]
            complaint = (
                f"process {other['process']} on {other['host']} has {name} "
                f"{other['is'].get(name)}, and process 0 has {me['is'][name]}; start all with the "
                "same command and the same versions."
            )
    server.close()
    for connection, _ in others.values():
        connection.sendall(f"{complaint}\n".encode())
    if complaint:
        raise UsageError(complaint)
    connections = {process: connection for process, (connection, _) in others.items()}
    for process, (connection, host) in others.items():
        who = f"process {process} on {host}"
        _watch(connection, who, [x for i, x in connections.items() if i != process])


def _follow(host: str, port: int, me: Mapping[str, Any]) -> None:
    """The others: show themselves to process 0, and wait for its word."""
    connection = socket.create_connection((host, port), timeout=_PATIENCE)
    connection.sendall(json.dumps(me).encode() + b"\n")
    if complaint := _line(connection).strip():
        raise UsageError(complaint)
    _watch(connection, f"process 0 on {host}", [])


def _line(connection: socket.socket) -> str:
    with connection.makefile("r") as file:
        return file.readline()


def _watch(connection: socket.socket, who: str, others: list[socket.socket]) -> None:
    """Ends this process when the other end of the connection closes without a good-bye."""
    connection.settimeout(None)
    # A host that lost its power says nothing: after 20 s of silence it is asked, every 5 s.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 20), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    _connections.append(connection)

    def listen() -> None:
        heard = ""
        with contextlib.suppress(OSError):
            heard = connection.recv(1024).decode().strip()
        if heard == _BYE:
            return
        gone = heard or f"{who} ended without a word"
        for other in others:
            with contextlib.suppress(OSError):
                other.sendall(f"{gone}\n".encode())
        if heard:
            time.sleep(1)  # the same reason may end this process by itself
        _end(gone)

    threading.Thread(target=listen, name=f"zero-watch {who}", daemon=True).start()


def _end(gone: str) -> NoReturn:
    """Ends this process, whose main thread may wait for the other one inside XLA."""
    cursor = "\x1b[?25h" if sys.stderr.isatty() else ""
    then = "this process stops too. Start all of them again with --resume"
    os.write(2, f"{cursor}{gone}; {then}.\n".encode())
    time.sleep(0.5)  # until process 0 has told the others
    os._exit(1)
