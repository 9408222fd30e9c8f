"""Checkpoints of any pytree of arrays, stored by Orbax."""

import concurrent.futures
import contextlib
import itertools
import json
import logging
import numbers
import os
import pathlib
import re
import shutil
import time
import traceback
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any, SupportsIndex

import numpy as np

from .._command._lazy import jax, zero_train
from ._disk import children, remove, sync, to_disk
from ._lines import as_step, plain
from ._manifest import (
    check_files,
    check_leaves,
    CheckpointError,
    Damage,
    MANIFEST,
    name_of,
    read_manifest,
    spec,
    write_manifest,
)


_ARRAYS = "arrays"
# Seconds in which the processes of a run wait for each other.
_LONGEST_WAIT = 24 * 3600
# One thread for all, so that what is saved later is committed later, and in all processes alike.
_writer = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="zero-checkpoints")
_numbers = itertools.count()


class Checkpoints:
    """A folder of checkpoints, one for each saved step.

    A state is any pytree of arrays, typed keys included. It is restored bit by bit, on any number
    of devices: as JAX arrays, and as NumPy arrays where JAX would narrow them, which are those of
    64 bits without `jax_enable_x64`. Saving is atomic: an interrupted save leaves the earlier
    checkpoints as they were. Nothing is written or removed before the first `save`.

    With more than one process, all of them must call `save`, `finish` and `restore`, on a shared
    disk. An error in one of them may leave the others waiting for its part: it has to end them all.

    What cannot be saved, is not there, is damaged, or is of another structure than it is restored
    into, raises a [`zero_app.CheckpointError`][].

    **Attributes:**

    - `directory`, `keep`: as given.
    - `pinned`: steps whose checkpoints no `save` removes, at first none. They do not count for
        `keep`.
    - `seconds`: how long the last `save` took until its checkpoint was on disk.
    """

    def __init__(self, directory: str | os.PathLike[str], *, keep: int | None = 2):
        """The first `save` makes the folder. Each one keeps the `keep` latest checkpoints, or all
        with `None`."""
        if not (keep is None or (isinstance(keep, numbers.Integral) and keep >= 1)):
            raise ValueError(f"keep={keep!r} was given; give at least 1, or None to keep all.")
        if not (isinstance(directory, str | os.PathLike) and os.fspath(directory)):
            raise ValueError(f"`Checkpoints(directory={directory!r})`: give the path of a folder.")
        self.directory = pathlib.Path(directory).absolute()
        self.keep: int | None = keep
        self.pinned: set[int] = set()
        self.seconds = 0.0
        self._saving: concurrent.futures.Future[None] | None = None

    def steps(self) -> list[int]:
        """The saved steps in ascending order, without interrupted saves."""
        return sorted(self._folders())

    @property
    def latest(self) -> int | None:
        """The last saved step, or `None`."""
        return max(self._folders(), default=None)

    def save(
        self,
        step: SupportsIndex,
        state: Any,
        *,
        about: Mapping[str, Any] = types.MappingProxyType({}),
        wait: bool = True,
    ) -> None:
        """Saves `state` as `step`, a whole number from 0 on, replacing a checkpoint of the same
        step. `about` is what JSON can hold, for the method `about`.

        It returns when the checkpoint is on disk. Without `wait` a thread writes what was copied of
        `state`, which may be donated or changed as soon as this returns; `finish` and the next
        `save` wait for it. What any folder was given first is on disk first.

        **Raises:** [`zero_app.CheckpointError`][] where it fails, or the save before it did that
        this one waited for. Earlier checkpoints are untouched.
        """
        self.finish()
        number, began = _checked(step), time.monotonic()
        if _is_of_others(final := self.directory / f"{number:08d}"):
            raise CheckpointError(
                f"Checkpoint {number} was not saved, because {final} holds other files; give "
                "checkpoints a folder of their own."
            )
        leaves, entries = _flatten(state)
        said = _about(about)
        size = sum(x.nbytes for x in leaves.values())
        temporary = self.directory / f".{number:08d}.tmp"
        with self._complained(number, temporary, size):
            if zero_train.is_writer():
                self.directory.mkdir(parents=True, exist_ok=True)
                for path in children(self.directory):
                    if re.fullmatch(r"\.+[0-9]{8,}(\.old)?(\.tmp)+", path.name):
                        remove(path)  # what an interrupted save left
                temporary.mkdir()
            zero_train.together("Checkpoints.begin")
            written = _write(temporary / _ARRAYS, {i: x for i, x in leaves.items() if x.size})

        def end() -> None:
            with self._complained(number, temporary, size):
                written()
                if zero_train.is_writer():
                    write_manifest(temporary, number, entries, said)
                    to_disk(temporary)
                    self._commit(number, temporary)
                zero_train.together("Checkpoints.end")
            self.seconds = time.monotonic() - began

        self._saving = _writer.submit(end)
        if wait:
            self.finish()

    def finish(self) -> None:
        """Waits until what is being saved is on disk. Where it could not be written, this raises a
        [`zero_app.CheckpointError`][], once."""
        saving = self._saving
        if saving is not None:
            try:
                saving.result()
            finally:
                # Another thread may have begun the next save meanwhile.
                if saving.done() and self._saving is saving:
                    self._saving = None

    def restore(self, like: Any, *, step: SupportsIndex | None = None) -> Any:
        """Restores the state saved as `step`, by default the latest. `like` is a pytree of the same
        structure, shapes and dtypes, of arrays or `jax.ShapeDtypeStruct`s. Each leaf is laid out as
        the `sharding` of its own in `like` says, or on the default device where that has none."""
        found, damages = self._undamaged(lambda: [self._step(step)])
        if found is None:
            said = f"{damages[0]}. Put a copy of it back, or use another one."
            raise CheckpointError(said) from Damage(damages[0])
        return self._restore(found, like)

    def restore_latest(self, like: Any, *, tell: Callable[[str], object]) -> tuple[int, Any]:
        """Restores the latest checkpoint that is not damaged as `restore` does, and returns its
        step and state. `tell` is called with one line if later ones are damaged.

        **Raises:** [`zero_app.CheckpointError`][] where all are, or the latest of the others has
        not the structure of `like`.
        """
        found, damages = self._undamaged(lambda: self.steps()[::-1] or [self._step(None)])
        if found is None:
            raise CheckpointError(f"{'; '.join(damages)}; there is no other. Put a copy back.")
        state = self._restore(found, like)
        if damages and zero_train.is_writer():
            tell(f"{'; '.join(damages)}; checkpoint {found} is used instead.")
        return found, state

    def _undamaged(self, steps: Callable[[], list[int]]) -> tuple[int | None, list[str]]:
        """The first of these steps that is not damaged, and what is wrong with those before it.

        One of several processes looks, and tells the others: a shared disk may show one process
        later than another what was saved, and each file is read once.
        """
        damages: list[str] = []

        def first() -> int | None:
            # A run that goes on may remove all that were listed, and then there are newer ones.
            while not damages:
                for step in steps():
                    if (folder := self._folders().get(step)) is None:
                        continue
                    try:
                        check_files(folder, step)
                    except Damage as e:
                        if step in self._folders():
                            damages.append(str(e))
                    else:
                        return step
            return None

        found = first() if zero_train.is_writer() else None
        found, damages = zero_train.of_writer("Checkpoints.restore", (found, damages))
        return found, damages

    def _restore(self, step: int, like: Any) -> Any:
        try:
            folder = self._folders()[step]
            leaves = read_manifest(folder, step)["leaves"]
        except (KeyError, Damage) as e:  # it was read a moment ago, maybe by another process
            raise CheckpointError(
                f"Process {jax.process_index()} cannot read checkpoint {step} in {self.directory}, "
                "which process 0 could; give all of them the same folder of a shared disk."
            ) from e
        paths, treedef = jax.tree_util.tree_flatten_with_path(like)
        for path, leaf in paths:
            if not hasattr(leaf, "dtype"):
                raise CheckpointError(
                    f"{name_of(path)} of `like` is a {type(leaf).__name__}; give arrays or "
                    "jax.ShapeDtypeStructs."
                )
        check_leaves(folder, leaves, [spec(name_of(path), leaf) for path, leaf in paths])
        targets = {_label(i): _target(leaf) for i, (_, leaf) in enumerate(paths) if leaf.size}
        try:
            arrays = _read(folder / _ARRAYS, targets)
        except Exception as e:  # whatever Orbax's storage raises, such as a lack of memory
            # Every file is as it was written, so an earlier checkpoint would not do better.
            reason = " ".join(str(e).split())[:200]
            raise CheckpointError(f"{folder} could not be restored: {reason}.") from e
        restored = []
        for index, (_, leaf) in enumerate(paths):
            data: Any = arrays[_label(index)] if leaf.size else _empty(leaf)
            impl = leaves[index].get("key")
            restored.append(data if impl is None else jax.random.wrap_key_data(data, impl=impl))
        return jax.tree.unflatten(treedef, restored)

    def about(self, step: SupportsIndex) -> dict[str, Any]:
        """What `save` was given about the state of this step, protected as the state is."""
        try:
            number = self._step(step)
            return read_manifest(self._folders()[number], number)["about"]
        except Damage as e:
            raise CheckpointError(f"{e}. Put a copy of it back.") from e

    def rewind(self, step: int) -> None:
        """Removes the checkpoints after `step`, which a resumed run saves again."""
        number = as_step(step, CheckpointError)
        for later in self.steps():
            if later > number and zero_train.is_writer():
                self._remove(later)

    def _remove(self, step: int) -> None:
        for name in (f"{step:08d}.old", f"{step:08d}"):
            remove(self.directory / name)

    def _folders(self) -> dict[int, pathlib.Path]:
        found = {}
        # A `.old` counts only where the checkpoint that was to replace it did not arrive; it
        # sorts after its own step, hence the reversal.
        for path in sorted(children(self.directory), reverse=True):
            # One that is no folder, such as a broken link, is damaged.
            match = re.fullmatch(r"([0-9]{8,})(\.old)?", path.name)
            if match and match[1] == f"{int(match[1]):08d}" and not _is_of_others(path):
                found[int(match[1])] = path
        return found

    def _step(self, step: SupportsIndex | None) -> int:
        """The step asked for, or the latest."""
        folders = self._folders()
        if not folders:
            raise CheckpointError(
                f"No checkpoint was found in {self.directory}; give a folder that has one."
            )
        number = max(folders) if step is None else _checked(step)
        if number not in folders:
            steps = [str(step) for step in sorted(folders)]
            has = ", ".join(steps if len(steps) < 10 else [*steps[:4], "...", *steps[-4:]])
            raise CheckpointError(
                f"Checkpoint {number} was not found in {self.directory}; it has {has}."
            )
        return number

    def _commit(self, step: int, temporary: pathlib.Path) -> None:
        final = self.directory / f"{step:08d}"
        old = self.directory / f"{step:08d}.old"
        if os.path.lexists(final):
            remove(old)
            final.rename(old)
        temporary.rename(final)
        sync(self.directory)
        remove(old)
        if self.keep is not None:
            free = [step for step in self.steps() if step not in self.pinned]
            for surplus in free[: -self.keep]:
                self._remove(surplus)

    @contextlib.contextmanager
    def _complained(self, step: int, temporary: pathlib.Path, size: int) -> Iterator[None]:
        """Makes one line of an error, and removes what was written of the checkpoint."""
        try:
            yield
        except Exception as e:  # Orbax passes on whatever its storage raises
            if zero_train.is_writer():
                shutil.rmtree(temporary, ignore_errors=True)
            reason = " ".join(str(e).split())
            if "No space left" in reason or "quota exceeded" in reason:
                reason = f"no free disk space (it takes up to {size / 1e6:.0f} MB); free some"
            raise CheckpointError(
                f"Checkpoint {step} could not be saved in {self.directory}: {reason[:300]}. "
                "What was saved before is untouched."
            ) from e


