"""The page on particle search: it runs with the policies of zero-nets and prints what it says."""

import re
from typing import Any

from . import workspace


def test_the_page_shows_what_particles_are_worth(capsys):
    text = (workspace.ROOT / "docs" / "particles.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    scope: dict[str, Any] = {}
    exec(compile(code, "docs/particles.md", "exec"), scope)
    said = re.findall(r"^print\(.*\)  # (.*)$", code, flags=re.MULTILINE)
    assert capsys.readouterr().out.splitlines() == said
    alone, soft, sharp, more = map(float, said)
    # Drifting away, then brought to the middle better and better.
    assert alone < 20 * soft and soft < sharp < more < 0
