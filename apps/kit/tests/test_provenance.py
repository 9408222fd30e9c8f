"""A run takes nothing for its own that another one wrote, or that is not what it wrote."""

import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import numpy as np
import pytest

from zero_app import (
    AbstractConfig,
    App,
    CheckpointError,
    Checkpoints,
    EvaluationResult,
    load,
    Options,
    read_lines,
    read_of_run,
    run,
    RunError,
    RunFolder,
    train,
    View,
)
from zero_app._run._film import FILMS, Frame, kept_films, pack
from zero_app._run._measures import ratings

from .nim import shared_loop


pytestmark = pytest.mark.usefixtures("no_charts")


@dataclasses.dataclass(frozen=True)
class Config(AbstractConfig):
    seed: int = 3
    steps: int = 4
    checkpoint_every: int = 2
    evaluate_every: int = 2


CONFIG = Config()
SAVED = [
    f"{store}/{step:08d}"
    for store, steps in (("checkpoints", (2, 4)), ("parameters", (0, 2, 4)))
    for step in steps
]


@pytest.fixture(scope="module")
def app() -> App:
    """Nim; all runs share one compilation."""
    measured = EvaluationResult([{"score": 0.5}], {}, {})
    evaluation = lambda config, loop, files: lambda step, player: measured
    return App("nim", "Nim.", {"tiny": CONFIG}, lambda config: shared_loop(), evaluation)


@pytest.fixture(scope="module")
def go(app) -> Callable[..., Any]:
    return lambda folder, config=CONFIG, **options: train(
        app, config, Options(out=folder, **options)
    )


@pytest.fixture(scope="module")
def runs(go, tmp_path_factory) -> pathlib.Path:
    """Two runs of the same configuration: what is of one fits into the other."""
    folder = tmp_path_factory.mktemp("runs")
    for name in ("mine", "twin"):
        go(folder / name)
    return folder


@pytest.fixture
def mine(runs, tmp_path) -> pathlib.Path:
    """A copy of the run, which may be changed, in another place."""
    return shutil.copytree(runs / "mine", tmp_path / "mine")


def identity(folder: pathlib.Path) -> str:
    return read_lines(folder / "starts.jsonl")[0]["run"]


def contents(folder: pathlib.Path) -> dict[str, bytes]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@contextlib.contextmanager
def refused(folder: pathlib.Path, *said: str) -> Iterator[None]:
    """One line says so, and nothing changes."""
    before = contents(folder)
    with pytest.raises((RunError, CheckpointError)) as raised:
        yield
    assert "\n" not in str(raised.value)
    for part in said:
        assert part in str(raised.value)
    assert contents(folder) == before


def put(source: pathlib.Path, target: pathlib.Path) -> None:
    shutil.rmtree(target)
    shutil.copytree(source, target)


def readers(app: App, folder: pathlib.Path, out: pathlib.Path) -> list[Callable[[], object]]:
    return [
        lambda: load(app, folder),
        lambda: load(app, f"{folder}@4"),
        lambda: load(app, f"{folder}@best"),
        lambda: run(app, ["report", str(folder)]),
        lambda: run(app, ["compare", str(folder), str(folder), f"--out={out / 'a.html'}"]),
    ]


def test_what_another_run_saved_is_refused(app, go, runs, mine):
    """Also what would not be loaded now."""
    theirs = runs / "twin"
    for name in SAVED:
        put(theirs / name, mine / name)
        said = f"{mine / name} is of run {identity(theirs)}, and {mine} of run {identity(mine)}"
        with refused(mine, said, "remove it"):
            go(mine, resume=True)
        for read in readers(app, mine, mine.parent):
            with refused(mine, said):
                read()
        put(runs / "mine" / name, mine / name)
    load(app, mine)


def test_another_configuration_than_that_of_the_checkpoints_is_refused(app, go, mine, capsys):
    file = mine / "config.json"
    file.write_text(file.read_text().replace('"seed": 3', '"seed": 4'))
    said = f"{file} is not what {mine}/checkpoints/00000004 was saved with: seed 4 (stored: 3)."
    for config in (CONFIG, Config(seed=4)):
        with refused(mine, said, "Put the stored values back"):
            go(mine, config, resume=True)
    # It may well be played with other values.
    for read in readers(app, mine, mine.parent)[:4]:
        capsys.readouterr()
        read()
        assert capsys.readouterr().err == f"{said}\n"
    # A run may be resumed with other intervals between its checkpoints.
    file.write_text(
        file.read_text().replace('"seed": 4', '"seed": 3').replace('t_every": 2', 't_every": 0')
    )
    assert load(app, mine).config.checkpoint_every == 0 and capsys.readouterr().err == ""


