"""What a trained player of backgammon gains by the odds of the dice, and how it does at random.

    uv run zero train pgx/backgammon --steps 2500
    uv run python benchmarks/backgammon_dice.py runs/pgx-backgammon --games 1000

JSON lines: the score and its rating difference, both with 95 % intervals, from the view of a search
of one ply. It looks at every move once, at all rolls that may follow it, and plays the one of the
best value. Against random moves, and against the same search with `outcomes="frozen"`, which takes
the first roll that it draws for certain.
"""

import argparse
import functools as ft
import json
from typing import Any

from _players import meet

from zero_app import load
from zero_cli._apps import app_of
from zero_search import CompletedByMixedValue, TreeSearch
from zero_train import OPENING_PLIES, PlanningActor, RandomActor


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
    searching = PlanningActor(planner, player.model)
    size = {"games": options.games, "batch": options.batch, "seed": options.seed}
    size |= {"max_steps": 1000, "opening_plies": OPENING_PLIES}
    for name, opponent in actors.items():
        found = meet(player.model.env, searching, opponent, **size)
        print(json.dumps({**vars(options), "against": name, **found}), flush=True)


if __name__ == "__main__":
    main()
