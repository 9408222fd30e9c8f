"""Does our tree search beat mctx's at the same search?

Both engines search the same positions in one process with the same evaluator and the same states:
slim ones, which are pgx's without observation and rewards, or pgx's own in every node (naive), as
in mctx's and pgx's examples. Root noise is off in both; mctx keeps its tie-break noise while it is
timed. One JSON line a cell, B games searched together with N simulations each:

- `zero_rate`, `mctx_rate`: simulations a second, medians. `ratio`: the median over runs that take
  turns. `mctx_naive_rate`: beside slim states, mctx with naive ones.
- `against_ratio`, with `--against COMMIT`: how many times as fast as zero-search of that commit.
- `plain_ratio`, with `--kernels pallas`: how many times as fast as with plain kernels. A CPU
  interprets those of Pallas, so there it says nothing.
- `floor_rate`: the environment's step and the evaluator alone, N times in a row at batch B.
- `compile_s`: tracing, lowering and compiling, the less of two times each; nothing is run.
- `memory_mb`: what the compiled program says it needs: temporaries, arguments and results.
- `max_visit_difference`: over every edge of every tree, with mctx's tie noise off;
  `trees_that_differ` counts the trees where it is not 0.

    uv run python benchmarks/search_vs_mctx.py
    uv run python benchmarks/search_vs_mctx.py --cells 1024x64 --game go_9x9 --network 6x128
    uv run python benchmarks/search_vs_mctx.py --against HEAD~1
"""

import argparse
import concurrent.futures
import functools as ft
import importlib.util
import io
import itertools as it
import json
import pathlib
import statistics
import subprocess
import sys
import tarfile
import tempfile
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
from _turns import clocked, ratio, take_turns

import zero_search
from zero_nets import AlphaZeroNet
from zero_search._tree import FINAL


CELLS = ("64x32", "64x128", "64x512", "1024x32", "1x800")
#: What is measured without options: games, states and cells. The later ones have large states.
TABLE = (
    ("othello", "slim", CELLS),
    ("connect_four", "naive", ("64x128",)),
    ("go_9x9", "naive", ("64x64",)),
    ("animal_shogi", "naive", ("64x64",)),
    ("chess", "naive", ("64x32",)),
)
# chex dataclasses hide their constructors from type checkers, and pgx what its games are.
ENGINE: Any = mctx
GAMES: Any = pgx
# The models here draw nothing.
UNUSED: Any = None


@ft.cache
def classes(search: Any) -> tuple[Any, Any]:
    """The model and the root noise, for zero-search as it is or was."""

    class Game(search.AbstractPriorModel):
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
                cells = board_of(state).reshape(state.terminated.shape[0], -1)
                out = jnp.sign(cells).astype(jnp.float32) @ self.evaluator
                logits, value = out[:, :-1], jnp.tanh(out[:, -1])
            return jnp.where(state.legal_action_mask, logits, -jnp.inf), value

    class Rounded(search.AbstractRootNoise):
        """No noise, only the rounding of mctx's detour through probabilities at the root."""

        def __call__(self, logits, *, key):
            del key
            probs = jax.nn.softmax(logits)
            back = jnp.log(jnp.maximum(probs, jnp.finfo(jnp.float32).tiny))
            back = back - jnp.max(back, axis=-1, keepdims=True)
            return jnp.where(logits > -jnp.inf, back, -jnp.inf)

    return Game, Rounded


def board_of(state: Any) -> jax.Array:
    """The pieces of a pgx state."""
    return state._x.board if hasattr(state, "_x") else state._board


def at_commit(commit: str) -> Any:
    """The package zero_search of an earlier commit, under another name."""
    root = pathlib.Path(__file__).parent.parent
    git = ("git", "-C", str(root), "archive", commit, "packages/zero-search/zero_search")
    packed = subprocess.run(git, capture_output=True)
    if packed.returncode:
        sys.exit(f"--against {commit}: {packed.stderr.decode().strip()}; give a commit.")
    folder = tempfile.mkdtemp()
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as files:
        files.extractall(folder, filter="data")
    first = pathlib.Path(folder) / "packages/zero-search/zero_search/__init__.py"
    places = [str(first.parent)]
    spec: Any = importlib.util.spec_from_file_location(
        "zero_search_then", first, submodule_search_locations=places
    )
    found = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = found
    spec.loader.exec_module(found)
    return found


def game(name: str, network: str | None, *, slim: bool, search: Any = zero_search) -> Any:
    """The game with a random evaluator: linear on the board, or a BLOCKSxCHANNELS network."""
    env = GAMES.make(name)
    template = env.init(jr.key(0))
    if network is None:
        cells, actions = board_of(template).size, env.num_actions
        evaluator = 0.2 * jr.normal(jr.key(1), (cells, actions + 1))
    else:
        blocks, channels = (int(x) for x in network.split("x"))
        build = ft.partial(AlphaZeroNet, blocks=blocks, channels=channels)
        evaluator = eqx.filter_jit(build)(env.observation_shape, env.num_actions, key=jr.key(1))
    return classes(search)[0](env, template, evaluator, slim)


def positions(model: Any, batch: int) -> Any:
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