def _remove(path: pathlib.Path) -> None:
    shutil.rmtree(path)


def _break(path: pathlib.Path) -> None:
    shutil.rmtree(path)
    path.symlink_to(path.with_name("gone"))


def _shadow(path: pathlib.Path) -> None:
    shutil.rmtree(path)
    path.write_text("")


@pytest.mark.parametrize(
    "damage, checkpoints", [(_remove, True), (_break, True), (_shadow, False), (_remove, False)]
)
def test_the_newest_that_is_missing_is_said_and_made_again(
    app, go, runs, mine, damage, checkpoints, capsys
):
    """Whether the player, the checkpoint, or both. Without checkpoints `finished` says what the
    newest was."""
    if not checkpoints:
        shutil.rmtree(mine / "checkpoints")
    damage(mine / "parameters" / "00000004")
    capsys.readouterr()
    assert load(app, mine).step == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and str(mine / "parameters" / "00000004") in said
    if not checkpoints:
        return
    damage(mine / "checkpoints" / "00000004")
    go(mine, resume=True)
    said = capsys.readouterr().err
    assert "checkpoint 4 is missing" in said or f"{mine}/checkpoints/00000004 is damaged" in said
    assert contents(mine)["metrics.jsonl"] == contents(runs / "mine")["metrics.jsonl"]
    assert Checkpoints(mine / "checkpoints").steps() == [2, 4]
    assert eqx.tree_equal(load(app, mine).player, load(app, runs / "mine").player)
    assert capsys.readouterr().err == ""


def _each_twice(lines: list[str]) -> tuple[list[str], int]:
    return [line for line in lines for _ in range(2)], 2


def _all_twice(lines: list[str]) -> tuple[list[str], int]:
    return 2 * lines, len(lines) + 1


def _last_first(lines: list[str]) -> tuple[list[str], int]:
    return lines[::-1], 2


@pytest.mark.parametrize("damage", [_each_twice, _all_twice, _last_first])
@pytest.mark.parametrize("name", ["metrics", "timings", "evaluations"])
def test_lines_that_are_repeated_or_in_disorder_are_named(app, go, mine, damage, name):
    log = mine / f"{name}.jsonl"
    lines, number = damage(log.read_text().splitlines(keepends=True))
    log.write_text("".join(lines))
    with refused(mine, f"line {number} of {log} "):
        go(mine, resume=True)
    for read in readers(app, mine, mine.parent)[3 - (name == "evaluations") :]:
        with refused(mine, f"line {number} of {log} "):
            read()


def test_what_else_another_run_wrote_is_not_taken(runs, mine, capsys, app):
    """Ratings, films, and the word that all steps are done."""
    theirs, packed = runs / "twin", pack([Frame("<svg/>", "", 0.5)])
    rows, films = [{"name": "step 2", "step": 2, "elo": 1.0, "se": 0.0}], {"First": packed}
    for folder in (mine, theirs):
        with RunFolder.create(folder, dataclasses.asdict(CONFIG), resume=True) as opened:
            opened.write_json("elo.json", {"players": rows})
            opened.write_json(FILMS, {"films": films})
        assert ratings(folder) == rows and len(kept_films(folder)) == 1
    for name, read in (("elo.json", ratings), (FILMS, kept_films)):
        shutil.copy(theirs / name, mine / name)
        said = f"{mine / name} is of run {identity(theirs)}, and {mine} of run {identity(mine)}"
        with refused(mine, said):
            read(mine)
        assert read_of_run(theirs / name)
    (mine / "finished").write_text(f"9 steps of run {identity(theirs)}\n")
    load(app, mine)
    assert capsys.readouterr().err == ""


def _of_another_version(store: str) -> Callable[[pathlib.Path], object]:
    def save(folder: pathlib.Path) -> None:
        saved = Checkpoints(folder / store)
        saved.save(4, {"other": np.zeros(3)}, about=saved.about(4))

    return save


def _renamed(store: str) -> Callable[[pathlib.Path], object]:
    return lambda folder: (folder / store / "00000004").rename(folder / store / "00000009")


def _all_damaged(folder: pathlib.Path) -> None:
    for file in folder.glob("checkpoints/*/manifest.json"):
        file.write_text("{}")


