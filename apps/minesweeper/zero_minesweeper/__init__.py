"""Minesweeper on Jumanji, played without ever seeing the mines."""

import importlib.metadata


__version__ = importlib.metadata.version("zero-minesweeper")
