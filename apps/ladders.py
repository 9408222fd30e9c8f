"""Rates the fixed opponents of `eval --opponent ladder`:
`uv run --extra judges python apps/ladders.py NAME`, with NAME othello, connect_four or tic_tac_toe.

Each opponent meets the next two of its row, who are about as strong, in 400 games. A rating never
changes: the file is made anew only where an opponent or the openings are others.
"""

import datetime
import subprocess
import sys
from typing import Any

import jax.random as jr

from zero_app import errors_of, FixedLadder, measure, start_jax, UsageError
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
    "connect_four": ("zero", "pgx/connect_four", _UCT),
    "tic_tac_toe": ("zero", "pgx/tic_tac_toe", _UCT),
}


def rated(name: str) -> EloLadder:
    """The games of all opponents."""
    command, game, names = LADDERS[name]
    env: Any = build_world(game).env
    app = APPS[command]
    known = {"random": lambda env: RandomActor(), **app.opponents}
    players = {one: known[one](env) for one in names}
    ladder = EloLadder(names[0])
    for i, (one, other) in enumerate(
        (names[i + far], names[i]) for far in (1, 2) for i in range(len(names) - far)
    ):
        row, _ = measure(
            env,
            players[one],
            players[other],
            players=2,
            games=GAMES,
            max_moves=1000,
            key=jr.fold_in(jr.key(0), i),
            opening_plies=app.opening_plies or OPENING_PLIES,
        )
        print(f"{one} against {other}: {row}", flush=True)
        ladder = ladder.add_result(one, other, row["wins"] + row["draws"] / 2, row["games"])
    return ladder


if __name__ == "__main__":
    with errors_of("ladders.py"):
        if len(sys.argv) != 2 or sys.argv[1] not in LADDERS:
            raise UsageError(f"give NAME, one of {', '.join(LADDERS)}.")
        start_jax()
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
