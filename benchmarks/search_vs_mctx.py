"""Does our tree search beat mctx's at the same search?

Both engines search the same positions in one process with the same evaluator and the same slim
states (pgx's without observation and rewards). Root noise is off in both; mctx keeps its tie-break
noise while it is timed. One JSON line a cell, B games searched together with N simulations each:

- `zero_rate`, `mctx_rate`: simulations a second, medians. `ratio`: the median over runs that take
  turns. `mctx_naive_rate`: with pgx's whole state in every node, as in mctx's and pgx's examples.
- `floor_rate`: the environment's step and the evaluator alone, N times in a row at batch B.
- `compile_s`: tracing, lowering and compiling, the less of two times each; nothing is run.
- `memory_mb`: what the compiled program says it needs: temporaries, arguments and results.
- `max_visit_difference`: over every edge of every tree, with mctx's tie noise off;
  `trees_that_differ` counts the trees where it is not 0.

    uv run python benchmarks/search_vs_mctx.py
    uv run python benchmarks/search_vs_mctx.py --cells 1024x64 --game go_9x9 --network 6x128
"""

import argparse
import functools as ft
import json
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import mctx
import numpy as np
import pgx

from zero_nets import AlphaZeroNet
from zero_search import (
    AbstractPriorModel,
    AbstractRootNoise,
    TreeSearch,
)
from zero_search._tree import FINAL


CELLS = ("64x32", "64x128", "64x512", "1024x32", "1x800")
# chex dataclasses hide their constructors from type checkers, and pgx what its games are.
ENGINE: Any = mctx
GAMES: Any = pgx
# The models here draw nothing.
UNUSED: Any = None


class Game(AbstractPriorModel[Any]):
    """A pgx board game of strictly alternating players."""

    env: Any = eqx.field(static=True)
    template: Any
    evaluator: jax.Array | AlphaZeroNet  # weights of a linear one, or a network
    slim: bool = eqx.field(static=True)

    def pack(self, state):
        """What a node stores of a pgx state."""
        return state.replace(observation=None, rewards=None) if self.slim else state

    def root(self, state, obs, *, key):
        return state

    def step(self, state, action, *, key):
        def one(state, action):
            if self.slim:
                unused = self.template.observation, self.template.rewards
                state = state.replace(observation=unused[0], rewards=unused[1])
            after = self.env.step(state, action)
            reward = after.rewards[state.current_player]
            last = after.terminated | after.truncated
            return self.pack(after), reward, jnp.where(last, 0.0, -1.0), last

        return jax.vmap(one)(state, action)

    def predict(self, state, *, key):
        del key
        if isinstance(self.evaluator, AlphaZeroNet):
            features = jax.vmap(self.env.observe)(state) if self.slim else state.observation
            logits, value = jax.vmap(self.evaluator)(features.astype(jnp.float32))
        else:
            out = jnp.sign(state._x.board).astype(jnp.float32) @ self.evaluator
            logits, value = out[:, :-1], jnp.tanh(out[:, -1])
        return jnp.where(state.legal_action_mask, logits, -jnp.inf), value


class Rounded(AbstractRootNoise):
    """No noise, only the rounding of mctx's detour through probabilities at the root."""

    def __call__(self, logits, *, key):
        del key
        probs = jax.nn.softmax(logits)
        back = jnp.log(jnp.maximum(probs, jnp.finfo(jnp.float32).tiny))
        back = back - jnp.max(back, axis=-1, keepdims=True)
        return jnp.where(logits > -jnp.inf, back, -jnp.inf)


def game(name: str, network: str | None, *, slim: bool) -> Game:
    """The game with a random evaluator: linear on the board, or a BLOCKSxCHANNELS network."""
    env = GAMES.make(name)
    template = env.init(jr.key(0))
    if network is None:
        cells, actions = template._x.board.shape[0], env.num_actions
        evaluator = 0.2 * jr.normal(jr.key(1), (cells, actions + 1))
    else:
        blocks, channels = (int(x) for x in network.split("x"))
        build = ft.partial(AlphaZeroNet, blocks=blocks, channels=channels)
        evaluator = eqx.filter_jit(build)(env.observation_shape, env.num_actions, key=jr.key(1))
    return Game(env, template, evaluator, slim)


