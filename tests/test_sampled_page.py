"""The page on sampled search: its program runs, and prints what the page says."""

import contextlib
import io
import re

from . import workspace


TEXT = (workspace.ROOT / "docs" / "sampled.md").read_text(encoding="utf-8")


def test_the_page_prints_what_it_says():
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(code, "docs/sampled.md", "exec"), {"__name__": "sampled"})
    said = re.findall(r"^print\(.*\)  # (.*)", code, flags=re.MULTILINE)
    assert said and out.getvalue().splitlines() == said
