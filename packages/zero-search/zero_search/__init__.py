"""Batched tree search over any model, in JAX."""

import importlib.metadata

from ._gumbel import (
    GumbelSearch as GumbelSearch,
)
from ._inspect import (
    SearchTree as SearchTree,
)
from ._mctx import (
    MctxSearch as MctxSearch,
)
from ._model import (
    AbstractModel as AbstractModel,
    AbstractPriorModel as AbstractPriorModel,
)
from ._noise import (
    AbstractRootNoise as AbstractRootNoise,
    DirichletNoise as DirichletNoise,
)
from ._planner import (
    AbstractPlanner as AbstractPlanner,
    Plan as Plan,
)
from ._read import (
    read_tree as read_tree,
)
from ._root import (
    SearchCarry as SearchCarry,
)
from ._rows import (
    TreeEdge as TreeEdge,
    TreeNode as TreeNode,
)
from ._sample import (
    safe_softmax as safe_softmax,
    sample_action as sample_action,
    Temperature as Temperature,
)
from ._select import (
    AbstractSelection as AbstractSelection,
    MuZeroPUCT as MuZeroPUCT,
    NodeStatistics as NodeStatistics,
    PUCT as PUCT,
    UCB1 as UCB1,
)
from ._tree_search import (
    TreeSearch as TreeSearch,
)


__version__ = importlib.metadata.version("zero-search")
