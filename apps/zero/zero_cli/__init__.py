"""Any game by one command."""

import importlib
import importlib.metadata
import typing


if typing.TYPE_CHECKING:
    from ._apps import pretrained as pretrained

__version__ = importlib.metadata.version("zero-games")


def __getattr__(name: str) -> typing.Any:
    # The apps import JAX, which help does without.
    if name == "pretrained":
        return importlib.import_module("zero_cli._apps").pretrained
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
