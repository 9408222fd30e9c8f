"""The page on chance nodes: it runs, prints what it says, and that is the right play."""

import re
from typing import Any

import numpy as np

from . import workspace


def test_the_page_plays_its_race_right(capsys):
    text = (workspace.ROOT / "docs" / "chance-nodes.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    scope: dict[str, Any] = {}
    exec(compile(code, "docs/chance-nodes.md", "exec"), scope)
    (said,) = re.findall(r"^print\(.*\)  # (.*)$", code, flags=re.MULTILINE)
    assert capsys.readouterr().out.strip() == said
    # Backwards from the goal: two steps for sure, or one to six.
    values = np.array(7 * [0.0] + [1.0] + 5 * [-1.0])
    exact = np.zeros((7, 2))
    for place in reversed(range(7)):
        exact[place] = values[place + 2], values[place + 1 : place + 7].mean()
        values[place] = exact[place].max()
    assert np.array_equal(scope["plan"].action, exact.argmax(axis=1))
