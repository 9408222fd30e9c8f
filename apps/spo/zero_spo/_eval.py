"""How good the player of a run is, while it trains and in `spo eval`."""

import dataclasses
import json as json_text
import math
import pathlib
import statistics
from typing import Annotated, Any

import jax
import jax.random as jr
import tyro
from annotated_types import Ge
from jaxtyping import PyTree

from zero_app import (
    AbstractPlayerCommand,
    App,
    Evaluate,
    EvaluationResult,
    measure,
    read_lines,
    RunFiles,
    Seed,
    sentence,
    which_player,
    who,
)
from zero_envs import Hosted
from zero_train import (
    AbstractActor,
    data_mesh,
    learn_half,
    Loop,
    matrix_flops,
    step as run_step,
    template,
)

from ._config import Config
from ._worlds import longest_episode


@dataclasses.dataclass(frozen=True)
class Eval(AbstractPlayerCommand):
    """Measure the player of a run."""

    episodes: Annotated[int, Ge(2), tyro.conf.arg(aliases=["--games"])] = 128
    """The number of whole episodes, which are played in parallel."""
    seed: Seed = 0
    """The seed of all randomness."""
    json: bool = False
    """Print one JSON line."""

    # A standard error needs two episodes.
    def __call__(self, app: App[Config]) -> None:
        trained = self.load(app)
        env, key = trained.loop.env, jr.key(self.seed)
        row = {
            "env": trained.config.env,
            **_measured(env, trained.player, self.episodes, key=key)[0],
            **_training(which_player(self.run)[0], trained.step),
        }
        if self.json:
            print(json_text.dumps(row))
            return
        said = f"after block {trained.step}"
        if "steps_trained" in row:
            said = f"after {row['steps_trained']:,} steps"
        print(f"{self.run} ({row['env']}, {said}, {who(trained.player)}): {sentence(row, '')}")
        if "train_steps_per_second" in row:
            print(f"trained at {row['train_steps_per_second']:.0f} environment steps a second")


def evaluation(config: Config, loop: Loop, files: RunFiles) -> Evaluate:
    """Plays whole episodes. Every evaluation has the same initial states and the same randomness.

    First it prints what is trained.
    """
    del files
    for line in describe(config, loop) if jax.process_index() == 0 else ():
        print(line)

    def evaluate(step: int, player: AbstractActor) -> EvaluationResult:
        del step
        key = jr.fold_in(jr.key(config.seed), 1)
        row, episodes = _measured(loop.env, player, config.episodes, key=key, mesh=loop.mesh)
        return EvaluationResult(
            rows=[row],
            metrics={"return": row["return_mean"], "return_se": row["return_se"]},
            headline=f"{who(player)}: {sentence(row, '')}",
            episodes=[episodes],
        )

    return evaluate


def _measured(env: Any, player: AbstractActor, episodes: int, **options: Any) -> Any:
    """Whole episodes, by the `key` and on the `mesh` of [`zero_app.measure`][], and what that
    returns."""
    limit = longest_episode(env)
    return measure(env, player, players=1, games=episodes, max_moves=limit, **options)


def describe(config: Config, loop: Loop) -> list[str]:
    """A description of the run: networks, number of steps and amount of arithmetic."""
    rows = config.envs * config.unroll
    # The arithmetic of a step does not depend on the devices.
    loop = dataclasses.replace(loop, mesh=data_mesh(1), actor_devices=0)
    shape = template(loop)
    state: Any = shape.agent
    learned = state.params if config.on_policy else state.online
    critic = _size(learned.value if config.on_policy else learned.critic)
    learns: Any = lambda state: run_step(loop, state)
    if isinstance(loop.env, Hosted):  # of which acting is not one program
        learns = lambda state: learn_half(loop, None, state)
    flops = matrix_flops(learns, shape)
    total = config.blocks * rows
    rounded = "" if total == config.steps else f" (--steps {config.steps:,} in whole blocks)"
    return [
        f"{config.agent} on {config.env}: policy of {_size(learned.policy):,} parameters, "
        f"critic of {critic:,}",
        f"{config.blocks:,} blocks of {config.envs} environments x {config.unroll} rows are "
        f"{total:,}{rounded}; the final state of an episode is a row too",
        f"a block is {config.updates} gradient steps and {_scaled(flops)}FLOP of matrix products",
    ]


def _training(folder: pathlib.Path, block: int) -> dict[str, float]:
    """The training steps of the player, and their speed: the median over the blocks, which is not
    affected by compilation. A file of a player has no log that could tell."""
    said: dict[str, float] = {}
    for row in read_lines(folder / "metrics.jsonl"):
        if row["step"] == block:
            said["steps_trained"] = row["positions"]
    if rates := [row["positions_per_second"] for row in read_lines(folder / "timings.jsonl")]:
        said["train_steps_per_second"] = statistics.median(rates)
    return said


def _size(tree: PyTree) -> int:
    return sum(x.size for x in jax.tree.leaves(tree))


def _scaled(number: float) -> str:
    """`1234567` as `1.23 M`, to be followed by a unit."""
    power = min(int(math.log10(max(number, 1)) / 3), 4)
    return f"{number / 1000**power:.3g} {' kMGT'[power].strip()}"
