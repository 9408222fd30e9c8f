"""`spo train`."""

import math
import pathlib
from collections.abc import Mapping
from typing import Any

import jax
import jax.random as jr
from jaxtyping import Array, PyTree

import zero_train.app
from zero_train import ActorCritic, ActorCriticState, data_mesh, init, Loop, step
from zero_train.app import AbstractRun, as_usage_error, EvaluationResult, Options

from ._build import build_loop
from ._config import Config
from ._eval import measure
from ._flops import matrix_flops
from ._report import write_report


def train(config: Config, options: Options) -> None:
    """Trains until all steps are done, the time is up, or the process gets a signal to stop."""
    with as_usage_error():
        loop = build_loop(config, data_mesh(options.devices))
    for line in describe(config, loop):
        print(line)
    # Nothing is carried from one evaluation to the next, so the run's files are not needed.
    run = lambda files: _Run(config, loop)
    if zero_train.app.train(config, loop, options, run, steps=config.blocks):
        print(f"The run is in {options.out}. To watch its player: spo watch {options.out}")


def describe(config: Config, loop: Loop) -> list[str]:
    """A description of the run: networks, number of steps and amount of arithmetic."""
    rows = config.envs * config.unroll
    shape = jax.eval_shape(lambda key: init(loop, key=key), jax.random.key(0))
    online = shape.agent.online
    sizes = {name: _size(getattr(online, name)) for name in ("policy", "critic")}
    flops = matrix_flops(lambda state: step(loop, state), shape)
    total = config.blocks * rows
    rounded = "" if total == config.steps else f" (--steps {config.steps:,} in whole blocks)"
    return [
        f"{config.agent} on {config.env}: policy of {sizes['policy']:,} parameters, critic of "
        f"{sizes['critic']:,}",
        f"{config.blocks:,} blocks of {config.envs} environments x {config.unroll} rows are "
        f"{total:,}{rounded}; the final state of an episode is a row too",
        f"a block is {config.updates} gradient steps and {_scaled(flops)}FLOP of matrix products",
    ]


class _Run(AbstractRun):
    """Evaluates the player in whole episodes."""

    project = "zero-spo"

    def __init__(self, config: Config, loop: Loop):
        self._config = config
        self._env: Any = loop.env
        self._agent: Any = loop.agent
        self._key = jr.fold_in(jr.key(config.seed), 1)
        self.shown = {
            "value_loss": "value loss",
            "temperature": "temperature",
            "kl_nonparametric_relative": "KL of improvement / bound",
            "kl_relative": "KL of policy / bound",
            "kl_relative_mean": "KL of mean / bound",
            "kl_relative_stddev": "KL of deviation / bound",
            f"ess_fraction_{config.depth}": "effective particles",
            "failures": "failed episodes",
        }

    def parameters(self, agent: ActorCriticState) -> ActorCritic:
        return agent.online

    def measure(self, step: int) -> Mapping[str, Any]:
        return {}

    def evaluate(self, step: int, parameters: PyTree[Array]) -> EvaluationResult | None:
        config = self._config
        if step % config.evaluate_every and step != config.blocks:
            return None
        # The parameters are on all devices of the mesh, and an evaluation would run on all of them.
        parameters = jax.device_put(parameters, jax.devices()[0])
        actor = self._agent.play(parameters, explore=False)
        # Every evaluation has the same initial states and the same randomness.
        key = jr.clone(self._key)
        summary = measure(self._env, actor, episodes=config.episodes, key=key)
        row = {
            "return_mean": summary.mean,
            "return_se": summary.standard_error,
            "length_mean": summary.mean_length,
            "episodes": summary.episodes,
            "failed": summary.failed,
        }
        return EvaluationResult(
            rows=[row],
            metrics={"return": summary.mean, "return_se": summary.standard_error},
            figures={
                "return": f"{summary.mean:.1f} ± {summary.standard_error:.1f}",
                "episode length": f"{summary.mean_length:.0f}",
            },
        )

    def report(self, folder: pathlib.Path) -> None:
        write_report(folder)


def _size(tree: PyTree) -> int:
    return sum(x.size for x in jax.tree.leaves(tree))


def _scaled(number: float) -> str:
    """`1234567` as `1.23 M`, to be followed by a unit."""
    power = min(int(math.log10(max(number, 1)) / 3), 4)
    return f"{number / 1000**power:.3g} {' kMGT'[power].strip()}"
