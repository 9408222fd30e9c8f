"""Pages with one program: it runs, and prints what the page says."""

import contextlib
import io
import re

import pytest

from . import workspace


@pytest.mark.parametrize("page", ["filters", "sampled"])
def test_a_page_prints_what_it_says(page):
    text = (workspace.ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(code, f"docs/{page}.md", "exec"), {"__name__": page})
    said = re.findall(r"^print\(.*\)  # (.*)", code, flags=re.MULTILINE)
    assert said and out.getvalue().splitlines() == said
