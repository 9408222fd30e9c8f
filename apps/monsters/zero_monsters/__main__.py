"""The command line: `monsters plan`."""

import argparse
import dataclasses
import json
import sys
from typing import NoReturn

from ._planners import GAMMA, LEAST_IN_A_TREE, PlannerError, PlannerName, PLANNERS, planning_actor


_HEADER = (
    f"{'planner':>20} {'simulations':>12} {'return':>16} {'win':>7} {'loss':>7} "
    f"{'regret':>8} {'moves/s':>9}"
)


def main() -> None:
    """Runs one command; bad input ends it with one line and exit code 2."""
    try:
        arguments = _parser().parse_args()
        _plan(arguments)
    except (ValueError, OSError) as e:
        print(f"monsters: {e}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)


def _parser() -> argparse.ArgumentParser:
    whole = argparse.ArgumentParser(
        prog="monsters", description="Planning where the world is random.", allow_abbrev=False
    )
    commands = whole.add_subparsers(dest="command", required=True, metavar="COMMAND")
    plan = commands.add_parser(
        "plan",
        help="compare planners at several numbers of simulations, without learning",
        description="Planners that know the rules and nothing else: a uniform policy, leaves worth "
        "zero or judged by a random playout. Rollouts of 32 steps, beside the exact optimum.",
        allow_abbrev=False,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    plan.add_argument("--world", choices=("moving", "stationary"), default="moving")
    plan.add_argument(
        "--planners",
        nargs="+",
        default=PLANNERS,
        metavar="NAME",
        help="frozen, hindsight-K, chance, each perhaps with +playout",
    )
    plan.add_argument(
        "--simulations", nargs="+", type=int, default=[50, 200, 800], help="of all trees together"
    )
    plan.add_argument("--rollouts", type=int, default=2000)
    plan.add_argument("--seed", type=int, default=0)
    plan.add_argument("--json", action="store_true", help="print one JSON line a row")
    for parser in (whole, plan):
        parser.error = _refuse
    return whole


def _refuse(message: str) -> NoReturn:
    raise ValueError(f"{message}; see monsters plan --help.")


def _plan(arguments: argparse.Namespace) -> None:
    if arguments.rollouts < 1:
        raise ValueError(f"--rollouts {arguments.rollouts} was given; give at least 1.")
    for planner in arguments.planners:
        PlannerName.parse(planner)
    if least := [n for n in arguments.simulations if n < LEAST_IN_A_TREE]:
        raise ValueError(
            f"--simulations {least[0]} was given; give at least {LEAST_IN_A_TREE}, fewer are no "
            "search."
        )

    import jax.random as jr

    from zero_envs import Monsters
    from zero_envs.testing import MonstersOracle

    from ._measure import measure, NUM_STEPS

    env = Monsters(moving=arguments.world == "moving")
    oracle = MonstersOracle(env)
    if not arguments.json:
        best, rest = oracle.rollout(NUM_STEPS), oracle.rollout(NUM_STEPS, "random")
        print(f"{arguments.world} world: the best return is {best:.3f}, a random one {rest:.3f}")
        print(_HEADER)
    for simulations in arguments.simulations:
        for planner in arguments.planners:
            try:
                actor = planning_actor(env, planner, simulations)
            except PlannerError as e:
                print(f"monsters: left out: {e}", file=sys.stderr)
                continue
            measured = measure(
                env,
                oracle,
                actor,
                rollouts=arguments.rollouts,
                gamma=GAMMA,
                key=jr.key(arguments.seed),
            )
            row = {
                "world": arguments.world,
                "planner": planner,
                "simulations": simulations,
                **dataclasses.asdict(measured),
            }
            print(json.dumps(row) if arguments.json else _line(row), flush=True)


def _line(row: dict) -> str:
    spread = f"{row['return_mean']:.3f} ± {row['return_se']:.3f}"
    return (
        f"{row['planner']:>20} {row['simulations']:>12} {spread:>16} "
        f"{row['win_rate']:7.1%} {row['loss_rate']:7.1%} {row['regret_mean']:8.4f} "
        f"{row['moves_per_second']:9.0f}"
    )


if __name__ == "__main__":
    main()
