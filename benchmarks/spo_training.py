"""How fast SPO trains, and what of it is arithmetic.

One JSON line: environment `steps_per_second` of whole blocks (collecting and learning, compilation
apart), `gradient_steps_per_second` of the learning alone, milliseconds of collecting and of a
gradient step, `gflop` of matrix products in a gradient step; and beside it, in the same process,
`peak_gflops`, what a product of 2048 x 2048 matrices reaches, and `bound`: environment steps a
second if everything ran at that rate.

    uv run python benchmarks/spo_training.py --env pendulum --preset reference
"""

import argparse
import json
import statistics
import time
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from _selfplay import seconds

from zero_app import start_jax
from zero_spo._build import build_loop
from zero_spo._config import presets
from zero_train import act, draw, fill, init, matrix_flops, step


SIZE = 2048


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--env", default="pendulum")
    parser.add_argument("--agent", default="spo")
    parser.add_argument("--preset", default="reference")
    parser.add_argument("--repeats", type=int, default=10)
    arguments = parser.parse_args()
    start_jax()
    config = presets(arguments.env, arguments.agent)[arguments.preset]
    loop: Any = build_loop(config)
    state = fill(loop, init(loop, key=jr.key(0)))
    batch = draw(loop, state.agent, state.buffer, key=jr.key(1))
    update = lambda agent, batch: loop.agent.update(agent, batch, key=jr.key(2))
    actor = lambda state: loop.agent.actor(state.agent, explore=True)
    collect = lambda state: act(loop, actor(state), state.episodes, key=state.key)
    square = jnp.ones((SIZE, SIZE))
    product = jax.jit(jnp.matmul)
    repeats = arguments.repeats
    update_s = seconds(eqx.filter_jit(update), state.agent, batch, repeats=4 * repeats)
    collect_s = seconds(eqx.filter_jit(collect), state, repeats=repeats)
    peak = 2 * SIZE**3 / seconds(product, square, square, repeats=repeats)
    update_flop = matrix_flops(update, state.agent, batch)
    collect_flop = matrix_flops(collect, state)
    step(loop, jax.tree.map(jnp.copy, state))  # compiles it
    rates = []
    for _ in range(repeats):
        began = time.perf_counter()
        state, metrics = step(loop, state)
        positions = int(metrics["positions"])
        rates.append(positions / (time.perf_counter() - began))
    whole = (config.updates * update_flop + collect_flop) / peak
    row = {
        "env": config.env,
        "preset": arguments.preset,
        "steps_per_second": round(statistics.median(rates), 1),
        "gradient_steps_per_second": round(1 / update_s, 1),
        "collect_ms": round(1e3 * collect_s, 1),
        "gradient_step_ms": round(1e3 * update_s, 2),
        "gflop": round(update_flop / 1e9, 2),
        "peak_gflops": round(peak / 1e9),
        "bound": round(config.envs * config.unroll / whole, 1),
    }
    print(json.dumps(row))


if __name__ == "__main__":
    main()
