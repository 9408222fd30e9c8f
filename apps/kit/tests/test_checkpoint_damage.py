"""Whatever happens to a checkpoint on disk: it is named, and the one before is used."""

import functools as ft
import json
import pathlib
import random
import shutil
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
import pytest

import zero_app._run._checkpoint as implementation
from zero_app import CheckpointError, Checkpoints
from zero_app._run._manifest import _digest

from .damages import cut, DAMAGES, flip
from .test_checkpoint import assert_same, state_of_all_kinds


@pytest.fixture
def copy(tmp_path) -> Checkpoints:
    """A checkpoint for a test that breaks it."""
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(7, state_of_all_kinds())
    return checkpoints


def _largest(folder: pathlib.Path) -> pathlib.Path:
    return max((p for p in folder.rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)


def test_damage_is_named(copy):
    folder = copy.directory / "00000007"
    largest = _largest(folder / "arrays")
    whole = largest.read_bytes()
    largest.write_bytes(whole[:-1])
    with pytest.raises(CheckpointError, match=rf"damaged: .*{largest.name} has .* instead of"):
        copy.restore(state_of_all_kinds())
    largest.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
    with pytest.raises(CheckpointError, match=rf"{largest.name} is not what was written"):
        copy.restore(state_of_all_kinds())
    largest.unlink()
    with pytest.raises(CheckpointError, match=rf"damaged: .*{largest.name} is missing. Put"):
        copy.restore(state_of_all_kinds())
    (folder / "manifest.json").write_text("{")
    with pytest.raises(CheckpointError, match="damaged: manifest.json cannot be read"):
        copy.restore(state_of_all_kinds())


def _damages(folder: pathlib.Path) -> list[tuple[str, Callable[[pathlib.Path], None]]]:
    """Whatever may happen to a checkpoint's files: what it is, and how to do it to a copy."""
    found = []
    for name in sorted(p.relative_to(folder) for p in folder.rglob("*") if p.is_file()):
        more = (flip,) * 40 if name.name == "manifest.json" else (flip, cut)
        for seed, damage in enumerate((*DAMAGES, *more)):
            use = lambda at, n=name, d=damage, s=seed: d(at / n, random.Random(s))
            found.append((f"{damage.__name__} {name}", use))
    return found


def _without_entries(manifest: dict) -> list[dict]:
    """The manifest without each of its entries in turn."""
    top = [{k: v for k, v in manifest.items() if k != gone} for gone in manifest]
    files = [
        {**manifest, "files": {k: v for k, v in manifest["files"].items() if k != gone}}
        for gone in manifest["files"]
    ]
    leaves = []
    for index, leaf in enumerate(manifest["leaves"]):
        others = manifest["leaves"][:index], manifest["leaves"][index + 1 :]
        leaves.append({**manifest, "leaves": [*others[0], *others[1]]})
        for gone in leaf:
            less = {k: v for k, v in leaf.items() if k != gone}
            leaves.append({**manifest, "leaves": [*others[0], less, *others[1]]})
    return [*top, *files, *leaves]


def _falls_back(checkpoints: Checkpoints, what: object) -> None:
    """One line names the damaged checkpoint and the one used, which is as it was saved."""
    said = []
    step, restored = checkpoints.restore_latest(state_of_all_kinds(), tell=said.append)
    assert step == 5 and len(said) == 1, what
    assert "00000007 is damaged: " in said[0] and "checkpoint 5" in said[0], what
    assert "\n" not in said[0], what
    assert_same(restored, state_of_all_kinds())
    with pytest.raises(CheckpointError, match="00000007 is damaged: ") as info:
        checkpoints.restore(state_of_all_kinds(), step=7)
    assert "\n" not in str(info.value)


@pytest.fixture
def read_once(monkeypatch) -> None:
    """The arrays of a checkpoint are read once, where nothing happens to it between restores."""
    read = implementation._read
    once = ft.cache(lambda folder, targets: read(folder, dict(targets)))
    monkeypatch.setattr(
        implementation, "_read", lambda folder, targets: once(folder, tuple(targets.items()))
    )


def test_whatever_happens_to_a_file_the_checkpoint_before_is_used(copy, read_once):
    copy.save(5, state_of_all_kinds())
    folder = copy.directory / "00000007"
    whole = folder.with_name("whole")
    folder.rename(whole)
    damages = _damages(whole)
    assert len(damages) > 100
    for what, damage in damages:
        shutil.copytree(whole, folder)
        damage(folder)
        _falls_back(copy, what)
        shutil.rmtree(folder)


def test_a_manifest_that_lacks_an_entry_is_damaged(copy, read_once):
    copy.save(5, state_of_all_kinds())
    path = copy.directory / "00000007" / "manifest.json"
    manifest = json.loads(path.read_text())
    for changed in (*_without_entries(manifest), {**manifest, "step": 9}, [manifest], 1, "leaves"):
        path.write_text(json.dumps(changed))
        _falls_back(copy, changed)
    path.write_text("[" * 200_000)
    _falls_back(copy, "nested")
    path.write_bytes((copy.directory / "00000005" / "manifest.json").read_bytes())
    _falls_back(copy, "that of step 5")
    # Another spelling of the same manifest is the same manifest.
    path.write_text(json.dumps(manifest))
    assert_same(copy.restore(state_of_all_kinds()), state_of_all_kinds())


def test_a_manifest_of_another_version_is_not_passed_over(copy):
    """Its digest is right: it is no damage, and the earlier one would lose what came after it."""
    copy.save(5, state_of_all_kinds())
    path = copy.directory / "00000007" / "manifest.json"
    manifest = json.loads(path.read_text())
    digest = manifest.pop("digest")
    assert digest == _digest(manifest)
    others = [{**manifest, "format": 2}, {**manifest, "files": []}, {**manifest, "leaves": [1]}]
    for other in (*_without_entries(manifest), *others):
        path.write_text(json.dumps({**other, "digest": _digest(other)}))
        if "about" not in other or _is_same_version(other):
            continue  # as an older one has it, or as one of this version may be
        for use in (
            lambda: copy.restore(state_of_all_kinds()),
            lambda: copy.restore_latest(state_of_all_kinds(), tell=print),
            lambda: copy.about(7),
        ):
            with pytest.raises(CheckpointError, match="00000007 was written by another ver") as e:
                use()
            assert "\n" not in str(e.value)
    assert copy.steps() == [5, 7]


def _is_same_version(manifest: dict) -> bool:
    """It lacks files or whole leaves."""
    return (
        len(manifest) == 4
        and all(
            isinstance(leaf, dict) and {"path", "shape", "dtype"} <= leaf.keys()
            for leaf in manifest["leaves"]
        )
        and isinstance(manifest["files"], dict)
    )


def test_what_is_said_about_a_checkpoint_is_kept_with_it(copy):
    """As it was when it was saved, with the state being written meanwhile."""
    said = {"games": np.int32(3), "shape": (8, 8)}
    copy.save(9, state_of_all_kinds(), about=said, wait=False)
    said["games"] = 4
    copy.finish()
    assert copy.about(9) == {"games": 3, "shape": [8, 8]} and copy.about(7) == {}
    with pytest.raises(CheckpointError, match="Checkpoint 8 was not found"):
        copy.about(8)
    manifest = copy.directory / "00000009" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"games": 3', '"games": 5'))
    with pytest.raises(CheckpointError, match="00000009 is damaged: manifest.json is not what was"):
        copy.about(9)


def test_only_what_an_interrupted_save_left_is_removed(copy):
    names = ".00000008.tmp", ".00000003.old.tmp", "..00000004.tmp.tmp", ".notes.tmp"
    for name in names:
        (copy.directory / name).mkdir()
    copy.save(9, state_of_all_kinds())
    assert [(copy.directory / name).exists() for name in names] == [False, False, False, True]


def test_a_checkpoint_under_another_step_is_refused(copy):
    """It is whole: passed over for an earlier one, it would be removed as what came later."""
    copy.save(5, state_of_all_kinds())
    (copy.directory / "00000007").rename(copy.directory / "00000009")
    said = "00000009 was saved as step 7; give it its name 00000007 again"
    with pytest.raises(CheckpointError, match=said):
        copy.restore_latest(state_of_all_kinds(), tell=print)


def test_where_all_checkpoints_are_damaged_one_line_says_so(copy):
    with pytest.raises(CheckpointError, match="No checkpoint was found in .*nowhere"):
        Checkpoints(copy.directory / "nowhere").restore_latest(state_of_all_kinds(), tell=print)
    copy.save(5, state_of_all_kinds())
    for step in (5, 7):
        (copy.directory / f"0000000{step}" / "manifest.json").unlink()
    said = []
    with pytest.raises(CheckpointError, match="00000005 is damaged.*no other") as info:
        copy.restore_latest(state_of_all_kinds(), tell=said.append)
    assert "00000007 is damaged: manifest.json" in str(info.value)
    assert "\n" not in str(info.value) and said == []


def test_a_process_that_does_not_write_restores_what_the_writer_names(copy, monkeypatch):
    """It reads only its part, and says so where its disk does not show the checkpoint."""
    copy.save(9, state_of_all_kinds())
    monkeypatch.setattr("zero_train.is_writer", lambda: False)
    monkeypatch.setattr(
        implementation, "check_files", lambda *files: pytest.fail("reads all files")
    )
    monkeypatch.setattr("zero_train.of_writer", lambda name, value: (7, ["9 is damaged"]))
    again = lambda line: pytest.fail("says it again")
    step, state = copy.restore_latest(state_of_all_kinds(), tell=again)
    assert step == 7
    assert_same(state, state_of_all_kinds())
    shutil.rmtree(copy.directory / "00000007")
    with pytest.raises(CheckpointError, match="Process 0 cannot read checkpoint 7 in "):
        copy.restore_latest(state_of_all_kinds(), tell=print)


def test_another_configuration_is_no_damage(copy):
    """The checkpoint before is of the same one, and must not be tried."""
    copy.save(5, state_of_all_kinds())
    with pytest.raises(CheckpointError, match="00000007 is a checkpoint of another configuration"):
        copy.restore_latest({"x": jnp.zeros(())}, tell=print)
