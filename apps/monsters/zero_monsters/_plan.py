"""`monsters plan`: compares planners without a network."""

import dataclasses
import json as json_text
import sys
from typing import ClassVar, Literal

import jax.random as jr

from zero_app import AbstractCommand, App, as_usage_error, Bounds, UsageError
from zero_envs import Monsters

from ._config import ROLLOUTS, SIMULATIONS
from ._eval import HEADER, line, result_row
from ._measure import NUM_STEPS
from ._planners import LEAST_IN_A_TREE, PlannerError, PlannerName, PLANNERS, planning_actor
from .oracle import MonstersOracle


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
    simulations: tuple[int, ...] = (50, 200, 800)
    """Simulations per move, in all trees together."""
    rollouts: int = 2000
    """Rollouts of 32 steps for each row."""
    seed: int = 0
    """The seed of all randomness."""
    json: bool = False
    """Print one JSON line for each row."""

    bounds: ClassVar[Bounds] = {"rollouts": ROLLOUTS, "simulations": SIMULATIONS}

    def __call__(self, app: App) -> None:
        del app
        for flag, given in (("planners", self.planners), ("simulations", self.simulations)):
            if not given:
                raise UsageError(f"--{flag} is empty; give at least one value, or leave it out.")
        with as_usage_error():
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
            print(HEADER)
        for number in self.simulations:
            for planner in self.planners:
                try:
                    actor = planning_actor(env, planner, number)
                except PlannerError as e:
                    print(f"monsters: left out: {e}", file=sys.stderr)
                    continue
                key = jr.key(self.seed)
                row = result_row(oracle, actor, planner, number, rollouts=self.rollouts, key=key)
                print(json_text.dumps(row) if self.json else line(row), flush=True)
