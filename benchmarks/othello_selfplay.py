"""Where the time of Othello self-play goes: our search and mctx's, the same network.

One JSON line a search and engine: positions a second while collecting with the quick network, and
the shares of the network (its evaluations alone, at the same batch size), of the environment (its
steps alone) and of the tree (the rest).

    uv run python benchmarks/othello_selfplay.py [--envs 128] [--simulations 32]
"""

import argparse
import dataclasses
import functools as ft
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr

from zero_othello._build import build_loop
from zero_othello._config import Config, PRESETS
from zero_train import collect_and_store, data_mesh, init, Loop, LoopState


def seconds(function: Callable[..., Any], *args: Any, repeats: int) -> float:
    """Median time of a jitted call, compiled beforehand."""
    jax.block_until_ready(function(*args))
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(function(*args))
        times.append(time.perf_counter() - start)
    return statistics.median(times)


@eqx.filter_jit
def network_alone(loop: Loop, state: LoopState, number: int) -> jax.Array:
    """As many evaluations in a row as a move of the search makes."""
    agent: Any = loop.agent
    network = jax.vmap(agent.evaluator(state.agent.average).network)
    boards = jr.bernoulli(jr.key(0), 0.3, (loop.num_envs, 8, 8, 2)).astype(jnp.float32)

    def body(boards: jax.Array, _: None) -> tuple[jax.Array, None]:
        # Depends on the evaluation before, so that none is hoisted out of the loop.
        _, value = network(boards)
        return boards + 1e-6 * value[:, None, None, None], None

    return jax.lax.scan(body, boards, None, length=number)[0]


@eqx.filter_jit
def environment_alone(loop: Loop, state: LoopState, number: int) -> Any:
    """As many environment steps in a row as a move of the search makes."""
    env: Any = loop.env

    def one(position: Any) -> Any:
        action = jnp.argmax(env.observe(position).legal).astype(jnp.int32)
        return env.step(position, action, key=jr.key(0))[0]

    body = lambda position, _: (jax.vmap(one)(position), None)
    return jax.lax.scan(body, state.actors.state, None, length=number)[0]


def measure(config: Config, repeats: int) -> dict[str, Any]:
    loop = build_loop(config, data_mesh(1))
    state = init(loop, key=jr.key(0))
    collect = eqx.filter_jit(ft.partial(collect_and_store, loop))
    start = time.perf_counter()
    jax.block_until_ready(collect(state))
    compile_s = time.perf_counter() - start
    total = seconds(collect, state, repeats=repeats) / config.unroll
    evaluations = config.simulations + 1
    network = seconds(network_alone, loop, state, evaluations, repeats=repeats)
    environment = seconds(environment_alone, loop, state, evaluations, repeats=repeats)
    return {
        "question": "othello_selfplay",
        "device": jax.devices()[0].platform,
        "search": config.search,
        "engine": config.engine,
        "envs": config.envs,
        "simulations": config.simulations,
        "first_call_s": round(compile_s, 1),
        "positions_per_s": round(config.envs / total, 1),
        "network_evaluations_per_s": round(config.envs * evaluations / network, 1),
        "network_share": round(network / total, 3),
        "environment_share": round(environment / total, 3),
        "tree_share": round(1 - (network + environment) / total, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--envs", type=int, default=128)
    parser.add_argument("--simulations", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    for search in ("gumbel", "muzero"):
        for engine in ("zero", "mctx"):
            config = dataclasses.replace(
                PRESETS["quick"],
                search=search,
                engine=engine,
                envs=given.envs,
                simulations=given.simulations,
                nodes=2 * given.simulations,
            )
            print(json.dumps(measure(config, given.repeats)), flush=True)


if __name__ == "__main__":
    main()
