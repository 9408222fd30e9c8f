"""The page on mctx: its calls run, and the second goes on with the tree of the first."""

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import zero_search.mctx as mctx

from . import workspace


# (pyright cannot see the fields of chex's dataclasses.)
RootFnOutput: Any = mctx.RootFnOutput
RecurrentFnOutput: Any = mctx.RecurrentFnOutput


def test_the_calls_of_the_page():
    text = (workspace.ROOT / "docs" / "mctx.md").read_text(encoding="utf-8")
    first, again = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)

    def recurrent_fn(params, key, action, embedding):
        del params, key
        reward = jnp.where(action == 2, 1.0, 0.0)
        logits = jnp.zeros((2, 4))
        output = RecurrentFnOutput(
            reward=reward, discount=jnp.ones(2), prior_logits=logits, value=jnp.zeros(2)
        )
        return output, embedding + 1

    root = RootFnOutput(prior_logits=jnp.zeros((2, 4)), value=jnp.zeros(2), embedding=jnp.zeros(2))
    scope: dict[str, Any] = dict(params=(), root=root, recurrent_fn=recurrent_fn)
    scope |= dict(search_tree=None, terminated=jnp.array([False, True]))

    def run(code, seed):
        scope["key"] = jax.random.key(seed)
        exec(compile(code, "docs/mctx.md", "exec"), scope)
        assert np.array_equal(scope["output"].action, [2, 2])
        return np.asarray(scope["output"].search_tree.node_visits[:, 0])

    run(first, 0)
    run(again, 1)
    kept = np.asarray(scope["search_tree"].node_visits[:, 0])
    grown = run(again, 2)
    # 32 more visits than were kept of the one game; the other one has ended.
    assert kept[0] > 0 and kept[1] == 0 and np.all(grown - kept >= 32)
