"""Batched search over any model, in JAX: by trees and by particles.

- Planners: `TreeSearch`, `ParticleSearch`, `SampledSearch`, `Hindsight`. All are an
  `AbstractPlanner`, and return a `Plan`.
- Models to derive from: `AbstractPriorModel`; `AbstractChanceModel` with known
  chances; `AbstractHiddenModel`, planned through a `BeliefModel`; `AbstractProposalModel` with any
  actions. `PlayoutModel` needs no evaluator.
- Rules of a tree search: selections (`PUCT`, `UCB1`, `PUCB`), transforms of Q-values (`ByMinMax`,
  `ByParentAndSiblings`, `CompletedByMixedValue`, `FirstPlayUrgency`, `PlainQ`), backups
  (`MeanBackup`, `MaxBackup`), noise (`DirichletNoise`, `GaussianNoise`) and readouts
  (`VisitCounts`, `LowerBound`, `SoftmaxQ`).
- To look inside: `read_tree` returns a `SearchTree`.
- `zero_search.mctx` has the functions of mctx.
"""

import importlib.metadata

from ._belief import (
    Belief as Belief,
    BeliefModel as BeliefModel,
    PredictedBelief as PredictedBelief,
)
from ._chance import sampled_step as sampled_step, Widening as Widening
from ._cloud import GaussianNoise as GaussianNoise
from ._engine import search as search
from ._hindsight import Hindsight as Hindsight
from ._model import (
    AbstractChanceModel as AbstractChanceModel,
    AbstractHiddenModel as AbstractHiddenModel,
    AbstractModel as AbstractModel,
    AbstractPriorModel as AbstractPriorModel,
    AbstractProposalModel as AbstractProposalModel,
    masked_prediction as masked_prediction,
    Proposal as Proposal,
)
from ._particles import ParticleSearch as ParticleSearch
from ._planner import AbstractPlanner as AbstractPlanner, Plan as Plan
from ._playout import PlayoutModel as PlayoutModel
from ._root import (
    AbstractReadout as AbstractReadout,
    AbstractRootNoise as AbstractRootNoise,
    AbstractRootRule as AbstractRootRule,
    DirichletNoise as DirichletNoise,
    LowerBound as LowerBound,
    PriorRoot as PriorRoot,
    SoftmaxQ as SoftmaxQ,
    VisitCounts as VisitCounts,
)
from ._rules import (
    AbstractBackup as AbstractBackup,
    AbstractQTransform as AbstractQTransform,
    AbstractSelection as AbstractSelection,
    ByMinMax as ByMinMax,
    ByParentAndSiblings as ByParentAndSiblings,
    CompletedByMixedValue as CompletedByMixedValue,
    FirstPlayUrgency as FirstPlayUrgency,
    MaxBackup as MaxBackup,
    MeanBackup as MeanBackup,
    PlainQ as PlainQ,
    PUCB as PUCB,
    PUCT as PUCT,
    UCB1 as UCB1,
)
from ._sample import (
    safe_softmax as safe_softmax,
    sample_action as sample_action,
    Temperature as Temperature,
)
from ._sampled import (
    SampledModel as SampledModel,
    SampledNode as SampledNode,
    SampledSearch as SampledSearch,
)
from ._search_tree import read_tree as read_tree, SearchTree as SearchTree
from ._tree import Rules as Rules, Tree as Tree
from ._tree_search import TreeSearch as TreeSearch
from ._types import NodeStatistics as NodeStatistics, RootStatistics as RootStatistics


__version__ = importlib.metadata.version("zero-search")
