"""Replay buffers for whole episodes and for windows of consecutive rows, in JAX."""

import importlib.metadata

from ._buffer import (
    AbstractBuffer as AbstractBuffer,
    Batch as Batch,
)
from ._episode import EpisodeBuffer as EpisodeBuffer
from ._latest import Latest as Latest
from ._priorities import Priorities as Priorities
from ._prioritised import (
    PrioritisedState as PrioritisedState,
    PrioritisedTrajectoryBuffer as PrioritisedTrajectoryBuffer,
)
from ._rings import EpisodeState as EpisodeState
from ._trajectory import TrajectoryBuffer as TrajectoryBuffer
from ._windows import TrajectoryState as TrajectoryState


__version__ = importlib.metadata.version("zero-memory")
