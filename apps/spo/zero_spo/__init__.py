"""SPO, sequential Monte Carlo policy optimisation, for continuous and discrete actions."""

import importlib.metadata

from ._app import pretrained as pretrained


__version__ = importlib.metadata.version("zero-spo")
