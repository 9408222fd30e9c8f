"""The page on hindsight: it runs, prints what it says, and that is what its game is worth."""

import re
from typing import Any

from . import workspace


def test_the_page_shows_the_optimism_it_warns_of(capsys):
    text = (workspace.ROOT / "docs" / "hindsight.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    scope: dict[str, Any] = {}
    exec(compile(code, "docs/hindsight.md", "exec"), scope)
    said = re.findall(r"^print\(.*\)  # (.*)$", code, flags=re.MULTILINE)
    assert capsys.readouterr().out.splitlines() == said
    one, foreseen, fair = ([float(x) for x in line.split()] for line in said)
    # The prize in hand; one future's luck; one minus twice the chance of two bad doors; nothing.
    assert one[0] == foreseen[0] == fair[0] == 0.3
    assert abs(abs(one[1]) - 1) < 0.1 and abs(foreseen[1] - 0.5) < 0.1 and abs(fair[1]) < 0.05
