"""What are rules of a search worth in play? Matches of a trained network with itself.

One player searches by PUCT and plays the most visited move, and the other does so with something
changed:

- `first play N`: an action without visits is worth its node's value, less N times the root of the
  prior that was visited (KataGo), by Q-values as they are, whose exploration counts twice;
- `exploration N`: with N times PUCT's constant;
- `plain`: by Q-values as they are and nothing else, where such an action is worth 0;
- `spread`: exploration is wide where the Q-values of a node's actions differ: it counts
  `1/2 + d / 0.2` times, at most 3/2, where d is their deviation by visits (KataGo has 1 at the
  deviation that is usual);
- `wide N bound M`: with N times PUCT's constant and `bound M`;
- `none`: nothing, for `--against`;
- `prior N`: as `wide 2.0 bound 1.0`, with the temperature N for the network's policy;
- `decisive prior N`: the same over a model that sees which moves end the game at once;
- `bound N`: of the actions with a tenth of the most visits that one is played whose Q-value less
  `N / sqrt(visits)` is highest (LCB), so with 0 the highest Q-value;
- `proofs`, `decisive prior N proofs`: as `bound 1.0` and `decisive prior N`, and the search keeps
  what finished games prove;
- `symmetries N`: the network is asked for N of the board's symmetries at once, whose mean is taken,
  by the N-th part of the simulations: as many evaluations;
- `gumbel`: Gumbel's search without noise.

    uv run python benchmarks/search_rules.py --only "first play 0.2" "bound 0.3" --simulations 64
    uv run python benchmarks/search_rules.py --only "decisive prior 2.0" --against "prior 2.0"

JSON lines, of the change's view. Trees are kept between moves, but for Gumbel's search.
"""

import argparse
import dataclasses
import json
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from _players import meet, trained_model

from zero_envs import Observation
from zero_nets import BoardSymmetries
from zero_search import (
    AbstractSelection,
    ByParentAndSiblings,
    FirstPlayUrgency,
    LowerBound,
    PlainQ,
    PUCT,
    TreeSearch,
)
from zero_train import EnvironmentModel, PlanningActor


_STRETCHED = ByParentAndSiblings()


class SpreadPUCT(AbstractSelection):
    """PUCT whose exploration grows with the spread of Q-values."""

    puct: PUCT

    def prepare(self, logits: Any) -> Any:
        return self.puct.prepare(logits)

    def score(self, node: Any) -> Any:
        seen = jnp.where(node.visits > 0, node.visits, 0.0)
        total = jnp.maximum(jnp.sum(seen, axis=1, keepdims=True), 1.0)
        mean = jnp.sum(seen * node.qvalues, axis=1, keepdims=True) / total
        spread = jnp.sum(seen * jnp.square(node.qvalues - mean), axis=1, keepdims=True) / total
        times = jnp.minimum(0.5 + jnp.sqrt(spread) / 0.2, 1.5)
        values = self.puct.qtransform(node)
        return values + times * (self.puct.score(node) - values)


def averaged(model: EnvironmentModel, number: int) -> EnvironmentModel:
    """A model that asks for so many symmetries of an 8x8 board: turns first, then mirrored."""
    env: Any = model.env
    board = BoardSymmetries(8, 8, env.num_actions)
    indices = jnp.asarray([0, 6, 2, 4, 1, 3, 5, 7][:number], jnp.int32)

    def evaluate(obs: Observation) -> Any:
        def one(index: Any) -> Any:
            assert obs.legal is not None
            features = jax.tree.map(lambda x: board.features(x, index), obs.features)
            logits, value = model.evaluate(Observation(features, board.actions(obs.legal, index)))
            return jax.nn.log_softmax(board.actions(logits, board.inverse(index))), value

        logits, values = jax.vmap(one)(indices)
        return jax.nn.logsumexp(logits, axis=0), jnp.mean(values)

    return EnvironmentModel(model.env, evaluate, model.gamma)


def changes(
    c: float, n: int, most: float = 1.0
) -> dict[str, Callable[[EnvironmentModel], PlanningActor]]:
    """By name, the player with that change; `most` is the greatest return of a game."""

    def by(planner: Any) -> Callable[[EnvironmentModel], PlanningActor]:
        return lambda model: PlanningActor(planner, model)

    def puct(times: float, transform: Any = _STRETCHED, heat: float = 1.0, **parts: Any) -> Any:
        rule = PUCT(times * c, transform, prior_temperature=heat)
        return by(TreeSearch(n, rule, reuse=True, **parts))

    def decisive(heat: float, **parts: Any) -> Callable[[EnvironmentModel], PlanningActor]:
        player = puct(2.0, heat=heat, readout=bounds[1.0], **parts)
        return lambda model: player(dataclasses.replace(model, decisive_moves=True))

    def turned(number: int) -> Callable[[EnvironmentModel], PlanningActor]:
        planner = TreeSearch(n // number, PUCT(c), reuse=True)
        return lambda model: PlanningActor(planner, averaged(model, number))

    wider, bounds = (0.25, 0.5, 2.0, 4.0), {x: LowerBound(x) for x in (0.0, 0.1, 0.3, 1.0)}
    heats = 1.5, 2.0, 3.0
    return {
        **{f"prior {x}": puct(2.0, heat=x, readout=bounds[1.0]) for x in heats},
        **{f"decisive prior {x}": decisive(x) for x in (1.0, *heats)},
        **{f"decisive prior {x} proofs": decisive(x, max_return=most) for x in (1.0, *heats)},
        "proofs": puct(1.0, readout=bounds[1.0], max_return=most),
        **{f"exploration {x}": puct(x) for x in wider},
        **{f"bound {y}": puct(1.0, readout=bound) for y, bound in bounds.items()},
        **{
            f"wide {x} bound {y}": puct(x, readout=bound)
            for x in wider
            for y, bound in bounds.items()
        },
        **{f"first play {x}": puct(2.0, FirstPlayUrgency(x)) for x in (0.0, 0.2, 0.5)},
        "plain": puct(2.0, PlainQ()),
        "none": puct(1.0),
        "spread": by(TreeSearch(n, SpreadPUCT(PUCT(c)), reuse=True)),
        **{f"symmetries {x}": turned(x) for x in (2, 8)},
        "gumbel": by(TreeSearch.gumbel(n, gumbel_scale=0.0)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    said = "a run, or the game of a trained player"
    parser.add_argument("run", nargs="?", default="othello", help=said)
    parser.add_argument("--simulations", type=int, default=64)
    parser.add_argument("--games", type=int, default=400)
    names = list(changes(1.0, 8))
    parser.add_argument(
        "--only", nargs="+", choices=names, default=[x for x in names if x != "none"]
    )
    parser.add_argument("--against", choices=names, default="none", help="what the other one has")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    model, c = trained_model(given.run)
    asks_symmetries = any(name.startswith("symmetries") for name in given.only)
    if asks_symmetries and getattr(model.env, "num_actions", 0) != 65:
        parser.error(f"{given.run} is not a run of Othello, whose symmetries these are")
    players = changes(c, given.simulations, getattr(model.env, "max_return", 1.0))
    other = players[given.against](model)
    for name in given.only:
        player = players[name](model)
        size = {"games": given.games, "batch": min(given.games, 200), "seed": given.seed}
        found = meet(model.env, player, other, **size)
        about = {"change": name, "against": given.against, "simulations": given.simulations}
        print(json.dumps(about | found), flush=True)


if __name__ == "__main__":
    main()
