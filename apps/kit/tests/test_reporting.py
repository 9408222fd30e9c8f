"""The report of a run that goes on costs less than 1 % of its time."""

import json

import pytest

from zero_app import App, RunError, RunFolder
from zero_app._run import _reporting
from zero_app._run._film import FILMS, Frame, kept_films, pack


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


def test_films_stay_where_a_run_writes_its_report_again(tmp_path):
    """They are kept in a file, which may be a stranger's."""
    app = App("nim", "Nim.", {}, lambda config: pytest.fail())
    packed = pack([Frame("<svg/>", "the first", 0.5)])
    evil = "</template><script>alert(1)</script>"
    with RunFolder.create(tmp_path / "run", {}) as folder:
        folder.write(FILMS, json.dumps({"Before training": packed, evil: evil}))
        for _ in range(2):
            with _reporting.Report(app, folder):
                pass
            text = (folder.path / "report.html").read_text()
            assert text.count("<template>") == 2 and f"<template>{packed}</template>" in text
            assert "<h3>Before training</h3>" in text and text.count("<script>") == 1


@pytest.mark.parametrize("damaged", ["", "[]", '{"a": 1}', '{"a": "b"', "\xff", "[" * 100_000])
def test_damaged_films_give_one_line_and_do_not_end_the_run(tmp_path, capsys, damaged):
    app = App("nim", "Nim.", {}, lambda config: pytest.fail())
    with RunFolder.create(tmp_path / "run", {}) as folder:
        (folder.path / FILMS).write_bytes(damaged.encode("latin-1"))
        with pytest.raises(RunError, match=r"films\.json (is damaged|cannot be read): [^\n]*$"):
            kept_films(folder.path)
        with _reporting.Report(app, folder):
            pass
    assert capsys.readouterr().err.count("\n") == 1
