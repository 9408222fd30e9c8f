"""What each technique of Othello's self-play is worth: Elo at equal time against the default.

    uv run python benchmarks/othello_ablations.py train    # hours; goes on where it was stopped
    uv run python benchmarks/othello_ablations.py judge    # matches, and the table

A variant is the preset `quick` with other flags. The default trains for 1 150 steps, twelve minutes
of one core, and a variant for as many steps as take the same time: a step of both is measured in
turns, in CPU seconds, because other work on the machine then slows both alike. The players of a
variant meet those of the default of every seed, by the network alone and with 64 simulations. For
two cores start two processes with a seed each, such as `taskset -c 0 ... train --seeds 0`.
"""

import argparse
import dataclasses
import itertools as it
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.random as jr
from _players import meet
from _turns import ratio, take_turns

from zero_app import load, with_simulations
from zero_cli._apps import app_of
from zero_othello._build import build_loop
from zero_othello._config import Config, PRESETS
from zero_train import fill, init, step


BASE = "default"
#: What the folder of a run has when it is trained to its end.
DONE = "trained.json"
QUICK = dataclasses.replace(PRESETS["quick"], steps=1150)
VARIANTS: dict[str, dict[str, Any]] = {
    BASE: {},
    "value from outcomes": {"value_mix": 0.0},
    "value half from search": {"value_mix": 0.6},
    "newest weights play": {"average": 0.0},
    "4 updates": {"updates": 4},
    "1 update": {"updates": 1},
    "batches of 1024": {"batch": 1024},
    "32 simulations": {"simulations": 32, "considered": 16},
    "8 simulations": {"simulations": 8},
    "PUCT, visits": {"search": "puct"},
    "PUCT, no kept tree": {"search": "puct", "nodes": 17},
    "replay of 2048 a game": {"capacity": 2048},
    "replay of 256 a game": {"capacity": 256},
    "4 channels": {"channels": 4},
    "16 channels": {"channels": 16},
    "32 channels": {"channels": 32},
    "a block of 8": {"blocks": 1},
    "3 blocks of 32 without tables": {
        "lines": False,
        "blocks": 3,
        "channels": 32,
        "envs": 128,
        "updates": 4,
        "batch": 512,
    },
    "constant rate": {"decay": 1.0},
    "twice the rate": {"learning_rate": 0.006},
    "no symmetries": {"symmetries": False},
    "16 considered": {"considered": 16},
    "4 considered": {"considered": 4},
    "half a win for all discs": {"disc_weight": 0.5},
    "128 games": {"envs": 128, "unroll": 8},
    "no random openings": {"opening_plies": 0},
}


def folder_of(out: Path, name: str, seed: int) -> Path:
    return out / name.replace(",", "").replace(" ", "-") / f"seed-{seed}"


def steps_of(out: Path, name: str, config: Config, turns: int) -> int:
    """The steps that take as long as the default's, measured once for all seeds."""
    if config == QUICK:
        return QUICK.steps
    file = folder_of(out, name, 0).with_name("steps.json")
    if not file.exists():
        calls = {name: step_cost(x) for name, x in (("base", QUICK), ("variant", config))}
        costs = take_turns(calls, turns)
        found = {"steps": round(QUICK.steps / ratio(costs, "variant", "base")), **costs}
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            with file.open("x") as f:
                json.dump(found, f)
        except FileExistsError:  # the process of another seed was faster
            pass
    return json.loads(file.read_text())["steps"]


def step_cost(config: Config) -> Callable[[int], float]:
    """The CPU seconds of a step that learns, each time it is called."""
    loop = build_loop(config)
    state = fill(loop, init(loop, key=jr.key(0)))

    def once(number: int) -> float:
        nonlocal state
        del number
        start = time.process_time()
        for _ in range(3):
            state, _ = step(loop, state)
        jax.block_until_ready(state)
        return time.process_time() - start

    return once


