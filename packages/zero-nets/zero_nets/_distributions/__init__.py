"""Distributions over actions and values, each of one example."""

from ._abstract import AbstractDistribution as AbstractDistribution
from ._beta import ClippedBeta as ClippedBeta
from ._categorical import Categorical as Categorical
from ._deterministic import Deterministic as Deterministic
from ._discrete_valued import DiscreteValued as DiscreteValued
from ._epsilon_greedy import EpsilonGreedy as EpsilonGreedy
from ._gaussian import Gaussian as Gaussian
from ._multi_discrete import MultiDiscrete as MultiDiscrete
from ._postprocessed import Postprocessed as Postprocessed
from ._tanh_gaussian import TanhGaussian as TanhGaussian
