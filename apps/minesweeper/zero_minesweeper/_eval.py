"""How good an agent is, in numbers that all agents share."""

import sys
from json import dumps
from typing import Any

import jax.random as jr

from zero_envs import Minesweeper

from ._load import Table
from ._measure import mean_and_error, measure, Measured


def evaluate(
    run: str | None, agent: str | None, *, boards: int, seed: int, json: bool, **table: int | None
) -> None:
    """Measures an agent and prints the result.

    **Arguments:**

    - `agent`: a name; by default the strongest that there is.
    - `table`: those of [`Table.of`][zero_minesweeper._load.Table.of].
    """
    seat = Table.of(run, **table)
    name = agent or seat.usual_agent
    measured = measure(seat.env, seat.agent(name), boards=boards, key=jr.key(seed))
    row, env = result_row(name, measured), seat.env
    tell_unknown(name, env, measured)
    if json:
        print(dumps(row))
        return
    safe = env.num_actions - env.num_mines
    print(f"{name}, {boards} boards of {env.rows} x {env.columns} with {env.num_mines} mines:")
    print(
        f"  wins     {row['win_rate']:.4f} ± {row['win_se']:.4f}  ({row['win_rate_raw']:.4f} raw)"
    )
    raw = measured.games.safe.mean()
    print(
        f"  return   {row['return_mean']:.2f} ± {row['return_se']:.2f} of {safe}  ({raw:.2f} raw)"
    )
    print(f"  needless risks  {row['needless_risks']}")
    print(f"  moves a second  {row['moves_per_second']:.0f}")


def tell_unknown(name: str, env: Minesweeper, measured: Measured) -> None:
    """Says on stderr how many risks are not known, if any."""
    if unknown := int(measured.games.unknown.sum()):
        print(
            f"minesweeper: the exact risk of {unknown} moves of {name} is not known, for their "
            f"posterior needs more than {env.max_states} states; they count as what came of them. "
            "--max-states allows more.",
            file=sys.stderr,
        )


def result_row(name: str, measured: Measured) -> dict[str, Any]:
    """What `--json` prints: means over boards, luck with the mines taken out where that is the
    steadier estimate, and their standard errors."""
    games = measured.games
    win, win_error = mean_and_error(measured.wins)
    returned, return_error = mean_and_error(measured.returns)
    return {
        "agent": name,
        "boards": len(games.won),
        "win_rate": win,
        "win_se": win_error,
        "win_rate_raw": float(games.won.mean()),
        "return_mean": returned,
        "return_se": return_error,
        "needless_risks": int(games.needless.sum()),
        "moves_per_second": measured.moves_per_second,
    }
