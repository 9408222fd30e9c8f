"""How good agents are, in `minesweeper eval` and `compare`, and while a network is trained."""

import dataclasses
import functools as ft
import math
import sys
from json import dumps
from typing import Annotated, Any

import jax.random as jr
import tyro

from zero_app import (
    AbstractPlayerCommand,
    App,
    Evaluate,
    EvaluationResult,
    plus_minus,
    RETURN,
    RunFiles,
    Seed,
    WON,
)
from zero_envs import Minesweeper
from zero_train import AbstractActor, FeatureEvaluator, Loop

from ._agents import build_agent
from ._boards import guesses, opinions
from ._build import build_env
from ._config import Boards, Config
from ._measure import mean_and_error, measure, Played
from ._pictures import FILE
from ._report import BOUND, FOLLOWED, KNOWN
from ._table import network_of, TableArguments


#: The additional agents of the last evaluation.
COMPARED = ("belief-constant", "tiebreak", "minprob")
# The number of boards in the report.
_PICTURED = 5
_EVERYBODY = (
    "tiebreak",
    "minprob",
    "rules",
    "random",
    "hindsight-8",
    "hindsight-32",
    "hindsight-128",
    "belief-constant",
    "network",
    "belief",
)
_HEADER = (
    f"{'agent':>16} {'wins':>17} {'counted':>7} {'return':>14} {'needless':>9} {'moves/s':>8} "
    f"{'known':>13} {'wins more than tiebreak':>24}"
)


@dataclasses.dataclass(frozen=True)
class Eval(AbstractPlayerCommand):
    """Measure an agent. It observes the visible board and the number of mines only."""

    agent: str = "belief"
    """network, belief, belief-constant, hindsight, minprob, tiebreak, rules or random. The first
    three have the network of the run."""
    boards: Annotated[Boards, tyro.conf.arg(aliases=["--games"])] = 2000
    """The number of boards, which are the same for every agent."""
    seed: Seed = 0
    """The seed of the boards and of the agents. The randomness of belief trees depends on the board
    only."""
    table: tyro.conf.OmitArgPrefixes[TableArguments] = TableArguments()
    json: bool = False
    """Print one JSON line."""

    def __call__(self, app: App[Config]) -> None:
        seat = self.table.at(app, self, [self.agent])
        name, env = self.agent, seat.env
        actor = seat.agent(name)
        games, row = measure_agent(name, env, actor, boards=self.boards, seed=self.seed)
        if self.json:
            print(dumps(row))
            return
        safe = env.num_actions - env.num_mines
        search: Any = getattr(getattr(actor, "planner", None), "search", None)
        with_ = "" if search is None else f" with {search.num_simulations} simulations a move"
        print(f"{name}{with_}, {self.boards} boards of {seat.board}; ± is a 95 % interval:")
        print(f"  wins     {WON.shown(row)} (counted: {games.won.mean():.4f})")
        print(f"  return   {RETURN.shown(row)} of {safe} (counted: {games.safe.mean():.2f})")
        print(f"  needless risks  {row['needless_risks']}")
        print(f"  moves a second  {row['moves_per_second']:.0f}")


@dataclasses.dataclass(frozen=True)
class Compare(AbstractPlayerCommand):
    """Compare agents on the same boards, and with known results."""

    agents: tuple[str, ...] = ()
    """As for eval; hindsight-32 has 32 layouts. By default all agents."""
    boards: Boards = 2000
    """The number of boards."""
    seed: Seed = 0
    """The seed of the boards and of the agents. The randomness of belief trees depends on the board
    only."""
    table: tyro.conf.OmitArgPrefixes[TableArguments] = TableArguments()
    json: bool = False
    """Print one JSON line for each row."""

    def __call__(self, app: App[Config]) -> None:
        agents = self.agents or _EVERYBODY
        seat = self.table.at(app, self, agents)
        env = seat.env
        # Unknown names raise an error before the first agent plays.
        players = seat.agents(agents)
        known = KNOWN if is_usual(env) else {}
        if not self.json:
            print(f"{self.boards} boards of {seat.board}")
            if known:
                print(f"upper bounds of any player: {BOUND[0]} of them won, return {BOUND[1]}")
            print("±: a 95 % interval")
            print(_HEADER)
        first = None
        # The other agents are compared with `tiebreak`, so it is measured first.
        for name in sorted(players, key=lambda name: name != "tiebreak"):
            games, row = measure_agent(name, env, players[name], boards=self.boards, seed=self.seed)
            if name == "tiebreak":
                first = games
            elif first is not None:
                more, error = mean_and_error(games.wins - first.wins)
                # Where all boards ended alike, their differences tell of no error.
                error = error or math.hypot(games.win_error, first.win_error)
                row |= {"wins_more": more, "wins_more_se": error}
            if name in known:
                row |= {"known_win_rate": known[name][0], "known_return": known[name][1]}
            print(dumps(row) if self.json else _line(row), flush=True)


