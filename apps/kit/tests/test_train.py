"""A run from start to finish: what lands in its folder, and stopping, resuming and breaking."""

import contextlib
import dataclasses
import importlib.metadata
import importlib.util
import math
import os
import pathlib
import random
import re
import shlex
import shutil
import signal
import sys
import threading
import types
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from zero_app import (
    AbstractConfig,
    App,
    CheckpointError,
    Checkpoints,
    cut_lines,
    EvaluationResult,
    load,
    NonFiniteError,
    Options,
    read_lines,
    RunError,
    train,
    UsageError,
    View,
    with_simulations,
    write_report,
)
from zero_app._run import _reporting
from zero_app._run._origin import origin_of
from zero_app._run._prepare import prepare
from zero_app._run._provenance import LOGS
from zero_app._run._train import _few
from zero_train import PolicyActor, step, template

from .damages import flip
from .nim import shared_loop


pytestmark = pytest.mark.usefixtures("no_charts")


@dataclasses.dataclass(frozen=True)
class Config(AbstractConfig):
    seed: int = 3
    steps: int = 8
    checkpoint_every: int = 4
    evaluate_every: int = 3


CONFIG = Config()
LINES = ("metrics.jsonl", "evaluations.jsonl", "episodes.jsonl")


def evaluation(config, loop, files):
    """Evaluates a player by its distance to the one evaluated before it."""
    evaluated = [row["step"] for row in files.evaluations]

    def evaluate(step, player):
        moved = math.nan
        if evaluated:
            arrays = [
                jax.tree.leaves(eqx.filter(x, eqx.is_array))
                for x in (player, files.player(evaluated[-1]))
            ]
            moved = sum(float(jnp.sum((x - y) ** 2)) for x, y in zip(*arrays, strict=True))
        evaluated.append(step)
        headline = f"it moved by {moved:.3g}" if evaluated[1:] else "nobody before it"
        rows = [{"moved": moved, "of": len(evaluated)}]
        figures, episodes = {"Players": f"{len(evaluated)}"}, [{"of": jnp.arange(len(evaluated))}]
        return EvaluationResult(rows, {"moved": moved}, figures, headline, episodes)

    return evaluate


def page(run):
    return {"lines": f"{len(run.metrics)} steps"}, []


@pytest.fixture(scope="module")
def app():
    """Nim; all runs share one compilation."""
    return App("nim", "Nim.", {"tiny": CONFIG}, lambda config: shared_loop(), evaluation, page)


@pytest.fixture(scope="module")
def go(app):
    """Trains on Nim."""
    return lambda folder, config=CONFIG, **options: train(
        app, config, Options(out=folder, **options)
    )


