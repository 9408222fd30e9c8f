"""The configuration of a run that is on disk."""

import contextlib
import inspect
import os
import pathlib
from collections.abc import Mapping
from typing import Any, TypeVar

from .._command._config import inherited
from .._command._errors import UsageError
from ._lines import PUT_BACK, read_json, read_lines, read_object, RunError
from ._origin import version_of


Config = TypeVar("Config")


def load_config(
    kind: type[Config], folder: str | os.PathLike[str], prog: str, *, run_code: bool = False
) -> Config:
    """The configuration of the run in `folder`, of a class `kind` of the app whose command is
    `prog`. One that names code is refused without `run_code`."""
    stored = stored_config(kind, folder, prog)
    return config_of(kind, stored, pathlib.Path(folder) / "config.json", prog, run_code=run_code)


def stored_config(kind: type[Any], folder: str | os.PathLike[str], prog: str) -> dict[str, Any]:
    """The fields of the configuration of the run in `folder`. Their values are not checked, and
    nothing is made of them."""
    path = pathlib.Path(folder) / "config.json"
    if not os.path.lexists(path):
        raise UsageError(
            f"{no_run(folder)}; give the folder of a run, as `{prog} train --out` made it."
        )
    stored = None
    try:
        stored = read_json(path)
        return complete(kind, stored)
    except ValueError as e:
        if other := _of_another(kind, path.parent, stored):
            raise UsageError(other) from e
        raise _not_of(prog, path, e, written_by(kind, path.parent)) from e


def no_run(folder: str | os.PathLike[str]) -> str:
    """The message for a path without config.json."""
    path = pathlib.Path(folder)
    if path.exists() and not path.is_dir():
        return f"{path} is neither a folder nor a regular file"
    return f"{path} holds no run (no config.json)"


def config_of(
    kind: type[Config],
    stored: Mapping[str, Any],
    path: pathlib.Path,
    prog: str,
    *,
    run_code: bool = False,
) -> Config:
    """The configuration of these fields, as `load_config` returns it; they were found in `path`."""
    named = [str(stored[name]) for name in getattr(kind, "code", ()) if ":" in str(stored[name])]
    if named and not run_code:
        raise UsageError(
            f"{path} names code, {' and '.join(named)}, which may do anything on this machine; "
            "give --run-code to run it, if you trust whoever made it."
        )
    try:
        return kind(**stored)
    except (ValueError, TypeError) as e:
        raise _not_of(prog, path, e) from e


def complete(kind: type[Any], stored: Any) -> dict[str, Any]:
    """A stored configuration, with what older runs lack. A `ValueError` is raised where its fields
    are not those of the class."""
    if not isinstance(stored, dict):
        raise ValueError("it is no JSON object")
    known = set(inspect.signature(kind).parameters)
    absent = {name: value for name, value in inherited(kind, "absent").items() if name in known}
    stored = {**absent, **stored}
    lacking, unknown = map(_some, (known - set(stored), set(stored) - known))
    faults = [f"lacks {lacking}"] if lacking else []
    faults += [f"has {unknown}, which this version does not know"] if unknown else []
    if faults:
        raise ValueError(f"it {', and '.join(faults)}")
    return stored


def _some(names: set[str]) -> str:
    """A few of the names: another app's run differs in dozens."""
    first, more = sorted(names)[:5], len(names) - 5
    return ", ".join([*first, *([f"{more} more"] if more > 0 else [])])


def written_by(kind: type[Any], folder: pathlib.Path) -> str:
    """Which version of the package of `kind` wrote a run, where it is another than this one."""
    package = kind.__module__.partition(".")[0]
    with contextlib.suppress(LookupError):
        then = _versions(folder)[package]
        here = version_of(package)
        if then != here:
            return f"; {package} {then} wrote it, and this is {here}"
    return ""


def likeness(kind: type[Any], folder: pathlib.Path) -> tuple[bool, int]:
    """How near the run in `folder` comes to one of `kind`: whether its app made it, and how many
    entries of its configuration are fields of it."""
    stored = {}
    with contextlib.suppress(RunError):
        stored = read_object(folder / "config.json")
    made = kind.__module__.partition(".")[0] in _versions(folder)
    return made, len(stored.keys() & inspect.signature(kind).parameters.keys())


def _versions(folder: pathlib.Path) -> dict[str, str]:
    """The versions of JAX, of zero_train, of zero_app and of the app's package that a run was last
    started with, as far as its folder says so."""
    with contextlib.suppress(ValueError, LookupError, TypeError, AttributeError):
        return dict(read_lines(folder / "starts.jsonl")[-1]["versions"])
    return {}


def app_packages(folder: pathlib.Path) -> list[str]:
    """The package of the app that made a run, as far as its folder says so."""
    return sorted(_versions(folder).keys() - {"jax", "zero_train", "zero_app"})


def _of_another(kind: type[Any], folder: pathlib.Path, stored: Any) -> str:
    """The message for a run that another app than that of `kind` made; empty for others."""
    package = kind.__module__.partition(".")[0]
    apps = app_packages(folder)
    if not apps or package in apps:
        return ""
    known = stored if isinstance(stored, dict) else {}
    said = ", ".join(str(known[name]) for name in ("env", "agent") if name in known)
    return (
        f"{folder} is a run of {', '.join(apps)}{f' ({said})' if said else ''}, and a run of "
        f"{package} is needed here; give another folder."
    )


def _not_of(prog: str, path: pathlib.Path, error: Exception, by: str = "") -> UsageError:
    reason = str(error).removeprefix(f"{path} ").rstrip(".")
    reason += ", or" if reason.endswith(PUT_BACK) else ";"
    return UsageError(
        f"{path} is not the configuration of a run of `{prog} train`: {reason} give the folder "
        f"of one{by}."
    )