def positions(model: Game, batch: int) -> Any:
    """Positions after 2 to 41 random plies."""
    state = jax.vmap(lambda key: model.pack(model.env.init(key)))(jr.split(jr.key(2), batch))
    plies = 2 + jnp.arange(batch) % 40

    def body(i, state):
        keys = jax.vmap(jr.fold_in, (0, None))(jr.split(jr.key(3), batch), i)
        logits = jnp.where(state.legal_action_mask, 0.0, -jnp.inf)
        after, _, _, last = model.step(state, jax.vmap(jr.categorical)(keys, logits), key=UNUSED)
        stay = (i >= plies) | last
        pick = lambda x, y: jnp.where(stay.reshape((-1,) + (1,) * (x.ndim - 1)), x, y)
        return jax.tree.map(pick, state, after)

    return jax.jit(lambda state: jax.lax.fori_loop(0, 41, body, state))(state)


def ours(policy: str, simulations: int, *, tree: bool = False) -> Callable:
    """`(model, state, key) -> weights` of this library, or the whole tree."""
    if policy == "gumbel":
        planner = TreeSearch.gumbel(simulations, gumbel_scale=0.0)
    else:
        planner = TreeSearch.muzero(simulations, noise=Rounded())

    def run(model, state, key):
        carry, keys = planner.init(model, state), jr.split(key, state.terminated.shape[0])
        plan, _, grown = planner.grow(model, state, carry, key=keys)
        return grown if tree else plan.weights

    return run


def theirs(policy: str, simulations: int, *, tree: bool = False) -> Callable:
    """`(model, state, key) -> weights` of mctx, or its whole tree."""

    def recurrent(model, key, action, state):
        state, reward, discount, _ = model.step(state, action, key=key)
        logits, value = model.predict(state, key=key)
        return ENGINE.RecurrentFnOutput(
            reward=reward, discount=discount, prior_logits=logits, value=value
        ), state

    def run(model, state, key):
        logits, value = model.predict(state, key=key)
        root = ENGINE.RootFnOutput(prior_logits=logits, value=value, embedding=state)
        if policy == "gumbel":
            search, quiet = ENGINE.gumbel_muzero_policy, {"gumbel_scale": 0.0}
        else:
            search, quiet = ENGINE.muzero_policy, {"dirichlet_fraction": 0.0}
        illegal = ~state.legal_action_mask
        out = search(model, key, root, recurrent, simulations, illegal, **quiet)
        return out.search_tree if tree else out.action_weights

    return run


def floor(simulations: int) -> Callable:
    """`(model, state, key) -> state`: the step and the evaluator, without any tree."""

    def run(model, state, key):
        def body(state, _):
            logits, _ = model.predict(state, key=key)
            action = jnp.argmax(logits, axis=1).astype(jnp.int32)
            return model.step(state, action, key=key)[0], None

        return jax.lax.scan(body, state, None, length=simulations)[0]

    return run


def build(run: Callable, model: Game, *args: Any) -> tuple[Any, Callable, float]:
    """The compiled program, a function that runs it, and the seconds it took to make."""
    params, static = eqx.partition(model, eqx.is_array)
    start = time.perf_counter()
    jitted = jax.jit(lambda params, *args: run(eqx.combine(params, static), *args))
    compiled = jitted.lower(params, *args).compile()
    return compiled, lambda: compiled(params, *args), time.perf_counter() - start


def clock(call: Callable) -> float:
    start = time.perf_counter()
    jax.block_until_ready(call())
    return time.perf_counter() - start


def megabytes(compiled: Any) -> float:
    """Temporaries, arguments and results."""
    need = compiled.memory_analysis()
    total = need.temp_size_in_bytes + need.argument_size_in_bytes + need.output_size_in_bytes
    return round(total / 2**20, 2)


def differences(ours: Any, theirs: Any) -> np.ndarray:
    """The largest difference in an edge's visits, by tree; nodes are matched by their paths."""
    worst = np.zeros(ours.size.shape, np.int64)
    for matched, mine, other in pairs(ours, theirs):
        worst = np.maximum(worst, np.where(matched, np.abs(mine - other).max(axis=1), 0))
    return worst


