"""Work in threads beside the main one, which hears no signal while it waits for XLA."""

import atexit
import concurrent.futures
import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any


_THREAD = "zero-background"
#: The most seconds that the end of a program waits for such a thread.
_PATIENCE = 60


@atexit.register
def _wait() -> None:
    """Python ends the process hard where a thread still compiles when it has run its last line."""
    for thread in threading.enumerate():
        if thread.name == _THREAD:
            thread.join(_PATIENCE)


def in_background(function: Callable[[], Any]) -> concurrent.futures.Future:
    """Calls a function in a thread that does not keep the process alive."""
    future = concurrent.futures.Future()

    def call() -> None:
        if not future.set_running_or_notify_cancel():  # it was cancelled, and cannot be any more
            return
        try:
            future.set_result(function())
        except BaseException as e:
            future.set_exception(e)

    threading.Thread(target=call, name=_THREAD, daemon=True).start()
    return future


def ended(task: concurrent.futures.Future, given_up: Callable[[], bool]) -> bool:
    """Waits for such a call to end, and raises what it raised. `given_up` is asked ten times
    a second; where it is true, this waits no longer and returns `False`."""
    while not given_up():
        # A Python signal handler runs between two waits.
        if concurrent.futures.wait([task], timeout=0.1).done:
            task.result()
            return True
    return False


def busy() -> bool:
    """Whether such a thread still runs."""
    return any(thread.name == _THREAD for thread in threading.enumerate())


@contextlib.contextmanager
def quiet_compiler() -> Iterator[None]:
    """XLA writes no errors to stderr inside of the `with` block: those of a compiler are raised in
    Python too, but for the advice to report a bug after two minutes of work, which is none."""
    from jaxlib import utils  # pyright: ignore[reportAttributeAccessIssue]

    # It has the least level of its messages to set, and none to ask for; 1 is that of jaxlib.
    level = getattr(utils, "absl_set_min_log_level", lambda number: None)
    level(3)
    try:
        yield
    finally:
        given = os.environ.get("TF_CPP_MIN_LOG_LEVEL", "")
        level(int(given) if given.isdecimal() else 1)
