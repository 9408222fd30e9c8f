"""One process at a time holds a run folder, and a dead one does not."""

import json
import os
import pathlib
import subprocess
import sys
import threading
import time

import pytest

from zero_app import RunError, RunFolder
from zero_app._run import _lock
from zero_app._run._lock import Lock


def quiet(line: str) -> None:
    del line


@pytest.fixture
def fast(monkeypatch) -> None:
    monkeypatch.setattr(_lock, "_BEAT", 0.05)
    monkeypatch.setattr(_lock, "_DEAD", 0.5)


def owned(folder: pathlib.Path, **about: object) -> pathlib.Path:
    """The file of an owner on another machine, which just gave a sign of life."""
    owner = {"host": "far", "process": 7, "since": "noon", "machine": "another", **about}
    path = folder / "lock"
    path.write_text(json.dumps(owner))
    return path


def test_a_process_that_was_killed_holds_nothing(tmp_path):
    """On the same machine, at once."""
    program = (
        "import pathlib, sys, time; from zero_app._run._lock import Lock; "
        "held = Lock(pathlib.Path(sys.argv[1]), tell=print); print('held', flush=True); "
        "time.sleep(600)"
    )
    words = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout is not None and other.stdout.readline() == "held\n"
            for _ in range(2):
                with pytest.raises(
                    RunError, match=f"^Process {other.pid} on .* trains in "
                ) as info:
                    Lock(tmp_path, tell=quiet)
                assert "\n" not in str(info.value)
            assert (tmp_path / "lock").exists()
        finally:
            other.kill()
    began = time.monotonic()
    Lock(tmp_path, tell=quiet).release()
    assert time.monotonic() - began < 5 and list(tmp_path.iterdir()) == []


def test_a_folder_is_free_after_its_release(tmp_path):
    for _ in range(3):
        first = Lock(tmp_path, tell=quiet)
        with pytest.raises(RunError, match="stop that one first"):
            Lock(tmp_path, tell=quiet)
        first.release()
        first.release()


@pytest.mark.parametrize("locks", [True, False])
def test_an_owner_on_another_machine_lives_as_long_as_it_gives_signs(
    tmp_path, fast, monkeypatch, locks
):
    """Whether the disk has locks or not."""
    if not locks:
        monkeypatch.setattr(_lock, "_locked", lambda file: None)
    path, ended, said = owned(tmp_path), threading.Event(), []

    def live():
        while not ended.wait(0.05):
            os.utime(path)

    thread = threading.Thread(target=live)
    thread.start()
    with pytest.raises(RunError, match=r"Process 7 on far \(since noon\) trains in"):
        Lock(tmp_path, tell=said.append)
    assert "waiting" in said[0] and len(said) == 1
    ended.set()
    thread.join()
    began = time.monotonic()
    Lock(tmp_path, tell=quiet).release()  # it is dead
    assert time.monotonic() - began > 0.3 and not path.exists()
    os.utime(owned(tmp_path), (0, 0))
    Lock(tmp_path, tell=lambda line: pytest.fail(line)).release()  # and was for long


def test_where_a_disk_has_no_locks_signs_of_life_hold_a_folder(tmp_path, fast, monkeypatch):
    monkeypatch.setattr(_lock, "_locked", lambda file: None)
    first = Lock(tmp_path, tell=quiet)
    with pytest.raises(RunError, match=f"Process {os.getpid()} on"):
        Lock(tmp_path, tell=quiet)
    first.release()
    Lock(tmp_path, tell=quiet).release()


def test_a_process_whose_folder_was_taken_stops(tmp_path, fast):
    """It was suspended, and another machine took it for dead. Who removes the file by hand ends
    nothing."""
    with RunFolder.create(tmp_path / "run", {}) as run:
        path = tmp_path / "run" / "lock"
        path.unlink()
        time.sleep(0.2)
        run.log(1, {}, {})
        owned(path.parent)
        time.sleep(0.3)
        with pytest.raises(RunError, match="Process 7 on far"):
            run.log(2, {}, {})
    assert json.loads(path.read_text())["process"] == 7


def test_what_a_killed_start_leaves_is_no_run_and_a_users_file_is_kept(tmp_path):
    for number, left in enumerate(["", None]):
        folder = tmp_path / f"{number}"
        folder.mkdir()
        if left is None:
            os.utime(owned(folder), (0, 0))
        else:
            (folder / "lock").write_text(left)
        RunFolder.create(folder, {}).close()
        assert (folder / "config.json").exists()
    (tmp_path / "lock").write_text("irreplaceable")
    with pytest.raises(RunError, match="is not empty, and holds no run"):
        RunFolder.create(tmp_path, {})
    assert (tmp_path / "lock").read_text() == "irreplaceable"


@pytest.mark.parametrize("name", ["notes.txt", "lock"])
def test_what_is_no_lock_is_never_written_into(tmp_path, name):
    RunFolder.create(tmp_path, {}).close()
    (tmp_path / name).write_text("irreplaceable")
    if name != "lock":
        (tmp_path / "lock").symlink_to(tmp_path / name)
    with pytest.raises(RunError, match="is no lock of a run"):
        RunFolder.create(tmp_path, {}, resume=True)
    assert (tmp_path / name).read_text() == "irreplaceable"


def test_a_refused_start_leaves_the_folder_as_it_was(tmp_path):
    held = Lock(tmp_path, tell=quiet)
    with pytest.raises(RunError, match="trains in"):
        RunFolder.create(tmp_path, {})
    held.release()
    assert list(tmp_path.iterdir()) == []
