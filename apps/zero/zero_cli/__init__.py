"""Any game by one command."""

import importlib.metadata


__version__ = importlib.metadata.version("zero-cli")
