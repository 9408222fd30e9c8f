"""Where the source of the workspace lies, for the tests that read it instead of running it."""

import pathlib
import tomllib
from collections.abc import Iterator
from typing import Any


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
    return pyproject(member)["project"]["name"].replace("-", "_")


def sources(member: pathlib.Path) -> Iterator[pathlib.Path]:
    """The modules that a member ships."""
    yield from sorted((member / import_name(member)).rglob("*.py"))
