"""Equinox networks for search-based reinforcement learning."""

import importlib.metadata

from ._alphazero import (
    AlphaZeroNet as AlphaZeroNet,
    ChannelNorm as ChannelNorm,
    ResidualBlock as ResidualBlock,
)
from ._conv import Conv as Conv
from ._distributions import (
    AbstractDistribution as AbstractDistribution,
    Categorical as Categorical,
    ClippedBeta as ClippedBeta,
    Deterministic as Deterministic,
    DiscreteValued as DiscreteValued,
    EpsilonGreedy as EpsilonGreedy,
    Gaussian as Gaussian,
    MultiDiscrete as MultiDiscrete,
    Postprocessed as Postprocessed,
    TanhGaussian as TanhGaussian,
)
from ._symmetry import BoardSymmetries as BoardSymmetries
from ._value_support import (
    signed_hyperbolic as signed_hyperbolic,
    signed_parabolic as signed_parabolic,
    ValueSupport as ValueSupport,
)


__version__ = importlib.metadata.version("zero-nets")
