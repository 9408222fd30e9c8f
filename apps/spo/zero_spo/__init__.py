"""SPO, sequential Monte Carlo policy optimisation, for continuous and discrete actions."""

import importlib.metadata


__version__ = importlib.metadata.version("zero-spo")
