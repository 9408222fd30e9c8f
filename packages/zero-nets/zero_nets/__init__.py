"""Equinox networks for search-based reinforcement learning."""

import importlib.metadata

from ._alphazero import AlphaZeroNet as AlphaZeroNet
from ._assemblies import (
    ActorCritic as ActorCritic,
    Chain as Chain,
    Ensemble as Ensemble,
)
from ._continuous import (
    ClippedBeta as ClippedBeta,
    Gaussian as Gaussian,
    TanhGaussian as TanhGaussian,
)
from ._discrete import (
    Categorical as Categorical,
    DiscreteValued as DiscreteValued,
    EpsilonGreedy as EpsilonGreedy,
    MultiDiscrete as MultiDiscrete,
)
from ._distribution import (
    AbstractDistribution as AbstractDistribution,
    Deterministic as Deterministic,
    Postprocessed as Postprocessed,
)
from ._inputs import (
    Concatenate as Concatenate,
    ConcatenateOneHot as ConcatenateOneHot,
    Select as Select,
)
from ._layers import (
    ChannelNorm as ChannelNorm,
    Conv as Conv,
    NoisyLinear as NoisyLinear,
    orthogonal as orthogonal,
    ResidualBlock as ResidualBlock,
)
from ._policy_heads import (
    BetaHead as BetaHead,
    CategoricalHead as CategoricalHead,
    DeterministicHead as DeterministicHead,
    GaussianHead as GaussianHead,
    MultiDiscreteHead as MultiDiscreteHead,
    TanhGaussianHead as TanhGaussianHead,
)
from ._precision import MixedPrecision as MixedPrecision
from ._recurrent import (
    MGUCell as MGUCell,
    Recurrent as Recurrent,
    RNN as RNN,
    SimpleCell as SimpleCell,
)
from ._statistics import RunningStatistics as RunningStatistics
from ._symmetry import BoardSymmetries as BoardSymmetries
from ._torsos import (
    CNN as CNN,
    Downsample as Downsample,
    MLP as MLP,
    VectorResNet as VectorResNet,
    VisualResNet as VisualResNet,
)
from ._value_heads import (
    C51Head as C51Head,
    DiscreteValuedHead as DiscreteValuedHead,
    Dueling as Dueling,
    EpsilonGreedyHead as EpsilonGreedyHead,
    LinearHead as LinearHead,
    QuantileHead as QuantileHead,
)
from ._value_support import (
    signed_hyperbolic as signed_hyperbolic,
    signed_parabolic as signed_parabolic,
    ValueSupport as ValueSupport,
)
from ._world_model import (
    normalise_min_max as normalise_min_max,
    WorldModel as WorldModel,
)


__version__ = importlib.metadata.version("zero-nets")
