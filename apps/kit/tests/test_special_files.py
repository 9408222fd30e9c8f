"""Files that are no ordinary ones: nothing waits for them, fills the memory or replaces them."""

import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
import sys
import types
from collections.abc import Callable
from typing import Any

import jax
import pytest

from zero_app import (
    App,
    CheckpointError,
    Checkpoints,
    Frame,
    JsonLines,
    load,
    ratings,
    read_lines,
    Results,
    RunError,
    RunFolder,
    UsageError,
    WandbSink,
    write_report,
)
from zero_app._run._compare import Compare
from zero_app._run._disk import write_whole
from zero_app._run._film import check_path, FILMS, kept_films, save_film
from zero_app._run._lines import read_json
from zero_app._run._players import save_player, which_player
from zero_app._run._prepare import _LastTime
from zero_app._run._provenance import check_logs
from zero_app._run._stored import stored_config

from .damages import bounded, SPECIAL
from .test_which_player import APP, Config, saved_run


_ROW = {"step": 3, "score": 0.5, "games": 4, "seconds": 1.0}
_LINES = ("metrics", "timings", "evaluations", "starts", "episodes")
_RATING = {"name": "step 3", "step": 3, "elo": 1.0, "se": 1.0}


@pytest.fixture(scope="module")
def bare(tmp_path_factory) -> pathlib.Path:
    """The folder of a run with a player."""
    return saved_run(tmp_path_factory.mktemp("runs") / "run", [3])


@pytest.fixture(scope="module")
def trained(bare) -> Any:
    return load(APP, bare)


@pytest.fixture
def whole(bare, tmp_path, monkeypatch) -> pathlib.Path:
    """The folder of a run with every file that one may have beside its players."""
    run = tmp_path / "whole" / "run"
    run.mkdir(parents=True)
    shutil.copy(bare / "config.json", run)
    monkeypatch.setattr("zero_app._run._chart.draw", lambda series, **_: "<svg/>")
    for name in (*_LINES, "metrics.00001"):
        row = _ROW | {"step": 2} if name == "metrics.00001" else _ROW
        (run / f"{name}.jsonl").write_text(json.dumps(row) + "\n")
    (run / "elo.json").write_text(json.dumps({"players": [_RATING]}))
    (run / FILMS).write_text("{}")
    for name in ("finished", "report.html", "wandb.id", "first_steps.json", "results.json"):
        (run / name).write_text("{}")
    shutil.copytree(run, run.with_name("other"))
    fake = types.SimpleNamespace(define_metric=lambda *names, **options: None)
    wandb = types.SimpleNamespace(init=lambda **settings: fake)
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    return run


def _resume(folder: pathlib.Path) -> None:
    config = dataclasses.asdict(Config())
    with RunFolder.create(folder, config, resume=True) as opened:
        check_logs(folder, tell=lambda line: None)
        opened.rewind(2)
        opened.log(3, {"loss": 1.0}, {"seconds": 1.0})
        opened.write("finished", "")
    if folder.joinpath("metrics.jsonl").stat().st_size:
        with RunFolder(folder, {}) as opened:
            opened.begin_again()


def _last_time(folder: pathlib.Path) -> None:
    before = jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue]
    jax.config.update("jax_compilation_cache_dir", str(folder))
    try:
        time = _LastTime(Config())
        assert time.seconds is None
        time.keep(1.0)
    finally:
        jax.config.update("jax_compilation_cache_dir", before)


#: Whatever reads or writes files in the folder of a run.
USES: dict[str, Callable[[pathlib.Path], object]] = {
    "config": lambda folder: stored_config(Config, folder, "nim"),
    "lines": lambda folder: [read_lines(folder / f"{name}.jsonl") for name in _LINES],
    "ratings": ratings,
    "films": kept_films,
    "best": lambda folder: which_player(f"{folder}@best"),
    "report": lambda folder: write_report(APP, folder),
    "compare": lambda folder: Compare((str(folder), str(folder.with_name("other"))), out=_OUT)(APP),
    "results": lambda folder: Results().write(folder / "results.json"),
    "first steps": _last_time,
    "sink": lambda folder: WandbSink("project", folder, {}),
    "resume": _resume,
}
_OUT = pathlib.Path("compare.html")
_LOG = ("lines", "report", "compare", "resume")
#: The files of a run, with what reads or writes each of them, and refuses it where it is special.
FILES = {
    "config.json": ("config", "report", "compare", "resume"),
    **{f"{name}.jsonl": _LOG for name in (*_LINES, "metrics.00001")},
    "episodes.jsonl": ("lines", "compare", "resume"),
    "elo.json": ("ratings", "best"),
    FILMS: ("films", "report"),
    "finished": ("resume",),
    "report.html": ("report",),
    "results.json": ("results",),
    "wandb.id": ("sink",),
    "first_steps.json": ("first steps",),
}


