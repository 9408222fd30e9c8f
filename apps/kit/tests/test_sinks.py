import errno
import struct
import sys
import threading
import time
import types
from typing import Any

import jax.numpy as jnp
import pytest
from tensorboardX.proto import event_pb2

from zero_app import (
    BackgroundSink,
    MlflowSink,
    Options,
    RunError,
    TensorBoardSink,
    UsageError,
    WandbSink,
)
from zero_app._run._sinks import logging_to_sinks


_Event = event_pb2.__dict__["Event"]  # made at import; type checkers do not see it


def _events(folder) -> list:
    """Reads event files: length, checksum of it, data, checksum of that, and again."""
    events = []
    for path in sorted(folder.iterdir()):
        data = path.read_bytes()
        while data:
            (size,) = struct.unpack("<Q", data[:8])
            events.append(_Event.FromString(data[12 : 12 + size]))
            data = data[16 + size :]
    return events


def _scalars(events) -> list[tuple[int, str, float]]:
    return [(e.step, v.tag, v.simple_value) for e in events for v in e.summary.value]


def test_tensorboard_gets_every_scalar(tmp_path):
    sink = TensorBoardSink(tmp_path / "events")
    sink.log(3, {"loss": jnp.asarray(0.5), "games": 7})
    sink.close()
    assert _scalars(_events(tmp_path / "events")) == [(3, "loss", 0.5), (3, "games", 7.0)]
    assert all(event.wall_time > 0 for event in _events(tmp_path / "events"))


def test_a_resumed_run_purges_what_it_writes_again(tmp_path):
    TensorBoardSink(tmp_path, resumed_at=20).close()
    starts = [e for e in _events(tmp_path) if e.HasField("session_log")]
    assert [e.step for e in starts] == [21]


@pytest.mark.parametrize("resume, done, told", [(True, 0, [1]), (True, 7, [8]), (False, 0, [])])
def test_a_run_resumed_from_its_beginning_purges_too(tmp_path, unhooked, resume, done, told):
    folder: Any = types.SimpleNamespace(path=tmp_path, config={})
    with logging_to_sinks(folder, done, "nim", Options(out=tmp_path, resume=resume)):
        pass
    starts = [e for e in _events(tmp_path) if e.HasField("session_log")]
    assert [e.step for e in starts] == told


def test_a_log_that_has_grown_goes_on_in_another_file(tmp_path, monkeypatch):
    monkeypatch.setattr("zero_app._run._sinks.PART", 100)
    sink = TensorBoardSink(tmp_path)
    for step in range(40):
        sink.log(step, {"loss": float(step)})
    sink.close()
    files = list(tmp_path.iterdir())
    assert len(files) > 3 and all("tfevents" in path.name for path in files)
    # TensorBoard reads the files of a run in the order of their names.
    assert _scalars(_events(tmp_path)) == [(step, "loss", step) for step in range(40)]


def _full(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_is_a_complaint_and_no_endless_wait(tmp_path, monkeypatch):
    sink = TensorBoardSink(tmp_path)
    monkeypatch.setattr("tensorboardX.record_writer.RecordWriter.write", _full)
    for step in range(20):
        with pytest.raises(RunError, match=f"{tmp_path.name} cannot be written: No space left"):
            sink.log(step, {"loss": 1.0})
    sink.close()
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="file cannot be written: File exists"):
        TensorBoardSink(tmp_path / "file")


class _FakeRun:
    def __init__(self, **settings):
        self.settings, self.sent, self.finished, self.axes = settings, [], False, []

    def define_metric(self, name, step_metric=None):
        self.axes.append((name, step_metric))

    def log(self, metrics):
        self.sent.append(metrics)

    def finish(self):
        self.finished = True


@pytest.fixture
def wandb_runs(monkeypatch) -> list:
    """The runs of a Weights & Biases that is not installed."""
    runs = []
    fake = types.ModuleType("wandb")
    fake.__dict__["init"] = lambda **settings: runs.append(_FakeRun(**settings)) or runs[-1]
    monkeypatch.setitem(sys.modules, "wandb", fake)
    return runs


def test_wandb_resumes_the_folders_own_run_only(tmp_path, wandb_runs):
    sink = WandbSink("othello", tmp_path, {"seed": 1})
    sink.log(2, {"loss": jnp.asarray(0.25)})
    sink.close()
    (tmp_path / "other").mkdir()
    for folder in (tmp_path, tmp_path / "other"):
        WandbSink("othello", folder, {"seed": 1}).close()
    first, again, other = (run.settings["id"] for run in wandb_runs)
    assert first == again != other and wandb_runs[0].settings["resume"] == "allow"
    assert wandb_runs[0].settings["name"] == tmp_path.name
    assert wandb_runs[0].sent == [{"training_step": 2, "loss": 0.25}] and wandb_runs[0].finished


def test_wandb_keeps_steps_that_are_logged_again(tmp_path, wandb_runs):
    """Its own steps only grow, and it drops what is logged at an earlier one."""
    for steps in ([1, 2, 3], [2, 3]):
        sink = WandbSink("othello", tmp_path, {})
        for step in steps:
            sink.log(step, {"elo": step})
    assert all(("*", "training_step") in run.axes for run in wandb_runs)
    sent = [row["training_step"] for run in wandb_runs for row in run.sent]
    assert sent == [1, 2, 3, 2, 3]


