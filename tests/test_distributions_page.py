"""The page on distributions, values and statistics prints what it says."""

import contextlib
import io
import re

from . import workspace


def test_the_page_prints_what_it_says():
    text = (workspace.ROOT / "docs" / "distributions.md").read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL))
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(code, "docs/distributions.md", "exec"), {"__name__": "page"})
    said = re.findall(r"^print\(.*\)  # (.*)$", code, flags=re.MULTILINE)
    assert len(said) == 6 and out.getvalue().splitlines() == said
