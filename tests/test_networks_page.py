"""The page on networks: its programs run, and return what the page says."""

import re
from typing import Any

import jax
import numpy as np

from . import workspace


def test_the_networks_of_the_page():
    text = (workspace.ROOT / "docs" / "networks.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    scope: dict[str, Any] = {"__name__": "networks"}
    shapes = []
    names = (
        ("logits", "value"),
        ("action", "values"),
        ("logits", "qvalues"),
        ("policies", "carry"),
        ("logits", "value"),
    )
    for block, found in zip(blocks, names, strict=True):

        @jax.jit
        def run(block=block, found=found):
            exec(compile(block, "docs/networks.md", "exec"), scope)
            return [scope[name] for name in found]

        leaves = jax.tree.leaves(run())
        assert all(np.all(np.isfinite(leaf)) for leaf in leaves)
        shapes.append([leaf.shape for leaf in leaves])
    assert shapes[0] == [(32, 4), (32,)] and shapes[1] == [(32, 6), (32, 2)]
    assert shapes[2] == [(4, 51), (4,)]
    assert (20, 4) in shapes[3] and (32,) in shapes[3]
    assert shapes[4] == [(7,), ()]