def ours(
    policy: str, simulations: int, *, tree: bool = False, search: Any = zero_search, **options: Any
) -> Callable:
    """`(model, state, key) -> weights` of this library, or the whole tree."""
    if policy == "gumbel":
        planner = search.TreeSearch.gumbel(simulations, gumbel_scale=0.0, **options)
    else:
        planner = search.TreeSearch.muzero(simulations, noise=classes(search)[1](), **options)

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


def build(run: Callable, model: Any, *args: Any) -> tuple[Any, Callable, float]:
    """The compiled program, a function that runs it, and the seconds it took to make."""
    params, static = eqx.partition(model, eqx.is_array)
    start = time.perf_counter()
    jitted = jax.jit(lambda params, *args: run(eqx.combine(params, static), *args))
    compiled = jitted.lower(params, *args).compile()
    return compiled, lambda: compiled(params, *args), time.perf_counter() - start


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


def prepare(
    options: argparse.Namespace, policy: str, name: str, states: str, size: str
) -> Callable[[], dict[str, Any]]:
    """Compiles what one cell times, and gives what measures it."""
    batch, simulations = (int(x) for x in size.split("x"))
    model = game(name, options.network, slim=states == "slim")
    state, key = positions(model, batch), jr.key(4)
    mine = ft.partial(ours, kernels=options.kernels)
    subjects = {"zero": mine, "mctx": theirs}
    built: dict[str, tuple[Any, Callable, float]] = {}
    compile_s = dict.fromkeys(subjects, float("inf"))
    for _ in range(1 if options.speed else 2):
        for who, subject in subjects.items():
            built[who] = build(subject(policy, simulations), model, state, key)
            compile_s[who] = min(compile_s[who], built[who][2])
    memory = {who: megabytes(compiled) for who, (compiled, *_) in built.items()}
    calls = {who: call for who, (_, call, _) in built.items()}
    calls["floor"] = build(floor(simulations), model, state, key)[1]
    if states == "slim" and not options.speed:
        whole = game(name, options.network, slim=False)
        calls["naive"] = build(theirs(policy, simulations), whole, positions(whole, batch), key)[1]
    if options.kernels != "plain":
        calls["plain"] = build(ours(policy, simulations), model, state, key)[1]
    if options.against is not None:
        before = game(name, options.network, slim=states == "slim", search=options.against)
        run = mine(policy, simulations, search=options.against)
        calls["then"] = build(run, before, state, key)[1]

    def measure() -> dict[str, Any]:
        times = take_turns(
            {who: lambda _, call=call: clocked(call) for who, call in calls.items()}, options.runs
        )
        rate = {k: round(batch * simulations / statistics.median(v)) for k, v in times.items()}
        found = {
            "question": f"{policy} search against mctx, {name}, {states} states",
            "device": jax.devices()[0].device_kind,
            "evaluator": options.network or "linear",
            "batch": batch,
            "simulations": simulations,
            "ratio": round(ratio(times, "mctx", "zero"), 2),
            "against_ratio": round(ratio(times, "then", "zero"), 3) if "then" in times else None,
            "kernels": options.kernels,
            "plain_ratio": round(ratio(times, "plain", "zero"), 2) if "plain" in times else None,
            "zero_rate": rate["zero"],
            "mctx_rate": rate["mctx"],
            "mctx_naive_rate": rate.get("naive"),
            "floor_rate": rate["floor"],
            "memory_mb": memory,
        }
        if options.speed:
            return found
        trees = build(mine(policy, simulations, tree=True), model, state, key)[1]()
        with mock.patch.object(jr, "uniform", lambda key, shape=(), *_, **__: jnp.zeros(shape)):
            other = build(theirs(policy, simulations, tree=True), model, state, key)[1]()
        differ = differences(trees, other)
        return found | {
            "compile_s": {name: round(seconds, 2) for name, seconds in compile_s.items()},
            "max_visit_difference": int(differ.max()),
            "trees_that_differ": int((differ > 0).sum()),
        }

    return measure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--cells", nargs="+", help="BATCHxSIMULATIONS; by default a table of games")
    parser.add_argument("--policy", choices=["puct", "gumbel", "both"], default="both")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--game", help="a board game of pgx: othello, go_9x9")
    parser.add_argument("--states", choices=["slim", "naive"], help="by default slim")
    parser.add_argument("--network", help="BLOCKSxCHANNELS instead of a linear evaluator")
    parser.add_argument("--against", type=at_commit, help="a commit, whose search takes turns too")
    parser.add_argument("--kernels", choices=["plain", "pallas"], default="plain")
    parser.add_argument(
        "--speed",
        action="store_true",
        help="only rates and memory; programs are compiled side by side, or taken from JAX's cache",
    )
    options = parser.parse_args()
    jax.config.update("jax_enable_compilation_cache", options.speed)
    table = TABLE
    if options.cells or options.game or options.states:
        one = options.game or "othello", options.states or "slim", options.cells or CELLS
        table = (one,)
    policies = ("puct", "gumbel") if options.policy == "both" else (options.policy,)
    asked = [
        (options, policy, name, states, size)
        for policy in policies
        for name, states, cells in table
        for size in cells
    ]
    prepared = it.starmap(prepare, asked)
    if options.speed:  # all programs are compiled before anything is timed
        with concurrent.futures.ThreadPoolExecutor() as pool:
            prepared = list(pool.map(lambda one: prepare(*one), asked))
    for measure in prepared:
        print(json.dumps(measure()), flush=True)


if __name__ == "__main__":
    main()
