import errno
import functools as ft
import os
import pathlib
import shutil
import subprocess
import threading
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

import zero_app._run._checkpoint as implementation
from zero_app import CheckpointError, Checkpoints
from zero_app._run._lines import as_step
from zero_train import BestSoFar


def state_of_all_kinds() -> dict:
    """Equal arrays in a dictionary of its own."""
    return dict(_arrays())


@ft.cache
def _arrays() -> dict:
    bits = np.random.default_rng(0).integers(0, 2**16, (3, 8), dtype=np.uint16)
    return {
        "bool": jnp.asarray([True, False, True]),
        "int8": jnp.asarray([-128, 0, 127], jnp.int8),
        "uint32": jnp.asarray(2**32 - 1, jnp.uint32),
        "float32": jnp.asarray([-0.0, jnp.inf, jnp.nan, 1e-45, 0.1], jnp.float32),
        # Every kind of bits, signalling NaNs among them.
        "bfloat16": jax.lax.bitcast_convert_type(jnp.asarray(bits), jnp.bfloat16),
        "nested": (None, [jax.random.key(1), jax.random.split(jax.random.key(2), (2, 3))]),
        "rbg": jax.random.key(4, impl="rbg"),
        "numpy": np.arange(6, dtype=np.int32).reshape(2, 3),
        "empty": jnp.zeros((0, 4), jnp.float32),
        "no keys": jax.random.split(jax.random.key(5), 3)[:0],
    }


def _bits(leaf) -> bytes:
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    return np.asarray(leaf).tobytes()


def assert_same(first, second) -> None:
    assert jax.tree.structure(first) == jax.tree.structure(second)
    for x, y in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        assert (x.shape, x.dtype) == (y.shape, y.dtype)
        assert _bits(x) == _bits(y)


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("saved")
    Checkpoints(folder).save(7, state_of_all_kinds())
    return folder


@pytest.fixture
def copy(saved, tmp_path) -> Checkpoints:
    """A checkpoint of its own for a test that breaks it."""
    subprocess.run(["cp", "-r", f"{saved}/.", str(tmp_path)], check=True)
    return Checkpoints(tmp_path)


def test_round_trip_is_bitwise(saved):
    like = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), state_of_all_kinds())
    restored = Checkpoints(saved).restore(like)
    assert_same(restored, state_of_all_kinds())
    assert all(isinstance(x, jax.Array) for x in jax.tree.leaves(restored))
    # A restored key draws what the saved one would have drawn.
    before, after = jax.random.key(1), restored["nested"][1][0]
    assert jax.random.bits(before) == jax.random.bits(after)


_KINDS = """bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64
float8_e4m3fn float8_e5m2 complex64 complex128""".split()


@pytest.mark.parametrize("saved_wide", [False, True])
@pytest.mark.parametrize("wide", [False, True])
def test_every_dtype_keeps_its_bits_whatever_jax_computes_with(tmp_path, saved_wide, wide):
    """Arrays of NumPy, empty ones too, and those of JAX as wide as it had them."""
    randomly = np.random.default_rng(0)
    state = {}
    try:
        jax.config.update("jax_enable_x64", saved_wide)
        for kind in map(jnp.dtype, _KINDS):
            raw = randomly.integers(0, 2, (3, kind.itemsize), dtype=np.uint8)
            if kind != bool:
                raw = randomly.integers(0, 256, raw.shape, dtype=np.uint8)
            host = raw.view(kind)[:, 0]
            state[str(kind)] = host, host[:0], host[0, ...], host[::2]
            if saved_wide or jax.dtypes.canonicalize_dtype(kind) == kind:
                state[f"jax {kind}"] = jnp.asarray(host)
        Checkpoints(tmp_path).save(1, state)
        jax.config.update("jax_enable_x64", wide)
        like = jax.tree.map(lambda x: np.broadcast_to(np.zeros((), x.dtype), x.shape), state)
        restored = Checkpoints(tmp_path).restore(like)
    finally:
        jax.config.update("jax_enable_x64", False)
    assert_same(restored, state)
    assert all(
        isinstance(x, jax.Array) or x.dtype.itemsize > 4 and not wide
        for x in jax.tree.leaves(restored)
    )


