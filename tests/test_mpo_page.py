"""The page on MPO: its learners learn, the first at its bound, and print what the page says."""

import contextlib
import io
import re

import jax
import pytest

from . import workspace


BLOCKS = re.findall(
    r"```python\n(.*?)```",
    (workspace.ROOT / "docs" / "mpo.md").read_text(encoding="utf-8"),
    flags=re.DOTALL,
)


@pytest.mark.parametrize(("block", "prints"), [(0, 3), pytest.param(1, 1, marks=pytest.mark.slow)])
def test_the_page_prints_what_it_says(block: int, prints: int):
    code = BLOCKS[block]
    # (optax's update needs it, in every program.)
    with contextlib.redirect_stdout(io.StringIO()) as out, jax.numpy_dtype_promotion("standard"):
        exec(compile(code, "docs/mpo.md", "exec"), {"__name__": "mpo"})
    said = re.findall(r"^print\(.*\)  # ([^;\n]*)", code, flags=re.MULTILINE)
    assert len(said) == prints and out.getvalue().splitlines() == said
    assert len(BLOCKS) == 2
