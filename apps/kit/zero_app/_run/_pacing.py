"""When a run saves its state."""

import contextlib
import math
import time
from collections.abc import Iterator

from zero_train import of_writer

from ._checkpoint import Checkpoints


#: Training goes on between two saves for so many times as long as one takes until it is on disk,
#: and for at least so many seconds. The threads that write share processors with training, and may
#: cost it as much time as if it stood still.
REST, LEAST_REST = 20, 60


class Pacing:
    """After which steps a run saves its state: every so many, or by the clock of one process,
    because all have to save after the same step."""

    def __init__(self, every: int, done: int):
        """There are `every` steps between two saves; with 0 the clock decides. `done` steps were
        done before."""
        self._every = every
        self._next = done + 1  # which tells how long a step takes
        self._last = done, time.monotonic()

    def due(self, done: int) -> bool:
        """Whether to save after so many steps."""
        return done % self._every == 0 if self._every else done >= self._next

    @contextlib.contextmanager
    def saving(self, done: int, store: Checkpoints) -> Iterator[None]:
        """Measures a save after so many steps, and decides when the next one is due. This one
        waits until the one before is on disk, so `store` knows how long that took."""
        began = time.monotonic()
        yield
        now, (step, ended) = time.monotonic(), self._last
        rest = max(REST * (now - began), REST * store.seconds, LEAST_REST)
        steps = max(1, math.ceil(rest * (done - step) / max(began - ended, 1e-9)))
        self._next = done + of_writer("next save", steps)
        self._last = done, now
