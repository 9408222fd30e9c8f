"""The page on MPO: its learner learns, at its bound, and prints what the page says."""

import contextlib
import io
import re

import jax

from . import workspace


def test_the_page_prints_what_it_says():
    text = (workspace.ROOT / "docs" / "mpo.md").read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL))
    # (optax's update needs it, in every program.)
    with contextlib.redirect_stdout(io.StringIO()) as out, jax.numpy_dtype_promotion("standard"):
        exec(compile(code, "docs/mpo.md", "exec"), {"__name__": "mpo"})
    said = re.findall(r"^print\(.*\)  # (.*)$", code, flags=re.MULTILINE)
    assert len(said) == 3 and out.getvalue().splitlines() == said