def _line(row: dict[str, Any]) -> str:
    """A row of the table with the header `_HEADER`."""
    wins, returned = WON.shown(row), RETURN.shown(row)
    known = more = ""
    if "known_win_rate" in row:
        known = f"{row['known_win_rate']:g}, {row['known_return']:g}"
    if "wins_more" in row:
        more = plus_minus(row["wins_more"], row["wins_more_se"], row["boards"])
    return (
        f"{row['agent']:>16} {wins:>17} {row['win_rate_raw']:>7.4f} {returned:>14} "
        f"{row['needless_risks']:>9} {row['moves_per_second']:>8.0f} {known:>13} {more:>24}"
    ).rstrip()


def is_usual(env: Minesweeper) -> bool:
    """Whether the known results apply to `env`."""
    return (env.rows, env.columns, env.num_mines) == (10, 10, 10)


def measure_agent(
    name: str, env: Minesweeper, actor: AbstractActor, *, boards: int, seed: int
) -> tuple[Played, dict[str, Any]]:
    """The games of an agent, and what `--json` prints of them. Progress (in a terminal) and doubts
    about the result go to stderr."""

    def progress(done: int) -> None:
        if sys.stderr.isatty():
            end = "\r" if done < boards else "\r\033[K"
            print(f"{name}: {done} of {boards} boards", end=end, file=sys.stderr, flush=True)

    games, speed = measure(env, actor, boards=boards, key=jr.key(seed), progress=progress)
    for doubt in doubts(name, env, games):
        print(f"minesweeper: {doubt}", file=sys.stderr)
    return games, {**result_row(name, games), "moves_per_second": speed}


def doubts(name: str, env: Minesweeper, games: Played) -> list[str]:
    """Warnings about a result: unknown risks, and more wins than are possible."""
    said = []
    if unknown := int(games.unknown.sum()):
        said.append(
            f"the exact risk of {unknown} moves of {name} is unknown, because the posterior needs "
            f"more than {env.max_states} states; they count by their results. Increase "
            "--max-states."
        )
    least = float(games.wins.mean()) - 3 * games.win_error
    if is_usual(env) and least > BOUND[0]:
        said.append(
            f"{name} wins at least {least:.4f} (three standard errors below its mean), but without "
            f"observing the mines at most {BOUND[0]} is possible. The agent may observe the mines."
        )
    return said


def result_row(name: str, games: Played) -> dict[str, Any]:
    """The results of an agent: means over boards and their standard errors. See
    [`Played`][zero_minesweeper._measure.Played] for the estimates."""
    returned, return_error = mean_and_error(games.returns)
    return {
        "agent": name,
        "boards": len(games.won),
        "win_rate": float(games.wins.mean()),
        "win_se": games.win_error,
        "win_rate_raw": float(games.won.mean()),
        "return_mean": returned,
        "return_se": return_error,
        "needless_risks": int(games.needless.sum()),
    }


def evaluation(config: Config, loop: Loop, files: RunFiles) -> Evaluate:
    """Measures the network without and with a search and, at the end, agents without a network. It
    keeps what the network thinks of some boards in boards.json."""
    del loop
    env = build_env(config)
    searching = dataclasses.replace(config, player_simulations=config.simulations)
    # The boards of the report are the same in every evaluation.
    pictured = ft.cache(lambda: guesses(env, _PICTURED, key=jr.fold_in(jr.key(config.seed), 2)))

    def measured(name: str, network: FeatureEvaluator, boards: int) -> Played:
        actor = build_agent(name, env, config=searching, evaluate=network)
        # Not timed: the speed would differ between a resumed run and an uninterrupted one.
        games, _ = measure(
            env,
            actor,
            boards=boards,
            # All agents and evaluations have the same boards.
            key=jr.fold_in(jr.key(config.seed), 1),
            timed=False,
            at_once=config.boards,  # so that the last evaluation uses the same compiled program
        )
        return games

    def evaluate(step: int, player: AbstractActor) -> EvaluationResult:
        last, network = step == config.steps, network_of(player)
        files.folder.write_json(FILE, {"boards": opinions(env, pictured(), network)})
        names = FOLLOWED + COMPARED if last else FOLLOWED
        boards = (4 if last else 1) * config.boards
        played = {name: measured(name, network, boards) for name in names}
        rows = [result_row(name, games) for name, games in played.items()]
        alone, belief = rows[:2]
        return EvaluationResult(
            rows=rows,
            metrics={
                "win_rate": belief["win_rate"],
                "win_se": belief["win_se"],
                "network_win_rate": alone["win_rate"],
            },
            headline=(
                f"belief trees, {config.simulations} simulations a move: {WON.shown(belief)} won "
                f"(95 % interval) of {belief['boards']} boards; network alone: {WON.shown(alone)}"
            ),
            episodes=[
                {"won": games.wins, "return": games.returns, "length": games.moves}
                for games in played.values()
            ],
        )

    return evaluate
