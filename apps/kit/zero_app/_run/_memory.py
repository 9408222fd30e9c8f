"""How much memory there is, and what does not fit into it."""

import contextlib
import os
import pathlib

import jax

from .._command._errors import UsageError


#: Where Linux says how much the processes of a container may take.
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def check_memory(size: float, what: str, less: str) -> None:
    """Refuses what takes more bytes than all devices of this process have. The message begins with
    `what`, and names of what there may be `less`."""
    room = _room()
    if room and size > room:
        raise UsageError(
            f"{what} {size / 1e9:,.0f} GB, and there are {room / 1e9:,.0f}; give fewer {less} or a "
            "smaller network."
        )


def _room() -> int:
    """The bytes of memory, 0 where nobody says."""
    device, *others = jax.local_devices()
    if device.platform != "cpu":
        return (device.memory_stats() or {}).get("bytes_limit", 0) * (1 + len(others))
    room = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for limit in _LIMITS:
        with contextlib.suppress(OSError, ValueError):  # of no container, or without a limit
            room = min(room, int(pathlib.Path(limit).read_text()))
    return room
