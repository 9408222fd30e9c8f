"""Where the time of Othello self-play goes: our search and mctx's, the same network.

One JSON line a search and engine: positions a second while collecting with the quick network, and
the shares of the network (its evaluations alone, at the same batch size), of the environment (its
steps alone) and of the tree (the rest).

    uv run python benchmarks/othello_selfplay.py [--envs 128] [--simulations 32] [--env-engine pgx]
"""

import argparse
import dataclasses
import json
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
from _selfplay import measure

from zero_othello._build import build_loop
from zero_othello._config import Config, PRESETS


def row(config: Config, repeats: int) -> dict[str, Any]:
    loop = build_loop(config)
    # `build_loop` made them; a Loop only promises any environment and agent.
    env: Any = loop.env
    agent: Any = loop.agent

    def step(position: Any) -> Any:
        action = jnp.argmax(env.observe(position).legal).astype(jnp.int32)
        return env.step(position, action, key=jr.key(0))[0]

    evaluator = lambda state: agent.evaluator(state.target)
    return {
        "question": "othello_selfplay",
        "device": jax.devices()[0].platform,
        "search": config.search,
        "engine": config.engine,
        "env_engine": config.env_engine,
        "simulations": config.simulations,
        **measure(loop, config.simulations + 1, evaluator, step, repeats),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--envs", type=int, default=128)
    parser.add_argument("--simulations", type=int, default=32)
    parser.add_argument("--env-engine", choices=["zero", "pgx"], default="zero")
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    for search in ("gumbel", "muzero"):
        for engine in ("zero", "mctx"):
            config = dataclasses.replace(
                PRESETS["quick"],
                search=search,
                engine=engine,
                env_engine=given.env_engine,
                envs=given.envs,
                simulations=given.simulations,
                nodes=2 * given.simulations,
            )
            print(json.dumps(row(config, given.repeats)), flush=True)


if __name__ == "__main__":
    main()
