"""Functions of numbers and arrays that are compiled for the CPU."""

import hashlib
import importlib
import importlib.util
import inspect
import os
import pathlib
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from .._command._errors import UsageError


_U = np.uint64
_Function = TypeVar("_Function", bound=Callable[..., Any])


def compiled(function: _Function) -> _Function:
    """A function of NumPy numbers and arrays that numba compiles when it is called first, and keeps
    on disk, in `~/.cache/zero` or in `NUMBA_CACHE_DIR`, for the next process. One that calls itself
    does so with the types that it was called with: else the next process crashes (numba issue
    6061)."""
    if importlib.util.find_spec("numba") is None:
        raise UsageError(
            "a solver needs the package numba; begin the command with `uv run --extra judges` or "
            "install it with `pip install numba`."
        )
    numba: Any = importlib.import_module("numba")

    plain = inspect.unwrap(function)  # tests wrap every function of a module
    caches = pathlib.Path(os.path.expanduser(os.environ.get("XDG_CACHE_HOME") or "~/.cache"))
    # What was compiled may have lines of other files in it, and numba looks at that of the function
    # alone.
    beside = sorted(pathlib.Path(inspect.getfile(plain)).parent.glob("*.py"))
    sources = [pathlib.Path(__file__).read_bytes(), *(file.read_bytes() for file in beside)]
    mark = hashlib.sha256(b"".join(sources)).hexdigest()[:8]
    # numba asks for its folder when it is told of a function. By default that is beside the source.
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(pathlib.Path(before or caches / "zero") / f"numba-{mark}")
    try:
        return numba.njit(cache=True)(plain)
    except RuntimeError:  # nothing can be written there, so each process compiles
        return numba.njit(plain)
    finally:
        numba.config.CACHE_DIR = before


def count_bits(word: Any) -> Any:
    """How many bits of a word of 64 are set: a function to be [`zero_app.compiled`][]."""
    # The compiler knows these lines, and makes one instruction of them.
    word = word - ((word >> _U(1)) & _U(0x5555555555555555))
    word = (word & _U(0x3333333333333333)) + ((word >> _U(2)) & _U(0x3333333333333333))
    word = (word + (word >> _U(4))) & _U(0x0F0F0F0F0F0F0F0F)
    return np.int64((word * _U(0x0101010101010101)) >> _U(56))
