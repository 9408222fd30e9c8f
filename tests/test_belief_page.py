"""The page on beliefs: it runs, prints what it says, and that is what its game is worth."""

import re
from typing import Any

from . import workspace


def test_the_page_shows_what_a_look_is_worth(capsys):
    text = (workspace.ROOT / "docs" / "belief.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    scope: dict[str, Any] = {}
    exec(compile(code, "docs/belief.md", "exec"), scope)
    said = re.findall(r"^print\(.*\)  # (.*)$", code, flags=re.MULTILINE)
    assert capsys.readouterr().out.splitlines() == said
    foreseen, seen, few = ([float(x) for x in line.split()] for line in said)
    # A ball in sight: 1, less the price of a look. Nothing known: 0, and a look is right in 4 of 5.
    assert 0.85 < foreseen[0] < 1 and foreseen[1] < foreseen[0]
    assert abs(seen[0]) < 0.05 and 0.4 < seen[1] < 0.52
    assert few[0] > 0.2 and all(abs(x) < 0.2 for x in (*seen[2:], *foreseen[2:], *few[2:]))
