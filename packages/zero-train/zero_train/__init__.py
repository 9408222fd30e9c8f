"""Agents, the training loop, evaluation and checkpoints for search-based reinforcement learning."""

import importlib.metadata

from ._actor import (
    AbstractActor as AbstractActor,
)
from ._actors import (
    PlanningActor as PlanningActor,
    PlanRecord as PlanRecord,
    PolicyActor as PolicyActor,
    RandomActor as RandomActor,
)
from ._agent import (
    AbstractAgent as AbstractAgent,
    Metrics as Metrics,
)
from ._experience import (
    Experience as Experience,
)
from ._model import (
    AbstractResampledModel as AbstractResampledModel,
    EnvironmentModel as EnvironmentModel,
    evaluate_batch as evaluate_batch,
    Evaluator as Evaluator,
    FeatureEvaluator as FeatureEvaluator,
)


__version__ = importlib.metadata.version("zero-train")
