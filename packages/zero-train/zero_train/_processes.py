"""Several processes of one run: which of them writes files, and how they meet."""

import collections
import itertools
import json
from collections.abc import Iterator
from typing import Any

import jax
from jax._src.distributed import global_state  # the barriers of it have no public name


#: Seconds in which processes wait for each other.
LONGEST_WAIT = 24 * 3600
# By name, because threads meet in any order. Each name belongs to one thread.
_meetings: dict[str, Iterator[int]] = collections.defaultdict(itertools.count)


def is_writer() -> bool:
    """Whether this is the process that writes files."""
    return jax.process_index() == 0


def together(name: str) -> None:
    """Waits until all processes are here, if there are several.

    It is no collective of the devices: their first one must not wait long (30 s with gloo), and a
    thread may wait here while another one computes.
    """
    client: Any = global_state.client
    if client is not None and jax.process_count() > 1:
        client.wait_at_barrier(_meeting(name), 1000 * LONGEST_WAIT)


def of_writer(name: str, value: Any) -> Any:
    """The value, which JSON can hold, that the process which writes files has, in all processes."""
    client: Any = global_state.client
    if client is None or jax.process_count() == 1:
        return value
    key = _meeting(name)
    if is_writer():
        client.key_value_set(key, json.dumps(value))
    return json.loads(client.blocking_key_value_get(key, 1000 * LONGEST_WAIT))


def to_writer(name: str, value: bytes) -> list[bytes]:
    """Hands a value to the process that writes files. That one gets the values of all, in their
    order, the others none. All must call it; no device takes part, and nothing is compiled."""
    client: Any = global_state.client
    if client is None or jax.process_count() == 1:
        return [value]
    folder = _meeting(name)
    if not is_writer():
        client.key_value_set_bytes(f"{folder}/{jax.process_index()}", value)
        return []
    keys = [f"{folder}/{process}" for process in range(1, jax.process_count())]
    found: dict[str, bytes] = {}
    while missing := [key for key in keys if key not in found]:
        client.blocking_key_value_get_bytes(missing[0], 1000 * LONGEST_WAIT)
        found = dict(client.key_value_dir_get_bytes(folder))
    client.key_value_delete(folder)  # the whole folder: a long run must not fill the memory
    return [value, *(found[key] for key in keys)]


def _meeting(name: str) -> str:
    return f"zero_train/{name}/{next(_meetings[name])}"
