"""Othello AlphaZero."""

import importlib.metadata

from ._app import pretrained as pretrained


__version__ = importlib.metadata.version("zero-othello")
