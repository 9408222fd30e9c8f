"""How good the player of a run is, while it trains and in `monsters eval`."""

import dataclasses
import json as json_text
from typing import Annotated, Any, ClassVar

import jax.random as jr
import tyro
from jaxtyping import PRNGKeyArray

from zero_envs import Monsters
from zero_train import AbstractActor, Loop
from zero_train.app import (
    AbstractPlayerCommand,
    App,
    as_usage_error,
    Bounds,
    Evaluate,
    EvaluationResult,
    RETURN,
    RunFiles,
    Trained,
)

from ._build import build_actor, build_env
from ._config import Config, ROLLOUTS, SIMULATIONS
from ._measure import measure
from ._planners import LEAST_IN_A_TREE, PlannerName, planning_actor
from .oracle import MonstersOracle


HEADER = (
    f"{'planner':>20} {'simulations':>12} {'return':>16} {'win':>7} {'loss':>7} "
    f"{'regret':>8} {'moves/s':>9}"
)


@dataclasses.dataclass(frozen=True)
class Eval(AbstractPlayerCommand):
    """Measure the player of a run."""

    planner: str = "chance"
    """frozen, hindsight (or hindsight-K), chance, or network for the network without a search."""
    simulations: int | None = None
    """Simulations per move, in all trees together; by default those of the run's configuration."""
    rollouts: Annotated[int, tyro.conf.arg(aliases=["--games"])] = 2000
    """Rollouts of 32 steps."""
    seed: int = 0
    """The seed of all randomness."""
    json: bool = False
    """Print one JSON line instead."""

    bounds: ClassVar[Bounds] = {"rollouts": ROLLOUTS, "simulations": SIMULATIONS}

    def __call__(self, app: App[Config]) -> None:
        trained = self.load(app)
        actor, number = named_player(trained, self.planner, self.simulations)
        env = build_env(trained.config)
        row = result_row(
            env,
            MonstersOracle(env),
            actor,
            planner=self.planner,
            simulations=number,
            rollouts=self.rollouts,
            key=jr.key(self.seed),
        )
        if not self.json:
            where = f"{row['rollouts']} rollouts of 32 steps in the {row['world']} world"
            print(f"{self.run} (step {trained.step}), {where}; ± is a 95 % interval:")
            print(HEADER)
        print(json_text.dumps(row) if self.json else line(row))


def named_player(
    trained: Trained[Config], planner: str, simulations: int | None
) -> tuple[AbstractActor, int]:
    """A trained player with the planner of a name, and the simulations per move: the given ones, or
    those of the configuration; 0 for `"network"`."""
    number = trained.config.player_simulations if simulations is None else simulations
    number = 0 if planner == "network" else number
    with as_usage_error():
        return build_actor(trained.config, trained.player, planner, number), number


def result_row(
    env: Monsters,
    oracle: MonstersOracle,
    actor: AbstractActor,
    *,
    planner: str,
    simulations: int,
    rollouts: int,
    key: PRNGKeyArray,
) -> dict[str, Any]:
    """The results of a player, which `--json` prints."""
    return {
        "world": "moving" if env.moving else "stationary",
        "planner": planner,
        "simulations": simulations,
        **measure(env, oracle, actor, rollouts=rollouts, key=key),
    }


def line(row: dict[str, Any]) -> str:
    """A row of the table with the header `HEADER`."""
    spread = RETURN.shown(row)
    return (
        f"{row['planner']:>20} {row['simulations']:>12} {spread:>16} "
        f"{row['win_rate']:7.1%} {row['loss_rate']:7.1%} {row['regret_mean']:8.4f} "
        f"{row['moves_per_second']:9.0f}"
    )


def evaluation(config: Config, loop: Loop, files: RunFiles) -> Evaluate:
    """Measures the player in rollouts, with its planner and without a search; at the end also with
    other planners, and its planner without the network."""
    del loop, files
    env = build_env(config)
    oracle = MonstersOracle(env)

    def measured(actor: AbstractActor, planner: str, rollouts: int, leaf: str) -> dict[str, Any]:
        simulations = 0 if planner == "network" else config.player_simulations
        row = result_row(
            env,
            oracle,
            actor,
            planner=planner,
            simulations=simulations,
            rollouts=rollouts,
            key=jr.fold_in(jr.key(config.seed), 1),
        )
        # The speed would differ between a resumed run and an uninterrupted one.
        del row["moves_per_second"]
        return {**row, "leaf": leaf}

    def evaluate(step: int, player: AbstractActor) -> EvaluationResult:
        last = step == config.steps
        rollouts, rows = (4 if last else 1) * config.rollouts, []
        for name in _compared(config) if last else (config.planner, "network"):
            actor = build_actor(config, player, name, config.player_simulations)
            rows.append(measured(actor, name, rollouts, "network"))
        named = {row["planner"]: row for row in rows}
        best, network = named[config.planner], named["network"]
        if last:
            ignorant = planning_actor(env, config.planner, config.player_simulations)
            rows.append(measured(ignorant, config.planner, rollouts, "zero"))
        return EvaluationResult(
            rows=rows,
            metrics={
                "return": best["return_mean"],
                "return_se": best["return_se"],
                "win_rate": best["win_rate"],
                "network_return": network["return_mean"],
            },
            figures={},
            headline=(
                f"{best['planner']}, {best['simulations']} simulations a move: return "
                f"{RETURN.shown(best)} (95 % interval) in {best['rollouts']} rollouts, "
                f"{best['win_rate']:.1%} won; network alone: return {RETURN.shown(network)}"
            ),
        )

    return evaluate


def _compared(config: Config) -> list[str]:
    """The planners of the last evaluation."""
    names = dict.fromkeys((config.planner, "chance", "hindsight-3", "frozen"))
    fit = lambda name: PlannerName.parse(name).trees * LEAST_IN_A_TREE <= config.player_simulations
    return [*filter(fit, names), "network"]
