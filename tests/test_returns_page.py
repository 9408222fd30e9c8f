"""The page on returns and losses prints what it says, and names all there is."""

import contextlib
import io
import re

from zero_train import returns

from . import workspace


TEXT = (workspace.ROOT / "docs" / "returns.md").read_text(encoding="utf-8")


def test_the_page_prints_what_it_says():
    code = "\n".join(re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL))
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(code, "docs/returns.md", "exec"), {"__name__": "returns"})
    said = re.findall(r"^print\(.*\)  # (.*)$", code, flags=re.MULTILINE)
    assert len(said) == 2 and out.getvalue().splitlines() == said


def test_no_return_is_left_out():
    names = [name for name, x in vars(returns).items() if name[0] != "_" and callable(x)]
    assert len(names) > 10
    assert [name for name in names if f"`{name}`" not in TEXT and f".{name}`" not in TEXT] == []
