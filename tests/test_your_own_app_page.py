"""The page on apps: its program trains, resumes, and refuses in one line."""

import json
import re
import runpy
import sys

import pytest

from zero_app import read_lines

from . import workspace


@pytest.fixture
def nim(tmp_path, monkeypatch):
    """Runs the page's program with these words."""
    text = (workspace.ROOT / "docs" / "your-own-app.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    path = tmp_path / "nim.py"
    path.write_text(code, encoding="utf-8")

    def nim(*words):
        monkeypatch.setattr(sys, "argv", ["nim.py", *map(str, words)])
        runpy.run_path(str(path), run_name="__main__")

    return nim


def test_the_program_of_the_page(nim, tmp_path, capsys, monkeypatch):
    folder = tmp_path / "run"
    nim("train", "--preset", "tiny", "--out", folder)
    assert "% against random" in capsys.readouterr().out
    page = (folder / "report.html").read_text()
    memory = "host_bytes" in (folder / "timings.jsonl").read_text()  # if the system says so
    assert page.count("<svg") == 10 + memory and "nothing yet" not in page
    # Those of the next report would be the same.
    monkeypatch.setattr("zero_app._run._chart.draw", lambda series, **_: None)
    nim("train", "--preset", "tiny", "--out", folder, "--resume")
    assert [row["step"] for row in read_lines(folder / "metrics.jsonl")] == [1, 2, 3, 4]
    assert [row["step"] for row in read_lines(folder / "evaluations.jsonl")] == [2, 4]
    capsys.readouterr()
    nim("eval", folder, "--games", 4, "--json")
    row = json.loads(capsys.readouterr().out)
    assert (row["step"], row["simulations"], row["games"], row["opponent"]) == (4, 64, 4, "random")
    with pytest.raises(SystemExit):
        nim("train", "--learning-rate", "2")
    assert capsys.readouterr().err == "nim: --learning-rate 2.0 was given; give 1e-12 to 1.\n"
