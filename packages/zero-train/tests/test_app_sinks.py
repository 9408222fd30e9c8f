import errno
import struct
import sys
import types

import jax.numpy as jnp
import pytest
from tensorboardX.proto import event_pb2

from zero_train import RunError
from zero_train.app import TensorBoardSink, UsageError, WandbSink


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


def test_a_log_that_has_grown_goes_on_in_another_file(tmp_path, monkeypatch):
    monkeypatch.setattr("zero_train.app._sinks.PART", 100)
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
        self.settings, self.sent, self.finished = settings, [], False

    def log(self, metrics, step):
        self.sent.append((step, metrics))

    def finish(self):
        self.finished = True


def test_wandb_resumes_the_folders_own_run_only(tmp_path, monkeypatch):
    runs = []
    fake = types.ModuleType("wandb")
    fake.__dict__["init"] = lambda **settings: runs.append(_FakeRun(**settings)) or runs[-1]
    monkeypatch.setitem(sys.modules, "wandb", fake)
    sink = WandbSink("othello", tmp_path, {"seed": 1})
    sink.log(2, {"loss": jnp.asarray(0.25)})
    sink.close()
    (tmp_path / "other").mkdir()
    for folder in (tmp_path, tmp_path / "other"):
        WandbSink("othello", folder, {"seed": 1}).close()
    first, again, other = (run.settings["id"] for run in runs)
    assert first == again != other and runs[0].settings["resume"] == "allow"
    assert runs[0].settings["name"] == tmp_path.name
    assert runs[0].sent == [(2, {"loss": 0.25})] and runs[0].finished


def test_wandb_is_an_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UsageError, match=r"install zero-train\[wandb\]"):
        WandbSink("othello", tmp_path, {})
