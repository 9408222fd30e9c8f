"""Modules that take seconds to import, and are imported when something of them is used first. So
commands that are refused, or only read files, start no JAX."""

import importlib
import sys
import types
from typing import Any, TYPE_CHECKING


class _Lazy(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self.__name__), name)


if TYPE_CHECKING:
    import equinox as equinox
    import jax as jax
    import optax as optax

    import zero_search as zero_search
    import zero_train as zero_train
else:
    equinox, jax, optax = _Lazy("equinox"), _Lazy("jax"), _Lazy("optax")
    zero_search, zero_train = _Lazy("zero_search"), _Lazy("zero_train")


def has_jax() -> bool:
    """Whether JAX has been imported."""
    return "jax" in sys.modules
