"""Each member is a distribution of its own: its version, its papers, its bounds."""

import importlib
import tomllib
from typing import Any

import pytest

from . import workspace


members = pytest.mark.parametrize("member", workspace.MEMBERS, ids=lambda member: member.name)


@members
def test_the_version_stands_in_pyproject_only(member):
    version = workspace.pyproject(member)["project"]["version"]
    assert importlib.import_module(workspace.import_name(member)).__version__ == version
    assert f"## {version}" in (member / "CHANGELOG.md").read_text(encoding="utf-8")


@members
def test_it_ships_what_its_users_need(member):
    assert (member / workspace.import_name(member) / "py.typed").is_file()
    assert (member / "README.md").read_text(encoding="utf-8").startswith("# ")
    licence = (workspace.ROOT / "LICENSE").read_text(encoding="utf-8")
    assert (member / "LICENSE").read_text(encoding="utf-8") == licence


def test_one_lower_bound_for_each_dependency():
    """Two packages that disagree would let `lowest` test only the higher of the two."""
    bounds: dict[str, set[str]] = {}
    for member in workspace.MEMBERS:
        for requirement in workspace.pyproject(member)["project"]["dependencies"]:
            name, _, bound = requirement.partition(">=")
            bounds.setdefault(name.split("[")[0], set()).add(bound)
    assert {name: bound for name, bound in bounds.items() if len(bound) > 1} == {}


def lock() -> list[dict[str, Any]]:
    return tomllib.loads((workspace.ROOT / "uv.lock").read_text(encoding="utf-8"))["package"]


@pytest.mark.parametrize("name", ["jax", "jaxlib"])
def test_every_python_runs_the_same_jax(name):
    """uv locks a version for each Python if it may, and then the tests of one Python say little
    about another."""
    assert len([package for package in lock() if package["name"] == name]) == 1


def test_a_version_is_repeated_nowhere_but_in_the_lock():
    """Raising one package's version changes that package and uv.lock: siblings ask for `>=` the
    version that brought what they use, which need not move."""
    locked = {package["name"]: package.get("version") for package in lock()}
    for member in workspace.MEMBERS:
        project = workspace.pyproject(member)["project"]
        assert locked[project["name"]] == project["version"]
        assert "==" not in "".join(project["dependencies"])