def train(out: Path, names: Iterable[str], seeds: Sequence[int], turns: int) -> None:
    command = str(Path(sys.executable).with_name("othello"))
    for name in names:
        config = dataclasses.replace(QUICK, **VARIANTS[name])
        steps = steps_of(out, name, config, turns)
        flags = {**VARIANTS[name], "steps": steps, "evaluate_every": steps}
        given = [x for field, value in flags.items() for x in as_flag(field, value)]
        for seed in seeds:
            run = folder_of(out, name, seed)
            done = run / DONE
            if done.exists():
                continue
            words = [command, "train", "--preset", "quick", *given, "--seed", str(seed)]
            words += ["--out", str(run), *(["--resume"] if run.exists() else [])]
            start, log = time.monotonic(), (out / "train.log").open("a")
            subprocess.run(words, check=True, stdout=log, stderr=subprocess.STDOUT)
            report = {"variant": name, "seed": seed, "steps": steps, "flags": VARIANTS[name]}
            done.write_text(json.dumps(report))
            minutes = round((time.monotonic() - start) / 60, 1)
            print(json.dumps({**report, "minutes": minutes}), flush=True)


def as_flag(field: str, value: Any) -> list[str]:
    flag = field.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{flag}" if value else f"--no-{flag}"]
    return [f"--{flag}", str(value)]


def judge(out: Path, names: Sequence[str], seeds: Sequence[int], games: Mapping[int, int]) -> None:
    """Matches of every variant's players with those of the default, and a table."""
    file = out / "matches.jsonl"
    rows = [json.loads(x) for x in file.read_text().splitlines()] if file.exists() else []
    about = lambda row: tuple(row[name] for name in ("variant", "seed", "against", "simulations"))
    known = {about(row) for row in rows}
    for name, seed, against in it.product(names, seeds, seeds):
        if name == BASE and seed >= against:  # two seeds of the default meet once
            continue
        runs = [folder_of(out, name, seed), folder_of(out, BASE, against)]
        if not all((run / DONE).exists() for run in runs):
            continue
        for simulations, number in games.items():
            row = dict(variant=name, seed=seed, against=against, simulations=simulations)
            if about(row) in known or not number:
                continue
            trained = [load(*app_of(str(run))) for run in runs]
            players: list[Any] = [with_simulations(x.player, simulations) for x in trained]
            if simulations:  # a variant of self-play searches like the default when it is judged
                own, planner = players[0].planner, players[1].planner
                kept = {"max_return": own.max_return, "readout": own.readout}  # of its own rewards
                planner = dataclasses.replace(planner, **kept)
                players[0] = dataclasses.replace(players[0], planner=planner)
            batch = min(number, 200)
            row |= meet(trained[0].loop.env, *players, games=number, batch=batch, seed=seed)
            rows.append(row)
            with file.open("a") as f:
                print(json.dumps(row), file=f)
            print(json.dumps(row), flush=True)
    for name, simulations in it.product(names, games):
        those = [x for x in rows if (x["variant"], x["simulations"]) == (name, simulations)]
        by_seed = {seed: [x["elo"][0] for x in those if x["seed"] == seed] for seed in seeds}
        means = [statistics.fmean(elos) for elos in by_seed.values() if elos]
        if means:
            each = ", ".join(f"{x:+.0f}" for x in means)
            print(f"{name}, {simulations} simulations: {statistics.fmean(means):+.0f} ({each})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("task", choices=["train", "judge"])
    parser.add_argument("--out", type=Path, default=Path("runs/ablations"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--only", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--turns", type=int, default=5, help="for the cost of a step")
    parser.add_argument("--games", type=int, default=1000, help="of the network alone")
    parser.add_argument("--searched-games", type=int, default=200, help="with 64 simulations")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    if given.task == "train":
        train(given.out, given.only, given.seeds, given.turns)
    else:
        judge(given.out, given.only, given.seeds, {0: given.games, 64: given.searched_games})


if __name__ == "__main__":
    main()