@pytest.fixture(scope="module")
def undisturbed(go, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "undisturbed"
    go(folder)
    return folder


def lines(folder) -> list[bytes]:
    return [(folder / name).read_bytes() for name in LINES]


def at(step: int, then):
    """A `View.update` that does something once a step is shown."""
    update = View.update

    def patched(view, number, metrics, timings):
        update(view, number, metrics, timings)
        if number == step:
            then()

    return patched


def stop():
    os.kill(os.getpid(), signal.SIGTERM)


def crash():
    raise RuntimeError


def kill():
    raise KeyboardInterrupt


def test_the_folder_holds_the_run(undisturbed):
    files = {path.name for path in undisturbed.iterdir()}
    logs = {f"{name}.jsonl" for name in LOGS}
    assert logs | {"config.json", "checkpoints", "parameters", "report.html"} <= files
    rows = read_lines(undisturbed / "metrics.jsonl")
    assert [row["step"] for row in rows] == list(range(1, 9))
    # Counts are totals; every row is a position or the end of a game.
    assert [row["positions"] + row["games"] for row in rows] == [64 * n for n in range(1, 9)]
    assert len(read_lines(undisturbed / "timings.jsonl")) == 8
    first, second, last = read_lines(undisturbed / "evaluations.jsonl")
    assert first == {"step": 3, "moved": None, "of": 1}
    assert (second["step"], second["of"]) == (6, 2) and second["moved"] > 0
    assert (last["step"], last["of"]) == (8, 3)
    positions = {row["step"]: row["positions"] for row in rows}
    assert read_lines(undisturbed / "episodes.jsonl") == [
        {"step": step, "positions": positions[step], "of": [*range(n + 1)]}
        for n, step in enumerate((3, 6, 8))
    ]
    assert Checkpoints(undisturbed / "checkpoints").steps() == [4, 8]
    # One with every checkpoint, one with every evaluation.
    assert Checkpoints(undisturbed / "parameters", keep=None).steps() == [0, 3, 4, 6, 8]
    assert "<b>8 steps</b>" in (undisturbed / "report.html").read_text()
    assert len(list(undisturbed.glob("*tfevents*"))) == 1


def test_of_many_games_those_of_the_first_openings_are_kept():
    """The games in which the player moves first come before all others."""
    seat, opening = np.divmod(np.arange(3 * 2**16), 3 * 2**15)
    few = _few({"opening": opening, "seat": seat})
    assert np.bincount(seat[few]).tolist() == [2**15] * 2 and opening[few].max() == 2**15 - 1
    assert seat[_few({"return": seat})].size == 2**16


def test_the_folder_says_what_made_the_run(undisturbed):
    (start,) = read_lines(undisturbed / "starts.jsonl")
    assert start["step"] == 0
    assert shlex.split(start["command"])[0] == pathlib.Path(sys.argv[0]).name
    versions = {
        name: importlib.metadata.version(name) for name in ("jax", "zero_train", "zero_app")
    }
    assert start["versions"] == versions
    # None where git does not know the tests, as beside a wheel.
    commit = start["commit"]
    assert commit is None or re.fullmatch("[0-9a-f]{40}(-dirty)?", commit)


def test_no_commit_is_said_of_what_git_does_not_know():
    assert origin_of(dataclasses.dataclass, ["jax"])["commit"] is None
    unknown = origin_of(Config, ["of-nobody"])
    assert unknown["versions"] == {}


def test_the_player_is_the_newest_at_full_strength(app, undisturbed):
    """Its network is that which acts in the last checkpoint: the moving average, and not what the
    gradient acts on. It searches as the planner of the loop, or as often as it is told."""
    trained = load(app, undisturbed)
    state = Checkpoints(undisturbed / "checkpoints").restore(template(trained.loop))
    player: Any = trained.player
    found = jax.tree.leaves(eqx.filter(player.model.evaluate, eqx.is_array))
    for part, same in ((state.agent.target, True), (state.agent.params, False)):
        pairs = zip(found, jax.tree.leaves(part), strict=True)
        assert all((x == y).all() for x, y in pairs) is same
    assert trained.step == 8 and player.planner.root.noise is None
    assert with_simulations(player, None) is player
    more: Any = with_simulations(player, 11)
    assert (player.planner.num_simulations, more.planner.num_simulations) == (8, 11)
    alone = with_simulations(player, 0)
    assert isinstance(alone, PolicyActor) and alone.evaluate is player.model.evaluate
    # Else acting would be compiled once for a game's first state and once for the others.
    assert not any(x.committed for x in found)


def test_a_run_that_was_told_to_stop_resumes_bitwise(
    go, undisturbed, tmp_path, monkeypatch, capsys
):
    with monkeypatch.context() as patch:
        patch.setattr(View, "update", at(5, stop))
        go(tmp_path / "run")
    out = capsys.readouterr().out.splitlines()
    said = "SIGTERM came: saving step 5", "saved at step 5; --resume goes on from there"
    assert [line for line in out if line in said] == [*said]
    # It is measured, though it is not due; the resumed run forgets that.
    assert out[-1].startswith("Players 2; it moved by")
    evaluated = [row["step"] for row in read_lines(tmp_path / "run" / "evaluations.jsonl")]
    assert evaluated == [3, 5]
    assert Checkpoints(tmp_path / "run" / "checkpoints").latest == 5
    assert "<b>5 steps</b>" in (tmp_path / "run" / "report.html").read_text()
    assert not (tmp_path / "run" / "finished").exists()
    # How often it is saved may change on the way. It is finished before its last report is written.
    last = list[bool]()

    def reported(app, folder, **given):
        last.append((folder / "finished").exists())
        write_report(app, folder, **given)

    with monkeypatch.context() as patch:
        patch.setattr(_reporting, "write_report", reported)
        go(tmp_path / "run", dataclasses.replace(CONFIG, checkpoint_every=100), resume=True)
    assert last[-1]
    assert lines(tmp_path / "run") == lines(undisturbed)
    assert [row["step"] for row in read_lines(tmp_path / "run" / "starts.jsonl")] == [0, 5]
    identity = read_lines(tmp_path / "run" / "starts.jsonl")[0]["run"]
    assert (tmp_path / "run" / "finished").read_text() == f"8 steps of run {identity}\n"
    assert "Players 2; it moved by" in capsys.readouterr().out


def test_episodes_that_lack_their_evaluation_are_written_again(
    go, undisturbed, tmp_path, monkeypatch
):
    """As where the process was killed between the two logs."""
    with monkeypatch.context() as patch:
        patch.setattr(View, "update", at(6, stop))
        go(tmp_path / "run")
    cut_lines(tmp_path / "run" / "evaluations.jsonl", 5)
    assert read_lines(tmp_path / "run" / "episodes.jsonl")[-1]["step"] == 6
    go(tmp_path / "run", resume=True)
    assert lines(tmp_path / "run") == lines(undisturbed)


@pytest.mark.parametrize("still, writing", [(0.5, 0.0), (0.0, 0.5)])
def test_checkpoints_that_take_longer_are_further_apart(go, tmp_path, monkeypatch, still, writing):
    """Steps of 7 s, and a save that stops them for half a second, which is 5 % of 10 s, or that
    threads write for so long."""
    clock, saved, save = [0.0], [], Checkpoints.save

    def costly(checkpoints, step, state, **options):
        save(checkpoints, step, state, **options)
        if checkpoints.directory.name == "checkpoints":
            saved.append(step)
            clock[0] += still

    def passes():
        clock[0] += 7

    update = View.update
    monkeypatch.setattr(View, "update", lambda *given: (update(*given), passes()))
    monkeypatch.setattr(Checkpoints, "save", costly)
    took = property(lambda store: writing, lambda store, seconds: None)
    monkeypatch.setattr(Checkpoints, "seconds", took, raising=False)
    monkeypatch.setattr("zero_app._run._pacing.LEAST_REST", 1)
    fake = types.SimpleNamespace(monotonic=lambda: clock[0])
    monkeypatch.setattr("zero_app._run._pacing.time", fake)
    go(tmp_path / "run", dataclasses.replace(CONFIG, checkpoint_every=0))
    # The first step tells how long one takes, and the last is saved in any case.
    assert saved == [0, 1, 3, 5, 7, 8]
    # The first player is kept, those that were evaluated, and the newest two of the others.
    assert Checkpoints(tmp_path / "run" / "parameters").steps() == [0, 3, 5, 6, 7, 8]


def test_a_run_that_crashed_resumes_from_its_checkpoint(go, undisturbed, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(View, "update", at(7, crash))
        with pytest.raises(RuntimeError):
            go(tmp_path / "run")
    assert "<b>7 steps</b>" in (tmp_path / "run" / "report.html").read_text()
    assert Checkpoints(tmp_path / "run" / "checkpoints").latest == 4
    go(tmp_path / "run", resume=True)
    assert lines(tmp_path / "run") == lines(undisturbed)


def test_a_run_that_fails_waits_for_its_checkpoint_where_its_player_is_refused(
    go, tmp_path, monkeypatch
):
    """A thread that still writes would make its folder again after it was removed."""
    waited, finish = [], Checkpoints.finish

    def fail():
        waited.append("failed")
        raise RuntimeError

    def refused(store):
        finish(store)
        waited.append(store.directory.name)
        if store.directory.name == "parameters" and "failed" in waited:
            raise CheckpointError("refused")

    monkeypatch.setattr(View, "update", at(1, fail))
    monkeypatch.setattr(Checkpoints, "finish", refused)
    with pytest.raises(RuntimeError):
        go(tmp_path / "run")
    assert waited[waited.index("failed") :] == ["failed", "parameters", "checkpoints"]


@pytest.mark.parametrize("step, minutes", [(0, 0.0), (5, 1.0), (6, 1.5)])
def test_the_time_is_up(go, undisturbed, tmp_path, monkeypatch, capsys, step, minutes):
    """Before the first step, and after one whose player is measured or is to be measured anyway."""
    update = View.update

    class Timer:
        """Ends the time after the step."""

        daemon = False

        def __init__(self, seconds, end):
            assert 60 * minutes - 60 < seconds <= 60 * minutes or seconds == 0
            self.cancel = lambda: None
            self.start = end if step == 0 else lambda: None
            monkeypatch.setattr(View, "update", at(step, end))

    fake = types.SimpleNamespace(Timer=Timer, TIMEOUT_MAX=threading.TIMEOUT_MAX)
    monkeypatch.setattr("zero_app._run._folder.threading", fake)
    go(tmp_path / "run", max_minutes=minutes)
    monkeypatch.undo()
    assert View.update is update
    out = capsys.readouterr().out
    over = {0.0: "0 minutes are over", 1.0: "1 minute is over", 1.5: "1.5 minutes are over"}
    if step:
        assert f"{over[minutes]}: saving step {step}\nsaved at step {step}; --resume goes" in out
        assert out.splitlines()[-1].startswith("Players 2; it moved by")
    else:
        assert f"{over[minutes]} before the first step; --resume begins the run again" in out
    if step == 6:  # as after the same steps of a run that a signal stopped
        go(tmp_path / "run", resume=True)
        assert lines(tmp_path / "run") == lines(undisturbed)


@pytest.mark.parametrize("then", [kill, crash])
def test_a_run_without_a_checkpoint_begins_again(
    go, undisturbed, tmp_path, monkeypatch, capsys, then
):
    """Killed before its first checkpoint, and before anything of it was logged."""
    with monkeypatch.context() as patch:
        patch.setattr("zero_app._run._prepare.fill", lambda *given: then())
        with pytest.raises(KeyboardInterrupt if then is kill else RuntimeError):
            go(tmp_path / "run")
    if then is crash:  # it cannot begin at all
        assert not (tmp_path / "run").exists()
        return
    assert (tmp_path / "run" / "config.json").exists()
    with pytest.raises(RunError, match="--resume goes on with it"):
        go(tmp_path / "run")
    with pytest.raises(RunError, match=r"seed 4 \(stored: 3\)"):
        go(tmp_path / "run", Config(seed=4), resume=True)
    capsys.readouterr()
    go(tmp_path / "run", resume=True)
    said = [line for line in capsys.readouterr().out.splitlines() if "begins again" in line]
    assert len(said) == 1 and "no checkpoint" in said[0]
    assert lines(tmp_path / "run") == lines(undisturbed)
    assert not list((tmp_path / "run").glob("before*"))


def test_a_signal_is_heard_while_compiling(go, undisturbed, tmp_path, monkeypatch, capsys):
    """The main thread does not wait for the first games; nothing is there to be saved yet."""
    forever = threading.Event()

    def first_games(*given):
        os.kill(os.getpid(), signal.SIGINT)
        forever.wait()

    with monkeypatch.context() as patch:
        patch.setattr("zero_app._run._prepare.fill", first_games)
        go(tmp_path / "run")
    forever.set()
    assert "SIGINT came before the first step; --resume begins" in capsys.readouterr().out
    go(tmp_path / "run", resume=True)
    assert lines(tmp_path / "run") == lines(undisturbed)


def test_a_signal_between_compiling_and_the_first_step_is_heard(
    go, undisturbed, tmp_path, monkeypatch, capsys
):
    """The first state and its player are saved. Nothing is learned yet that could be measured."""
    with monkeypatch.context() as patch:
        patch.setattr("zero_app._run._train.prepare", lambda *given: (prepare(*given), stop())[0])
        assert go(tmp_path / "run")
    assert capsys.readouterr().out.splitlines()[-3:] == [
        "SIGTERM came: saving step 0",
        "saved at step 0; --resume goes on from there",
        "nothing is learned yet, so nothing is evaluated",
    ]
    for store in ("checkpoints", "parameters"):
        assert Checkpoints(tmp_path / "run" / store).steps() == [0]
    go(tmp_path / "run", resume=True)
    assert lines(tmp_path / "run") == lines(undisturbed)


@pytest.mark.parametrize("step, again", [(3, False), (8, False), (3, True)])
def test_an_evaluation_that_a_signal_interrupted_is_done_again(
    app, go, undisturbed, tmp_path, monkeypatch, capsys, step, again
):
    """The main thread waits for it for a while only, and the step before it is saved first. A
    second signal ends the process at once."""
    monkeypatch.setattr("zero_app._run._train._AFTER_SIGNAL", 600 if again else 0.2)
    forever = threading.Event()

    def interrupted(config, loop, files):
        evaluate = evaluation(config, loop, files)

        def until(number, player):
            if number == step:
                stop()
                forever.wait()
            return evaluate(number, player)

        return until

    if again:
        note = View.note
        then = lambda view, text: (note(view, text), text.startswith("saved") and stop())
        monkeypatch.setattr(View, "note", then)
    ends = pytest.raises(KeyboardInterrupt) if again else contextlib.nullcontext()
    with ends:
        interrupting = dataclasses.replace(app, evaluation=interrupted, called_by="zero")
        train(interrupting, CONFIG, Options(out=tmp_path / "run"))
    monkeypatch.undo()
    out = capsys.readouterr().out
    assert f"SIGTERM came: saving step {step}\nsaved at step {step}" in out
    later = f"(takes more than 0.2 s); `zero eval {tmp_path / 'run'}` measures the player"
    assert again or f"the evaluation is left out {later}" in out
    assert Checkpoints(tmp_path / "run" / "checkpoints").latest == step
    go(tmp_path / "run", resume=True)
    forever.set()
    assert lines(tmp_path / "run") == lines(undisturbed)


def test_what_a_run_without_checkpoints_had_written_is_set_aside(go, undisturbed, tmp_path, capsys):
    shutil.copytree(undisturbed, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    go(tmp_path / "run", resume=True)
    assert "what it had written is in before-1" in capsys.readouterr().out
    for folder in (tmp_path / "run", tmp_path / "run" / "before-1"):
        assert lines(folder) == lines(undisturbed)
        assert Checkpoints(folder / "parameters", keep=None).steps() == [0, 3, 4, 6, 8]


def test_a_run_whose_last_checkpoint_is_damaged_goes_on_from_the_one_before(
    go, undisturbed, tmp_path, capsys
):
    shutil.copytree(undisturbed, tmp_path / "run")
    manifest = tmp_path / "run" / "checkpoints" / "00000008" / "manifest.json"
    manifest.write_bytes(manifest.read_bytes().replace(b"fry", b"frz"))
    go(tmp_path / "run", resume=True)
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "00000008 is damaged" in said and "checkpoint 4 is" in said
    assert lines(tmp_path / "run") == lines(undisturbed)
    checkpoints = Checkpoints(tmp_path / "run" / "checkpoints")
    assert checkpoints.steps() == [4, 8]
    go(tmp_path / "run", resume=True)  # it was saved anew
    assert capsys.readouterr().err == ""


def test_parameters_that_were_not_saved_with_their_checkpoint_are_saved_later(
    go, undisturbed, tmp_path
):
    """The run was killed between the two."""
    shutil.copytree(undisturbed, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "parameters" / "00000008")
    go(tmp_path / "run", resume=True)
    assert Checkpoints(tmp_path / "run" / "parameters", keep=None).steps() == [0, 3, 4, 6, 8]


def _without_the_first_line(log: pathlib.Path) -> None:
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[1:]))


def _with_another_digit(log: pathlib.Path) -> None:
    log.write_text(re.sub(r"\d", lambda m: "2" if m[0] == "1" else "1", log.read_text(), count=1))


@pytest.mark.parametrize(
    "damage", [pathlib.Path.unlink, _without_the_first_line, _with_another_digit]
)
def test_a_log_that_is_not_what_was_written_is_named(
    app, go, undisturbed, tmp_path, capsys, damage
):
    """Also where each of its lines can be read. What is logged later is as if it were whole."""
    mine = tmp_path / "run"
    shutil.copytree(undisturbed, mine)
    shutil.rmtree(mine / "checkpoints" / "00000008")
    (mine / "finished").unlink()
    logs = [mine / f"{name}.jsonl" for name in LOGS]
    for log in logs:
        damage(log)
    go(mine, resume=True)
    said = capsys.readouterr().err.splitlines()
    assert [line for line in said if f"{mine}/" in line and "up to step 4" in line] == said
    assert all(f"{log} is damaged" in line for log, line in zip(logs, said, strict=True))
    later = [lines(folder)[0].splitlines()[-4:] for folder in (mine, undisturbed)]
    assert later[0] == later[1]
    assert eqx.tree_equal(load(app, mine).player, load(app, undisturbed).player)


def test_a_damaged_player_is_saved_again(go, app, undisturbed, tmp_path, capsys):
    shutil.copytree(undisturbed, tmp_path / "run")
    file = max((tmp_path / "run" / "parameters" / "00000008" / "arrays").rglob("*/*"))
    flip(file, random.Random(0))
    go(tmp_path / "run", resume=True)
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "00000008 is damaged: arrays/" in said
    assert "It is saved again" in said
    found, wanted = (load(app, folder) for folder in (tmp_path / "run", undisturbed))
    assert (found.step, capsys.readouterr().err) == (8, "")
    assert eqx.tree_equal(found.player, wanted.player)


def test_nan_stops_the_run_and_keeps_the_last_checkpoint(go, tmp_path, monkeypatch):
    def poisoned(loop, state):
        state, metrics = step(loop, state)
        if int(state.agent.updates) > 6 * 2:  # 2 updates a step
            metrics = metrics | {"value_loss": jnp.asarray(math.nan)}
        return state, metrics

    def full(own, folder):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("zero_app._run._train.step", poisoned)
    # It must not hide why the run ended.
    monkeypatch.setattr("zero_app._run._reporting.write_report", full)
    with pytest.raises(NonFiniteError, match=r"7.*value_loss"):
        go(tmp_path / "run")
    assert Checkpoints(tmp_path / "run" / "checkpoints").latest == 4
    assert read_lines(tmp_path / "run" / "metrics.jsonl")[-1]["step"] == 6


def test_refusals_write_nothing(go, undisturbed, tmp_path, monkeypatch):
    before = sorted(path.name for path in undisturbed.rglob("*"))
    with pytest.raises(RunError, match="holds a run already"):
        go(undisturbed)
    with pytest.raises(RunError, match=r"seed 4 \(stored: 3\)"):
        go(undisturbed, Config(seed=4), resume=True)
    assert sorted(path.name for path in undisturbed.rglob("*")) == before
    for name in ("steps", "evaluate_every"):
        with pytest.raises(UsageError, match=f"--{name.replace('_', '-')} 0 was given; give at le"):
            go(tmp_path / "run", dataclasses.replace(CONFIG, **{name: 0}))
    for name, value, said in (
        ("init", "nowhere", "--init nowhere: nowhere holds no run .no config.json.; give the"),
        ("actor_devices", 8, "--actor-devices 8 of 1 device.s. was given; one must be left"),
    ):
        with pytest.raises(UsageError, match=said):
            go(tmp_path / "run", dataclasses.replace(CONFIG, **{name: value}))
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "wandb" else find(name)
    )
    with pytest.raises(UsageError, match="--wandb needs .* `uv run --extra wandb`"):
        go(tmp_path / "run", wandb=True)
    monkeypatch.setattr(os, "sysconf", lambda name: 4)  # pages, and bytes in each
    with pytest.raises(UsageError, match="of this run take 0 GB, and there are 0; give fewer"):
        go(tmp_path / "run")
    assert not (tmp_path / "run").exists()
