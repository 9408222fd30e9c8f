"""Equinox networks for search-based reinforcement learning.

- Whole networks: `AlphaZeroNet`, `ActorCritic`, `PartsNet`, `Recurrent`, `WorldModel`,
  `PrefixWorldModel`, `StochasticWorldModel`, or parts in a `Chain`.
- Parts: `MLP`, `CNN`, `VisualResNet`, `VectorResNet`, `RNN`, `ResidualBlock`, `Conv`,
  `ChannelNorm`, `NoisyLinear`, `LineTables` of boards; `Select` and `Concatenate` for structured
  observations.
- Heads: `CategoricalHead`, `MultiDiscreteHead`, `GaussianHead`, `TanhGaussianHead`, `BetaHead`,
  `LinearHead`, `Dueling`. Those of a policy return an `AbstractDistribution`.
- Wrappers: `MixedPrecision`, `Ensemble`.
- Beside a network: `RunningStatistics` of observations, `ValueSupport` for values as
  probabilities, `BoardSymmetries` to augment boards.

What holds of all of them, and is not said again:

- Networks and distributions take one example; use `jax.vmap` over a batch.
- `in_size=` is the length of the vector that a network takes, `shape=` or `board_shape=` are the
  rows, columns and channels of a board or image. Its numbers may have any dtype. The attribute
  out_size is the length of the embedding that a torso or RNN returns.
- `activation=` is a function of an array. `norm="layer"` normalises the inputs of activations
  (https://arxiv.org/abs/1607.06450), in a perceptron of all, `"none"` does not. A number as
  `noise=` makes every layer a `NoisyLinear` with that initial noise. `scale=` of a layer or head
  multiplies its initial weights, which are orthogonal unless the class says otherwise.
- `minimum=` and `maximum=` of an action are one bound for all dimensions or one each.
- The key of a constructor is for the initial parameters. The key of a call is for noise: layers
  without noise ignore it, and noisy ones draw none without it.
- Arguments that cannot be taken raise a ValueError of one line that names them.
"""

import importlib.metadata

from ._alphazero import AlphaZeroNet as AlphaZeroNet
from ._assemblies import (
    ActorCritic as ActorCritic,
    Chain as Chain,
    Concatenate as Concatenate,
    ConcatenateOneHot as ConcatenateOneHot,
    Ensemble as Ensemble,
    Select as Select,
)
from ._continuous import (
    ClippedBeta as ClippedBeta,
    Gaussian as Gaussian,
    TanhGaussian as TanhGaussian,
)
from ._discrete import (
    Categorical as Categorical,
    EpsilonGreedy as EpsilonGreedy,
    MultiDiscrete as MultiDiscrete,
)
from ._distribution import AbstractDistribution as AbstractDistribution
from ._heads import (
    BetaHead as BetaHead,
    CategoricalHead as CategoricalHead,
    Dueling as Dueling,
    GaussianHead as GaussianHead,
    LinearHead as LinearHead,
    MultiDiscreteHead as MultiDiscreteHead,
    TanhGaussianHead as TanhGaussianHead,
)
from ._layers import (
    ChannelNorm as ChannelNorm,
    Conv as Conv,
    NoisyLinear as NoisyLinear,
    orthogonal as orthogonal,
    ResidualBlock as ResidualBlock,
)
from ._lines import LineTables as LineTables
from ._parts import PartsNet as PartsNet
from ._precision import MixedPrecision as MixedPrecision
from ._prefix import PrefixWorldModel as PrefixWorldModel
from ._recurrent import Recurrent as Recurrent, RNN as RNN
from ._statistics import RunningStatistics as RunningStatistics
from ._symmetry import BoardSymmetries as BoardSymmetries
from ._torsos import (
    CNN as CNN,
    MLP as MLP,
    VectorResNet as VectorResNet,
    VisualResNet as VisualResNet,
)
from ._value_support import (
    signed_hyperbolic as signed_hyperbolic,
    signed_parabolic as signed_parabolic,
    ValueSupport as ValueSupport,
)
from ._world_model import StochasticWorldModel as StochasticWorldModel, WorldModel as WorldModel
from ._world_parts import normalise_min_max as normalise_min_max


__version__ = importlib.metadata.version("zero-nets")
