"""The pages on DQN and on PPO: both agents run as they stand there, and solve CartPole."""

import dataclasses
import math
import re
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from zero_train import fill, init, step

from . import workspace


def blocks_of(page: str) -> list[str]:
    text = (workspace.ROOT / "docs" / page).read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)


PAGES = {"dqn": blocks_of("your-own-agent.md"), "ppo": blocks_of("ppo.md")}


def run(*blocks: str, **scope: Any) -> dict[str, Any]:
    scope["__name__"] = "agent"
    for block in blocks:
        exec(compile(block, "docs", "exec"), scope)
    return scope


@pytest.mark.parametrize("page", list(PAGES))
def test_the_agent_of_the_page_takes_finite_steps(page):
    """A few steps of its loop: finite, learning, of the same shapes, and traced once."""
    loop = run(PAGES[page][0])["loop"]
    builds, network = [], loop.agent.network

    def counted(*, key):
        builds.append(key)
        return network(key=key)

    agent = dataclasses.replace(loop.agent, network=counted)
    loop = dataclasses.replace(loop, agent=agent, num_updates=2)
    state = fill(loop, init(loop, key=jr.key(0)))
    shapes = jax.tree.map(jnp.shape, state)
    first = jax.tree.map(np.array, state.agent.params)
    traced = []
    for _ in range(3):
        state, metrics = step(loop, state)
        assert all(math.isfinite(x) for x in metrics.values()), metrics
        assert float(metrics["gradient_norm"]) > 0
        traced.append(len(builds))
    assert traced[-1] == traced[0]
    assert jax.tree.map(jnp.shape, state) == shapes
    moved = jax.tree.map(
        lambda x, y: bool(np.any(x != y)), first, jax.device_get(state.agent.params)
    )
    assert all(jax.tree.leaves(moved))


@pytest.mark.slow
@pytest.mark.parametrize("page", list(PAGES))
def test_the_agent_of_the_page_solves_cart_pole(page):
    said = []
    run(*PAGES[page][:2], print=lambda *words: said.append(words[-1]))
    assert max(said) >= 475, said
