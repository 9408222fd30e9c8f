"""The page on apps: its program trains, resumes, and refuses in one line."""

import importlib.util
import re
import sys

import jax
import pytest

from zero_train import read_lines
from zero_train.app import main

from . import workspace


@pytest.fixture
def nim(tmp_path, monkeypatch):
    """Runs the page's program with these words."""
    text = (workspace.ROOT / "docs" / "your-own-app.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    path = tmp_path / "nim.py"
    path.write_text(code, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("nim", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Where dataclasses and tyro look for the names of annotations.
    monkeypatch.setitem(sys.modules, "nim", module)
    spec.loader.exec_module(module)
    commands = {"train": module.Command(module.train_nim, "learn")}
    return lambda *words: main("nim", "Learn Nim.", commands, [str(word) for word in words])


def test_the_program_of_the_page(nim, tmp_path, capsys):
    folder = tmp_path / "run"
    # (optax's update needs it, in every program.)
    with jax.numpy_dtype_promotion("standard"):
        nim("train", "--preset", "tiny", "--out", folder)
        assert "against random" in capsys.readouterr().out
        page = (folder / "report.html").read_text()
        assert page.count("<svg") == 4 and "nothing yet" not in page
        nim("train", "--preset", "tiny", "--out", folder, "--resume")
    assert [row["step"] for row in read_lines(folder / "metrics.jsonl")] == [1, 2, 3, 4]
    assert [row["step"] for row in read_lines(folder / "evaluations.jsonl")] == [2, 4]
    with pytest.raises(SystemExit):
        nim("train", "--learning-rate", "2")
    assert capsys.readouterr().err == "nim: --learning-rate 2.0 was given; give 0 to 1.\n"
