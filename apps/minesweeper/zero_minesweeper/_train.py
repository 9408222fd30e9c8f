"""`minesweeper train`."""

import dataclasses
import functools as ft
import json
import pathlib
from collections.abc import Mapping
from typing import Any

import jax
import jax.random as jr
from jaxtyping import Array, PyTree

import zero_train.app
from zero_train import data_mesh, ExpertIterationState
from zero_train.app import AbstractRun, as_usage_error, EvaluationResult, Options, RunFiles

from ._agents import build_agent, FOLLOWED
from ._boards import FILE, guesses, opinions
from ._build import build_env, build_learner, build_loop, learning_rate
from ._config import Config
from ._eval import result_row
from ._measure import measure
from ._report import write_report


#: The additional agents of the last evaluation.
COMPARED = ("belief-constant", "tiebreak", "minprob")
# The number of boards in the report.
_PICTURED = 5


def train(config: Config, options: Options) -> None:
    """Trains until all steps are done, the time is up, or the process gets a signal to stop."""
    with as_usage_error():
        loop = build_loop(config, data_mesh(options.devices))
    run = lambda files: _Run(config, files)
    if zero_train.app.train(config, loop, options, run, steps=config.steps):
        print(f"The run is in {options.out}. To watch its player: minesweeper watch {options.out}")


class _Run(AbstractRun):
    """Evaluates the network without and with a search and, at the end, agents without a network."""

    project = "zero-minesweeper"
    shown = {
        "loss": "loss",
        "policy_loss": "policy loss",
        "value_error": "value error",
        "auxiliary_loss": "mine loss",
        "learning_rate": "learning rate",
    }

    def __init__(self, config: Config, files: RunFiles):
        self._config = config
        self._schedule = learning_rate(config)
        self._env = build_env(config)
        self._learner = build_learner(config)
        self._key = jr.fold_in(jr.key(config.seed), 1)
        self._folder = files.folder

    def parameters(self, agent: ExpertIterationState) -> PyTree[Array]:
        return agent.params

    def measure(self, step: int) -> Mapping[str, Any]:
        rate: Any = self._schedule(step * self._config.updates - 1)
        return {"learning_rate": float(rate)}

    def evaluate(self, step: int, parameters: PyTree[Array]) -> EvaluationResult | None:
        config = self._config
        last = step == config.steps
        if step % config.evaluate_every and not last:
            return None
        # The parameters are on all devices of the mesh, and an evaluation would run on all of them.
        parameters = jax.device_put(parameters, jax.devices()[0])
        thoughts = opinions(self._env, self._guesses, self._learner.evaluator(parameters))
        self._folder.write(FILE, json.dumps(thoughts))
        names = FOLLOWED + COMPARED if last else FOLLOWED
        rows = [self._row(name, parameters, (4 if last else 1) * config.boards) for name in names]
        network, belief = rows[:2]
        return EvaluationResult(
            rows=rows,
            metrics={
                "win_rate": belief["win_rate"],
                "win_se": belief["win_se"],
                "network_win_rate": network["win_rate"],
            },
            figures={
                "wins": f"{belief['win_rate']:.3f} ± {belief['win_se']:.3f}",
                "network alone": f"{network['win_rate']:.3f} ± {network['win_se']:.3f}",
            },
        )

    def report(self, folder: pathlib.Path) -> None:
        write_report(folder)

    @ft.cached_property
    def _guesses(self) -> list[Any]:
        """The boards of the report, which are the same in every evaluation."""
        key = jr.fold_in(jr.key(self._config.seed), 2)
        return guesses(self._env, _PICTURED, key=key)

    def _row(self, name: str, params: PyTree[Array], boards: int) -> dict[str, Any]:
        config = self._config
        actor = build_agent(
            name,
            self._env,
            config=dataclasses.replace(config, player_simulations=config.simulations),
            evaluate=self._learner.evaluator(params),
        )
        # All agents and evaluations have the same boards.
        key = jr.clone(self._key)
        once = config.boards  # so that the last evaluation uses the same compiled program
        measured = measure(self._env, actor, boards=boards, key=key, timed=False, at_once=once)
        row = result_row(name, measured)
        # The speed would differ between a resumed run and an uninterrupted one.
        del row["moves_per_second"]
        return row