def pairs(ours: Any, theirs: Any) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Node by node of our trees: which trees have it, its visits and those of mctx's node.

    Below a final state mctx stores copies, which have nothing to be compared with.
    """
    code, visits = np.asarray(ours.child), np.asarray(ours.edge[:, :, 0]).astype(np.int64)
    index, counts = np.asarray(theirs.children_index), np.asarray(theirs.children_visits)
    lane, final = np.arange(len(code)), code <= FINAL
    code = np.where(final, FINAL - code, code)
    number = np.full(code.shape[:2], -1)  # mctx's of every node; -1 for none and for final ones
    number[:, 0] = 0
    for node in range(code.shape[1]):
        here = number[:, node]
        yield here >= 0, visits[:, node], counts[lane, here]
        row, action = np.nonzero((here >= 0)[:, None] & (code[:, node] >= 0) & ~final[:, node])
        number[row, code[row, node, action]] = index[row, here[row], action]


def cell(policy: str, batch: int, simulations: int, options: argparse.Namespace) -> dict[str, Any]:
    """Everything measured of one batch size and number of simulations."""
    model = game(options.game, options.network, slim=True)
    state, key = positions(model, batch), jr.key(4)
    subjects = {"zero": ours, "mctx": theirs}
    built: dict[str, tuple[Any, Callable, float]] = {}
    compile_s = dict.fromkeys(subjects, float("inf"))
    for _ in range(2):
        for name, subject in subjects.items():
            built[name] = build(subject(policy, simulations), model, state, key)
            compile_s[name] = min(compile_s[name], built[name][2])
    memory = {name: megabytes(compiled) for name, (compiled, *_) in built.items()}
    calls = {name: call for name, (_, call, _) in built.items()}
    calls["floor"] = build(floor(simulations), model, state, key)[1]
    if options.naive:
        whole = game(options.game, options.network, slim=False)
        calls["naive"] = build(theirs(policy, simulations), whole, positions(whole, batch), key)[1]
    for call in calls.values():
        clock(call)
    times = {name: [] for name in calls}
    for _ in range(options.runs):
        for name, call in calls.items():
            times[name].append(clock(call))
    rate = {k: round(batch * simulations / statistics.median(v)) for k, v in times.items()}
    mine = build(ours(policy, simulations, tree=True), model, state, key)[1]()
    with mock.patch.object(jr, "uniform", lambda key, shape=(), *_, **__: jnp.zeros(shape)):
        other = build(theirs(policy, simulations, tree=True), model, state, key)[1]()
    differ = differences(mine, other)
    ratios = [m / z for m, z in zip(times["mctx"], times["zero"], strict=True)]
    return {
        "question": f"{policy} search against mctx, {options.game}",
        "device": jax.devices()[0].device_kind,
        "evaluator": options.network or "linear",
        "batch": batch,
        "simulations": simulations,
        "ratio": round(statistics.median(ratios), 2),
        "zero_rate": rate["zero"],
        "mctx_rate": rate["mctx"],
        "mctx_naive_rate": rate.get("naive"),
        "floor_rate": rate["floor"],
        "compile_s": {name: round(seconds, 2) for name, seconds in compile_s.items()},
        "memory_mb": memory,
        "max_visit_difference": int(differ.max()),
        "trees_that_differ": int((differ > 0).sum()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--cells", nargs="+", default=CELLS, help="BATCHxSIMULATIONS")
    parser.add_argument("--policy", choices=["puct", "gumbel", "both"], default="both")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--game", default="othello", help="a board game of pgx: othello, go_9x9")
    parser.add_argument("--network", help="BLOCKSxCHANNELS instead of a linear evaluator")
    parser.add_argument("--naive", action=argparse.BooleanOptionalAction, default=True)
    options = parser.parse_args()
    jax.config.update("jax_enable_compilation_cache", False)
    for policy in ("puct", "gumbel") if options.policy == "both" else (options.policy,):
        for name in options.cells:
            batch, simulations = (int(x) for x in name.split("x"))
            print(json.dumps(cell(policy, batch, simulations, options)), flush=True)


if __name__ == "__main__":
    main()
