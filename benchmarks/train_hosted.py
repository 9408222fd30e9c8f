"""Training in Gymnasium's CartPole on the host, EnvPool's, and ours in JAX: where the time goes.

One JSON line for each agent and environment, with the flags of `zero train NAME --agent AGENT
--preset quick`: positions a second of whole steps, and the milliseconds of a step that are spent in
collecting and in learning. Of collecting on the host, it says how much of it is spent in the
simulators (`worlds`), in starting the program that decides on the actions and the one that writes
down what came of them, small ones of which a CPU runs to their end (`deciding`, `writing`), and in
waiting for the actions and copying them to the host (`actions`). The environments take turns, a few
steps each, and each number is the median of its turns. EnvPool is left out where it is missing.

    uv run --extra gymnasium --extra envpool python benchmarks/train_hosted.py
"""

import argparse
import importlib.util
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.random as jr
import numpy as np

import zero_cli._build
import zero_cli._config
import zero_cli._worlds
import zero_spo._build
import zero_spo._config
from zero_train import _hosted, collect_half, fill, init, learn_half, Loop


NAMES = ("gymnasium/CartPole-v1", "envpool/CartPole-v1", "cartpole")

#: The seconds that were spent in each part since a turn began.
SPENT: dict[str, float] = {}


def timed(part: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any) -> Any:
        start = time.perf_counter()
        result = function(*args)
        SPENT[part] = SPENT.get(part, 0.0) + time.perf_counter() - start
        return result

    return run


class _Timed:
    """NumPy, as the module that collects on the host has it."""

    asarray = staticmethod(timed("actions", np.asarray))

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)


def watch_parts() -> None:
    """Has the parts of collecting on the host timed."""
    module: Any = _hosted
    module.np = _Timed()
    for program in (module._deciding, module._writing):
        bound, part = program.bound, program.__name__.strip("_")
        program.bound = lambda loop, bound=bound, part=part: timed(part, bound(loop))


def loop_of(name: str, agent: str) -> Loop:
    if agent == "muzero":
        world = zero_cli._worlds.build_world(name)
        presets = zero_cli._config.presets(name, agent, world.size, 1)
        return zero_cli._build.build_loop(presets["quick"])
    return zero_spo._build.build_loop(zero_spo._config.presets(name, agent)["quick"])


def begun(name: str, agent: str) -> list[Any]:
    """A loop and its state, compiled."""
    loop = loop_of(name, agent)
    state = fill(loop, init(loop, key=jr.key(0)))
    for _ in range(2):
        state = half(learn_half, loop, half(collect_half, loop, state, {}), {})
    if state.episodes.worlds is not None:
        _, worlds = _hosted._LIVE[int(state.episodes.worlds[0])]
        worlds.step = timed("worlds", worlds.step)
    return [loop, state]


def half(run: Any, loop: Loop, state: Any, spent: dict[str, float]) -> Any:
    start = time.perf_counter()
    state = jax.block_until_ready(run(loop, None, state)[0])
    spent[run.__name__] = spent.get(run.__name__, 0.0) + time.perf_counter() - start
    return state


def turn(run: list[Any], steps: int) -> dict[str, float]:
    """Milliseconds of a step, by part."""
    loop, state = run
    SPENT.clear()
    for _ in range(steps):
        for part in (collect_half, learn_half):
            state = half(part, loop, state, SPENT)
    run[1] = state
    return {part: 1000 * seconds / steps for part, seconds in SPENT.items()}


def summary(loop: Loop, turns: list[dict[str, float]]) -> dict[str, float]:
    """The medians of an environment's turns."""
    spent = {part: statistics.median(x[part] for x in turns) for part in turns[0]}
    rows = loop.num_envs * loop.unroll_length
    rate = 1000 * rows / (spent["collect_half"] + spent["learn_half"])
    rounded = {f"{part}_ms": round(spent[part], 1) for part in sorted(spent)}
    return {"positions_per_second": round(rate), "rows": rows} | rounded


def main() -> None:
    parser = argparse.ArgumentParser(description="Where the time goes.")
    parser.add_argument("--agents", nargs="+", default=["ppo", "muzero"])
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--steps", type=int, default=4)
    options = parser.parse_args()
    watch_parts()
    missing = importlib.util.find_spec("envpool") is None
    names = [name for name in NAMES if not (missing and name.startswith("envpool/"))]
    for agent in options.agents:
        runs = {name: begun(name, agent) for name in names}
        turns = [
            {name: turn(runs[name], options.steps) for name in names} for _ in range(options.turns)
        ]
        for name in names:
            found = summary(runs[name][0], [x[name] for x in turns])
            print(json.dumps({"agent": agent, "env": name} | found), flush=True)


if __name__ == "__main__":
    main()
