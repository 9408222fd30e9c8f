"""How does a player of Othello lose: in the end, or by being wiped out long before it?

    uv run --extra judges python benchmarks/othello_losses.py RUN ... --simulations 64 --games 200
    uv run python benchmarks/othello_losses.py RUN --simulations 0 --games 4000 --opponent random

JSON lines: the score, and how many of the lost games were over within 40 moves of their opening of
6. At least 15 squares are empty then, so neither side can move: but for rare positions the player
has no disc left.
"""

import argparse
import json

import jax.random as jr
import numpy as np

from zero_app import load, measure, UsageError, with_simulations
from zero_cli._apps import APPS


#: Moves of a game that ends with so few was over before the board was full.
SHORT = 40
#: More moves than a game has.
LONGEST = 128

app = APPS["othello"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("runs", nargs="*", default=["pretrained"], help="runs, or their players")
    parser.add_argument("--opponent", default="uct-1000", choices=["random", *app.opponents])
    parser.add_argument("--simulations", type=int, default=64, help="0: the network alone")
    parser.add_argument("--games", type=int, default=200)
    options = parser.parse_args()
    for run in options.runs:
        try:
            trained = load(app, run)
        except UsageError as e:
            raise SystemExit(str(e)) from e
        other = app.opponents.get(options.opponent)
        row, games = measure(
            trained.loop.env,
            with_simulations(trained.player, options.simulations),
            None if other is None else other(trained.loop.env),
            players=2,
            games=options.games,
            max_moves=LONGEST,
            key=jr.key(0),
            opening_plies=app.opening_plies or 0,
        )
        lost, short = games["score"] == 0, games["length"] < SHORT
        asked = {name: getattr(options, name) for name in ("opponent", "simulations")}
        about = {"run": run, "step": trained.step} | asked
        score = [round(row[name], 4) for name in ("score", "score_low", "score_high")]
        counts = {"lost": int(np.sum(lost)), "wiped_out": int(np.sum(lost & short))}
        print(json.dumps(about | {"games": row["games"], "score": score} | counts), flush=True)


if __name__ == "__main__":
    main()
