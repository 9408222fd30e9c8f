"""How good an agent is, in numbers that all agents share."""

import json
from typing import Any

import jax.random as jr

from zero_envs import Minesweeper
from zero_train import AbstractActor

from ._agents import build_agent
from ._measure import mean_and_error, measure, Measured


def evaluate(
    env: Minesweeper, agent: str, *, layouts: int, boards: int, seed: int, as_json: bool
) -> None:
    """Measures an agent and prints the result."""
    row = result_row(env, build_agent(agent, env, layouts=layouts), agent, boards, seed)
    if as_json:
        print(json.dumps(row))
        return
    safe = env.num_actions - env.num_mines
    print(f"{agent}, {boards} boards of {env.rows} x {env.columns} with {env.num_mines} mines:")
    print(
        f"  wins     {row['win_rate']:.4f} ± {row['win_se']:.4f}  ({row['win_rate_raw']:.4f} raw)"
    )
    print(f"  return   {row['return_mean']:.2f} ± {row['return_se']:.2f} of {safe}")
    print(f"  needless risks  {row['needless_risks']}")
    print(f"  moves a second  {row['moves_per_second']:.0f}")


def result_row(
    env: Minesweeper, actor: AbstractActor, name: str, boards: int, seed: int
) -> dict[str, Any]:
    """What `--json` prints."""
    measured = measure(env, actor, boards=boards, key=jr.key(seed))
    return {"agent": name, "boards": boards, **figures(measured)}


def figures(measured: Measured) -> dict[str, Any]:
    """Means over boards, luck with the mines taken out, and their standard errors."""
    games = measured.games
    win, win_error = mean_and_error(games.win_estimate)
    returned, return_error = mean_and_error(games.return_estimate)
    return {
        "win_rate": win,
        "win_se": win_error,
        "win_rate_raw": float(games.won.mean()),
        "return_mean": returned,
        "return_se": return_error,
        "needless_risks": int(games.needless.sum()),
        "moves_per_second": measured.moves_per_second,
    }
