"""A disk that is full, or may not be written: one line says so, and nothing that was there is lost.

Slow, and only where a disk in memory can be mounted: `sudo` is enough for that on Linux."""

import gc
import itertools
import pathlib
import random
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator

import jax
import numpy as np
import pytest

from zero_app import App, Checkpoints, Frame, load, main, read_lines
from zero_app._run._film import save_film
from zero_train import template

from .nim import shared_loop
from .test_train import CONFIG, evaluation


pytestmark = pytest.mark.slow
SIZE = 2**21


def left_open(test: Callable[..., None]) -> Callable[..., None]:
    """Orbax and tensorboardX leave to the collector what they write when the disk refuses it."""
    for said in (
        "Event loop is closed",
        "coroutine 'async_serialize_from_host.*' was never awaited",
        "unclosed file .*tfevents",
    ):
        ignored = rf"ignore:[\s\S]*{said}:pytest.PytestUnraisableExceptionWarning"
        test = pytest.mark.filterwarnings(ignored)(test)
    return test


@pytest.fixture(scope="module")
def app() -> App:
    return App("nim", "Nim.", {"tiny": CONFIG}, lambda config: shared_loop(), evaluation)


@pytest.fixture(scope="module")
def whole(app, tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("runs") / "whole"
    main(app, ["train", f"--out={folder}"])
    return folder


@pytest.fixture
def disk(tmp_path) -> Iterator[pathlib.Path]:
    """A folder that is a disk of two megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(folder)]
    if not shutil.which("mount") or subprocess.run(words, capture_output=True).returncode:
        pytest.skip("no disk can be mounted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)
    gc.collect()  # what was left open is heard of in its own test


def fill(disk: pathlib.Path, free: int) -> None:
    """Leaves so many bytes free, in pages of 4096."""
    ballast = disk / "ballast"
    ballast.unlink(missing_ok=True)
    with ballast.open("wb") as file:
        file.write(b"\0" * (shutil.disk_usage(disk).free - free))


def ends(app: App, capsys, *words: str) -> tuple[int, str]:
    """The exit code of a command, and what it says of errors: no line, or one."""
    capsys.readouterr()
    code = 0
    try:
        main(app, list(words))
    except SystemExit as e:
        code = int(e.code or 0)
    said = capsys.readouterr().err
    assert said.count("\n") == (code != 0), said
    return code, said


def contents(folder: pathlib.Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def check_the_same(app: App, folder: pathlib.Path, whole: pathlib.Path) -> None:
    for name in ("metrics.jsonl", "evaluations.jsonl", "episodes.jsonl"):
        assert (folder / name).read_bytes() == (whole / name).read_bytes()
    states = []
    for run in (folder, whole):
        saved = Checkpoints(run / "checkpoints").restore(template(app.build(CONFIG)))
        states.append(jax.tree.leaves(jax.device_get((load(app, run).player, saved.agent))))
    for x, y in zip(*states, strict=True):
        assert np.asarray(x).tobytes() == np.asarray(y).tobytes()


@left_open
def test_a_run_on_a_disk_that_fills_up_goes_on_when_there_is_room(app, whole, disk, capsys):
    """Wherever it fills up: a new run is given more and more room until it gets to its end."""
    refused, kept, code, free = 0, 0, 2, 0
    for free in itertools.chain([0, 2**12, 2**13], range(2**15, SIZE, 2**16)):
        fill(disk, free)
        code, said = ends(app, capsys, "train", f"--out={disk / 'run'}")
        if code == 0:
            break
        assert code == 2 and ("No space" in said or "no free disk space" in said), said
        refused += 1
        (disk / "ballast").unlink()
        if (disk / "run" / "config.json").exists():
            had = Checkpoints(disk / "run" / "checkpoints").steps()
            kept += bool(had)
            assert all(row["step"] for row in read_lines(disk / "run" / "metrics.jsonl"))
            assert ends(app, capsys, "train", "--resume", f"--out={disk / 'run'}")[0] == 0
            check_the_same(app, disk / "run", whole)
            shutil.rmtree(disk / "run")
        assert not (disk / "run").exists()
    assert code == 0 and refused > 10 and kept > 3
    print(f"refused {refused} times, {kept} of these with a checkpoint; {free} bytes are enough")


@left_open
def test_a_run_that_is_resumed_on_a_full_disk_is_as_it_was(app, whole, disk, capsys):
    config = f"--steps={CONFIG.steps}"
    for free in (0, 2**12, 2**14, 2**16):
        shutil.copytree(whole, disk / "run")
        shutil.rmtree(disk / "run" / "checkpoints" / "00000008")
        fill(disk, free)
        code, said = ends(app, capsys, "train", "--resume", config, f"--out={disk / 'run'}")
        assert code == 2 and ("No space" in said or "no free disk space" in said), said
        (disk / "ballast").unlink()
        assert ends(app, capsys, "train", "--resume", config, f"--out={disk / 'run'}")[0] == 0
        check_the_same(app, disk / "run", whole)
        shutil.rmtree(disk / "run")


def commands(whole: pathlib.Path, out: pathlib.Path) -> dict[str, list[str]]:
    return {
        "export": ["export", str(whole), f"--out={out / 'exported'}", "--platforms=cpu"],
        "compare": ["compare", str(whole), str(whole.parent / "other"), f"--out={out / 'a.html'}"],
        "report": ["report", str(out / "run")],
        "train": ["train", "--resume", f"--out={out / 'run'}"],
        "new": ["train", f"--out={out / 'new'}"],
    }


@pytest.mark.parametrize("free", [0, 2**12, None])
def test_commands_that_cannot_write_leave_everything_as_it_was(app, whole, disk, capsys, free):
    """On a disk that is full, almost full, or that may only be read."""
    other = whole.parent / "other"
    if not other.exists():
        shutil.copytree(whole, other)
    shutil.copytree(whole, disk / "run")
    (disk / "a.html").write_text("before")
    if free is None:
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    else:
        fill(disk, free)
    before = contents(disk)
    for name, words in commands(whole, disk).items():
        code, said = ends(app, capsys, *words)
        assert code == 2, (name, said)
        refused = "No space left" if free is not None else "Read-only file system|Permission denied"
        assert re.search(refused, said), (name, said)
        after = contents(disk)
        changed = {path for path in before | after if before.get(path) != after.get(path)}
        assert changed <= {"run/starts.jsonl"}, (name, changed)
    box = '<svg viewBox="0 0 256 256" xmlns="http://www.w3.org/2000/svg">{}</svg>'
    scribble = '<path fill="none" stroke="#fff" d="M{}"/>'
    noise = [" ".join(map(str, random.Random(n).randbytes(500))) for n in range(40)]
    frames = [Frame(box.format(scribble.format(x)), "", 1.0) for x in noise]
    for name in ("film.html", "film.gif"):
        with pytest.raises(OSError, match="No space left|Read-only"):
            save_film(disk / name, frames)
    assert load(app, disk / "run").step == 8
    left = {path.name for path in disk.iterdir()}
    assert left <= {"ballast", "run", "a.html"}
