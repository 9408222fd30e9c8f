"""The lock of a run folder: one process trains there at a time."""

import contextlib
import fcntl
import json
import os
import pathlib
import secrets
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any

from ._disk import opened, read_whole
from ._lines import parsed, RunError


#: The name of its file.
LOCK = "lock"
#: The seconds between two signs of life of an owner, and those without one after which it is dead.
_BEAT, _DEAD = 5.0, 30.0
_BOOT = pathlib.Path("/proc/sys/kernel/random/boot_id")


class Lock:
    """Holds a folder for this process, in a file that names it. What a process held that was killed
    is free at once.

    On one machine the system's own lock of the file says whether its owner lives. A disk that
    machines share may not pass it on, or have no such locks: so the owner touches the file every
    few seconds, and another machine takes the folder where it has not for half a minute.
    """

    def __init__(self, folder: pathlib.Path, *, tell: Callable[[str], object]):
        """`tell` is called with a line where it waits for a sign of life of another machine. A
        folder whose owner lives is refused; `OSError` is raised where it cannot be written."""
        self._path = folder / LOCK
        self._me = {
            "host": socket.gethostname(),
            "process": os.getpid(),
            "since": time.strftime("%Y-%m-%d %H:%M:%S %z"),
            "machine": _machine(),
            "claim": secrets.token_hex(8),
        }
        self._lost, self._ended = False, threading.Event()
        while (taken := self._taken(tell)) is None:
            pass
        self._file = taken
        threading.Thread(target=self._live, name="zero-lock", daemon=True).start()

    def check(self) -> None:
        """**Raises:** [`zero_app.RunError`][] where another process has taken the folder, as one
        of another machine may while this one is suspended."""
        if self._lost:
            raise self._held(owner_in(self._path))

    def release(self) -> None:
        """Frees the folder, and removes the file."""
        if self._file.closed:
            return
        self._ended.set()
        with contextlib.suppress(OSError):
            # Before it is unlocked: who opens it until then sees that it is gone.
            if owner_in(self._path) == self._me:
                self._path.unlink()
        self._file.close()

    def _taken(self, tell: Callable[[str], object]) -> Any:
        """The file, which now names this process; `None` where it was removed meanwhile."""
        if os.path.lexists(self._path) and not is_lock(self._path):
            raise RunError(f"{self._path} is no lock of a run; move it to another place.")
        file = os.fdopen(opened(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW), "r+")
        locked, owner = False, None
        try:
            locked, owner = _locked(file), owner_in(self._path)
            if locked is False:
                raise self._held(owner)
            # Where the system locks files, no other process of this machine holds it.
            alone = locked and owner is not None and owner["machine"] == self._me["machine"]
            if owner is not None and not alone:
                self._wait(owner, tell)
            if not self._is_here(file):
                file.close()
                return None
            file.truncate()
            file.write(json.dumps(self._me))
            file.flush()
            if not locked:  # another process may have written at the same time
                time.sleep(_BEAT / 5)
                if (winner := owner_in(self._path)) != self._me:
                    raise self._held(winner)
        except BaseException:
            if locked and owner is None:  # it is not filled, as on a full disk
                self._path.unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                file.close()
            raise
        return file

    def _wait(self, owner: dict[str, Any], tell: Callable[[str], object]) -> None:
        """Returns once the owner is dead, or has removed the file. A sign of life of it raises a
        [`zero_app.RunError`][]."""
        with contextlib.suppress(FileNotFoundError):
            seen = self._path.stat().st_mtime
            # By the clock of the disk, which may be that of another machine.
            with tempfile.TemporaryFile(dir=self._path.parent) as now:
                left = _DEAD - (os.fstat(now.fileno()).st_mtime - seen)
            if left > 0:
                tell(
                    f"{_named(owner)} may still train here: waiting {left:.0f} s to see if it lives"
                )
            until = time.monotonic() + left
            while time.monotonic() < until:
                time.sleep(_BEAT / 5)
                with open(self._path, opener=opened) as file:  # asks a shared disk for what is new
                    if os.fstat(file.fileno()).st_mtime != seen:
                        raise self._held(owner)

    def _live(self) -> None:
        """Gives signs of life until the folder is free again."""
        while not self._ended.wait(_BEAT):
            # A disk may refuse for a while, and whoever removes the file by hand ends no run.
            with contextlib.suppress(OSError, ValueError):
                os.utime(self._file.fileno())
                self._lost = owner_in(self._path) not in (None, self._me)

    def _is_here(self, file: Any) -> bool:
        """Whether the file is still that at the path."""
        try:
            return os.path.samestat(os.fstat(file.fileno()), self._path.stat())
        except FileNotFoundError:
            return False

    def _held(self, owner: dict[str, Any] | None) -> RunError:
        return RunError(
            f"{_named(owner)} trains in {self._path.parent}; stop that one first, or give another "
            "folder."
        )


def owner_in(path: pathlib.Path) -> dict[str, Any] | None:
    """What the file of a lock says of its owner; `None` where it says nothing."""
    with contextlib.suppress(OSError, ValueError):
        found = parsed(read_whole(path))
        if isinstance(found, dict) and found.keys() >= {"host", "process", "since", "machine"}:
            return found
    return None


def is_lock(path: pathlib.Path) -> bool:
    """Whether the file is that of a lock, whose owner may have ended before it was filled."""
    return (
        path.is_file()
        and not path.is_symlink()
        and (not path.stat().st_size or owner_in(path) is not None)
    )


def _named(owner: dict[str, Any] | None) -> str:
    if owner is None:
        return "Another process"
    return f"Process {owner['process']} on {owner['host']} (since {owner['since']})"


def _machine() -> str:
    """What tells one running system from others, and from itself after it was started again."""
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return socket.gethostname()


def _locked(file: Any) -> bool | None:
    """Whether the system locked the file for this process; `None` where it locks none there."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    except OSError:
        return None
    return True
