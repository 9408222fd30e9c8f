"""Planning where the world is random."""

import importlib.metadata

from ._app import pretrained as pretrained


__version__ = importlib.metadata.version("zero-monsters")
