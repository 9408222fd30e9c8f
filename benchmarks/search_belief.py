"""What does a belief tree cost, in time and memory, by particles and simulations?

A bare minefield of 10 x 10 cells with 10 mines and nothing opened yet, 200 bytes a state, and an
evaluator that costs nothing. Beside it `Hindsight` with as many trees as there are particles, which
steps as many states, but also stores a tree of statistics for each and asks the evaluator about
each. Both in one process, taking turns. One JSON line for each number of particles and simulations:

- `belief_ms`, `hindsight_ms`: the least milliseconds of planning one move in all rows.
- `ratio`: the median over runs of belief by hindsight.
- `belief_mb`, `hindsight_mb`: the trees.

    uv run python benchmarks/search_belief.py
    uv run python benchmarks/search_belief.py --particles 1024 --simulations 64 --batch 64
"""

import argparse
import json
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
from _turns import clocked, ratio, take_turns

from zero_search import AbstractHiddenModel, BeliefModel, Hindsight, TreeSearch


SIDE, MINES = 10, 10


class Field(NamedTuple):
    """Which cells have a mine, and which are open."""

    mine: jax.Array
    open: jax.Array


class Minefield(AbstractHiddenModel[Field]):
    """Opens cells one by one; 1 for each, until a mine. Guesses only at what nobody has touched."""

    @property
    def num_signals(self) -> int:
        return 10  # the number of mines around a cell, or a mine

    def root(self, state, obs, *, key):
        mines = jnp.arange(SIDE * SIDE) < MINES
        return Field(jax.vmap(lambda k: jr.permutation(k, mines))(key), state.open)

    def step(self, state, action, *, key):
        lane = jnp.arange(action.shape[0])
        hit = state.mine[lane, action]
        after = Field(state.mine, state.open.at[lane, action].set(True))
        over = hit | (jnp.sum(after.open, axis=1) == SIDE * SIDE - MINES)
        return after, jnp.where(hit, 0.0, 1.0), jnp.where(over, 0.0, 1.0), over

    def signal(self, state, action, next_state):
        row, column = action // SIDE, action % SIDE
        cells = jnp.arange(SIDE * SIDE, dtype=jnp.int32)[None]
        near = jnp.abs(cells // SIDE - row[:, None]) <= 1
        near = near & (jnp.abs(cells % SIDE - column[:, None]) <= 1)
        here = cells == action[:, None]
        number = jnp.sum(near & ~here & state.mine, axis=1, dtype=jnp.int32)
        return jnp.where(jnp.any(here & state.mine, axis=1), 9, number)

    def predict(self, state, *, key):
        logits = jnp.where(state.open, -jnp.inf, 0.0)
        return logits, SIDE * SIDE - MINES - jnp.sum(state.open, axis=1, dtype=jnp.float32)


def measure(particles: int, simulations: int, options: argparse.Namespace) -> dict[str, Any]:
    tree, world, batch = TreeSearch(simulations), Minefield(), options.batch
    searches: dict[str, tuple[Any, Any]] = {
        "belief": (tree, BeliefModel(world, particles)),
        "hindsight": (Hindsight(tree, particles), world),
    }
    state = Field(*[jnp.zeros((batch, SIDE * SIDE), bool)] * 2)
    calls, size = {}, {}
    for name, search in searches.items():

        def grow(state: Field, key: jax.Array, search: tuple[Any, Any] = search) -> Any:
            planner, model = search
            carry = planner.init(model, state)
            return planner.grow(model, state, carry, key=jr.split(key, batch))

        leaves = jax.tree.leaves(jax.eval_shape(grow, state, jr.key(0))[2])
        size[f"{name}_mb"] = round(sum(x.size * x.dtype.itemsize for x in leaves) / 1e6, 1)
        plan = jax.jit(lambda s, k, g=grow: g(s, k)[0]).lower(state, jr.key(0)).compile()
        calls[name] = lambda run, plan=plan: clocked(lambda: plan(state, jr.key(run)))
    times = take_turns(calls, options.runs)
    least = {f"{name}_ms": round(1e3 * min(x), 1) for name, x in times.items()}
    return least | {"ratio": round(ratio(times, "belief", "hindsight"), 2)} | size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--particles", type=int, nargs="+", default=[64, 256, 1024])
    parser.add_argument("--simulations", type=int, nargs="+", default=[32, 128])
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    question = {"question": "what does a belief tree cost", "device": jax.default_backend()}
    for particles in options.particles:
        for simulations in options.simulations:
            cell = {"particles": particles, "simulations": simulations, "batch": options.batch}
            print(
                json.dumps(question | cell | measure(particles, simulations, options)), flush=True
            )


if __name__ == "__main__":
    main()
