"""Any game by one command."""

import importlib.metadata
import typing

from zero_envs import lazy_names


if typing.TYPE_CHECKING:
    from ._apps import pretrained as pretrained
    from ._main import train as train
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__)

__version__ = importlib.metadata.version("zero-games")
