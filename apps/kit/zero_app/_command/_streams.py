"""Standard input and output, which whoever starts a command may have closed, or sent to a full
disk."""

import contextlib
import errno
import io
import os
import sys
from typing import Any


_STREAMS = (
    ("stdin", "r", "standard input cannot be read ({}); give another"),
    ("stdout", "w", "standard output cannot be written ({}); send it elsewhere"),
    ("stderr", "w", "standard error cannot be written ({}); send it elsewhere"),
)
_FAILURES = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF, errno.EISDIR)


def open_closed() -> None:
    """Has every standard stream that is closed read nothing and write nowhere. Otherwise the next
    file that is opened, such as a checkpoint, would have its number, and hold what is printed."""
    for number, (name, mode, _) in enumerate(_STREAMS):
        try:
            os.fstat(number)
        except OSError:
            # The lowest number that is free: those below are open.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))


def failing(error: OSError) -> str | None:
    """Which standard stream an error without a file's name is of, in a line; `None` where of none.
    Output that fails is given up."""
    if error.errno not in _FAILURES:
        return None
    for name, mode, complaint in _STREAMS:
        stream: Any = getattr(sys, name)
        try:
            # Output that was lost is not written again by a flush, where there is no buffer.
            os.read(stream.fileno(), 0) if mode == "r" else os.write(stream.fileno(), b"\n")
        except io.UnsupportedOperation:
            continue  # it is no file, as in a test
        except OSError as e:
            if mode == "w":
                give_up(stream)
            return f"{complaint.format(e.strerror)}."
    return None


def give_up(stream: Any) -> None:
    """Sends the rest of an output nowhere, which Python would write when it ends."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
