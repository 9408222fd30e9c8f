"""Replay buffers for whole episodes, in JAX."""

import importlib.metadata

from ._buffer import (
    AbstractBuffer as AbstractBuffer,
    Batch as Batch,
)


__version__ = importlib.metadata.version("zero-memory")
