"""Modules that take seconds to import, and are imported when something of them is used first. So a
command line that is refused, and commands that only read files, start no JAX."""

import contextlib
import importlib.abc
import importlib.util
import sys
from collections.abc import Iterator
from typing import Any


class _Finder(importlib.abc.MetaPathFinder):
    """Finds what the other finders do, and leaves it to be run later."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        others = [finder for finder in sys.meta_path if finder is not self]
        found = (finder.find_spec(fullname, path, target) for finder in others)
        spec = next(filter(None, found), None)
        if spec is not None and spec.loader is not None:
            spec.loader = importlib.util.LazyLoader(spec.loader)
        return spec


@contextlib.contextmanager
def _lazily() -> Iterator[None]:
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


def has_jax() -> bool:
    """Whether JAX has been imported."""
    return "jaxlib" in sys.modules


# Other modules take these from here: another `import jax` would run it.
with _lazily():
    import equinox as equinox
    import jax as jax
    import optax as optax

    import zero_search as zero_search
    import zero_train as zero_train
