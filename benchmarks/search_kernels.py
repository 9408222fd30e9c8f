"""Does a walk that is a kernel of its own beat loops of kernels?

The same search with `kernels="plain"` and `kernels="pallas"` takes turns on the positions and the
model of search_vs_mctx.py. One JSON line a cell, B games searched together with N simulations each:

- `plain_rate`, `pallas_rate`: simulations a second, medians. `ratio`: the median over runs that
  take turns; above 1 `"pallas"` is faster. `floor_rate`: the environment and the evaluator alone.
- `compile_s`: tracing, lowering and compiling. `trees_that_differ`: by a visit; rounding may do it.

On a CPU the kernels are interpreted, which says nothing of a GPU.

    uv run python benchmarks/search_kernels.py --cells 1024x64 128x800
"""

import argparse
import json
import statistics
from collections.abc import Callable
from typing import Any

import jax
import jax.random as jr
import numpy as np
from search_vs_mctx import build, clock, floor, game, positions

from zero_search import TreeSearch


KINDS = {"puct": TreeSearch.muzero, "gumbel": TreeSearch.gumbel}


def search(kind: str, simulations: int, kernels: str) -> Callable:
    """`(model, state, key) -> edges` of the whole trees."""
    planner = KINDS[kind](simulations, kernels=kernels)

    def run(model, state, key):
        carry, keys = planner.init(model, state), jr.split(key, state.terminated.shape[0])
        return planner.grow(model, state, carry, key=keys)[2].edge

    return run


def cell(kind: str, batch: int, simulations: int, options: argparse.Namespace) -> dict[str, Any]:
    """Everything measured of one batch size and number of simulations."""
    model = game("othello", options.network, slim=True)
    given = model, positions(model, batch), jr.key(4)
    subjects = {name: search(kind, simulations, name) for name in ("plain", "pallas")}
    built = {name: build(run, *given) for name, run in subjects.items()}
    calls = {name: call for name, (_, call, _) in built.items()}
    plain, pallas = (np.asarray(calls[name]()[:, :, 0]) for name in subjects)
    calls["floor"] = build(floor(simulations), *given)[1]
    clock(calls["floor"])
    times = {name: [] for name in calls}
    for _ in range(options.runs):
        for name, call in calls.items():
            times[name].append(clock(call))
    rate = {k: round(batch * simulations / statistics.median(v)) for k, v in times.items()}
    ratios = [a / b for a, b in zip(times["plain"], times["pallas"], strict=True)]
    return {
        "question": f"{kind} search, each walk a kernel, othello",
        "device": jax.devices()[0].device_kind,
        "evaluator": options.network or "linear",
        "batch": batch,
        "simulations": simulations,
        "ratio": round(statistics.median(ratios), 2),
        **{f"{name}_rate": rate[name] for name in rate},
        "compile_s": {name: round(seconds, 2) for name, (_, _, seconds) in built.items()},
        "trees_that_differ": int((plain != pallas).any(axis=(1, 2)).sum()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--cells", nargs="+", default=("1024x64", "128x800"), help="BATCHxSIMULATIONS"
    )
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--network", help="BLOCKSxCHANNELS instead of a linear evaluator")
    options = parser.parse_args()
    jax.config.update("jax_enable_compilation_cache", False)
    for kind in KINDS:
        for name in options.cells:
            batch, simulations = (int(x) for x in name.split("x"))
            print(json.dumps(cell(kind, batch, simulations, options)), flush=True)


if __name__ == "__main__":
    main()
