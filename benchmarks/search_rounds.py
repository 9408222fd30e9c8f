"""What does sequential halving in rounds bring?

`TreeSearch.gumbel(N, in_rounds=True)` simulates all actions that are left side by side and
evaluates their leaves together. Othello with a trained network; JSON lines, and `--question` picks
one:

- `time`: milliseconds a move of mctx's Gumbel search, of ours one by one and of ours in rounds, at
    several batches of games, and how many times as fast rounds are; `simulations` is how many a
    game runs of those asked for, fewer in rounds where few moves are legal.
- `match`: score and Elo, with 95 % intervals, of rounds against one by one, with as many
    simulations asked for. (One by one is move for move mctx's search.)

    uv run othello train --out runs/quick
    export XLA_FLAGS=--xla_cpu_experimental_ynn_fusion_type=  # what `othello` itself sets
    uv run python benchmarks/search_rounds.py runs/quick
"""

import argparse
import json
import statistics
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from _players import play, trained_model
from _turns import clocked, ratio, take_turns
from jaxtyping import Array, PyTree

from zero_othello._mctx import MctxSearch
from zero_search import AbstractPlanner, TreeSearch
from zero_train import EnvironmentModel


def positions(model: EnvironmentModel, batch: int) -> PyTree[Array]:
    """Positions after 4 to 43 random plies."""
    env: Any = model.env
    state = jax.vmap(lambda key: env.init(key=key))(jr.split(jr.key(2), batch))
    plies = 4 + jnp.arange(batch, dtype=jnp.int32) % 40

    def body(i: Array, state: PyTree[Array]) -> PyTree[Array]:
        keys = jax.vmap(jr.fold_in, (0, None))(jr.split(jr.key(3), batch), i)
        legal = jax.vmap(env.observe)(state).legal
        action = jax.vmap(jr.categorical)(keys, jnp.where(legal, 0.0, -jnp.inf))
        after, moved = jax.vmap(lambda s, a, k: env.step(s, a, key=k))(
            state, action.astype(jnp.int32), keys
        )
        stay = (i >= plies) | moved.last
        pick = lambda x, y: jnp.where(stay.reshape((-1,) + (1,) * (x.ndim - 1)), x, y)
        return jax.tree.map(pick, state, after)

    return jax.jit(lambda state: jax.lax.fori_loop(0, 44, body, state))(state)


def timed(
    model: EnvironmentModel, planner: AbstractPlanner, batch: int
) -> tuple[Callable[[int], float], float]:
    """A call that returns the seconds of a move of all games, and the simulations a game."""
    state = positions(model, batch)
    params, static = eqx.partition(model, eqx.is_array)

    @jax.jit
    def move(params: PyTree[Array], state: PyTree[Array], key: Array) -> Any:
        model = eqx.combine(params, static)
        return planner.plan(model, state, planner.init(model, state), key=jr.split(key, batch))[0]

    plan = move(params, state, jr.key(0))
    call = lambda number: clocked(lambda: move(params, state, jr.key(number)))
    return call, float(jnp.sum(plan.visits) / batch)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("run", nargs="?", default="runs/quick", help="folder of a trained run")
    parser.add_argument("--question", choices=["time", "match"])
    parser.add_argument("--simulations", type=int, nargs="+", default=[32, 128])
    parser.add_argument("--considered", type=int, nargs="+", default=[16, 8])
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 128])
    parser.add_argument("--games", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=200, help="games at a time in a match")
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    model, _ = trained_model(options.run)
    for simulations in options.simulations:
        for considered in options.considered:
            parts = {"gumbel_scale": 0.0, "max_num_considered_actions": considered}
            one = TreeSearch.gumbel(simulations, **parts)
            rounds = TreeSearch.gumbel(simulations, in_rounds=True, **parts)
            about = {"simulations": simulations, "considered": considered}
            if options.question in (None, "time"):
                mctx = MctxSearch(simulations, considered=considered)
                planners = {"mctx": mctx, "one": one, "rounds": rounds}
                for batch in options.batches:
                    found = {name: timed(model, each, batch) for name, each in planners.items()}
                    seconds = take_turns({k: call for k, (call, _) in found.items()}, options.runs)
                    ms = {k: round(1e3 * statistics.median(v), 2) for k, v in seconds.items()}
                    faster = {k: round(ratio(seconds, k, "rounds"), 2) for k in ("mctx", "one")}
                    ran = {name: round(number, 1) for name, (_, number) in found.items()}
                    line = {"question": "time", "batch": batch, "ms": ms, "faster_than": faster}
                    print(json.dumps(about | line | {"simulations_run": ran}), flush=True)
            if options.question in (None, "match"):
                size = {"games": options.games, "batch": options.batch, "seed": options.seed}
                line = {"question": "match, rounds against one by one"}
                print(json.dumps(about | line | play(model, rounds, one, **size)), flush=True)


if __name__ == "__main__":
    main()
