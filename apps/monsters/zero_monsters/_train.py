"""`monsters train`."""

import pathlib
from collections.abc import Mapping
from typing import Any

import jax
import jax.random as jr
from jaxtyping import Array, PyTree

import zero_train.app
from zero_envs.testing import MonstersOracle
from zero_train import AbstractActor, data_mesh, ExpertIterationState
from zero_train.app import AbstractRun, as_usage_error, Options, Records, Standing

from ._build import build_env, build_loop, build_player, learning_rate
from ._config import Config
from ._eval import result_row
from ._planners import LEAST_IN_A_TREE, PlannerName, planning_actor
from ._report import write_report


def train(config: Config, options: Options) -> None:
    """Trains until the configured steps are done, the time is up, or a signal asks to stop."""
    with as_usage_error():
        loop = build_loop(config, data_mesh(options.devices))
    run = lambda records: _Run(config, records)
    zero_train.app.train(config, loop, options, run, steps=config.steps)
    print(f"The run is in {options.out}; look at it with: monsters watch {options.out}")


class _Run(AbstractRun):
    """Measures the player in whole rollouts, with the planner it learned from and without any."""

    project = "zero-monsters"
    shown = {
        "loss": "loss",
        "policy_loss": "policy loss",
        "value_loss": "value loss",
        "policy_entropy": "policy entropy",
        "value_error": "value error",
        "learning_rate": "learning rate",
    }

    def __init__(self, config: Config, records: Records):
        self._config = config
        self._schedule = learning_rate(config)
        self._env = build_env(config)
        self._oracle = MonstersOracle(self._env)
        self._key = jr.fold_in(jr.key(config.seed), 1)
        del records  # Nothing is carried from one evaluation to the next.

    def player(self, agent: ExpertIterationState) -> PyTree[Array]:
        return agent.params

    def measure(self, step: int) -> Mapping[str, Any]:
        rate: Any = self._schedule(step * self._config.updates - 1)
        return {"learning_rate": float(rate)}

    def evaluate(self, step: int, player: PyTree[Array]) -> Standing | None:
        config = self._config
        last = step == config.steps
        if step % config.evaluate_every and not last:
            return None
        # It lies on every device of the mesh, and an evaluation would run on all of them.
        player = jax.device_put(player, jax.devices()[0])
        if last:
            rows = [self._row(player, name, 4 * config.rollouts) for name in _compared(config)]
            rows.append(self._ignorant(4 * config.rollouts))
        else:
            rows = [self._row(player, name, config.rollouts) for name in _followed(config)]
        named = {row["planner"]: row for row in rows if row["leaf"] == "network"}
        best, network = named[config.planner], named["network"]
        return Standing(
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
            verdict=f"{best['win_rate']:.1%} won",
        )

    def report(self, folder: pathlib.Path) -> None:
        write_report(folder)

    def _row(self, params: PyTree[Array], planner: str, rollouts: int) -> dict[str, Any]:
        simulations = 0 if planner == "network" else self._config.player_simulations
        actor = build_player(self._config, params, planner, simulations)
        return self._measured(actor, planner, simulations, rollouts, leaf="network")

    def _ignorant(self, rollouts: int) -> dict[str, Any]:
        """The planner of that name in `monsters plan`, without the network and by its own rule."""
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
        # A clock's figure would differ in a run that was resumed.
        del row["moves_per_second"]
        return {**row, "leaf": leaf}


def _followed(config: Config) -> list[str]:
    """Who is measured while it learns."""
    return [config.planner, "network"]


def _compared(config: Config) -> list[str]:
    """Who is measured at the end."""
    names = dict.fromkeys((config.planner, "chance", "hindsight-3", "frozen"))
    fit = lambda name: PlannerName.parse(name).trees * LEAST_IN_A_TREE <= config.player_simulations
    return [*filter(fit, names), "network"]
