"""The page on evaluation: its program runs and prints what the page says."""

import contextlib
import io
import re

from . import workspace


def test_the_page_prints_what_it_says(tmp_path, monkeypatch):
    text = (workspace.ROOT / "docs" / "evaluation.md").read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL))
    monkeypatch.chdir(tmp_path)
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(code, "docs/evaluation.md", "exec"), {"__name__": "evaluation"})
    said = re.findall(r"^print\(.*\)  # (.*)$", code, flags=re.MULTILINE)
    assert len(said) == 7 and out.getvalue().splitlines() == said
    assert [path.name for path in tmp_path.iterdir()] == ["results.json"]
