"""The READMEs that show a search: their programs run and print what they say."""

import re

import pytest

from . import workspace


@pytest.mark.parametrize("path", ["README.md", "packages/zero-search/README.md"])
def test_the_game_of_a_readme(path, capsys):
    text = (workspace.ROOT / path).read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    exec(compile(code, path, "exec"), {"__name__": "readme"})
    (said,) = re.findall(r"^print\(.*\)  # (.*)$", code, flags=re.MULTILINE)
    assert capsys.readouterr().out.strip() == said
