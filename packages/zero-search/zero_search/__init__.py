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
from ._belief_search import (
    BeliefSearch as BeliefSearch,
)
from ._chance import (
    AbstractAfterstateModel as AbstractAfterstateModel,
    AbstractChanceModel as AbstractChanceModel,
    ChanceSearch as ChanceSearch,
    ExpectedModel as ExpectedModel,
)
from ._gumbel import (
    GumbelSearch as GumbelSearch,
)
from ._hindsight import (
    Hindsight as Hindsight,
    HindsightCarry as HindsightCarry,
)
from ._inspect import (
    read_tree as read_tree,
    SearchTree as SearchTree,
    TreeEdge as TreeEdge,
    TreeNode as TreeNode,
)
from ._mctx import (
    MctxSearch as MctxSearch,
)
from ._model import (
    AbstractHiddenModel as AbstractHiddenModel,
    AbstractModel as AbstractModel,
    AbstractPriorModel as AbstractPriorModel,
)
from ._noise import (
    AbstractRootNoise as AbstractRootNoise,
    DirichletNoise as DirichletNoise,
)
from ._particles import (
    AbstractProposalModel as AbstractProposalModel,
    AbstractResampleRule as AbstractResampleRule,
    AbstractResampling as AbstractResampling,
    GaussianNoise as GaussianNoise,
    Multinomial as Multinomial,
    ParticleSearch as ParticleSearch,
    Proposal as Proposal,
    ResampleBelow as ResampleBelow,
    ResampleEvery as ResampleEvery,
    Systematic as Systematic,
)
from ._planner import (
    AbstractPlanner as AbstractPlanner,
    check_plan as check_plan,
    Plan as Plan,
)
from ._playout import (
    ChancePlayoutModel as ChancePlayoutModel,
    Playout as Playout,
    PlayoutModel as PlayoutModel,
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
    SoftmaxQ as SoftmaxQ,
    VisitCounts as VisitCounts,
)
from ._root import (
    SearchCarry as SearchCarry,
)
from ._sample import (
    safe_softmax as safe_softmax,
    sample_action as sample_action,
    Temperature as Temperature,
)
from ._select import (
    AbstractSelection as AbstractSelection,
    MuZeroPUCT as MuZeroPUCT,
    PUCT as PUCT,
    UCB1 as UCB1,
)
from ._statistics import (
    NodeStatistics as NodeStatistics,
)
from ._tree import (
    Tree as Tree,
)
from ._tree_planner import (
    AbstractTreePlanner as AbstractTreePlanner,
    Outlook as Outlook,
)
from ._tree_search import (
    TreeSearch as TreeSearch,
)
from ._ucb import (
    LogPUCT as LogPUCT,
    PlainUCB1 as PlainUCB1,
    PUCB as PUCB,
)


__version__ = importlib.metadata.version("zero-search")
