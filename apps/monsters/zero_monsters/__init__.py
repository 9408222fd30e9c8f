"""Planning where the world is random."""

import importlib.metadata


__version__ = importlib.metadata.version("zero-monsters")
