"""How good players and planners are: while one trains, in `monsters eval` and `monsters plan`."""

import dataclasses
import json as json_text
import sys
from typing import Annotated, Any, Literal

import jax.random as jr
import numpy as np
import tyro
from jaxtyping import PRNGKeyArray

from zero_app import (
    AbstractCommand,
    AbstractPlayerCommand,
    App,
    Evaluate,
    EvaluationResult,
    RETURN,
    RunFiles,
    Seed,
    Trained,
    UsageError,
)
from zero_envs import Monsters
from zero_train import AbstractActor, Loop

from ._build import build_actor, build_env
from ._config import Config, Rollouts, Simulations
from ._measure import measure, NUM_STEPS
from ._names import LEAST_IN_A_TREE, PlannerName
from ._planners import PLANNERS, planning_actor
from .oracle import MonstersOracle


_HEADER = (
    f"{'planner':>20} {'simulations':>12} {'return':>16} {'win':>7} {'loss':>7} "
    f"{'regret':>8} {'moves/s':>9}"
)


@dataclasses.dataclass(frozen=True)
class AbstractPlannedCommand(AbstractPlayerCommand):
    """A command about a trained player with any planner."""

    planner: str = "chance"
    """frozen, hindsight (or hindsight-K), chance, or network for the network without a search."""
    simulations: Simulations | None = None
    """Simulations per move, in all trees together; by default those of the run's configuration."""
    seed: Seed = 0
    """The seed of all randomness."""

    def player(self, app: App[Config]) -> tuple[Trained[Config], AbstractActor, int]:
        """The run, its player with this planner, and the simulations per move."""
        trained = self.load(app)
        built = build_actor(trained.config, trained.player, self.planner, self.simulations)
        return trained, *built


@dataclasses.dataclass(frozen=True)
class Eval(AbstractPlannedCommand):
    """Measure the player of a run."""

    rollouts: Annotated[Rollouts, tyro.conf.arg(aliases=["--games"])] = 2000
    """Rollouts of 32 steps."""
    json: bool = False
    """Print one JSON line instead."""

    def __call__(self, app: App[Config]) -> None:
        trained, actor, number = self.player(app)
        oracle, key = MonstersOracle(build_env(trained.config)), jr.key(self.seed)
        row, _ = result_row(oracle, actor, self.planner, number, rollouts=self.rollouts, key=key)
        if not self.json:
            where = f"{row['rollouts']} rollouts of 32 steps in the {row['world']} world"
            print(f"{self.run} (step {trained.step}), {where}; ± is a 95 % interval:")
            print(_HEADER)
        print(json_text.dumps(row) if self.json else _line(row))


@dataclasses.dataclass(frozen=True)
class Plan(AbstractCommand):
    """Compare planners that know the rules but have no network, in rollouts of 32 steps, with the
    exact optimum. The policy is uniform, and leaves are worth zero or the return of a random
    playout. If there are too few simulations for the planner's trees, a line on standard error
    replaces the row."""

    world: Literal["moving", "stationary"] = "moving"
    """Whether the monsters move."""
    planners: tuple[str, ...] = tuple(PLANNERS)
    """frozen, hindsight-K or chance; append +playout for leaves judged by playouts."""
    simulations: tuple[Simulations, ...] = (50, 200, 800)
    """Simulations per move, in all trees together."""
    rollouts: Rollouts = 2000
    """Rollouts of 32 steps for each row."""
    seed: Seed = 0
    """The seed of all randomness."""
    json: bool = False
    """Print one JSON line for each row."""

    def __call__(self, app: App) -> None:
        del app
        for flag, given in (("planners", self.planners), ("simulations", self.simulations)):
            if not given:
                raise UsageError(f"--{flag} is empty; give at least one value, or leave it out.")
        for planner in self.planners:
            PlannerName.parse(planner)
        if least := [n for n in self.simulations if n < LEAST_IN_A_TREE]:
            raise UsageError(
                f"--simulations {least[0]} was given; give at least {LEAST_IN_A_TREE}."
            )
        env = Monsters(moving=self.world == "moving")
        oracle = MonstersOracle(env)
        if not self.json:
            best, rest = oracle.rollout(NUM_STEPS), oracle.rollout(NUM_STEPS, "random")
            print(f"{self.rollouts} rollouts of {NUM_STEPS} steps; ± is a 95 % interval")
            print(f"{self.world} world: the best return is {best:.3f}, a random one {rest:.3f}")
            print(_HEADER)
        for number in self.simulations:
            for planner in self.planners:
                try:
                    actor = planning_actor(env, planner, number)
                except UsageError as e:
                    print(f"monsters: left out: {e}", file=sys.stderr)
                    continue
                key = jr.key(self.seed)
                row, _ = result_row(oracle, actor, planner, number, rollouts=self.rollouts, key=key)
                print(json_text.dumps(row) if self.json else _line(row), flush=True)


def result_row(
    oracle: MonstersOracle,
    actor: AbstractActor,
    planner: str,
    simulations: int,
    *,
    rollouts: int,
    key: PRNGKeyArray,
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The results of a player, which `--json` prints, and of every rollout; `planner` and
    `simulations` name the player."""
    row, episodes = measure(oracle.env, oracle, actor, rollouts=rollouts, key=key)
    world = "moving" if oracle.env.moving else "stationary"
    return {"world": world, "planner": planner, "simulations": simulations, **row}, episodes


def _line(row: dict[str, Any]) -> str:
    """A row of the table with the header `_HEADER`."""
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
    oracle = MonstersOracle(build_env(config))

    def evaluate(step: int, player: AbstractActor) -> EvaluationResult:
        last = step == config.steps
        names = _compared(config) if last else [config.planner, "network"]
        players = [(name, *build_actor(config, player, name), "network") for name in names]
        if last:
            own, number = config.planner, config.player_simulations
            players.append((own, planning_actor(oracle.env, own, number), number, "zero"))
        rows, episodes = [], []
        for name, actor, number, leaf in players:
            rollouts, key = (4 if last else 1) * config.rollouts, jr.fold_in(jr.key(config.seed), 1)
            row, each = result_row(oracle, actor, name, number, rollouts=rollouts, key=key)
            # The speed would differ between a resumed run and an uninterrupted one.
            del row["moves_per_second"]
            rows.append({**row, "leaf": leaf})
            episodes.append(each)
        best, network = rows[0], next(row for row in rows if row["planner"] == "network")
        return EvaluationResult(
            rows=rows,
            metrics={
                "return": best["return_mean"],
                "return_se": best["return_se"],
                "win_rate": best["win_rate"],
                "network_return": network["return_mean"],
            },
            headline=(
                f"{best['planner']}, {best['simulations']} simulations a move: return "
                f"{RETURN.shown(best)} (95 % interval) in {best['rollouts']} rollouts, "
                f"{best['win_rate']:.1%} won; network alone: return {RETURN.shown(network)}"
            ),
            episodes=episodes,
        )

    return evaluate


def _compared(config: Config) -> list[str]:
    """The planners of the last evaluation."""
    names = dict.fromkeys((config.planner, "chance", "hindsight-3", "frozen"))
    fit = lambda name: PlannerName.parse(name).trees * LEAST_IN_A_TREE <= config.player_simulations
    return [*filter(fit, names), "network"]