def _is_of_others(folder: pathlib.Path) -> bool:
    """Whether a folder with the name of a checkpoint, such as a date, holds something else only."""
    names = set() if folder.is_symlink() else {path.name for path in children(folder)}
    return bool(names) and names.isdisjoint((_ARRAYS, MANIFEST))


def _checked(step: Any) -> int:
    number = as_step(step, CheckpointError)
    if number < 0:  # as that of `BestSoFar` before its first evaluation
        raise CheckpointError(f"step={number} was given; give a whole number from 0 on.")
    return number


def _label(index: int) -> str:
    return f"{index:05d}"


def is_key(leaf: Any) -> bool:
    return jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _flatten(state: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The arrays by label, with keys as their data, and the manifest's entry of each."""
    leaves, entries = {}, []
    for index, (path, leaf) in enumerate(jax.tree_util.tree_flatten_with_path(state)[0]):
        if not isinstance(leaf, jax.Array | np.ndarray):
            raise CheckpointError(
                f"{name_of(path)} is a {type(leaf).__name__}; only arrays can be saved, so filter "
                "the state with equinox.filter(state, equinox.is_array)."
            )
        if isinstance(leaf, np.ma.MaskedArray) or not getattr(leaf.dtype, "isnative", True):
            raise CheckpointError(
                f"{name_of(path)} is a {type(leaf).__name__} of {leaf.dtype}, which would come "
                "back as another one; save plain arrays in this machine's order of bytes."
            )
        said = spec(name_of(path), leaf)
        if is_key(leaf):
            said["key"] = str(jax.random.key_impl(leaf))
            leaf = jax.random.key_data(leaf)
        leaves[_label(index)] = leaf
        entries.append(said)
    return leaves, entries


def _about(about: Any) -> dict[str, Any]:
    said = plain(about)
    try:
        json.dumps(said)
    except (TypeError, ValueError) as e:
        raise CheckpointError(f"about={about!r} is nothing for JSON: {e}.") from e
    if not isinstance(said, dict):
        raise CheckpointError(f"about={about!r} was given; give a mapping of names.")
    return said


def _target(leaf: Any) -> "jax.ShapeDtypeStruct | np.ndarray":
    """What Orbax restores an array as. An array of NumPy takes no memory here."""
    if not is_key(leaf) and jax.dtypes.canonicalize_dtype(leaf.dtype) != leaf.dtype:
        return np.broadcast_to(np.zeros((), leaf.dtype), leaf.shape)
    sharding = getattr(leaf, "sharding", None)
    if sharding is None:
        sharding = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    if is_key(leaf):
        # A key's sharding names its own axes; its data has more at the end, which are whole.
        leaf = jax.eval_shape(jax.random.key_data, jax.ShapeDtypeStruct(leaf.shape, leaf.dtype))
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)