#: What refuses a run to go on, in the order in which it is looked at, and what is said then.
REFUSALS: dict[str, Callable[[pathlib.Path], object]] = {
    "there is no other": _all_damaged,
    "00000004 is a checkpoint of another": _of_another_version("checkpoints"),
    "checkpoints/00000009 was saved as step 4; give": _renamed("checkpoints"),
    "parameters/00000009 was saved as step 4; give": _renamed("parameters"),
    "it has ['other'] where": _of_another_version("parameters"),
    "metrics.jsonl has step 1 after step 4": lambda folder: (folder / "metrics.jsonl").write_text(
        2 * (folder / "metrics.jsonl").read_text()
    ),
    "evaluations.jsonl has no kind": lambda folder: None,
    ".config.json.tmp is a folder; move it away": lambda folder: (
        folder / ".config.json.tmp"
    ).mkdir(),
}


@pytest.mark.parametrize("said", REFUSALS)
def test_a_refused_resumption_changes_nothing(app, mine, said):
    """Not what may differ in the configuration either, nor what it would write again."""
    REFUSALS[said](mine)
    (mine / "finished").write_text(f"9 steps of run {identity(mine)}\n")
    (mine / "timings.jsonl").unlink()
    if "no kind" in said:
        kinds = lambda config, loop, files: files.evaluations[0]["kind"]
        app = dataclasses.replace(app, evaluation=kinds)
    with refused(mine, said):
        train(app, Config(checkpoint_every=7), Options(out=mine, resume=True))


@pytest.mark.slow
def test_a_run_of_an_older_version_goes_on_and_gets_an_identity(app, go, runs, tmp_path, capsys):
    """Its starts.jsonl and its manifests name none."""
    older = tmp_path / "older"
    with pytest.MonkeyPatch.context() as patch:
        save = Checkpoints.save

        def nameless(store, step, state, *, about, wait):
            about = {name: value for name, value in about.items() if name != "run"}
            save(store, step, state, about=about, wait=wait)

        patch.setattr(Checkpoints, "save", nameless)
        patch.setattr(RunFolder, "log_start", lambda own, step, _: own._append("starts", step, {}))
        go(older)
    shutil.rmtree(older / "checkpoints" / "00000004")
    (older / "finished").write_text("4 steps\n")
    capsys.readouterr()
    assert load(app, older).step == 4
    go(older, resume=True)
    assert "checkpoint 4 is missing" in capsys.readouterr().err
    assert contents(older)["metrics.jsonl"] == contents(runs / "mine")["metrics.jsonl"]
    abouts = [Checkpoints(older / "checkpoints").about(step) for step in (2, 4)]
    named = read_lines(older / "starts.jsonl")[1]["run"]
    assert [about.get("run") for about in abouts] == [None, named]
    load(app, older)
    put(runs / "twin" / SAVED[0], older / SAVED[0])
    with refused(older, f"{older / SAVED[0]} is of run {identity(runs / 'twin')}"):
        go(older, resume=True)


def test_starts_of_another_run_are_named(app, go, runs, mine):
    """And not each checkpoint, all of which are of one run."""
    shutil.copy(runs / "twin" / "starts.jsonl", mine)
    said = f"{mine / 'starts.jsonl'} is of run {identity(runs / 'twin')}, and all that is saved in"
    for use in (lambda: go(mine, resume=True), *readers(app, mine, mine.parent)):
        with refused(mine, said, "put back the one that was there, or remove it"):
            use()


def test_an_identity_that_is_no_text_is_named(app, go, mine):
    starts = mine / "starts.jsonl"
    starts.write_text(starts.read_text().replace(f'"{identity(mine)}"', "[1]"))
    for use in (lambda: go(mine, resume=True), *readers(app, mine, mine.parent)):
        with refused(mine, f"line 1 of {starts} has [1] as its run, not a text"):
            use()


def test_where_starts_is_lost_checkpoints_say_whose_the_folder_is(app, go, runs, mine):
    before = identity(mine)
    (mine / "starts.jsonl").unlink()
    go(mine, resume=True)
    assert identity(mine) == before
    load(app, mine)
    put(runs / "twin" / SAVED[-1], mine / SAVED[-1])
    with refused(mine, f"{mine / SAVED[-1]} is of run {identity(runs / 'twin')}"):
        go(mine, resume=True)


def test_only_one_process_trains_in_a_folder(go, runs, tmp_path, monkeypatch):
    """Another one names it and leaves everything as it is, and the first one goes on."""
    folder, tried, update = tmp_path / "run", [], View.update

    def shown(view, step, metrics, timings):
        update(view, step, metrics, timings)
        if step == 3:
            with pytest.raises(RunError, match=rf"Process {os.getpid()} on .* trains in {folder};"):
                go(folder, resume=True)
            tried.append(json.loads((folder / "lock").read_text())["process"])

    monkeypatch.setattr(View, "update", shown)
    go(folder)
    assert tried == [os.getpid()] and not (folder / "lock").exists()
    assert contents(folder)["metrics.jsonl"] == contents(runs / "mine")["metrics.jsonl"]
