"""What made a run: the command, the commit of the source, and the versions."""

import importlib.metadata
import pathlib
import shlex
import subprocess
import sys
from collections.abc import Iterable
from typing import Any


def version_of(package: str) -> str:
    """The version that a package says of itself, or of the distribution of its name. Where there is
    neither, `importlib.metadata.PackageNotFoundError` is raised."""
    said = getattr(sys.modules.get(package), "__version__", None)
    return importlib.metadata.version(package) if said is None else said


def origin_of(source: Any, packages: Iterable[str]) -> dict[str, Any]:
    """The command of this process, the `versions` of the packages that are installed, and the
    commit of the source, a class or function whose file git is asked about. The commit ends in
    `-dirty` where files differ from it, and is `None` where git does not know the file."""
    versions = {}
    for name in packages:
        try:
            versions[name] = version_of(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    program, *words = sys.argv or [""]
    command = shlex.join([pathlib.Path(program).name, *words])
    return {"command": command, "commit": _commit(source), "versions": versions}


def _commit(source: Any) -> str | None:
    file = getattr(sys.modules.get(source.__module__), "__file__", None)
    if file is None:
        return None
    path = pathlib.Path(file).resolve()
    # An environment inside of another repository is none of its files.
    known = _git(path.parent, "ls-files", "--error-unmatch", path.name)
    return known and _git(
        path.parent, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"
    )


def _git(folder: pathlib.Path, *words: str) -> str | None:
    try:
        said = subprocess.run(
            ["git", "-C", str(folder), *words], capture_output=True, text=True, timeout=30
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return said.stdout.strip() or None if said.returncode == 0 else None
