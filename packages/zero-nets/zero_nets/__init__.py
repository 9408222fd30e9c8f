"""Equinox networks for search-based reinforcement learning."""

import importlib.metadata

from ._alphazero import (
    AlphaZeroNet as AlphaZeroNet,
    ChannelNorm as ChannelNorm,
    ResidualBlock as ResidualBlock,
)
from ._conv import Conv as Conv
from ._symmetry import BoardSymmetries as BoardSymmetries


__version__ = importlib.metadata.version("zero-nets")
