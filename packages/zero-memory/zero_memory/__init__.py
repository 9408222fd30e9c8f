"""Replay buffers for whole episodes and for windows of consecutive rows, in JAX.

- Whole episodes: `EpisodeBuffer`.
- Windows of rows: `TrajectoryBuffer`, `PrioritisedTrajectoryBuffer`, and `Latest` of the rows that
  were just collected. They need `zero-memory[windows]`.

All are an `AbstractBuffer` with a pure state, and sample a `Batch`.

What holds of all of them, and is not said again:

- `capacity=` is what is kept of each environment, in entries or rows; `num_envs=` and
  `batch_size=`, in entries or windows, count over all shards; `length=` is the number of rows in a
  window. `num_shards=` is the number of parts that share nothing, for `jax.shard_map`.
- Each shard draws an equal part of a batch from its own environments, with a key folded from its
  number. The rows are therefore the same however the shards lie on devices.
- Slots of an empty buffer are copies of the example, so that even rows of weight 0 are items that
  can be computed with.
- Arguments that cannot be taken raise a ValueError of one line that names them.
"""

import importlib.metadata
import typing

from ._buffer import AbstractBuffer as AbstractBuffer, Batch as Batch
from ._episode import EpisodeBuffer as EpisodeBuffer
from ._priorities import Priorities as Priorities
from ._rings import EpisodeState as EpisodeState


try:
    from ._latest import Latest as Latest
    from ._prioritised import (
        PrioritisedState as PrioritisedState,
        PrioritisedTrajectoryBuffer as PrioritisedTrajectoryBuffer,
    )
    from ._trajectory import TrajectoryBuffer as TrajectoryBuffer
    from ._windows import TrajectoryState as TrajectoryState
except ModuleNotFoundError as e:
    if e.name is None or e.name.partition(".")[0] != "flashbax":
        raise

    def __getattr__(name: str) -> typing.NoReturn:
        windows = "PrioritisedState", "PrioritisedTrajectoryBuffer", "TrajectoryBuffer"
        if name in ("Latest", "TrajectoryState", *windows):
            raise ImportError(f"zero_memory.{name} needs flashbax: install zero-memory[windows].")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__version__ = importlib.metadata.version("zero-memory")
