"""Rates the fixed opponents of `eval --opponent ladder`:
`uv run --extra judges python apps/ladders.py NAME`, with NAME othello, connect_four or tic_tac_toe.

Each opponent meets the next two of its row, who are about as strong, in 400 games. A rating never
changes: the file is made anew only where an opponent or the openings are others.
"""

import datetime
import functools as ft
import multiprocessing
import os
import subprocess
import sys
import zlib
from collections.abc import Sequence
from typing import Any

import jax.random as jr
from jaxtyping import PRNGKeyArray

from zero_app import errors_of, FixedLadder, measure, sentence, start_jax, UsageError
from zero_cli._apps import APPS
from zero_cli._worlds import build_world
from zero_train import EloLadder, OPENING_PLIES, RandomActor


GAMES = 400
_UCT = "random", "uct-200", "uct-1000", "uct-5000"
#: By name: the app, the environment, and its opponents, of which the first has the rating 0.
LADDERS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "othello": (
        "othello",
        "othello",
        ("random", "positional", *_UCT[1:3], "alpha-beta-4", "uct-5000", "alpha-beta-6"),
    ),
    "connect_four": ("zero", "pgx/connect_four", (_UCT[0], "uct-20", *_UCT[1:])),
    "tic_tac_toe": ("zero", "pgx/tic_tac_toe", _UCT),
}


def matches(names: Sequence[str]) -> list[tuple[str, str]]:
    """Who meets whom."""
    return [(names[i + far], names[i]) for far in (1, 2) for i in range(len(names) - far)]


def key_of(one: str, other: str) -> PRNGKeyArray:
    """The randomness of a match. It follows from who plays, so that another opponent in the row
    changes no other match."""
    return jr.fold_in(jr.key(0), zlib.crc32(f"{one} {other}".encode()))


def played(name: str, match: tuple[str, str]) -> tuple[str, str, float, int]:
    """The result of a match."""
    command, game, _ = LADDERS[name]
    app, env = APPS[command], build_world(game).env
    known: dict[str, Any] = {"random": lambda env: RandomActor(), **app.opponents}
    one, other = match
    row, _ = measure(
        env,
        known[one](env),
        known[other](env),
        players=2,
        games=GAMES,
        max_moves=1000,
        key=key_of(one, other),
        opening_plies=app.opening_plies or OPENING_PLIES,
    )
    print(f"{one}: {sentence(row, other)}", flush=True)
    return one, other, row["wins"] + row["draws"] / 2, row["games"]


def rated(name: str) -> EloLadder:
    """The games of all opponents, with a process for each core."""
    *_, names = LADDERS[name]
    ladder = EloLadder(names[0])
    cores = len(os.sched_getaffinity(0))
    with multiprocessing.get_context("spawn").Pool(cores, start_jax) as pool:
        for result in pool.map(ft.partial(played, name), matches(names), chunksize=1):
            ladder = ladder.add_result(*result)
    return ladder


if __name__ == "__main__":
    with errors_of("ladders.py"):
        if len(sys.argv) != 2 or sys.argv[1] not in LADDERS:
            raise UsageError(f"give NAME, one of {', '.join(LADDERS)}.")
        command, game, _ = LADDERS[sys.argv[1]]
        app = APPS[command]
        assert app.ladders is not None
        out = app.ladders / f"{game}.json"
        out.parent.mkdir(parents=True, exist_ok=True)
        made = {
            "date": str(datetime.date.today()),
            "command": f"uv run --extra judges python apps/ladders.py {sys.argv[1]}",
            "commit": subprocess.check_output(("git", "rev-parse", "HEAD"), text=True).strip(),
            "seed": 0,
            "opening_plies": app.opening_plies or OPENING_PLIES,
        }
        FixedLadder.of(rated(sys.argv[1]), made).write(out)
        print(out.read_text())
