"""`monsters train`."""

import pathlib
from collections.abc import Mapping
from typing import Any

import jax
import jax.random as jr
from jaxtyping import Array, PyTree

import zero_train.app
from zero_train import AbstractActor, data_mesh, ExpertIterationState
from zero_train.app import AbstractRun, as_usage_error, EvaluationResult, Options

from ._build import build_actor, build_env, build_loop, learning_rate
from ._config import Config
from ._eval import result_row
from ._planners import LEAST_IN_A_TREE, PlannerName, planning_actor
from ._report import write_report
from .oracle import MonstersOracle


def train(config: Config, options: Options) -> None:
    """Trains until all steps are done, the time is up, or the process gets a signal to stop."""
    with as_usage_error():
        loop = build_loop(config, data_mesh(options.devices))
    # Nothing is carried from one evaluation to the next, so the run's files are not needed.
    run = lambda files: _Run(config)
    if zero_train.app.train(config, loop, options, run, steps=config.steps):
        print(f"The run is in {options.out}. To watch its player: monsters watch {options.out}")


class _Run(AbstractRun):
    """Evaluates the player in rollouts, with its planner and without a search."""

    project = "zero-monsters"
    shown = {
        "loss": "loss",
        "policy_loss": "policy loss",
        "value_loss": "value loss",
        "policy_entropy": "policy entropy",
        "value_error": "value error",
        "learning_rate": "learning rate",
    }

    def __init__(self, config: Config):
        self._config = config
        self._schedule = learning_rate(config)
        self._env = build_env(config)
        self._oracle = MonstersOracle(self._env)
        self._key = jr.fold_in(jr.key(config.seed), 1)

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
        if last:
            rows = [self._row(parameters, name, 4 * config.rollouts) for name in _compared(config)]
            rows.append(self._ignorant(4 * config.rollouts))
        else:
            rows = [self._row(parameters, name, config.rollouts) for name in _followed(config)]
        named = {row["planner"]: row for row in rows if row["leaf"] == "network"}
        best, network = named[config.planner], named["network"]
        return EvaluationResult(
            rows=rows,
            metrics={
                "return": best["return_mean"],
                "return_se": best["return_se"],
                "win_rate": best["win_rate"],
                "network_return": network["return_mean"],
            },
            figures={
                "return": f"{best['return_mean']:.2f} ± {best['return_se']:.2f}",
                "network alone": f"{network['return_mean']:.2f}",
            },
            headline=f"{best['win_rate']:.1%} won",
        )

    def report(self, folder: pathlib.Path) -> None:
        write_report(folder)

    def _row(self, params: PyTree[Array], planner: str, rollouts: int) -> dict[str, Any]:
        simulations = 0 if planner == "network" else self._config.player_simulations
        actor = build_actor(self._config, params, planner, simulations)
        return self._measured(actor, planner, simulations, rollouts, leaf="network")

    def _ignorant(self, rollouts: int) -> dict[str, Any]:
        """Measures the same planner without a network, as in `monsters plan`."""
        planner, simulations = self._config.planner, self._config.player_simulations
        actor = planning_actor(self._env, planner, simulations)
        return self._measured(actor, planner, simulations, rollouts, leaf="zero")

    def _measured(
        self, actor: AbstractActor, planner: str, simulations: int, rollouts: int, *, leaf: str
    ) -> dict[str, Any]:
        row = result_row(
            self._env,
            self._oracle,
            actor,
            planner=planner,
            simulations=simulations,
            rollouts=rollouts,
            key=self._key,
        )
        # The speed would differ between a resumed run and an uninterrupted one.
        del row["moves_per_second"]
        return {**row, "leaf": leaf}


def _followed(config: Config) -> list[str]:
    """The planners of evaluations during training."""
    return [config.planner, "network"]


def _compared(config: Config) -> list[str]:
    """The planners of the last evaluation."""
    names = dict.fromkeys((config.planner, "chance", "hindsight-3", "frozen"))
    fit = lambda name: PlannerName.parse(name).trees * LEAST_IN_A_TREE <= config.player_simulations
    return [*filter(fit, names), "network"]
