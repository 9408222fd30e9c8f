"""`monsters eval`: measures the player of a run."""

import dataclasses
import json
from typing import Any

import jax.random as jr
from jaxtyping import PRNGKeyArray

from zero_envs import Monsters
from zero_train import AbstractActor
from zero_train.app import as_usage_error

from ._load import load
from ._measure import measure
from ._planners import GAMMA
from .oracle import MonstersOracle


HEADER = (
    f"{'planner':>20} {'simulations':>12} {'return':>16} {'win':>7} {'loss':>7} "
    f"{'regret':>8} {'moves/s':>9}"
)


def evaluate(
    run: str, *, planner: str, simulations: int | None, rollouts: int, seed: int, as_json: bool
) -> None:
    """Measures the newest player of a run and prints the result.

    **Arguments:**

    - `planner`: a name (see `PlannerName`), or `"network"` for the network without a search.
    - `simulations`: the number of simulations per move; by default that of the configuration.
    """
    trained = load(run)
    number = trained.simulations(planner, simulations)
    with as_usage_error():
        actor = trained.actor(planner, number)
    row = result_row(
        trained.env,
        MonstersOracle(trained.env),
        actor,
        planner=planner,
        simulations=number,
        rollouts=rollouts,
        key=jr.key(seed),
    )
    if not as_json:
        print(f"{run} (step {trained.step}) in the {row['world']} world:")
        print(HEADER)
    print(json.dumps(row) if as_json else line(row))


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
    measured = measure(env, oracle, actor, rollouts=rollouts, gamma=GAMMA, key=key)
    return {
        "world": "moving" if env.moving else "stationary",
        "planner": planner,
        "simulations": simulations,
        **dataclasses.asdict(measured),
    }


def line(row: dict[str, Any]) -> str:
    """A row of the table with the header `HEADER`."""
    spread = f"{row['return_mean']:.3f} ± {row['return_se']:.3f}"
    return (
        f"{row['planner']:>20} {row['simulations']:>12} {spread:>16} "
        f"{row['win_rate']:7.1%} {row['loss_rate']:7.1%} {row['regret_mean']:8.4f} "
        f"{row['moves_per_second']:9.0f}"
    )
