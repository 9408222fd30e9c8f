"""`minesweeper eval`: measures an agent."""

import sys
from json import dumps
from typing import Any

import jax.random as jr

from zero_envs import Minesweeper
from zero_train import AbstractActor

from ._known import BOUND, is_usual
from ._load import Table
from ._measure import mean_and_error, measure, Measured


def evaluate(
    run: str | None, agent: str | None, *, boards: int, seed: int, json: bool, **table: int | None
) -> None:
    """Measures an agent and prints the result.

    **Arguments:**

    - `agent`: a name; by default the strongest agent.
    - `table`: the arguments of [`Table.of`][zero_minesweeper._load.Table.of].
    """
    seat = Table.of(run, **table)
    name = agent or seat.usual_agent
    env = seat.env
    measured = measure_agent(name, env, seat.agent(name), boards=boards, seed=seed)
    row = result_row(name, measured)
    if json:
        print(dumps(row))
        return
    safe, games = env.num_actions - env.num_mines, measured.games
    print(f"{name}, {boards} boards of {env.rows} x {env.columns} with {env.num_mines} mines:")
    print(f"  wins     {_interval(row['win_rate'], row['win_se'], 4)}; raw {games.won.mean():.4f}")
    returned = _interval(row["return_mean"], row["return_se"], 2)
    print(f"  return   {returned} of {safe}; raw {games.safe.mean():.2f}")
    print(f"  needless risks  {row['needless_risks']}")
    print(f"  moves a second  {row['moves_per_second']:.0f}")


def measure_agent(
    name: str, env: Minesweeper, actor: AbstractActor, *, boards: int, seed: int
) -> Measured:
    """Measures an agent. Progress (in a terminal) and doubts about the result go to stderr."""

    def progress(done: int) -> None:
        if sys.stderr.isatty():
            end = "\r" if done < boards else "\r\033[K"
            print(f"{name}: {done} of {boards} boards", end=end, file=sys.stderr, flush=True)

    measured = measure(env, actor, boards=boards, key=jr.key(seed), progress=progress)
    for doubt in doubts(name, env, measured):
        print(f"minesweeper: {doubt}", file=sys.stderr)
    return measured


def doubts(name: str, env: Minesweeper, measured: Measured) -> list[str]:
    """Warnings about a result: unknown risks, and more wins than are possible."""
    said = []
    if unknown := int(measured.games.unknown.sum()):
        said.append(
            f"the exact risk of {unknown} moves of {name} is unknown, because the posterior needs "
            f"more than {env.max_states} states; they count by their results. Increase "
            "--max-states."
        )
    least = float(measured.wins.mean()) - 3 * measured.win_error
    if is_usual(env) and least > BOUND[0]:
        said.append(
            f"{name} wins at least {least:.4f} (three standard errors below its mean), but without "
            f"observing the mines at most {BOUND[0]} is possible. The agent may observe the mines."
        )
    return said


def _interval(mean: float, error: float, digits: int) -> str:
    """A mean with its standard error and 95 % confidence interval."""
    low, high = mean - 1.96 * error, mean + 1.96 * error
    number = lambda x: f"{x:.{digits}f}"
    return f"{number(mean)} ± {number(error)} (95 %: {number(low)} to {number(high)})"


def result_row(name: str, measured: Measured) -> dict[str, Any]:
    """The results of an agent, which `--json` prints: means over boards and their standard errors.
    See [`Measured`][zero_minesweeper._measure.Measured] for the estimates."""
    games = measured.games
    returned, return_error = mean_and_error(measured.returns)
    return {
        "agent": name,
        "boards": len(games.won),
        "win_rate": float(measured.wins.mean()),
        "win_se": measured.win_error,
        "win_rate_raw": float(games.won.mean()),
        "return_mean": returned,
        "return_se": return_error,
        "needless_risks": int(games.needless.sum()),
        "moves_per_second": measured.moves_per_second,
    }
