"""How many steps of Othello a second: our bits, and pgx's board.

One JSON line for each number of games, which are stepped at once from their start to their end. The
actions are those of random play, drawn beforehand, so that only the environments are timed:
`zero_envs.Othello`, `zero_envs.PgxEnvironment("othello")` and pgx itself take turns in one process.
Each is given by the median of its rates in steps a second, and `over_*` is the median ratio of a
turn.

- `step`: states and transitions. pgx itself always computes observations too.
- `observe`: observations too, with legal actions.

    uv run python benchmarks/envs_othello.py
"""

import argparse
import json
import statistics
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import pgx
from _turns import clocked, ratio, take_turns

from zero_envs import Othello, PgxEnvironment


#: Steps of a game; random ones are hardly longer.
PLIES = 64


def actions(games: int, seed: int) -> jax.Array:
    """Random legal actions, `[PLIES, games]`; any actions after the end of a game."""
    env = Othello()

    def ply(states: Any, key: jax.Array) -> tuple[Any, jax.Array]:
        legal: Any = jax.vmap(env.observe)(states).legal
        action = jr.categorical(key, jnp.where(legal, 0.0, -jnp.inf))
        return jax.vmap(lambda s, a: env.step(s, a, key=key)[0])(states, action), action

    key, ikey = jr.split(jr.key(seed))
    starts = jax.vmap(lambda k: env.init(key=k))(jr.split(ikey, games))
    return jax.jit(lambda: jax.lax.scan(ply, starts, jr.split(key, PLIES))[1])()


def replay(env: Any, observed: bool, actions: jax.Array) -> Callable[[int], float]:
    """The seconds that the games take, compilation apart."""

    def init(key: jax.Array) -> Any:
        return env.init(key) if isinstance(env, pgx.Env) else env.init(key=key)

    def step(state: Any, action: jax.Array) -> Any:
        if isinstance(env, pgx.Env):
            after = env.step(state, action)
            return after, (after.rewards, after.terminated, after.observation)
        after, transition = env.step(state, action, key=jr.key(0))
        return after, (transition, env.observe(after) if observed else None)

    starts = jax.jit(jax.vmap(init))(jr.split(jr.key(0), actions.shape[1]))
    # As JAX does it in a loop: Python's numbers in pgx's states become arrays.
    starts = jax.tree.map(lambda x: jax.lax.convert_element_type(x, x.dtype), starts)
    run = jax.jit(lambda: jax.lax.scan(jax.vmap(step), starts, actions))
    return lambda _: clocked(run)


def lines(options: Any) -> Iterator[dict[str, Any]]:
    game: Any = pgx.make("othello")
    envs = {"zero": Othello(), "adapter": PgxEnvironment("othello"), "pgx": game}
    for games in options.games:
        given = actions(games, options.seed)
        for timed in ("step", "observe"):
            runs = {name: replay(env, timed == "observe", given) for name, env in envs.items()}
            spent = take_turns(runs, options.turns)
            rate = lambda seconds, number=given.size: round(number / statistics.median(seconds))
            rates = {name: rate(seconds) for name, seconds in spent.items()}
            faster = {f"over_{x}": round(ratio(spent, x, "zero"), 2) for x in ("adapter", "pgx")}
            yield {"games": games, "timed": timed} | rates | faster


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--games", nargs="+", type=int, default=[1024, 128])
    parser.add_argument("--turns", type=int, default=21)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    about = {"device": jax.devices()[0].device_kind, "jax": jax.__version__}
    for line in lines(options):
        print(json.dumps({"question": "envs_othello"} | line | about), flush=True)


if __name__ == "__main__":
    main()
