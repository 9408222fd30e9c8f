"""The manifest of a checkpoint: what it holds, and the checksums of its files."""

import hashlib
import json
import pathlib
from typing import Any

from ._disk import changed, inventory, read_whole
from ._lines import parsed


_FILE = "manifest.json"
_DIGEST = "digest"


class CheckpointError(ValueError):
    """A checkpoint cannot be saved or restored. The message is one line for the user."""


class Damage(Exception):
    """A checkpoint differs from what was written. The message says which one, and how."""


def write_manifest(
    folder: pathlib.Path, step: int, leaves: list[dict[str, Any]], about: Any = None
) -> None:
    """Writes the manifest of the checkpoint in `folder`: its step, its files, the `path` and `spec`
    of each leaf, and what is said about it."""
    manifest = {"step": step, "leaves": leaves, "files": inventory(folder), "about": about or {}}
    manifest[_DIGEST] = _digest(manifest)
    (folder / _FILE).write_text(json.dumps(manifest, indent=1))


def check_files(folder: pathlib.Path, step: int) -> None:
    """Reads every file of the checkpoint in `folder`.

    **Raises:** `Damage` where any differs from what was written.
    """
    if damage := changed(folder, read_manifest(folder, step)["files"]):
        raise _damaged(folder, damage)


def read_manifest(folder: pathlib.Path, step: int) -> dict[str, Any]:
    """The manifest of the checkpoint in `folder`.

    **Raises:** `Damage` where it differs from what was written.
    """
    try:
        manifest = parsed(read_whole(folder / _FILE))
    except (OSError, ValueError) as e:
        raise _damaged(folder, f"{_FILE} cannot be read") from e
    # The digest protects the rest of the manifest.
    if not isinstance(manifest, dict) or manifest.pop(_DIGEST, None) != _digest(manifest):
        raise _damaged(folder, f"{_FILE} is not what was written")
    if manifest["step"] != step:
        raise _damaged(folder, f"it was saved as step {manifest['step']}")
    return manifest


def spec(leaf: Any) -> dict[str, Any]:
    """The shape and dtype of a leaf, which must be those of the leaf that it is restored into."""
    return {"shape": list(leaf.shape), "dtype": str(leaf.dtype)}


def check_leaves(
    folder: pathlib.Path, stored: list[dict[str, Any]], wanted: list[tuple[str, Any]]
) -> None:
    """**Raises:** `CheckpointError` where the leaves in `folder` are not those wanted by name."""
    if problem := difference(stored, wanted):
        raise CheckpointError(
            f"{folder} is a checkpoint of another configuration: {problem}. "
            "Use the configuration it was saved with."
        )


def difference(stored: list[dict[str, Any]], wanted: list[tuple[str, Any]]) -> str | None:
    """Describes the first leaf that is not the one wanted by name; `None` where there is none.

    **Arguments:**

    - `stored`: the `path` and `spec` of each leaf.
    """
    for saved, (name, leaf) in zip(stored, wanted, strict=False):
        if saved["path"] != name:
            return f"it has {saved['path']} where {name} is expected"
        if (saved["shape"], saved["dtype"]) != tuple(spec(leaf).values()):
            return f"{name} is {_words(saved)} in it and {_words(spec(leaf))} is expected"
    if len(stored) > len(wanted):
        return f"it has {stored[len(wanted)]['path']}, which is not expected"
    if len(stored) < len(wanted):
        return f"it lacks {wanted[len(stored)][0]}"
    return None


def _words(spec: dict[str, Any]) -> str:
    return f"{spec['dtype']}[{','.join(map(str, spec['shape']))}]"


def _digest(manifest: dict[str, Any]) -> str:
    """A checksum of the content of a manifest, independent of its formatting."""
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def _damaged(folder: pathlib.Path, what: str) -> Damage:
    return Damage(f"{folder} is damaged: {what}")
