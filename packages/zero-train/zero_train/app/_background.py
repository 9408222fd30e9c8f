"""Work in threads beside the main one, which hears no signal while it waits for XLA."""

import concurrent.futures
import threading
from collections.abc import Callable
from typing import Any

from .. import StopSignal


_THREAD = "zero-background"


def in_background(function: Callable[[], Any]) -> concurrent.futures.Future:
    """Calls a function in a thread that does not keep the process alive."""
    future = concurrent.futures.Future()

    def call() -> None:
        try:
            future.set_result(function())
        except BaseException as e:
            future.set_exception(e)

    threading.Thread(target=call, name=_THREAD, daemon=True).start()
    return future


def ended(task: concurrent.futures.Future, stop: StopSignal) -> bool:
    """Waits for such a call to end, and raises what it raised.

    **Returns:** `False` where a signal came first.
    """
    while not stop.requested:
        # A Python signal handler runs between two waits.
        if concurrent.futures.wait([task], timeout=0.1).done:
            task.result()
            return True
    return False


def busy() -> bool:
    """Whether such a thread still runs."""
    return any(thread.name == _THREAD for thread in threading.enumerate())
