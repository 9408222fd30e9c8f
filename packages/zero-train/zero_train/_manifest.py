"""What a checkpoint says of itself: its step, its leaves and its files, so that damage shows."""

import hashlib
import json
import pathlib
from typing import Any

from ._disk import changed, inventory


_FILE = "manifest.json"
_DIGEST = "digest"


class CheckpointError(ValueError):
    """A checkpoint that cannot be saved or restored. Its message is one line for the user."""


class Damage(Exception):
    """A checkpoint is not as it was written. Its message says which, and what was found."""


def write_manifest(folder: pathlib.Path, step: int, leaves: list[dict[str, Any]]) -> None:
    """Describes the checkpoint in `folder`, whose files are written.

    **Arguments:**

    - `leaves`: the `path` and the `spec` of each, and perhaps more.
    """
    manifest = {"step": step, "leaves": leaves, "files": inventory(folder)}
    manifest[_DIGEST] = _digest(manifest)
    (folder / _FILE).write_text(json.dumps(manifest, indent=1))


def read_manifest(folder: pathlib.Path, step: int) -> list[dict[str, Any]]:
    """The leaves of the checkpoint in `folder`, once all of it is found to be as it was written.

    **Raises:** `Damage` where anything is not.
    """
    try:
        manifest = json.loads((folder / _FILE).read_text())
    except (OSError, ValueError, RecursionError) as e:
        raise _damaged(folder, f"{_FILE} cannot be read") from e
    # Whatever else is read of it is as it was written once this fits.
    if not isinstance(manifest, dict) or manifest.pop(_DIGEST, None) != _digest(manifest):
        raise _damaged(folder, f"{_FILE} is not what was written")
    if manifest["step"] != step:
        raise _damaged(folder, f"it was saved as step {manifest['step']}")
    if damage := changed(folder, manifest["files"]):
        raise _damaged(folder, damage)
    return manifest["leaves"]


def spec(leaf: Any) -> dict[str, Any]:
    """What a leaf must have in common with the one that it is restored into."""
    return {"shape": list(leaf.shape), "dtype": str(leaf.dtype)}


def check_leaves(
    folder: pathlib.Path, stored: list[dict[str, Any]], wanted: list[tuple[str, Any]]
) -> None:
    """**Raises:** `CheckpointError` where the leaves in `folder` are not those wanted by name."""
    problem = None
    for saved, (name, leaf) in zip(stored, wanted, strict=False):
        if saved["path"] != name:
            problem = f"it has {saved['path']} where {name} is expected"
        elif (saved["shape"], saved["dtype"]) != tuple(spec(leaf).values()):
            problem = f"{name} is {_words(saved)} in it and {_words(spec(leaf))} is expected"
        if problem:
            break
    else:
        if len(stored) > len(wanted):
            problem = f"it has {stored[len(wanted)]['path']}, which is not expected"
        elif len(stored) < len(wanted):
            problem = f"it lacks {wanted[len(stored)][0]}"
    if problem:
        raise CheckpointError(
            f"{folder} is a checkpoint of another configuration: {problem}. "
            "Use the configuration it was saved with."
        )


def _words(spec: dict[str, Any]) -> str:
    return f"{spec['dtype']}[{','.join(map(str, spec['shape']))}]"


def _digest(manifest: dict[str, Any]) -> str:
    """A checksum of a manifest's content, however it is spelled."""
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def _damaged(folder: pathlib.Path, what: str) -> Damage:
    return Damage(f"{folder} is damaged: {what}")
