"""Does our tree search beat mctx's at the same search?

Both engines search the same Othello positions in one process with the same trivial linear
evaluator and the same slim states (no observation, legal mask kept), so what is timed is the tree.
Root noise is off in both; mctx keeps its tie-break noise. One JSON line a cell: simulations per
second of each engine, their ratio, and the largest difference between the weights that the two
give a root's action (for PUCT a weight is a share of the visits).

    uv run python benchmarks/search_vs_mctx.py --cells 64x32 64x128 --runs 7
"""

import argparse
import json
import statistics
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import mctx
import pgx

from zero_search import AbstractPriorModel, GumbelSearch, MuZeroPUCT, TreeSearch


# chex dataclasses hide their constructors from type checkers.
engine: Any = mctx


class Slim(NamedTuple):
    """A pgx Othello state without its observation."""

    player: jax.Array
    board: jax.Array
    passed: jax.Array
    turn: jax.Array
    legal: jax.Array
    terminated: jax.Array


def slim(state) -> Slim:
    """What `step` needs of a pgx state."""
    return Slim(
        player=state.current_player,
        board=state._x.board.astype(jnp.int8),
        passed=state._x.passed,
        turn=state._x.turn,
        legal=state.legal_action_mask,
        terminated=state.terminated,
    )


class Othello(AbstractPriorModel[Slim]):
    """pgx Othello with a linear evaluator."""

    weights: jax.Array
    template: Any

    def step(self, state, action, *, key):
        del key
        env = pgx.make("othello")

        def one(state, action):
            x = self.template._x._replace(
                board=state.board.astype(jnp.int32), passed=state.passed, turn=state.turn
            )
            full = self.template.replace(
                current_player=state.player,
                legal_action_mask=state.legal,
                terminated=state.terminated,
                _x=x,
            )
            after = env.step(full, action)
            reward = after.rewards[state.player]
            discount = jnp.where(after.terminated, 0.0, -1.0)
            return slim(after), reward, discount, after.terminated

        return jax.vmap(one)(state, action)

    def predict(self, state, *, key):
        del key
        out = state.board.astype(jnp.float32) @ self.weights
        return jnp.where(state.legal, out[:, :65], -jnp.inf), jnp.tanh(out[:, 65])


def positions(batch: int, seed: int) -> tuple[Othello, Slim]:
    """A model and `batch` positions after 2 to 41 random plies."""
    env = pgx.make("othello")
    wkey, ikey, pkey = jr.split(jr.key(seed), 3)
    template = env.init(jr.key(0))
    model = Othello(weights=0.2 * jr.normal(wkey, (64, 66)), template=template)
    state = slim(jax.vmap(env.init)(jr.split(ikey, batch)))
    plies = 2 + jnp.arange(batch) % 40

    def body(i, state):
        keys = jax.vmap(lambda k: jr.fold_in(k, i))(jr.split(pkey, batch))
        draw = lambda k, legal: jr.categorical(k, jnp.where(legal, 0.0, -jnp.inf))
        after, *_, last = model.step(state, jax.vmap(draw)(keys, state.legal), key=keys)
        stay = (i >= plies) | last
        pick = lambda x, y: jnp.where(stay.reshape((-1,) + (1,) * (x.ndim - 1)), x, y)
        return jax.tree.map(pick, state, after)

    return model, jax.jit(lambda s: jax.lax.fori_loop(0, 41, body, s))(state)


def ours(policy: str, num_simulations: int, model: Othello):
    """A jitted `(states, key) -> weights` of this library."""
    if policy == "gumbel":
        planner = GumbelSearch(num_simulations, gumbel_scale=0.0)
    else:
        planner = TreeSearch(num_simulations, selection=MuZeroPUCT())

    def run(state, key):
        keys = jr.split(key, state.player.shape[0])
        plan, _ = planner.plan(model, state, planner.init(model, state), key=keys)
        return plan.weights

    return jax.jit(run)


def theirs(policy: str, num_simulations: int, model: Othello):
    """A jitted `(states, key) -> weights` of mctx."""

    def recurrent(_, key, action, state):
        state, reward, discount, _ = model.step(state, action, key=key)
        logits, value = model.predict(state, key=key)
        return engine.RecurrentFnOutput(
            reward=reward, discount=discount, prior_logits=logits, value=value
        ), state

    def run(state, key):
        logits, value = model.predict(state, key=key)
        root = engine.RootFnOutput(prior_logits=logits, value=value, embedding=state)
        if policy == "gumbel":
            search, quiet = engine.gumbel_muzero_policy, {"gumbel_scale": 0.0}
        else:
            search, quiet = engine.muzero_policy, {"dirichlet_fraction": 0.0}
        out = search((), key, root, recurrent, num_simulations, ~state.legal, **quiet)
        return out.action_weights

    return jax.jit(run)


def clock(fn, *args) -> float:
    start = time.perf_counter()
    jax.block_until_ready(fn(*args))
    return time.perf_counter() - start


def cell(policy: str, batch: int, num_simulations: int, runs: int, seed: int) -> dict:
    """Times both engines in turn on one cell."""
    model, state = positions(batch, seed)
    key = jr.key(seed)
    engines = {"zero": ours(policy, num_simulations, model)}
    engines["mctx"] = theirs(policy, num_simulations, model)
    compile_s = {name: clock(fn, state, key) for name, fn in engines.items()}
    times = {name: [] for name in engines}
    for _ in range(runs):
        for name, fn in engines.items():
            times[name].append(clock(fn, state, key))
    rate = {k: batch * num_simulations / statistics.median(v) for k, v in times.items()}
    paired = [m / z for m, z in zip(times["mctx"], times["zero"], strict=True)]
    difference = jnp.max(jnp.abs(engines["zero"](state, key) - engines["mctx"](state, key)))
    return {
        "question": f"{policy} search against mctx, Othello",
        "device": jax.devices()[0].device_kind,
        "batch": batch,
        "simulations": num_simulations,
        "zero_rate": round(rate["zero"]),
        "mctx_rate": round(rate["mctx"]),
        "ratio": round(statistics.median(paired), 2),
        "compile_s": {k: round(v, 1) for k, v in compile_s.items()},
        "max_weight_difference": round(float(difference), 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", nargs="+", default=["64x32", "64x128"], help="BATCHxSIMULATIONS")
    parser.add_argument("--policy", choices=["puct", "gumbel"], default="puct")
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    for name in args.cells:
        batch, num_simulations = (int(x) for x in name.split("x"))
        print(json.dumps(cell(args.policy, batch, num_simulations, args.runs, args.seed)))


if __name__ == "__main__":
    main()
