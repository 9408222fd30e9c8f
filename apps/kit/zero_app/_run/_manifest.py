"""The manifest of a checkpoint: what it holds, and the checksums of its files."""

import hashlib
import json
import pathlib
from typing import Any

from .._command._lazy import jax
from ._disk import changed, inventory, read_whole
from ._lines import parsed


MANIFEST = "manifest.json"
_DIGEST = "digest"


class CheckpointError(ValueError):
    """A checkpoint cannot be saved or restored. The message is one line for the user."""


class Misnamed(Exception):
    """The cause where a checkpoint has the name of another step."""


#: The entries of a manifest, and of a leaf in it. Older ones say nothing about the state.
_ENTRIES = {"step": int, "leaves": list, "files": dict, "about": dict}
_LEAF = {"path": str, "shape": list, "dtype": str}


class Damage(Exception):
    """A checkpoint differs from what was written. The message says which one, and how."""


def write_manifest(
    folder: pathlib.Path, step: int, leaves: list[dict[str, Any]], about: Any = None
) -> None:
    """Writes the manifest of the checkpoint in `folder`: its step, its files, the `path` and `spec`
    of each leaf, and what is said about it."""
    manifest = {"step": step, "leaves": leaves, "files": inventory(folder), "about": about or {}}
    manifest[_DIGEST] = _digest(manifest)
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1))


def check_files(folder: pathlib.Path, step: int) -> None:
    """Reads every file of the checkpoint in `folder`, and raises `Damage` where any differs from
    what was written."""
    if damage := changed(folder, read_manifest(folder, step)["files"]):
        raise _damaged(folder, damage)


def read_manifest(folder: pathlib.Path, step: int) -> dict[str, Any]:
    """The manifest of the checkpoint in `folder`.

    **Raises:** `Damage` where it differs from what was written, `CheckpointError` where another
    version wrote it or it has another name: it is whole then, and must not be passed over for an
    earlier one.
    """
    try:
        manifest = parsed(read_whole(folder / MANIFEST))
    except (OSError, ValueError) as e:
        raise _damaged(folder, f"{MANIFEST} cannot be read") from e
    # The digest protects the rest of the manifest.
    if not isinstance(manifest, dict) or manifest.pop(_DIGEST, None) != _digest(manifest):
        raise _damaged(folder, f"{MANIFEST} is not what was written")
    manifest = {"about": {}} | manifest
    if not _is_known(manifest):
        raise CheckpointError(
            f"{folder} was written by another version of zero-train, and this one cannot read its "
            f"{MANIFEST}; use the version that wrote it."
        )
    if manifest["step"] != step:
        if changed(folder, manifest["files"]):
            raise _damaged(folder, f"{MANIFEST} is that of step {manifest['step']}")
        raise CheckpointError(
            f"{folder} was saved as step {manifest['step']}; give it its name "
            f"{manifest['step']:08d} again, or move it away."
        ) from Misnamed()
    return manifest


def _is_known(manifest: dict[str, Any]) -> bool:
    fits = lambda found, kinds: (
        isinstance(found, dict)
        and all(isinstance(found.get(name), kind) for name, kind in kinds.items())
    )
    return (
        fits(manifest, _ENTRIES)
        and manifest.keys() == _ENTRIES.keys()
        and all(
            fits(leaf, _LEAF) and leaf.keys() <= _LEAF.keys() | {"key"}
            for leaf in manifest["leaves"]
        )
        and all(isinstance(x, list) and len(x) == 2 for x in manifest["files"].values())
    )


def spec(path: str, leaf: Any) -> dict[str, Any]:
    """What a leaf and the one that it is restored into must have in common."""
    return {"path": path, "shape": list(leaf.shape), "dtype": str(leaf.dtype)}


def name_of(path: tuple[Any, ...]) -> str:
    """What messages and manifests call a leaf."""
    return jax.tree_util.keystr(path) or "the state"


def check_leaves(
    folder: pathlib.Path, stored: list[dict[str, Any]], wanted: list[dict[str, Any]]
) -> None:
    """**Raises:** `CheckpointError` where the leaves in `folder` are not those wanted."""
    if problem := difference(stored, wanted):
        raise CheckpointError(
            f"{folder} is a checkpoint of another configuration: {problem}. "
            "Use the configuration, and the version, that it was saved with."
        )


def difference(stored: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> str | None:
    """Describes the first leaf whose `spec` is not the wanted one; `None` where there is none."""
    for saved, leaf in zip(stored, wanted, strict=False):
        if saved["path"] != leaf["path"]:
            return f"it has {saved['path']} where {leaf['path']} is expected"
        if _words(saved) != _words(leaf):
            return f"{leaf['path']} is {_words(saved)} in it and {_words(leaf)} is expected"
    if len(stored) > len(wanted):
        return f"it has {stored[len(wanted)]['path']}, which is not expected"
    if len(stored) < len(wanted):
        return f"it lacks {wanted[len(stored)]['path']}"
    return None


def _words(spec: dict[str, Any]) -> str:
    return f"{spec['dtype']}[{','.join(map(str, spec['shape']))}]"


def _digest(manifest: dict[str, Any]) -> str:
    """A checksum of the content of a manifest, independent of its formatting."""
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def _damaged(folder: pathlib.Path, what: str) -> Damage:
    return Damage(f"{folder} is damaged: {what}")
