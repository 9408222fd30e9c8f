"""Batched tree search over any model, in JAX."""

import importlib.metadata

from ._model import (
    AbstractModel as AbstractModel,
    AbstractPriorModel as AbstractPriorModel,
)
from ._planner import (
    AbstractPlanner as AbstractPlanner,
    Plan as Plan,
)


__version__ = importlib.metadata.version("zero-search")
