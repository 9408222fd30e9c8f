"""Checkpoints of any pytree of arrays, stored by Orbax."""

import contextlib
import logging
import os
import pathlib
import re
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import SingleDeviceSharding
from jaxtyping import PyTree

from ._disk import children, remove, sync, to_disk
from ._manifest import (
    check_leaves,
    CheckpointError,
    Damage,
    read_manifest,
    spec,
    write_manifest,
)


_ARRAYS = "arrays"


class Checkpoints:
    """A folder of checkpoints, one for each saved step.

    A state is any pytree whose leaves are arrays, typed keys among them, and what is restored is
    bitwise what was saved, on however many devices. Saving is synchronous and atomic: a
    checkpoint appears under its step when it is whole and on disk, so whatever interrupts a save
    leaves the earlier ones as they were. Nothing is written or removed before the first `save`.

    With more than one process, all of them must call `save` and `restore`, on a shared disk.
    """

    def __init__(self, directory: str | os.PathLike[str], *, keep: int | None = 2):
        """**Arguments:**

        - `directory`: created by the first `save`.
        - `keep`: how many of the latest checkpoints survive a `save`; `None` keeps all.

        **Raises:** `ValueError` where `keep` is less than 1.
        """
        if keep is not None and keep < 1:
            raise ValueError(f"keep={keep} was given; give at least 1, or None to keep all.")
        self.directory = pathlib.Path(directory).absolute()
        self.keep = keep

    def steps(self) -> list[int]:
        """The saved steps, ascending. A save that was interrupted is none of them."""
        return sorted(self._folders())

    @property
    def latest(self) -> int | None:
        """The last saved step, or `None`."""
        return max(self._folders(), default=None)

    def save(self, step: int, state: PyTree) -> None:
        """Saves `state` as `step`, replacing a checkpoint of the same step.

        **Raises:** [`zero_train.CheckpointError`][] where the disk refuses (full, read-only); the
        checkpoints saved before are untouched.
        """
        leaves, specs = _flatten(state)
        temporary = self.directory / f".{step:08d}.tmp"
        try:
            if _is_writer():
                self.directory.mkdir(parents=True, exist_ok=True)
                for leftover in self.directory.glob(".*.tmp"):
                    shutil.rmtree(leftover)
                temporary.mkdir()
            _barrier("begin")
            _write(temporary / _ARRAYS, {i: x for i, x in leaves.items() if x.size})
            if _is_writer():
                write_manifest(temporary, step, specs)
                to_disk(temporary)
                self._commit(step, temporary)
            _barrier("end")
        except Exception as e:  # Orbax passes on whatever its storage raises
            shutil.rmtree(temporary, ignore_errors=True)
            raise CheckpointError(self._complaint(step, leaves, e)) from e

    def restore(self, like: PyTree, *, step: int | None = None) -> Any:
        """The state saved as `step`.

        **Arguments:**

        - `like`: a pytree of the same structure, shapes and dtypes, of arrays or
            `jax.ShapeDtypeStruct`s. Each leaf is laid out as this one's `sharding` says, or on
            the default device where it has none.
        - `step`: by default the latest.

        **Raises:** [`zero_train.CheckpointError`][] where there is no such checkpoint, files of
        it are missing or damaged, the manifest among them, or it holds another structure than
        `like`.
        """
        try:
            return self._restore(self._step(step), like)
        except Damage as e:
            raise CheckpointError(f"{e}. Put a copy of it back, or use another one.") from e

    def restore_latest(self, like: PyTree, *, tell: Callable[[str], object]) -> tuple[int, Any]:
        """The latest checkpoint that is as it was saved: its step, and the state.

        **Arguments:**

        - `like`: as for `restore`.
        - `tell`: given one line where later checkpoints are damaged: what is wrong with them, and
            which one is used.

        **Raises:** [`zero_train.CheckpointError`][] where all are damaged, there is none, or the
        latest holds another structure than `like`.
        """
        damages: list[str] = []
        for step in reversed(self.steps()):
            try:
                state = self._restore(step, like)
            except Damage as e:
                damages.append(str(e))
                continue
            if damages:
                tell(f"{'; '.join(damages)}; checkpoint {step} is used instead.")
            return step, state
        if damages:
            raise CheckpointError(f"{'; '.join(damages)}; there is no other. Put a copy back.")
        return self._step(None), None  # which complains that there is none

    def _restore(self, step: int, like: PyTree) -> Any:
        folder = self._folders()[step]
        leaves = read_manifest(folder, step)
        paths, treedef = jax.tree_util.tree_flatten_with_path(like)
        check_leaves(folder, leaves, [(_name(p), leaf) for p, leaf in paths])
        targets = {_label(i): _target(leaf) for i, (_, leaf) in enumerate(paths) if leaf.size}
        try:
            arrays = _read(folder / _ARRAYS, targets)
        except Exception as e:  # whatever Orbax's storage raises, such as a lack of memory
            # Every file is as it was written, so an earlier checkpoint would not do better.
            reason = " ".join(str(e).split())[:200]
            raise CheckpointError(f"{folder} could not be restored: {reason}.") from e
        restored = []
        for index, (_, leaf) in enumerate(paths):
            impl = leaves[index].get("key")
            if not leaf.size:
                restored.append(_empty(leaf, impl))
            elif impl is None:
                restored.append(arrays[_label(index)])
            else:
                restored.append(jax.random.wrap_key_data(arrays[_label(index)], impl=impl))
        return jax.tree.unflatten(treedef, restored)

    def rewind(self, step: int) -> None:
        """Removes the checkpoints after `step`: a run resumed there saves them again."""
        for later in self.steps():
            if later > step and _is_writer():
                remove(self._folders()[later])

    def _folders(self) -> dict[int, pathlib.Path]:
        found = {}
        # A `.old` counts only where the checkpoint that was to replace it did not arrive; it
        # sorts after its own step, hence the reversal.
        for path in sorted(children(self.directory), reverse=True):
            match = re.fullmatch(r"(\d{8,})(\.old)?", path.name)
            if match and path.is_dir():
                found[int(match[1])] = path
        return found

    def _step(self, step: int | None) -> int:
        """The step asked for, or the latest."""
        folders = self._folders()
        if not folders:
            raise CheckpointError(
                f"No checkpoint was found in {self.directory}; give a folder that has one."
            )
        step = max(folders) if step is None else step
        if step not in folders:
            has = ", ".join(map(str, sorted(folders)))
            raise CheckpointError(
                f"Checkpoint {step} was not found in {self.directory}; it has {has}."
            )
        return step

    def _commit(self, step: int, temporary: pathlib.Path) -> None:
        final = self.directory / f"{step:08d}"
        old = self.directory / f"{step:08d}.old"
        if final.exists():
            remove(old)
            final.rename(old)
        temporary.rename(final)
        sync(self.directory)
        remove(old)
        if self.keep is not None:
            for surplus in self.steps()[: -self.keep]:
                remove(self._folders()[surplus])

    def _complaint(self, step: int, leaves: dict[str, Any], error: Exception) -> str:
        start = f"Checkpoint {step} could not be saved in {self.directory}: "
        reason = " ".join(str(error).split())
        if "No space left" in reason or "quota exceeded" in reason:
            size = sum(x.nbytes for x in leaves.values()) / 1e6
            reason = f"no free disk space (it takes up to {size:.0f} MB); free some"
        return f"{start}{reason[:300]}. What was saved before is untouched."


