"""What does a search save that stops once its move is certain, and what are proofs worth?

The positions of games that a trained network plays against itself, one at a time: how many of the
simulations `stop_early` saves, whether the moves are the same, and how long both searches take,
which take turns. With `--reuse` the subtree of the move is kept, and the saved share is that of
whole games. With `--match stop` a player that stops plays against one that does not, two games at a
time, of which each moves in one; with `--match prove` one that keeps what finished games prove
against one that does not, 200 at a time. All keep their trees. JSON lines, one for each number of
simulations.

    uv run python benchmarks/search_stop.py pgx/connect_four --simulations 64 200 800
    uv run python benchmarks/search_stop.py runs/quick --reuse
    uv run python benchmarks/search_stop.py pgx/connect_four --simulations 64 --match stop
    uv run python benchmarks/search_stop.py pgx/connect_four --match prove --games 1600
"""

import argparse
import dataclasses
import functools as ft
import json
import statistics
import time
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from _players import OPENING_PLIES, play, trained_model

from zero_envs import AbstractEnvironment
from zero_search import PUCT, TreeSearch
from zero_train import EnvironmentModel


def searches(model: EnvironmentModel, c: float, simulations: int, reuse: bool) -> dict[bool, Any]:
    """The `init`, `plan` and `advance` of both searches, by whether they stop early."""

    def one(early: bool) -> tuple[Any, Any, Any]:
        planner = TreeSearch(simulations, PUCT(c), reuse=reuse, stop_early=early)
        plan = lambda state, carry, key: planner.plan(model, state, carry, key=key)
        return ft.partial(planner.init, model), jax.jit(plan), jax.jit(planner.advance)

    return {early: one(early) for early in (False, True)}


def game(env: AbstractEnvironment, both: dict[bool, Any], seed: int) -> list[dict[str, Any]]:
    """What each move after a random opening cost with both searches."""
    step = jax.jit(jax.vmap(lambda state, action, key: env.step(state, action, key=key)))
    legal = jax.jit(jax.vmap(lambda state: env.observe(state).legal))
    state = jax.jit(jax.vmap(lambda key: env.init(key=key)))(jr.split(jr.key(seed), 1))
    carry = {early: init(state) for early, (init, _, _) in both.items()}
    rows, rng = [], np.random.default_rng(seed)
    for ply in range(10**3):
        key = lambda kind, ply=ply: jr.split(jr.fold_in(jr.fold_in(jr.key(seed), ply), kind), 1)
        action = jnp.asarray(rng.choice(np.flatnonzero(legal(state)[0]), 1), jnp.int32)
        if ply >= OPENING_PLIES:
            plans, row = {}, {}
            for early, (_, plan, _) in both.items():
                start = time.perf_counter()
                plans[early], carry[early] = plan(state, carry[early], key(0))
                jax.block_until_ready(plans[early])
                row[f"seconds_{early}"] = time.perf_counter() - start
            spent = {x: float(jnp.sum(p.visits) - p.stats["reused"][0]) for x, p in plans.items()}
            row["saved"] = 1 - spent[True] / spent[False]
            row["equal"] = bool(plans[True].action[0] == plans[False].action[0])
            rows.append(row)
            action = plans[True].action
        state, transition = step(state, action, key(1))
        carry = {x: both[x][2](kept, action, transition.last) for x, kept in carry.items()}
        if transition.last[0]:
            break
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("run", nargs="?", default="pgx/connect_four", help="a run, or a game")
    parser.add_argument("--simulations", type=int, nargs="+", default=[64, 200, 800])
    parser.add_argument("--games", type=int, default=4, help="of a match, or timed ones")
    parser.add_argument("--reuse", action="store_true")
    parser.add_argument("--match", choices=["stop", "prove"])
    options = parser.parse_args()
    model, c = trained_model(options.run)
    for simulations in options.simulations:
        if options.match:
            stops = options.match == "stop"
            part: dict[str, Any] = {"stop_early": True} if stops else {"max_return": 1.0}
            plain = TreeSearch(simulations, PUCT(c), reuse=True)
            # Rows of a batch stop together, and half of the games are each player's to move.
            size = {"games": options.games, "batch": 2 if stops else 200, "seed": 1}
            found = play(model, dataclasses.replace(plain, **part), plain, **size)
            print(json.dumps({"simulations": simulations} | found), flush=True)
            continue
        both = searches(model, c, simulations, options.reuse)
        seeds = range(options.games + 1)
        rows = [row for seed in seeds for row in game(model.env, both, seed) if seed]
        mean = lambda name, rows=rows: round(statistics.fmean(row[name] for row in rows), 3)
        ms = {
            x: 1e3 * statistics.median(row[f"seconds_{x}"] for row in rows) for x in (False, True)
        }
        found = {"simulations": simulations, "reuse": options.reuse, "moves": len(rows)}
        found |= {"saved": mean("saved"), "equal": mean("equal")}
        found |= {"ms": round(ms[False], 2), "ms_stopped": round(ms[True], 2)}
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
