"""How well an n-tuple network plays 2048 after so many minutes of one core, alone and with search.

    uv run --extra judges python benchmarks/game2048_ntuple.py train --minutes 60 --out runs/ntuple
    uv run --extra judges python benchmarks/game2048_ntuple.py play --out runs/ntuple --expect

`train` learns on the host. Times are CPU seconds, without those of the measurements: after 1, 2, 5,
10, 15 and then every 10 minutes a JSON line has the mean points of greedy games, from seeds that
training does not use, and the share of games that reached each tile. It goes on where an earlier
call ended. `play` plans with the tables it left, by `zero_search.TreeSearch` over the game with its
odds: one step of expectimax with `--expect`, `--simulations` visits of a tree without.
"""

import argparse
import json
import pathlib
import time
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from _game2048 import ENTRIES, learn, Learner, model_of, new_learner, NTupleNetwork, row_tables

from zero_envs import Game2048
from zero_search import SoftmaxQ, TreeSearch
from zero_train import evaluate, PlanningActor


#: Games that are learned from between two looks at the clock.
GAMES = 50


def main() -> None:
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command", required=True)
    training, playing = commands.add_parser("train"), commands.add_parser("play")
    for one in (training, playing):
        one.add_argument("--out", type=pathlib.Path, required=True)
        one.add_argument("--games", type=int, default=300)
        one.add_argument("--seed", type=int, default=0)
    training.add_argument("--minutes", type=float, default=60)
    training.add_argument("--first-value", type=float, default=0)
    playing.add_argument("--simulations", type=int, default=4)
    playing.add_argument("--expect", action="store_true")
    playing.add_argument("--max-steps", type=int, default=100_000)
    args = parser.parse_args()
    train(args) if args.command == "train" else play(args)


def train(args: argparse.Namespace) -> None:
    """Learns, and measures and stores at each mark."""
    args.out.mkdir(parents=True, exist_ok=True)
    rows, log, names = row_tables(), args.out / "log.jsonl", ("values", "errors")
    files = [args.out / f"{name}.npy" for name in names]
    done: dict[str, Any] = {"first_value": args.first_value, "cpu_s": 0.0, "games": 0, "moves": 0}
    learner = new_learner(args.first_value)
    if log.exists():
        done = json.loads(log.read_text().splitlines()[-1])
        learner = Learner(*map(np.load, files))
    learn(new_learner(0), rows, 1, 0)  # compiles, or reads what was compiled
    games, moves = done["games"], done["moves"]
    start = time.process_time() - done["cpu_s"]
    for mark in marks(args.minutes):
        if mark <= done["cpu_s"]:
            continue
        while time.process_time() - start < mark:
            played = learn(learner, rows, GAMES, args.seed + games)
            games, moves = games + GAMES, moves + played.moves
        used = time.process_time() - start
        measured = scores(*learn(learner, rows, args.games, 2**31 + args.seed, rate=0)[:2])
        line = {"first_value": done["first_value"], "cpu_s": used, "games": games, "moves": moves}
        line |= {"moves_per_s": round(moves / used)} | measured
        for path, table in zip(files, learner, strict=True):
            np.save(path.with_suffix(".new.npy"), table)
        for path in files:  # once all are written
            path.with_suffix(".new.npy").replace(path)
        with log.open("a") as file:
            print(json.dumps(line), file=file)
        print(json.dumps(line), flush=True)
        start = time.process_time() - used


def marks(minutes: float) -> Iterator[float]:
    """CPU seconds after which a training is measured."""
    passed = [m for m in (1, 2, 5, 10, 15, *range(20, int(minutes) + 1, 10)) if m < minutes]
    return (60.0 * m for m in (*passed, minutes))


def play(args: argparse.Namespace) -> None:
    """Plays games side by side with a planner."""
    tables = jnp.asarray(np.load(args.out / "values.npy").reshape(-1, ENTRIES))
    if args.expect:
        planner = TreeSearch.gumbel(
            4,
            max_num_considered_actions=4,
            gumbel_scale=0.0,
            in_rounds=True,
            readout=SoftmaxQ(),
            evaluate_outcomes=True,
        )
    else:
        planner = TreeSearch(args.simulations, readout=SoftmaxQ(), outcomes="weighted")
    actor = PlanningActor(planner, model_of(NTupleNetwork(tables)))
    began, cpu = time.perf_counter(), time.process_time()
    key = jr.key(args.seed)
    found = jax.block_until_ready(
        evaluate(Game2048(), actor, num_episodes=args.games, max_steps=args.max_steps, key=key)
    )
    line = {"expect": args.expect, "simulations": planner.num_simulations}
    line |= {"cpu_s": time.process_time() - cpu, "wall_s": time.perf_counter() - began}
    line |= {"moves": int(found.lengths.sum()), "cut": int((~found.terminated).sum())}
    print(json.dumps(line | scores(np.asarray(found.returns))), flush=True)


def scores(points: np.ndarray, largest: np.ndarray | None = None) -> dict[str, Any]:
    """The mean points of games, its standard error, and how many games reached each tile."""
    line = {"points": points.mean(), "error": points.std(ddof=1) / len(points) ** 0.5}
    line = {name: round(float(x)) for name, x in line.items()} | {"measured": len(points)}
    if largest is None:
        return line
    return line | {str(1 << k): round(float((largest >= k).mean()), 3) for k in range(10, 16)}


if __name__ == "__main__":
    main()
