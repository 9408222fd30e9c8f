"""Replay buffers for whole episodes, in JAX."""

import importlib.metadata

from ._buffer import (
    AbstractBuffer as AbstractBuffer,
    Batch as Batch,
)
from ._episode import EpisodeBuffer as EpisodeBuffer
from ._rings import EpisodeState as EpisodeState


__version__ = importlib.metadata.version("zero-memory")
