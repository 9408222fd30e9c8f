"""`zero train`, for agents that search a tree."""

import pathlib
from collections.abc import Mapping
from typing import Any

import jax
import jax.random as jr
from jaxtyping import Array, PyTree

import zero_train.app
from zero_train import data_mesh, ExpertIterationState, Loop
from zero_train.app import AbstractRun, as_usage_error, EvaluationResult, Options, RunFiles

from ._build import build_actor, build_loop, learning_rate
from ._config import Config
from ._measure import measure, sentence
from ._report import write_report
from ._worlds import World


def train(config: Config, world: World, options: Options) -> None:
    """Trains until all steps are done, the time is up, or the process gets a signal to stop."""
    with as_usage_error():
        loop = build_loop(config, world, data_mesh(options.devices))
    run = lambda files: _Run(config, world, loop, files)
    if zero_train.app.train(config, loop, options, run, steps=config.steps):
        print(f"The run is in {options.out}. To measure its player: zero eval {options.out}")


class _Run(AbstractRun):
    """Evaluates the network without a search: against random moves, or alone."""

    project = "zero"
    shown = {
        "loss": "loss",
        "policy_loss": "policy loss",
        "value_loss": "value loss",
        "policy_entropy": "policy entropy",
        "episode_return_mean": "return",
        "episode_length_mean": "length",
        "learning_rate": "learning rate",
    }

    def __init__(self, config: Config, world: World, loop: Loop, files: RunFiles):
        del files
        self._config, self._world = config, world
        self._agent: Any = loop.agent
        self._schedule = learning_rate(config)

    def parameters(self, agent: ExpertIterationState) -> PyTree[Array]:
        return agent.target

    def measure(self, step: int) -> Mapping[str, Any]:
        rate: Any = self._schedule(step * self._config.updates - 1)
        return {"learning_rate": float(rate)}

    def evaluate(self, step: int, parameters: PyTree[Array]) -> EvaluationResult | None:
        config = self._config
        if step % config.evaluate_every and step != config.steps:
            return None
        # The parameters are on all devices of the mesh, and an evaluation would run on all of them.
        parameters = jax.device_put(parameters, jax.devices()[0])
        actor = build_actor(config, self._agent, parameters, simulations=0)
        # Every evaluation has the same openings and the same randomness.
        key = jr.fold_in(jr.key(config.seed), 1)
        row = measure(self._world, actor, games=config.games, max_moves=config.max_moves, key=key)
        name = "score" if "score" in row else "return_mean"
        return EvaluationResult(
            rows=[row],
            metrics={name: row[name]},
            figures={},
            headline=f"network alone: {sentence(row, 'random')}",
        )

    def report(self, folder: pathlib.Path) -> None:
        write_report(folder)
