"""The README and the page run, and print what they say."""

import contextlib
import io
import pathlib
import re

import pytest


ROOT = pathlib.Path(__file__).parents[3]


@pytest.mark.parametrize("page", ["packages/zero-memory/README.md", "docs/zero-memory.md"])
def test_what_a_page_prints(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = [x for x in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "import" in x]
    assert blocks
    for block in blocks:
        names = {"__name__": page}
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(compile(block, page, "exec"), names)
        said = re.findall(r"^print\(.*\)  # (\([\d, ]+\))", block, re.MULTILINE)
        assert said == re.findall(r"^\([\d, ]+\)$", out.getvalue(), re.MULTILINE)
        if "EpisodeBuffer(" in block:
            batch = names["batch"]
            moves = (batch.items.observation[:, 0] / 3).tolist()
            assert batch.outcome.tolist() == [{0: 1.0, 1: -1.0, 2: 1.0}[move] for move in moves]
