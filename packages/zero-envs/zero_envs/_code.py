"""Code of the user's own, by name."""

import contextlib
import difflib
import importlib
import importlib.util
import pathlib
import sys
import sysconfig
import traceback
import types
from collections.abc import Iterator
from typing import Any


_GIVE = "give module:Class or file.py:Class."
#: The folders of Python's own code and of installed packages.
_INSTALLED = tuple(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))
#: The characters of an exception's message that are repeated.
_LONGEST = 300


def load_class(name: str) -> Any:
    """The class, or anything else, that `module:Class` or `path/to/file.py:Class` names."""
    where, _, attribute = name.rpartition(":")
    if not where or not attribute:
        raise ValueError(f'"{name}" does not name a module and a class; {_GIVE}')
    module = _module(where, name)
    if not hasattr(module, attribute):
        near = difflib.get_close_matches(attribute, vars(module), 3)
        meant = f", but {', '.join(near)}" if near else ""
        raise ValueError(f"{where} has no {attribute}{meant}; {_GIVE}")
    return getattr(module, attribute)


@contextlib.contextmanager
def own_code(name: str) -> Iterator[None]:
    """Runs code of the user's own inside the `with` block, and nothing else. An exception becomes a
    `ValueError` of one line, which says where in that code it was raised, or the `name` of what is
    run where no place is known."""
    try:
        yield
    except MemoryError:
        raise
    except Exception as e:
        said = " ".join(str(e.msg if isinstance(e, SyntaxError) else e).split())
        cut = said if len(said) <= _LONGEST else f"{said[:_LONGEST]}..."
        kind = type(e).__name__
        raise ValueError(f"{_place(e) or name}: {f'{kind}: {cut}' if cut else kind}") from e


def _place(error: Exception) -> str:
    """The innermost line of neither Python, an installed package nor this one."""
    if isinstance(error, SyntaxError) and error.filename:
        return _line(error.filename, error.lineno or 0)
    for frame, line in reversed([*traceback.walk_tb(error.__traceback__)]):
        file, module = frame.f_code.co_filename, str(frame.f_globals.get("__name__"))
        if not file.startswith(("<", *_INSTALLED)) and not module.startswith("zero_"):
            return _line(file, line)
    return ""


def _line(file: str, line: int) -> str:
    path, here = pathlib.Path(file), pathlib.Path.cwd()
    shown = path.relative_to(here) if path.is_relative_to(here) else path
    return f"{shown}, line {line}"


def _module(where: str, name: str) -> types.ModuleType:
    if where.endswith(".py"):
        return _file(where, name)
    # As `python -m` does: a module beside which the program was started.
    if "" not in sys.path:
        sys.path.insert(0, "")
    with own_code(name):
        try:
            return importlib.import_module(where)
        except ModuleNotFoundError as e:
            # Otherwise it is one that the module imports.
            if not f"{where}.".startswith(f"{e.name}."):
                raise
    raise ValueError(f"there is no module {where}; {_GIVE}")


def _file(where: str, name: str) -> types.ModuleType:
    path = pathlib.Path(where).resolve()
    known = f"_made_{path}"
    if known in sys.modules:
        return sys.modules[known]
    spec = importlib.util.spec_from_file_location(known, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ValueError(f"there is no file {where}; {_GIVE}")
    sys.modules[known] = importlib.util.module_from_spec(spec)
    try:
        with own_code(name):
            spec.loader.exec_module(sys.modules[known])
    except BaseException:
        del sys.modules[known]
        raise
    return sys.modules[known]
