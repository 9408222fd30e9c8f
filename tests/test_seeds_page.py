"""The page on seeds, sweeps, trackers and frames: its programs run and print what it says."""

import contextlib
import io
import re

import pytest

from . import workspace


TEXT = (workspace.ROOT / "docs" / "seeds.md").read_text(encoding="utf-8")
SIDE_BY_SIDE, FRAMES = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)


# The slow one's parts have fast tests of their own.
@pytest.mark.parametrize(
    "code, made",
    [
        pytest.param(SIDE_BY_SIDE, set(), marks=pytest.mark.slow, id="side by side"),
        pytest.param(FRAMES, {"runs", "evaluations.svg", "training.png", "x.csv"}, id="frames"),
    ],
)
def test_the_page_prints_what_it_says(tmp_path, monkeypatch, code, made):
    monkeypatch.chdir(tmp_path)
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(code, "docs/seeds.md", "exec"), {"__name__": "seeds"})
    said = re.findall(r"^print\(.*\)  # (.*)$", code, flags=re.MULTILINE)
    printed = out.getvalue().splitlines()
    assert said and [line for line in printed if line in said] == said
    assert {path.name for path in tmp_path.iterdir()} == made
