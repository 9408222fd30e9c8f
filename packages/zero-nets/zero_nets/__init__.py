"""Equinox networks for search-based reinforcement learning."""

import importlib.metadata


__version__ = importlib.metadata.version("zero-nets")