@pytest.mark.parametrize(
    "array",
    [
        np.ma.masked_array(np.arange(3), [False, True, False]),
        *(np.zeros(2, kind) for kind in (">i4", ">f8", "O", "U3", "M8[s]", "longdouble", "i4,f4")),
    ],
    ids=lambda array: f"{type(array).__name__}-{array.dtype}",
)
def test_what_would_not_come_back_is_not_saved(tmp_path, array):
    with pytest.raises(CheckpointError) as info:
        Checkpoints(tmp_path).save(1, {"x": array})
    assert "\n" not in str(info.value) and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("state", [{}, None, {"x": jnp.zeros((0, 2))}, [np.zeros(0)]])
def test_a_state_without_numbers_is_one(tmp_path, state):
    Checkpoints(tmp_path).save(1, state)
    assert_same(Checkpoints(tmp_path).restore(state), state)


@pytest.mark.parametrize("kind", [int, np.int64, np.uint8, jnp.int32, np.asarray])
def test_a_step_may_be_any_whole_number(tmp_path, kind):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(kind(7), {}, about={"a": 1})
    assert checkpoints.steps() == [7] and checkpoints.about(kind(7)) == {"a": 1}
    assert checkpoints.restore({}, step=kind(7)) == {}
    with pytest.raises(CheckpointError, match="Checkpoint 8 was not found"):
        checkpoints.restore({}, step=kind(8))


@pytest.mark.parametrize("step", [-1, np.int32(-1), BestSoFar.start(jnp.zeros(())).step])
def test_a_step_that_would_not_be_found_again_is_refused(saved, step):
    checkpoints = Checkpoints(saved)
    for use in (
        lambda: checkpoints.save(step, {}),
        lambda: checkpoints.restore(state_of_all_kinds(), step=step),
        lambda: checkpoints.about(step),
    ):
        with pytest.raises(CheckpointError, match="^step=-1 was given; give a whole number from 0"):
            use()
    assert checkpoints.steps() == [7]


@pytest.mark.parametrize("step", [7.0, jnp.ones(()), "7", None, np.arange(200)])
def test_a_step_that_is_no_whole_number_is_refused(step):
    """The signatures refuse it before, where they are checked."""
    with pytest.raises(CheckpointError, match="^step=.* was given; give a whole number") as info:
        as_step(step, CheckpointError)
    assert "\n" not in str(info.value)


def test_a_template_of_arrays_gives_its_layout(saved):
    restored = Checkpoints(saved).restore(state_of_all_kinds(), step=7)
    assert restored["int8"].sharding == state_of_all_kinds()["int8"].sharding


def test_only_the_latest_are_kept(tmp_path):
    checkpoints = Checkpoints(tmp_path / "a" / "b", keep=2)
    assert checkpoints.steps() == [] and checkpoints.latest is None
    for step in (1, 20, 3):
        checkpoints.save(step, {"x": jnp.asarray(step, jnp.int32)})
    assert checkpoints.steps() == [3, 20] and checkpoints.latest == 20
    like = {"x": jnp.zeros((), jnp.int32)}
    assert checkpoints.restore(like)["x"] == 20
    assert checkpoints.restore(like, step=3)["x"] == 3
    kept = Checkpoints(tmp_path / "parameters", keep=None)
    for step in range(4):
        kept.save(step, like)
    assert kept.steps() == [0, 1, 2, 3]
    kept.rewind(1)
    assert kept.steps() == [0, 1]
    kept.keep, kept.pinned = 1, {0}
    for step in (2, 3):
        kept.save(step, like)
    assert kept.steps() == [0, 3]


def test_what_was_removed_since_it_was_listed_is_passed_over(copy, monkeypatch):
    """By a run that goes on while somebody reads it."""
    listed = iter([[5, 6], [7, 9]])
    monkeypatch.setattr(Checkpoints, "steps", lambda self: next(listed))
    assert copy.restore_latest(state_of_all_kinds(), tell=pytest.fail)[0] == 7


def test_what_is_removed_while_it_is_read_is_no_damage(copy, monkeypatch):
    copy.save(8, state_of_all_kinds())
    check = vars(implementation)["check_files"]

    def removed(folder, step):
        if step == 8:
            shutil.rmtree(folder)
        check(folder, step)

    monkeypatch.setattr(implementation, "check_files", removed)
    assert copy.restore_latest(state_of_all_kinds(), tell=pytest.fail)[0] == 7


