"""Where the time of collecting in the monster world goes, with both networks.

One JSON line a network, planning with chance nodes: positions and simulations (evaluations) a
second while collecting, and the shares of the network (its evaluations alone, at the same batch
size), of the environment (its steps, odds and observations alone) and of the tree (the rest).

    uv run python benchmarks/monsters_selfplay.py [--envs 64] [--simulations 50]
"""

import argparse
import dataclasses
import json
from typing import Any

import jax
import jax.numpy as jnp
from _selfplay import measure

from zero_envs import MonstersState
from zero_monsters._build import build_env, build_loop
from zero_monsters._config import Config, PRESETS


def row(config: Config, repeats: int) -> dict[str, Any]:
    loop = build_loop(config)
    agent: Any = loop.agent  # `build_loop` made it; a Loop only promises any agent.
    env = build_env(config)

    def step(state: MonstersState) -> MonstersState:
        # The move depends on all that was seen, and the outcome on all odds.
        sums = [jnp.sum(x, dtype=jnp.int32) for x in jax.tree.leaves(env.observe(state))]
        move = sum(sums, jnp.zeros((), jnp.int32)) % env.num_actions
        after = env.afterstate(state, move)
        outcome = jnp.argmax(env.outcome_logits(after)).astype(jnp.int32)
        return env.resolve(after, outcome)[0]

    evaluator = lambda state: agent.evaluator(state.params)
    return {
        "question": "monsters_selfplay",
        "device": jax.devices()[0].platform,
        "network": config.network,
        "planner": config.planner,
        "simulations": config.simulations,
        **measure(loop, config.simulations + 1, evaluator, step, repeats),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--envs", type=int, default=64)
    parser.add_argument("--simulations", type=int, default=50)
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    for preset in ("default", "original"):
        config = dataclasses.replace(
            PRESETS[preset], envs=given.envs, unroll=4, simulations=given.simulations
        )
        print(json.dumps(row(config, given.repeats)), flush=True)


if __name__ == "__main__":
    main()
