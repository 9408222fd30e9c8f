"""Does keeping the subtree of the played move make a player stronger?

Two players with the same trained network and search, one of which keeps the subtree
(`reuse=True`), play from random openings, both seats each, deterministically. JSON lines, and
`--question` picks some:

- `kept`: in some games of the match, the visits a search starts with on average, and which share of
  the visits at the end of the player's last search that is (the first moves apart).
- `match`: score and Elo of the player that keeps, each with its 95 % interval, at equal
  simulations.
- `time`: milliseconds a move, alone and in a batch, and the ratios, paired. Then `match` again,
  against a player whose moves take as long: it gets as many more simulations as the larger ratio
  says, and its own `time` lines show how well that is met.

    uv run othello train --out runs/quick
    export XLA_FLAGS=--xla_cpu_experimental_ynn_fusion_type=  # what `othello` itself sets
    uv run python benchmarks/search_reuse.py runs/quick --search puct
    uv run python benchmarks/search_reuse.py pgx/connect_four --question match --games 400
"""

import argparse
import json
import statistics
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from _players import play, seconds_a_move, trained_model
from _turns import ratio

from zero_search import AbstractPlanner, PUCT, TreeSearch
from zero_train import EnvironmentModel


#: Where the moves are timed: so many moves of games that are so many plies old.
TIMED = {"plies": 16, "opening_plies": 20}


class Watched(AbstractPlanner[Any, Any]):
    """Reports what every search starts with: the visits kept, and whether the game is over."""

    planner: AbstractPlanner
    report: Callable[..., None] = eqx.field(static=True)

    def init(self, model, state):
        return self.planner.init(model, state)

    def plan(self, model, state, carry, *, key, obs=None):
        plan, carry = self.planner.plan(model, state, carry, key=key, obs=obs)
        # In a final state every action is legal.
        over = jnp.all(jax.vmap(model.env.observe)(state).legal, axis=-1)
        jax.debug.callback(self.report, plan.stats["reused"], over, ordered=True)
        return plan, carry

    def advance(self, carry, action, last):
        return self.planner.advance(carry, action, last)


def kept(
    model: EnvironmentModel, keeper: AbstractPlanner, other: AbstractPlanner, games: int, seed: int
) -> dict[str, float]:
    """What the searches of `keeper` start with in a match against `other`."""
    turns: list[tuple[np.ndarray, np.ndarray]] = []
    watched = Watched(keeper, lambda *row: turns.append((np.asarray(row[0]), np.asarray(row[1]))))
    play(model, watched, other, games=games, batch=games, seed=seed)
    jax.effects_barrier()
    reused, over = (np.stack(x) for x in zip(*turns, strict=True))
    # Every other turn it moves in the same half of the games.
    before, now, live = reused[:-2], reused[2:], ~over[2:]
    simulations: int = keeper.num_simulations  # pyright: ignore[reportAttributeAccessIssue]
    return {
        "visits": round(float(now[live].mean()), 1),
        "share": round(float(now[live].sum() / (before[live] + simulations).sum()), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "run", nargs="?", default="runs/quick", help="folder of a run, or pgx/connect_four"
    )
    parser.add_argument("--search", choices=["puct", "gumbel"], default="puct")
    parser.add_argument("--simulations", type=int, default=64)
    parser.add_argument("--games", type=int, default=2000)
    parser.add_argument("--batch", type=int, default=200, help="games at a time")
    parser.add_argument("--question", choices=["kept", "match", "time"])
    parser.add_argument("--max-nodes", type=int, help="room in the tree that is kept")
    parser.add_argument("--runs", type=int, default=5, help="timed games, or batches of them")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    model, c = trained_model(options.run)

    def planner(simulations: int, reuse: bool) -> AbstractPlanner:
        room = {"reuse": reuse, "max_nodes": options.max_nodes if reuse else None}
        if options.search == "gumbel":
            return TreeSearch.gumbel(simulations, gumbel_scale=0.0, **room)
        return TreeSearch(simulations, PUCT(c), **room)

    def line(question: str, simulations: int, **found: Any) -> None:
        about = {"question": question, "search": options.search, "device": jax.default_backend()}
        about["simulations"] = [options.simulations, simulations]
        print(json.dumps(about | found), flush=True)

    def compare(simulations: int) -> None:
        size = {"games": options.games, "batch": options.batch, "seed": options.seed}
        line("match", simulations, **play(model, keeper, planner(simulations, False), **size))

    def cost(simulations: int) -> dict[int, float]:
        """How much longer the keeper's moves take, by the number of games at once."""
        planners = {"keeps": keeper, "drops": planner(simulations, False)}
        ratios = {}
        for batch in (1, options.batch // 2):
            seconds = seconds_a_move(model, planners, batch=batch, runs=options.runs, **TIMED)
            ratios[batch] = ratio(seconds, "keeps", "drops")
            each = {k: round(1e3 * statistics.median(v), 2) for k, v in seconds.items()}
            line("time", simulations, games=batch, ms=each, ratio=round(ratios[batch], 3))
        return ratios

    asked = lambda question: options.question in (None, question)
    keeper, simulations = planner(options.simulations, True), options.simulations
    if asked("kept"):
        found = kept(model, keeper, planner(simulations, False), options.batch, options.seed)
        line("kept", simulations, **found)
    if asked("match"):
        compare(simulations)
    if asked("time"):
        simulations = round(simulations * max(cost(simulations).values()))
        cost(simulations)
        compare(simulations)


if __name__ == "__main__":
    main()
