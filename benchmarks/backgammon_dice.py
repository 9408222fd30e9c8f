"""What a trained player of backgammon gains by the odds of the dice, and how it does at random.

    uv run zero train pgx/backgammon --steps 2500
    uv run python benchmarks/backgammon_dice.py runs/pgx-backgammon --games 1000

JSON lines: the share of games won with its 95 % interval, from the view of a search of one ply. It
looks at every move once, at all rolls that may follow it, and plays the one of the best value.
Against random moves, and against the same search with `outcomes="frozen"`, which takes the first
roll that it draws for certain.
"""

import argparse
import functools as ft
import json
from typing import Any

import jax.random as jr
import numpy as np

from zero_app import load
from zero_cli._apps import app_of
from zero_search import CompletedByMixedValue, TreeSearch
from zero_train import match, PlanningActor, RandomActor, score_interval


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("run")
    parser.add_argument("--games", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    player: Any = load(*app_of(options.run)).player
    # Hardly a position has more moves of a checker. Values decide, not the prior or noise.
    looks, qtransform = 32, CompletedByMixedValue(value_scale=1.0)
    search = ft.partial(
        TreeSearch.gumbel,
        looks,
        max_num_considered_actions=looks,
        gumbel_scale=0.0,
        qtransform=qtransform,
        max_depth=1,
    )
    planner, frozen = search(evaluate_outcomes=True), search(outcomes="frozen")
    actors = {"random": RandomActor(), "frozen dice": PlanningActor(frozen, player.model)}
    for name, opponent in actors.items():
        won = []
        for part in range(-(-options.games // options.batch)):
            result = match(
                player.model.env,
                PlanningActor(planner, player.model),
                opponent,
                num_games=options.batch,
                max_steps=1000,
                key=jr.fold_in(jr.key(options.seed), part),
            )
            won.append((np.asarray(result.outcomes, np.float64).reshape(2, -1).T + 1) / 2)
        every = np.concatenate(won)
        row: dict[str, Any] = {"against": name, "games": every.size}
        row["score"] = [round(float(x), 4) for x in (every.mean(), *score_interval(every))]
        print(json.dumps({**vars(options), **row}), flush=True)


if __name__ == "__main__":
    main()
