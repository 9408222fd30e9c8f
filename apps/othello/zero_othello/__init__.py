"""Othello AlphaZero."""

import importlib.metadata


__version__ = importlib.metadata.version("zero-othello")