def _empty(leaf: Any) -> "jax.Array | np.ndarray":
    # Orbax stores no arrays without elements.
    target = _target(leaf)
    if isinstance(target, np.ndarray):
        return target.copy()
    return jax.device_put(jax.numpy.zeros(target.shape, target.dtype), target.sharding)


def _write(folder: pathlib.Path, arrays: dict[str, Any]) -> Callable[[], None]:
    """Copies the arrays to the host, and has threads write them. Returns a function that waits
    until all processes have written theirs. Any thread may call it: processes meet in it without
    collectives."""
    if not arrays:  # Orbax writes nothing only where there is something
        return lambda: None
    ocp = _orbax()
    checkpointer = ocp.AsyncCheckpointer(
        ocp.StandardCheckpointHandler(),
        async_options=ocp.options.AsyncOptions(
            timeout_secs=_LONGEST_WAIT, create_directories_asynchronously=False
        ),
        multiprocessing_options=ocp.options.MultiprocessingOptions(
            barrier_sync_key_prefix=f"zero_train/save/{next(_numbers)}"
        ),
    )
    copies = {label: _own(x) for label, x in arrays.items()}
    checkpointer.save(folder, args=ocp.args.StandardSave(copies))
    return checkpointer.close


def _own(array: Any) -> Any:
    """An array that no step writes over. Orbax copies from devices that have a memory of their own,
    and looks at the memory of a CPU, where a step that is given the array would have to copy it."""
    if isinstance(array, np.ndarray):
        return array.copy()
    on_cpu = next(iter(array.sharding.device_set)).platform == "cpu"
    return jax.device_put(array, array.sharding, may_alias=False) if on_cpu else array


def _read(
    folder: pathlib.Path, targets: "dict[str, jax.ShapeDtypeStruct | np.ndarray]"
) -> dict[str, Any]:
    if not targets:
        return {}
    ocp = _orbax()
    with ocp.Checkpointer(ocp.StandardCheckpointHandler()) as checkpointer:
        return checkpointer.restore(folder, args=ocp.args.StandardRestore(targets))


def _orbax() -> Any:
    import orbax.checkpoint as ocp  # seconds to import

    # Its threads log what they raise with a traceback, as asyncio does of each array that cannot be
    # written; the first of them is raised here anyway.
    for name in ("absl", "asyncio"):
        logging.getLogger(name).addFilter(_is_not_of_orbax)
    return ocp


def _is_not_of_orbax(record: logging.LogRecord) -> bool:
    raised = traceback.walk_tb(record.exc_info[2] if record.exc_info else None)
    files = [record.pathname, *(frame.f_code.co_filename for frame, _ in raised)]
    return not any(f"{os.sep}orbax{os.sep}" in file for file in files)