class _FakeMlflow:
    """Its server, which outlives a process."""

    tracking_uri = "sqlite:///mlflow.db"

    def __init__(self):
        self.experiments: list[str] = []
        self.runs: dict[str, dict] = {}

    def get_experiment_by_name(self, name):
        known = name in self.experiments
        return types.SimpleNamespace(experiment_id=name) if known else None

    def create_experiment(self, name):
        self.experiments.append(name)
        return name

    def create_run(self, where, run_name):
        assert where in self.experiments
        ident = f"{run_name}-{len(self.runs)}"
        self.runs[ident] = {"status": "RUNNING", "metrics": [], "params": {}}
        return types.SimpleNamespace(info=types.SimpleNamespace(run_id=ident))

    def update_run(self, ident, status):
        self.runs[ident]["status"] = status

    def set_terminated(self, ident):
        self.runs[ident]["status"] = "FINISHED"

    def log_batch(self, ident, metrics=(), params=()):
        self.runs[ident]["metrics"] += [(step, name, x) for name, x, _, step in metrics]
        for name, value in params:
            assert name not in self.runs[ident]["params"]  # MLflow refuses another value
            self.runs[ident]["params"][name] = value


@pytest.mark.parametrize("told", [False, True])
def test_mlflow_resumes_the_folders_own_run_only(tmp_path, monkeypatch, capsys, told):
    """And says where it writes, unless the user did."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    if told:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://there")
    server, fake = _FakeMlflow(), types.ModuleType("mlflow")
    entities = types.SimpleNamespace(Metric=lambda *row: row, Param=lambda *row: row)
    fake.__dict__.update(MlflowClient=lambda: server, entities=entities)
    monkeypatch.setitem(sys.modules, "mlflow", fake)
    (tmp_path / "other").mkdir()
    for step, folder in ((2, tmp_path), (2, tmp_path / "other"), (1, tmp_path)):
        sink = MlflowSink("othello", folder, {"seed": 1})
        sink.log(step, {"loss": jnp.asarray(0.25)})
        sink.close()
    said = "MLflow writes to sqlite:///mlflow.db; MLFLOW_TRACKING_URI names another place.\n"
    assert server.experiments == ["othello"]
    assert capsys.readouterr().err == said * 3 * (not told)
    run, other = server.runs.values()
    assert run["metrics"] == [(2, "loss", 0.25), (1, "loss", 0.25)]
    assert len(other["metrics"]) == 1
    assert run["params"] == {"seed": "1"} and run["status"] == "FINISHED"


@pytest.mark.parametrize("name, kind", [("wandb", WandbSink), ("mlflow", MlflowSink)])
def test_trackers_are_extras(tmp_path, monkeypatch, name, kind):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UsageError, match=f"begin the command with `uv run --extra {name}`"):
        kind("othello", tmp_path, {})


class _Tracker:
    """Keeps what it gets, and does something bad at a step."""

    def __init__(self, bad_step: int | None = None, bad=lambda: None):
        self.got, self.closed, self._bad_step, self._bad = [], False, bad_step, bad

    def log(self, step, metrics):
        if step == self._bad_step:
            self._bad()
        self.got.append((step, metrics))

    def close(self):
        self.closed = True


def _offline():
    raise ConnectionError("no route\nto host")


def test_a_sink_in_the_background_gets_everything_in_order():
    tracker, said = _Tracker(), []
    sink = BackgroundSink("It", lambda: tracker, tell=said.append)
    for step in range(50):
        sink.log(step, {"loss": float(step)})
    sink.close()
    assert tracker.got == [(step, {"loss": float(step)}) for step in range(50)]
    assert tracker.closed and not said


@pytest.mark.parametrize("make", [_offline, lambda: _Tracker(3, _offline)])
def test_a_tracker_that_raises_is_one_line(make):
    said = []
    sink = BackgroundSink("It", make, tell=said.append)
    for step in range(20):
        sink.log(step, {})
    sink.close()
    sink.log(21, {})
    (line,) = said
    assert line.startswith("It failed (no route to host), and gets no more steps. The run goes on")


def test_a_tracker_that_failed_is_not_waited_for():
    """Also where its queue was full before."""
    offline, said = threading.Event(), []

    def make():
        offline.wait(60)
        raise ConnectionError

    sink = BackgroundSink("It", make, room=1, patience=60, tell=said.append)
    for step in range(3):
        sink.log(step, {})
    offline.set()
    while not sink._thread.done():
        time.sleep(0.01)
    began = time.monotonic()
    sink.close()
    assert time.monotonic() - began < 5


def test_a_tracker_that_fails_while_it_is_waited_for_is_not_waited_for_any_more():
    fails = lambda: (time.sleep(0.3), _offline())
    sink = BackgroundSink("It", lambda: _Tracker(0, fails), room=1, tell=lambda line: None)
    began = time.monotonic()
    for step in range(3):
        sink.log(step, {})
    sink.close()
    assert time.monotonic() - began < 5


def test_a_tracker_that_hangs_delays_nothing():
    released, said = threading.Event(), []
    tracker = _Tracker(0, lambda: released.wait(60))
    sink = BackgroundSink("It", lambda: tracker, room=4, patience=0.2, tell=said.append)
    began = time.monotonic()
    for step in range(1000):
        sink.log(step, {})
    sink.close()
    assert time.monotonic() - began < 5
    (line,) = said
    assert line.startswith("It does not keep up; it lacks some steps from ")
    released.set()
    sink.close()  # now it hears that this is the end
