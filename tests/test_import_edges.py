"""Who imports whom, read from the source, so that imports inside functions count too."""

import ast
import functools
import importlib.metadata
import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from . import workspace


LEAVES = {"zero_envs", "zero_search", "zero_memory", "zero_nets"}
TRAIN = {"zero_envs", "zero_search", "zero_memory"}


def imported(text: str) -> Iterator[str]:
    """The top-level name of everything a source text imports, `import_module("x")` included."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Import():
                yield from (alias.name.split(".")[0] for alias in node.names)
            case ast.ImportFrom(level=0, module=str(module)):
                yield module.split(".")[0]
            case ast.Call(
                func=ast.Attribute(attr="import_module") | ast.Name(id="import_module"),
                args=[ast.Constant(value=str(module)), *_],
            ):
                yield module.split(".")[0]


def imports_of(paths: Iterator[pathlib.Path], own: str) -> set[str]:
    names = {name for path in paths for name in imported(path.read_text(encoding="utf-8"))}
    return names - set(sys.stdlib_module_names) - {own}


def allowed_siblings(member: pathlib.Path, *, tests: bool) -> set[str]:
    """The packages of this workspace that a member may import."""
    name = workspace.import_name(member)
    if name == "zero_cli":  # runs the other apps
        others = {workspace.import_name(app) for app in workspace.MEMBERS} - {name}
        return others | LEAVES
    if name == "zero_app":
        return {"zero_envs", "zero_search", "zero_train"} | ({"zero_memory"} if tests else set())
    if member.parent.name == "apps":
        return LEAVES | {"zero_train", "zero_app"}
    if name == "zero_train":  # what it made, zero_app keeps on disk and gives back
        return TRAIN | {"zero_app"} if tests else TRAIN
    return set()


def requirement_name(requirement: str) -> str:
    match = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert match, requirement
    return re.sub(r"[-_.]+", "-", match[0]).lower()


def declared(member: pathlib.Path, *, tests: bool) -> set[str]:
    project = workspace.pyproject(member)
    requirements = list(project["project"]["dependencies"])
    for extra in project["project"].get("optional-dependencies", {}).values():
        requirements += extra
    if tests:
        root = workspace.pyproject(workspace.ROOT)
        requirements += root["dependency-groups"]["tests"]
        requirements += project.get("dependency-groups", {}).get("tests", [])
    return {requirement_name(requirement) for requirement in requirements}


# Reading the metadata of everything that is installed takes a quarter of a second.
installed = functools.cache(importlib.metadata.packages_distributions)
# Imports of extras that are not installed here, by another name than their distribution's.
_EXTRAS = {"mlflow": "mlflow-skinny"}


def undeclared(names: set[str], requirements: set[str]) -> set[str]:
    """The imported names that belong to no declared distribution."""
    distributions = installed()
    owners = {name: distributions.get(name, [_EXTRAS.get(name, name)]) for name in names}
    return {
        name
        for name, dists in owners.items()
        if not {requirement_name(dist) for dist in dists} & requirements
    }


def test_lazy_imports_are_seen():
    text = "def f():\n import a.b\n from c.d import e\n importlib.import_module('g.h')"
    assert set(imported(text)) == {"a", "c", "g"}
    assert set(imported("from . import x\nfrom .y import z")) == set()


def test_an_undeclared_distribution_is_seen():
    assert undeclared({"jax", "pytest"}, {"jax"}) == {"pytest"}


@pytest.mark.parametrize("member", workspace.MEMBERS, ids=lambda member: member.name)
@pytest.mark.parametrize("part", ["source", "tests"])
def test_edges(member, part):
    own = workspace.import_name(member)
    folder = member / ("tests" if part == "tests" else own)
    names = imports_of(folder.rglob("*.py"), own)
    siblings = {name for name in names if name.startswith("zero_")}
    assert siblings <= allowed_siblings(member, tests=part == "tests")
    assert undeclared(names, declared(member, tests=part == "tests")) == set()


def from_imports(path: pathlib.Path) -> Iterator[tuple[int, str, str]]:
    """The level, the module and each name of every `from module import name`."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            yield from ((node.level, node.module or "", alias.name) for alias in node.names)


def test_members_use_public_names_of_others():
    """So anybody can write what they do."""
    found = [
        (path, module, name)
        for member in workspace.MEMBERS
        for path in workspace.sources(member)
        for level, module, name in from_imports(path)
        if not level and module.startswith("zero_") and (name[0] == "_" or "._" in module)
    ]
    assert found == []


def test_the_kit_is_in_three_layers():
    """`_command` imports neither of the other folders, and `_run` not `_play`."""
    (kit,) = (member for member in workspace.MEMBERS if member.name == "kit")
    layers = ("_command", "_run", "_play")
    for layer, later in ((0, layers[1:]), (1, layers[2:])):
        for path in (kit / "zero_app" / layers[layer]).glob("*.py"):
            modules = {module.split(".")[0] for level, module, _ in from_imports(path) if level > 1}
            assert modules.isdisjoint({*later, ""}), path.name


def test_imports_start_no_backend():
    """With an unknown platform, whatever starts JAX's backend fails."""
    names = [workspace.import_name(member) for member in workspace.MEMBERS]
    code = f"import jax, {', '.join(names)}; print('imported'); jax.devices()"
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "JAX_PLATFORMS": "nowhere"},
        capture_output=True,
        text=True,
    )
    assert run.stdout == "imported\n", run.stderr
    assert run.returncode != 0 and "nowhere" in run.stderr