def test_what_is_being_written_is_the_state_that_was_saved(tmp_path, monkeypatch):
    """The next step writes over it, in the same memory; and no checkpoint counts before its end,
    until which its time is measured."""
    write, go_on, clock = implementation._write, threading.Event(), [5.0]

    def slow(folder, arrays):
        written = write(folder, arrays)
        return lambda: (go_on.wait(), written())

    monkeypatch.setattr(implementation, "_write", slow)
    fake = types.SimpleNamespace(monotonic=lambda: clock[0])
    monkeypatch.setattr(implementation, "time", fake)
    step = jax.jit(lambda x: x + 1, donate_argnums=0)
    saved, host = jnp.arange(100_000, dtype=jnp.int32), np.arange(3)
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, (saved, host), wait=False)
    after = jax.block_until_ready(step(saved))
    host += 1
    assert saved.is_deleted() and checkpoints.steps() == [] and checkpoints.seconds == 0
    clock[0] += 2
    go_on.set()
    checkpoints.finish()
    assert checkpoints.seconds == 2
    restored, on_host = checkpoints.restore((after, host))
    assert (restored == after - 1).all() and (on_host == host - 1).all()


def test_saving_a_step_again_replaces_it(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    for value in (1, 2):
        checkpoints.save(5, jnp.asarray(value, jnp.int32))
    assert checkpoints.restore(jnp.zeros((), jnp.int32)) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["00000005"]


def test_nothing_of_others_is_removed(tmp_path):
    for name in ("20251124", "20251125", "20251126", ".notes.tmp"):  # three days and their notes
        (tmp_path / name).mkdir()
        (tmp_path / name / "results").write_text(name)
    theirs = sorted(tmp_path.rglob("*"))
    checkpoints = Checkpoints(tmp_path, keep=1)
    for step in (1, 2):
        checkpoints.save(step, jnp.zeros(()))
    assert checkpoints.steps() == [2] and set(theirs) < set(tmp_path.rglob("*"))
    checkpoints.rewind(0)
    with pytest.raises(CheckpointError, match="20251125 was not saved.*holds other files"):
        checkpoints.save(20251125, jnp.zeros(()))
    assert sorted(tmp_path.rglob("*")) == theirs


def test_a_folder_has_a_path():
    with pytest.raises(ValueError, match=r"`Checkpoints\(directory=''\)`: give the path of a fold"):
        Checkpoints("")


def test_a_replacement_that_was_interrupted_leaves_the_old_one(copy):
    # What is on disk between the two renames.
    (copy.directory / "00000007").rename(copy.directory / "00000007.old")
    assert copy.steps() == [7]
    assert_same(copy.restore(state_of_all_kinds()), state_of_all_kinds())


def test_both_folders_of_a_replacement_are_removed_with_their_step(copy):
    new = copy.directory / "00000007"
    shutil.copytree(new, copy.directory / "00000007.old")
    (copy.directory / ".00000007.tmp").mkdir()
    (copy.directory / ".00000007.tmp" / "left").touch()
    copy.rewind(6)
    assert copy.steps() == [] and list(copy.directory.iterdir()) == []


def test_an_interrupted_save_does_not_count_and_is_cleaned(copy, monkeypatch):
    def interrupt(folder, arrays):
        folder.mkdir()
        (folder / "half").write_text("half")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(implementation, "_write", interrupt)
        with pytest.raises(KeyboardInterrupt):
            copy.save(8, {"x": jnp.zeros((), jnp.int32)})
    assert (copy.directory / ".00000008.tmp").exists()
    assert copy.steps() == [7]
    copy.save(9, state_of_all_kinds())
    assert sorted(path.name for path in copy.directory.iterdir()) == ["00000007", "00000009"]


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
        ValueError("RESOURCE_EXHAUSTED: Error writing file [OS error: No space left on device]"),
    ],
)
@pytest.mark.parametrize("later", [False, True])
def test_a_full_disk_keeps_the_previous_checkpoint(copy, monkeypatch, error, later):
    def refuse(folder=None, arrays=None):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(implementation, "_write", (lambda *given: refuse) if later else refuse)
        state = {"x": jnp.zeros((250_000, 10), jnp.float32)}
        with pytest.raises(CheckpointError, match="8 could not be.*no free disk space") as info:
            copy.save(8, state, wait=not later)
            copy.save(9, state)  # says so where the thread of the save before met it
    assert "up to 10 MB" in str(info.value) and "\n" not in str(info.value)
    assert [path.name for path in copy.directory.iterdir()] == ["00000007"]
    assert_same(copy.restore(state_of_all_kinds()), state_of_all_kinds())
    copy.save(9, state_of_all_kinds())
    assert copy.steps() == [7, 9]


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="could not be saved in .*file"):
        Checkpoints(tmp_path / "file").save(1, jnp.zeros(()))