def _label(index: int) -> str:
    return f"{index:05d}"


def _name(path: tuple[Any, ...]) -> str:
    return jax.tree_util.keystr(path) or "the state"


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _flatten(state: PyTree) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The arrays by label, keys as their data, and what the manifest says of each."""
    leaves, specs = {}, []
    for index, (path, leaf) in enumerate(jax.tree_util.tree_flatten_with_path(state)[0]):
        if not isinstance(leaf, jax.Array | np.ndarray):
            raise CheckpointError(
                f"{_name(path)} is a {type(leaf).__name__}; only arrays can be saved, so filter "
                "the state with equinox.filter(state, equinox.is_array)."
            )
        said: dict[str, Any] = {"path": _name(path), **spec(leaf)}
        if _is_key(leaf):
            said["key"] = str(jax.random.key_impl(leaf))
            leaf = jax.random.key_data(leaf)
        leaves[_label(index)] = leaf
        specs.append(said)
    return leaves, specs


def _target(leaf: Any) -> jax.ShapeDtypeStruct:
    sharding = getattr(leaf, "sharding", None)
    if sharding is None:
        sharding = SingleDeviceSharding(jax.local_devices()[0])
    if _is_key(leaf):
        # A key's sharding names its own axes; its data has more at the end, which are whole.
        leaf = jax.eval_shape(jax.random.key_data, jax.ShapeDtypeStruct(leaf.shape, leaf.dtype))
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)


def _empty(leaf: Any, impl: str | None) -> jax.Array:
    # Orbax stores no arrays without elements.
    target = _target(leaf)
    data = jax.device_put(jnp.zeros(target.shape, target.dtype), target.sharding)
    return data if impl is None else jax.random.wrap_key_data(data, impl=impl)


def _write(folder: pathlib.Path, arrays: dict[str, Any]) -> None:
    import orbax.checkpoint as ocp  # seconds to import

    with _quiet(), ocp.Checkpointer(ocp.StandardCheckpointHandler()) as checkpointer:
        checkpointer.save(folder, args=ocp.args.StandardSave(arrays))


def _read(folder: pathlib.Path, targets: dict[str, jax.ShapeDtypeStruct]) -> dict[str, jax.Array]:
    import orbax.checkpoint as ocp

    with _quiet(), ocp.Checkpointer(ocp.StandardCheckpointHandler()) as checkpointer:
        return checkpointer.restore(folder, args=ocp.args.StandardRestore(targets))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    # Orbax's threads log what they raise with a traceback; it is raised here anyway.
    log = logging.getLogger("absl")
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before


def _is_writer() -> bool:
    return jax.process_index() == 0


def _barrier(name: str) -> None:
    if jax.process_count() > 1:
        from jax.experimental import multihost_utils

        multihost_utils.sync_global_devices(f"zero_train.Checkpoints.{name}")
