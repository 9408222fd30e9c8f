"""What does evaluating several leaves at a time bring to the search of one position?

`TreeSearch(num_leaves=L)` evaluates L leaves together, which is cheaper a leaf and knows less when
it chooses them. Othello, one game at a time; JSON lines, and `--question` picks some:

- `network`: one evaluation of B positions, milliseconds in a row of them as in a search, and how
  many times cheaper a position is than alone: the most that B leaves can bring.
- `time`: milliseconds a move with the same simulations at 1, 2, ... leaves, and how many times
  faster that is than one leaf at a time; ratios paired over games that take turns.
- `match`: score and Elo, with 95 % intervals, of the player with several leaves against the one
  with one: at equal simulations, and at equal time, where it gets as many more simulations as its
  moves take less time (both shown).

    uv run othello train --out runs/quick
    export XLA_FLAGS=--xla_cpu_experimental_ynn_fusion_type=  # what `othello` itself sets
    uv run python benchmarks/search_leaves.py runs/quick
"""

import argparse
import json
import statistics
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from _players import play, seconds_a_move, trained_model
from _turns import clocked, ratio, take_turns
from jaxtyping import PRNGKeyArray

from zero_nets import AlphaZeroNet
from zero_search import AbstractPlanner, PUCT, TreeSearch
from zero_train import EnvironmentModel, FeatureEvaluator


#: Blocks and channels of the networks with random weights, beside the trained one.
SIZES = ((6, 64), (6, 128))
#: Widths of networks without convolutions, whose weights a single position cannot share.
WIDTHS = (512, 1024)
LEAVES = (1, 2, 4, 8, 16)
BATCHES = (1, 2, 4, 8, 16, 32)
#: Where the moves are timed: so many moves of games that are so many plies old.
TIMED = {"plies": 8, "opening_plies": 20}


class Dense(eqx.Module):
    """Three hidden layers; logits and value from the last."""

    layers: eqx.nn.MLP

    def __init__(self, width: int, *, key: PRNGKeyArray):
        self.layers = eqx.nn.MLP(128, 66, width, 3, key=key)

    def __call__(self, board: jax.Array) -> tuple[jax.Array, jax.Array]:
        out = self.layers(board.astype("float32").reshape(-1))
        return out[:65], jnp.tanh(out[65])


def models(trained: EnvironmentModel) -> dict[str, EnvironmentModel]:
    """Othello with networks of several sizes."""
    found = {"trained": trained}
    for blocks, channels in SIZES:
        network = eqx.filter_jit(AlphaZeroNet)(
            (8, 8, 2), 65, blocks=blocks, channels=channels, key=jr.key(0)
        )
        found[f"{blocks}x{channels}"] = EnvironmentModel(trained.env, FeatureEvaluator(network))
    for width in WIDTHS:
        network = eqx.filter_jit(Dense)(width, key=jr.key(0))
        found[f"dense-{width}"] = EnvironmentModel(trained.env, FeatureEvaluator(network))
    return found


@eqx.filter_jit
def evaluate_in_a_row(network: Any, boards: jax.Array, number: int) -> jax.Array:
    """Evaluations of a batch, each waiting for the one before."""

    def body(boards: jax.Array, _: None) -> tuple[jax.Array, None]:
        _, value = jax.vmap(network)(boards)
        return boards + 1e-6 * value[:, None, None, None], None

    return jax.lax.scan(body, boards, None, length=number)[0]


def network_seconds(model: EnvironmentModel, runs: int) -> dict[int, list[float]]:
    """Of one evaluation, by batch size."""
    evaluator: Any = model.evaluate

    def call(batch: int) -> Callable[[int], float]:
        boards = jr.bernoulli(jr.key(0), 0.3, (batch, 8, 8, 2)).astype("float32")
        return lambda _: clocked(evaluate_in_a_row, evaluator.network, boards, 32) / 32

    return take_turns({batch: call(batch) for batch in BATCHES}, runs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("run", nargs="?", default="runs/quick", help="folder of a trained run")
    parser.add_argument("--question", choices=["network", "time", "match"])
    parser.add_argument(
        "--networks", nargs="+", default=["trained", "6x64", "6x128", "dense-512", "dense-1024"]
    )
    parser.add_argument("--simulations", type=int, default=64)
    parser.add_argument("--leaves", type=int, default=8, help="of the player in the matches")
    parser.add_argument("--virtual-loss", type=float, default=1.0)
    parser.add_argument("--games", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=200, help="games at a time")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    trained, c = trained_model(options.run)
    asked = lambda question: options.question in (None, question)

    def planner(simulations: int, leaves: int) -> AbstractPlanner:
        loss = options.virtual_loss
        return TreeSearch(simulations, PUCT(c), num_leaves=leaves, virtual_loss=loss)

    def line(question: str, network: str, **found: Any) -> None:
        about = {"question": question, "network": network, "device": jax.devices()[0].device_kind}
        print(json.dumps(about | found), flush=True)

    def milliseconds(seconds: dict[Any, list[float]]) -> dict[Any, float]:
        return {name: round(1e3 * statistics.median(each), 3) for name, each in seconds.items()}

    for name, model in models(trained).items():
        if options.networks and name not in options.networks:
            continue
        if asked("network"):
            seconds = network_seconds(model, options.runs)
            gain = {b: round(b / ratio(seconds, b, 1), 2) for b in BATCHES}
            line("network", name, ms=milliseconds(seconds), gain=gain)
        if asked("time"):
            planners = {leaves: planner(options.simulations, leaves) for leaves in LEAVES}
            seconds = seconds_a_move(model, planners, batch=1, runs=options.runs, **TIMED)
            gain = {leaves: round(1 / ratio(seconds, leaves, 1), 2) for leaves in LEAVES}
            about = {"simulations": options.simulations, "ms": milliseconds(seconds)}
            line("time", name, **about, gain=gain)
    if asked("match"):
        leaves, base = options.leaves, options.simulations
        one = planner(base, 1)
        size = {"games": options.games, "batch": options.batch, "seed": options.seed}

        def compare(simulations: int) -> float:
            """Prints a match, and says how much longer the single leaves take."""
            several = planner(simulations, leaves)
            planners = {"several": several, "one": one}
            seconds = seconds_a_move(trained, planners, batch=1, runs=options.runs, **TIMED)
            about = {"leaves": [leaves, 1], "virtual_loss": options.virtual_loss}
            cost = {"simulations": [simulations, base], "ms": milliseconds(seconds)}
            line("match", "trained", **about, **cost, **play(trained, several, one, **size))
            return ratio(seconds, "one", "several")

        # Whole groups of leaves only.
        compare(max(1, round(base * compare(base) / leaves)) * leaves)


if __name__ == "__main__":
    main()
