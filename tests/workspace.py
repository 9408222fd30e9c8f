"""The folders of the workspace, and the programs of its pages."""

import contextlib
import functools
import importlib.util
import io
import pathlib
import re
import sys
import tomllib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import jax


#: For programs that run once, whose optimisation would take most of the time.
quick_jit = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})

ROOT = pathlib.Path(__file__).parent.parent
#: Every workspace member: the folders of the packages, then of the apps.
MEMBERS = [
    file.parent
    for kind in ("packages", "apps")
    for file in sorted(ROOT.glob(f"{kind}/*/pyproject.toml"))
]


def pyproject(member: pathlib.Path) -> dict[str, Any]:
    return tomllib.loads((member / "pyproject.toml").read_text(encoding="utf-8"))


def import_name(member: pathlib.Path) -> str:
    (module,) = pyproject(member)["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    return module


def sources(member: pathlib.Path) -> Iterator[pathlib.Path]:
    """The modules that a member ships."""
    yield from sorted((member / import_name(member)).rglob("*.py"))


def module(path: str) -> Any:
    """What a file is that belongs to no package, such as a benchmark."""
    spec = importlib.util.spec_from_file_location(pathlib.Path(path).stem, ROOT / path)
    assert spec is not None and spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = found  # numba keeps what it compiles under this name
    spec.loader.exec_module(found)
    return found


def run_page(name: str) -> tuple[SimpleNamespace, list[str], list[str]]:
    """Runs the Python code of a page of docs/ as one program.

    **Returns:** the names that it defines, the lines that it prints, and the lines that the page
    says it prints, in comments after `print(...)` or in blocks of text.
    """
    text = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL))
    scope: dict[str, Any] = {"__name__": name, "quick_jit": quick_jit}
    quick = code.replace("jax.jit", "quick_jit")
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(quick, f"docs/{name}.md", "exec"), scope)
    said: list[str] = re.findall(r"^print\(.*\)  # (.*)$", code, flags=re.MULTILINE)
    if not said:
        blocks = re.findall(r"```text\n(.*?)```", text, flags=re.DOTALL)
        said = [line for block in blocks for line in block.splitlines()]
    return SimpleNamespace(**scope), out.getvalue().splitlines(), said
