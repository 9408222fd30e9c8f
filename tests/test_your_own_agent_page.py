"""The page on agents: both of its agents run as they stand there, and PPO solves CartPole."""

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


PPO, TRAIN, DQN = re.findall(
    r"```python\n(.*?)```",
    (workspace.ROOT / "docs" / "your-own-agent.md").read_text(encoding="utf-8"),
    flags=re.DOTALL,
)


def run(*blocks: str, **scope: Any) -> dict[str, Any]:
    scope["__name__"] = "agent"
    for block in blocks:
        exec(compile(block, "docs/your-own-agent.md", "exec"), scope)
    return scope


@pytest.mark.parametrize("blocks", [(PPO,), (PPO, DQN)], ids=["ppo", "dqn"])
def test_the_agents_of_the_page_take_finite_steps(blocks):
    """A few steps of each loop: finite, learning, of the same shapes, and traced once."""
    loop = run(*blocks)["loop"]
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
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_ppo_solves_cart_pole_and_stays_there(seed):
    train = TRAIN.replace("key=jr.key(0)", f"key=jr.key({seed})")
    assert train != TRAIN or seed == 0
    said = []
    run(PPO, train, print=lambda *words: said.append(words[-1]))
    assert len(said) == 10 and min(said[-5:]) >= 475, said


@pytest.mark.slow
def test_dqn_solves_cart_pole():
    said = []
    run(PPO, DQN, TRAIN, print=lambda *words: said.append(words[-1]))
    assert len(said) == 40 and max(said) >= 475, said
