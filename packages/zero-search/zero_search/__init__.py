"""Batched search over any model, in JAX: by trees and by particles."""

import importlib.metadata

from ._backup import (
    AbstractBackup as AbstractBackup,
    MaxBackup as MaxBackup,
    MeanBackup as MeanBackup,
)
from ._belief import (
    Belief as Belief,
    BeliefModel as BeliefModel,
    PredictedBelief as PredictedBelief,
)
from ._chance import (
    sampled_step as sampled_step,
)
from ._cloud import (
    AbstractResampleRule as AbstractResampleRule,
    AbstractResampling as AbstractResampling,
    GaussianNoise as GaussianNoise,
    Multinomial as Multinomial,
    ResampleBelow as ResampleBelow,
    ResampleEvery as ResampleEvery,
    Systematic as Systematic,
)
from ._engine import (
    search as search,
    SearchStats as SearchStats,
)
from ._hindsight import (
    Hindsight as Hindsight,
)
from ._inspect import (
    read_tree as read_tree,
    SearchTree as SearchTree,
    TreeEdge as TreeEdge,
    TreeNode as TreeNode,
)
from ._model import (
    AbstractChanceModel as AbstractChanceModel,
    AbstractHiddenModel as AbstractHiddenModel,
    AbstractModel as AbstractModel,
    AbstractPriorModel as AbstractPriorModel,
    AbstractProposalModel as AbstractProposalModel,
    Proposal as Proposal,
)
from ._noise import (
    AbstractRootNoise as AbstractRootNoise,
    DirichletNoise as DirichletNoise,
)
from ._particles import (
    ParticleSearch as ParticleSearch,
)
from ._planner import (
    AbstractPlanner as AbstractPlanner,
    check_plan as check_plan,
    Plan as Plan,
)
from ._qtransform import (
    AbstractQTransform as AbstractQTransform,
    ByMinMax as ByMinMax,
    ByParentAndSiblings as ByParentAndSiblings,
    CompletedByMixedValue as CompletedByMixedValue,
    FirstPlayUrgency as FirstPlayUrgency,
    PlainQ as PlainQ,
)
from ._readout import (
    AbstractReadout as AbstractReadout,
    ImprovedPolicy as ImprovedPolicy,
    SoftmaxQ as SoftmaxQ,
    VisitCounts as VisitCounts,
)
from ._root import (
    AbstractRootRule as AbstractRootRule,
    PriorRoot as PriorRoot,
    SequentialHalving as SequentialHalving,
)
from ._rules import (
    Rules as Rules,
)
from ._sample import (
    safe_softmax as safe_softmax,
    sample_action as sample_action,
    Temperature as Temperature,
)
from ._select import (
    AbstractSelection as AbstractSelection,
    ImprovedPolicySelection as ImprovedPolicySelection,
    LogPUCT as LogPUCT,
    MuZeroPUCT as MuZeroPUCT,
    PlainUCB1 as PlainUCB1,
    PUCB as PUCB,
    PUCT as PUCT,
    UCB1 as UCB1,
)
from ._statistics import (
    NodeStatistics as NodeStatistics,
    RootStatistics as RootStatistics,
)
from ._tree import (
    plant as plant,
    Tree as Tree,
)
from ._tree_search import (
    SearchCarry as SearchCarry,
    TreeSearch as TreeSearch,
)
from ._wrappers import (
    Determinised as Determinised,
    ExpectedModel as ExpectedModel,
    PlayoutModel as PlayoutModel,
)


__version__ = importlib.metadata.version("zero-search")
