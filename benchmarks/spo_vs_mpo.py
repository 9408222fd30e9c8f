"""SPO against MPO at equal environment steps, each with what was tuned for it.

One JSON line a run: `env`, `agent`, `seed`, and after each of `--evaluations` equal parts of the
training the environment `steps` and the mean `returns` of `--episodes` episodes; then one line for
every environment, with each agent's interquartile mean over seeds of the last return, its 95 %
bootstrap interval, and the same of the mean over the whole training.

    uv run python benchmarks/spo_vs_mpo.py
    uv run python benchmarks/spo_vs_mpo.py --envs pendulum cartpole --seeds 5
"""

import argparse
import json
from collections.abc import Iterator
from typing import Any

import jax.random as jr
import numpy as np

from zero_app import measure, start_jax
from zero_spo._build import build_loop
from zero_spo._config import Config, presets
from zero_spo._worlds import longest_episode
from zero_train import aggregate, fill, init, step


AGENTS = ("spo", "mpo")


def runs(config: Config, seeds: int, evaluations: int, episodes: int) -> Iterator[dict[str, Any]]:
    """Trains from every seed; all compile once."""
    loop: Any = build_loop(config)
    due = {round((i + 1) * config.blocks / evaluations) for i in range(evaluations)}
    for seed in range(seeds):
        state = fill(loop, init(loop, key=jr.fold_in(jr.key(seed), 0)))
        steps, returns, positions = [], [], 0
        for block in range(1, config.blocks + 1):
            state, metrics = step(loop, state)
            positions += int(metrics["positions"])
            if block in due:
                actor = loop.agent.actor(state.agent, explore=False)
                key = jr.fold_in(jr.key(seed), 1)
                row, _ = measure(
                    loop.env,
                    actor,
                    players=1,
                    games=episodes,
                    max_moves=longest_episode(loop.env),
                    key=key,
                )
                steps.append(positions)
                returns.append(round(row["return_mean"], 2))
        yield {
            "env": config.env,
            "agent": config.agent,
            "seed": seed,
            "steps": steps,
            "returns": returns,
        }


def estimate(scores: np.ndarray) -> dict[str, float]:
    """The interquartile mean over seeds, and its interval."""
    iqm = aggregate(scores[:, None]).interquartile_mean
    names = {"iqm": iqm.value, "low": iqm.low, "high": iqm.high}
    return {name: round(float(x), 2) for name, x in names.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    worlds = ["pendulum", "cartpole", "brax/inverted_pendulum"]
    parser.add_argument("--envs", nargs="+", default=worlds)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--evaluations", type=int, default=5)
    parser.add_argument("--episodes", type=int, default=128)
    arguments = parser.parse_args()
    start_jax()
    for env in arguments.envs:
        row: dict[str, Any] = {"env": env, "seeds": arguments.seeds}
        for agent in AGENTS:
            config = presets(env, agent)["tuned"]
            found = []
            for run in runs(config, arguments.seeds, arguments.evaluations, arguments.episodes):
                print(json.dumps(run), flush=True)
                found.append(run["returns"])
            scores = np.asarray(found)
            row[agent] = estimate(scores[:, -1])
            row[f"{agent}_whole"] = estimate(scores.mean(axis=1))
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