def _tried(use: Callable[[], object]) -> str:
    """What is said of errors, in one line."""
    said = ""
    with bounded():
        try:
            use()
        except (UsageError, RunError, CheckpointError) as e:
            said = str(e)
        except OSError as e:  # which commands make one line of
            assert e.filename and e.strerror
            said = f"{e.filename} cannot be used ({e.strerror})"
    assert "\n" not in said
    return said


@pytest.mark.parametrize("kind", SPECIAL)
def test_every_use_of_every_file_of_a_run_ends_with_one_line_or_does_well(
    whole, tmp_path, monkeypatch, capsys, kind
):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "copy" / "run"
    for file, name in ((file, name) for file, names in FILES.items() for name in names):
        shutil.copytree(whole.parent, folder.parent)
        (folder / file).unlink()
        SPECIAL[kind](folder / file)
        before = os.lstat(folder / file).st_mode
        said = _tried(lambda name=name: USES[name](folder))
        # What is written anew may be long, and need not be there; what only saves time is let be.
        written = file in ("finished", "report.html")
        harmless = ("nowhere", "loop") if not written else ("nowhere", "huge")
        assert file in said if said else kind in harmless or name == "first steps", (file, name)
        if kind != "nowhere" and kind != "huge":
            assert os.lstat(folder / file).st_mode == before, (file, name)
        shutil.rmtree(folder.parent)


def _log(path: pathlib.Path) -> None:
    with contextlib.closing(JsonLines(path)) as lines:
        lines.log(1, {})


@pytest.mark.parametrize("kind", SPECIAL)
def test_what_is_written_replaces_only_files(trained, tmp_path, kind):
    frame = Frame('<svg viewBox="0 0 8 8" xmlns="http://www.w3.org/2000/svg"/>', "", 1.0)
    uses: dict[str, Callable[[pathlib.Path], object]] = {
        "a.html": lambda path: save_film(path, [frame]),
        "b.html": check_path,
        "a.safetensors": lambda path: save_player(path, APP, trained),
        "a.jsonl": _log,
        "a.json": lambda path: Results().write(path),
        "a": lambda path: write_whole(path, "x"),
        "checkpoints": lambda path: Checkpoints(path).save(1, jax.numpy.zeros(2)),
    }
    for name, use in uses.items():
        path = tmp_path / name
        SPECIAL[kind](path)
        before = os.lstat(path)
        said = _tried(lambda use=use, path=path: use(path))
        if kind not in ("huge", "nowhere") and (kind, name) != ("folder", "checkpoints"):
            assert name in said, name
            assert os.lstat(path).st_mode == before.st_mode, name
        elif kind == "nowhere" and name not in ("b.html", "checkpoints"):
            assert not said and path.is_symlink() and path.stat().st_size
            path.resolve().unlink()


@pytest.mark.parametrize("kind", SPECIAL)
def test_a_file_that_is_to_be_read_is_one(tmp_path, kind):
    path = tmp_path / "there"
    SPECIAL[kind](path)
    app = App("nim", "Nim.", {"tiny": Config()}, lambda config: pytest.fail())
    for use in (read_json, Results.read, lambda path: load(app, path)):
        assert str(path) in _tried(lambda use=use: use(path))


def test_what_was_left_of_an_earlier_write_is_never_written_into(tmp_path):
    """It may be a pipe, or a link to what belongs to somebody."""
    other, path, leftover = (tmp_path / name for name in ("other", "a", ".a.tmp"))
    other.write_text("mine")
    for make in (os.mkfifo, lambda path: path.symlink_to(other)):
        make(leftover)
        with bounded():
            write_whole(path, "x")
        assert path.read_text() == "x" and other.read_text() == "mine"
        assert not os.path.lexists(leftover)


def test_a_link_stays_one_and_its_target_is_written(tmp_path):
    (tmp_path / "there").mkdir()
    target, link = tmp_path / "there" / "target", tmp_path / "link"
    link.symlink_to(target)
    for content in ("x", "y"):
        write_whole(link, content)
        assert link.is_symlink() and target.read_text() == content
    _log(link)
    assert link.is_symlink() and target.read_text().startswith("y{")
    assert [path.name for path in target.parent.iterdir()] == ["target"]
