"""Agents, the training loop, evaluation and checkpoints for search-based reinforcement learning."""

import importlib.metadata

from ._actor import (
    AbstractActor as AbstractActor,
)
from ._agent import (
    AbstractAgent as AbstractAgent,
    Metrics as Metrics,
)
from ._experience import (
    Experience as Experience,
)


__version__ = importlib.metadata.version("zero-train")
