"""`monsters plan`: compares planners without a network."""

import json
import sys
from collections.abc import Sequence

import jax.random as jr

from zero_envs import Monsters
from zero_train.app import as_usage_error, UsageError

from ._eval import HEADER, line, result_row
from ._measure import NUM_STEPS
from ._planners import LEAST_IN_A_TREE, PlannerError, PlannerName, planning_actor
from .oracle import MonstersOracle


def compare(
    world: str,
    *,
    planners: Sequence[str],
    simulations: Sequence[int],
    rollouts: int,
    seed: int,
    as_json: bool,
) -> None:
    """Prints a row for each planner and number of simulations.

    If there are too few simulations for the planner's trees, a line on standard error replaces the
    row.
    """
    for flag, given in (("planners", planners), ("simulations", simulations)):
        if not given:
            raise UsageError(f"--{flag} is empty; give at least one value, or leave it out.")
    with as_usage_error():
        for planner in planners:
            PlannerName.parse(planner)
    if least := [n for n in simulations if n < LEAST_IN_A_TREE]:
        raise UsageError(f"--simulations {least[0]} was given; give at least {LEAST_IN_A_TREE}.")
    env = Monsters(moving=world == "moving")
    oracle = MonstersOracle(env)
    if not as_json:
        best, rest = oracle.rollout(NUM_STEPS), oracle.rollout(NUM_STEPS, "random")
        print(f"{world} world: the best return is {best:.3f}, a random one {rest:.3f}")
        print(HEADER)
    for number in simulations:
        for planner in planners:
            try:
                actor = planning_actor(env, planner, number)
            except PlannerError as e:
                print(f"monsters: left out: {e}", file=sys.stderr)
                continue
            row = result_row(
                env,
                oracle,
                actor,
                planner=planner,
                simulations=number,
                rollouts=rollouts,
                key=jr.key(seed),
            )
            print(json.dumps(row) if as_json else line(row), flush=True)
