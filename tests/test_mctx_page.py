"""The page on mctx: its calls run, and the second goes on with the tree of the first."""

import functools
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
    terminated = jnp.array([False, True])

    @functools.partial(jax.jit, static_argnums=0)
    def run(code, key, search_tree):
        """The search's tree, what the program left in `search_tree`, and the actions."""
        scope: dict[str, Any] = dict(mctx=mctx, params=(), root=root, recurrent_fn=recurrent_fn)
        scope |= dict(key=key, search_tree=search_tree, terminated=terminated)
        exec(compile(code, "docs/mctx.md", "exec"), scope)
        output = scope["output"]
        return output.search_tree, scope["search_tree"], output.action

    _, nothing, first_action = run(first, jax.random.key(0), None)
    _, left, action = run(again, jax.random.key(1), nothing)
    tree, _, last_action = run(again, jax.random.key(2), left)
    for played in (first_action, action, last_action):
        assert np.array_equal(played, [2, 2])
    kept, grown = (np.asarray(x.node_visits[:, 0]) for x in (left, tree))
    # 32 more visits than were kept of the one game; the other one has ended.
    assert kept[0] > 0 and kept[1] == 0 and np.all(grown - kept >= 32)
