"""Five seeds under `jax.vmap` beside one: the CPU time of a step, by medians of six.

    uv run python benchmarks/train_seeds.py                    # cartpole by SPO and PPO
    uv run python benchmarks/train_seeds.py --agents ppo --seeds 3

Each program is on one core if `taskset -c 0` begins the command.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr

from zero_app import start_jax
from zero_spo._app import APP
from zero_spo._config import presets
from zero_train import fill, init, step


def seconds(program: Callable[[Any], Any], state: Any, runs: int = 6) -> float:
    """The median CPU time of a call, which changes the state, after a first one."""
    times = []
    for _ in range(runs + 1):
        began = time.process_time()
        state, _ = program(state)
        jax.block_until_ready(state)
        times.append(time.process_time() - began)
    return statistics.median(times[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", nargs="+", default=["spo", "ppo"])
    parser.add_argument("--seeds", type=int, default=5)
    asked = parser.parse_args()
    start_jax()
    for agent in asked.agents:
        loop = APP.build(presets("cartpole", agent)["quick"])
        each = [init(loop, key=key) for key in jr.split(jr.key(0), asked.seeds)]
        states = jax.tree.map(lambda *x: jnp.stack(x), *each)
        states = eqx.filter_jit(eqx.filter_vmap(lambda state, loop=loop: fill(loop, state)))(states)
        together = eqx.filter_vmap(lambda state, loop=loop: step(loop, state))
        one = seconds(lambda state, loop=loop: step(loop, state), fill(loop, each[0]))
        several = seconds(eqx.filter_jit(together, donate="all"), states)
        row = {"agent": agent, "seeds": asked.seeds, "one": one, "together": several}
        print(json.dumps({**row, "ratio": several / one}), flush=True)


if __name__ == "__main__":
    main()
