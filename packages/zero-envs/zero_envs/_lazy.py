"""Names of a package that are imported when they are asked for."""

import ast
import importlib
import pkgutil
from collections.abc import Callable
from typing import Any


def lazy_names(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` of a package whose `__init__.py` imports its public
    names for type checkers only:

    ```python
    if typing.TYPE_CHECKING:
        from ._game import Game as Game
    else:
        __getattr__, __dir__, __all__ = lazy_names(__name__)
    ```

    The package then imports in no time, and each module when one of its names is asked for first
    (PEP 562).
    """
    tree = ast.parse(pkgutil.get_data(package, "__init__.py") or "")
    where = {
        alias.name: "." if node.module is None else f".{node.module}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.level == 1
        for alias in node.names
    }

    def get(name: str) -> Any:
        if name not in where:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if where[name] == ".":
            return importlib.import_module(f".{name}", package)
        value = getattr(importlib.import_module(where[name], package), name)
        setattr(importlib.import_module(package), name, value)  # so it is asked for once
        return value

    return get, lambda: sorted({*where, *vars(importlib.import_module(package))}), [*where]
