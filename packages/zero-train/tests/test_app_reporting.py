"""The report of a run that goes on costs less than 1 % of its time."""

import pytest

from zero_train import RunFolder
from zero_train.app import _reporting, App


@pytest.mark.parametrize("seconds", [0.5, 5.0])
def test_writing_it_takes_at_most_one_percent(tmp_path, monkeypatch, seconds):
    """Whatever a report takes, as long as the first takes no more than is expected of it, or is the
    only one."""
    now, written = [0.0], []

    def write(app, folder, *, refresh):
        assert refresh > 0
        now[0] += seconds
        written.append(now[0])

    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setattr(_reporting, "write_report", write)
    app = App("nim", "Nim.", {}, lambda config: pytest.fail())
    with RunFolder.create(tmp_path / "run", {}) as folder:
        report = _reporting.Report(app, folder)
        for _ in range(5000):
            now[0] += 1.0
            report.write_if_due()
            if len(written) > 1 or seconds < 2:
                assert seconds * len(written) <= 0.01 * now[0] + 1e-9
    assert len(written) >= 0.008 * now[0] / seconds


def test_a_disk_that_refuses_it_does_not_end_the_run(tmp_path, monkeypatch):
    refused = []

    def refuse(app, folder, *, refresh):
        refused.append(folder)
        raise OSError("No space left on device")

    monkeypatch.setattr(_reporting, "write_report", refuse)
    monkeypatch.setattr(_reporting, "_FIRST_REPORT", 0.0)
    app = App("nim", "Nim.", {}, lambda config: pytest.fail())
    with RunFolder.create(tmp_path / "run", {}) as folder:
        _reporting.Report(app, folder).write_if_due()
    assert refused == [tmp_path / "run"]
