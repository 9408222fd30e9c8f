"""What does a search gain in solved positions that keeps what finished games prove?

The moves of a trained player with and without `TreeSearch(max_return=)` in the suites of its game
(`eval --suite`). JSON lines: how many of the moves are best, how many keep the result, what they
lose, and the seconds, compiling included.

    uv run python benchmarks/search_proofs.py pgx/connect_four --simulations 64 800
    uv run python benchmarks/search_proofs.py othello --simulations 800
"""

import argparse
import dataclasses
import json
import time
from typing import Any

import jax.random as jr

from zero_app import load, Suite, with_simulations
from zero_cli._apps import app_of


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("run", nargs="?", default="pgx/connect_four", help="a run, or a game")
    parser.add_argument("--simulations", type=int, nargs="+", default=[64, 800])
    parser.add_argument("--suites", nargs="+")
    options = parser.parse_args()
    app, name = app_of(options.run)
    trained = load(app, name)
    env: Any = trained.loop.env
    assert app.suites is not None
    for path in sorted((app.suites / getattr(trained.config, "env", "")).glob("*.npz")):
        suite = path.stem
        if options.suites and suite not in options.suites:
            continue
        for simulations in options.simulations:
            player: Any = with_simulations(trained.player, simulations)
            for most in (None, getattr(env, "max_return", 1.0)):
                planner = dataclasses.replace(player.planner, max_return=most, kernels="plain")
                proving = dataclasses.replace(player, planner=planner)
                start = time.perf_counter()
                row = Suite.read(path).measure(env, proving, key=jr.key(0))
                seconds = time.perf_counter() - start
                about = {"suite": suite, "simulations": simulations, "max_return": most}
                print(json.dumps(about | row | {"seconds": round(seconds, 1)}), flush=True)


if __name__ == "__main__":
    main()