def test_missing(saved, tmp_path):
    with pytest.raises(CheckpointError, match="No checkpoint was found in .*nowhere"):
        Checkpoints(tmp_path / "nowhere").restore(state_of_all_kinds())
    with pytest.raises(CheckpointError, match="Checkpoint 8 was not found in .*; it has 7"):
        Checkpoints(saved).restore(state_of_all_kinds(), step=8)


def test_what_the_store_raises_becomes_one_line(copy, monkeypatch):
    def refuse(folder, targets):
        raise RuntimeError("first line\nsecond line")

    monkeypatch.setattr(implementation, "_read", refuse)
    with pytest.raises(
        CheckpointError, match="00000007 could not be restored: first line second line"
    ):
        copy.restore(state_of_all_kinds())


def test_another_configuration_names_the_first_difference(saved):
    checkpoints = Checkpoints(saved)
    like = state_of_all_kinds()
    like["int8"] = jnp.zeros((4,), jnp.int8)
    with pytest.raises(CheckpointError, match=r"\['int8'\] is int8\[3\] in it and int8\[4\]"):
        checkpoints.restore(like)
    like["int8"] = jnp.zeros((3,), jnp.int32)
    with pytest.raises(CheckpointError, match=r"\['int8'\] is int8\[3\] in it and int32\[3\]"):
        checkpoints.restore(like)
    like = state_of_all_kinds()
    like["rbg"] = jax.random.key(0)
    with pytest.raises(CheckpointError, match=r"key<rbg>\[\] in it and key<fry>\[\] is expected"):
        checkpoints.restore(like)
    like = state_of_all_kinds()
    del like["uint32"]
    with pytest.raises(CheckpointError, match=r"it has \['uint32'\], which is not expected"):
        checkpoints.restore(like)
    like = {**state_of_all_kinds(), "z": jnp.zeros(())}
    with pytest.raises(CheckpointError, match=r"it lacks \['z'\]. Use the configuration"):
        checkpoints.restore(like)
    with pytest.raises(CheckpointError, match=r"\['int8'\] of `like` is a float; give arrays"):
        checkpoints.restore({**state_of_all_kinds(), "int8": 1.0})
    like = state_of_all_kinds()
    like["inr8"] = like.pop("int8")
    with pytest.raises(CheckpointError, match=r"has \['int8'\] where \['inr8'\] is expected"):
        checkpoints.restore(like)


def test_only_arrays_and_a_sensible_keep(tmp_path):
    with pytest.raises(CheckpointError, match=r"\['x'\] is a float; only arrays can be saved"):
        Checkpoints(tmp_path).save(0, {"x": 1.0})
    with pytest.raises(CheckpointError, match="nothing for JSON"):
        Checkpoints(tmp_path).save(0, state_of_all_kinds(), about={"x": {1}})
    with pytest.raises(ValueError, match="keep=0"):
        Checkpoints(tmp_path, keep=0)
    assert list(tmp_path.iterdir()) == []


@ft.cache
def _sharded(num_devices: int) -> dict[str, jax.Array]:
    """The same numbers, rows split over the first `num_devices` devices."""
    mesh = Mesh(np.asarray(jax.devices()[:num_devices]), ("data",))
    layout = {"rows": P("data"), "keys": P("data"), "key": P(), "whole": P()}

    def build() -> dict[str, jax.Array]:
        return {
            "rows": jnp.arange(48, dtype=jnp.float32).reshape(16, 3),
            "keys": jax.random.split(jax.random.key(1), 8),
            "key": jax.random.key(2),
            "whole": jnp.arange(5, dtype=jnp.int8),
        }

    shardings = {name: NamedSharding(mesh, spec) for name, spec in layout.items()}
    return jax.jit(build, out_shardings=shardings)()


@pytest.mark.parametrize("before, after", [(1, 8), (8, 1)])
def test_another_number_of_devices(tmp_path, before, after):
    """What is restored has the numbers, and lies where they would have been put."""
    checkpoints, expected = Checkpoints(tmp_path), _sharded(after)
    checkpoints.save(1, _sharded(before))
    restored = checkpoints.restore(expected)
    assert_same(restored, expected)
    for name, wanted in expected.items():
        found = restored[name]
        assert found.sharding.is_equivalent_to(wanted.sharding, wanted.ndim), name
        if jnp.issubdtype(found.dtype, jax.dtypes.prng_key):
            found, wanted = jax.random.key_data(found), jax.random.key_data(wanted)
        assert found.sharding.is_equivalent_to(wanted.sharding, wanted.ndim), name
