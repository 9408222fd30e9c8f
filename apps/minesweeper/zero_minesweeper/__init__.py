"""Minesweeper on Jumanji, played without ever seeing the mines."""

import importlib.metadata

from ._app import pretrained as pretrained


__version__ = importlib.metadata.version("zero-minesweeper")
