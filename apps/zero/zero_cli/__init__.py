"""Any game by one command."""

import importlib.metadata

from ._apps import pretrained as pretrained


__version__ = importlib.metadata.version("zero-games")
