"""Makes the suites of solved positions of `eval --suite`: `uv run python apps/suites.py NAME`, with
NAME othello or connect_four.

Positions are of games that the trained player of the game plays against itself without a search, by
its policy at temperatures from 1/2 to 2, so that good and bad moves have led to them. No game gives
two positions to one suite. A solver gives every legal move its exact score.
"""

import functools as ft
import itertools
import multiprocessing
import os
import pathlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax.random as jr
import numpy as np

from zero_app import errors_of, start_jax, Suite, UsageError, with_simulations
from zero_cli import pretrained
from zero_cli._connect_four import position, Solver
from zero_othello import _solver as othello_solver
from zero_train import PolicyActor, rollout


POSITIONS = 500
_TEMPERATURES = 0.5, 1.0, 2.0
_GAMES = 512


def games(env: str, plies: int) -> Iterator[list[int]]:
    """The actions of games without end, one of each temperature after the other."""
    trained = pretrained(env)
    alone: Any = with_simulations(trained.player, 0)
    for round in itertools.count():
        played = []
        for i, temperature in enumerate(_TEMPERATURES):
            actor = PolicyActor(alone.evaluate, temperature=temperature)
            key = jr.fold_in(jr.key(round), i)
            rows = rollout(trained.loop.env, actor, num_steps=plies, num_envs=_GAMES, key=key)
            played.append((np.asarray(rows.action), np.asarray(rows.last)))
        for game in range(_GAMES):
            for action, last in played:
                yield action[game, : last[game].argmax()].tolist()


def othello(folder: pathlib.Path) -> None:
    """Positions with 10 to 16 empty squares, as many of each number, in which some moves keep the
    result and others do not."""
    solver, found, seen = othello_solver.Solver(), [], set()
    for actions in games("othello", 128):
        wanted = 10 + len(found) % 7
        for ply in range(len(actions) + 1):
            board = othello_solver.position(actions[:ply])
            if board[2].bit_count() == wanted and board not in seen:
                scores = solver.scores(*board)
                if len(set(map(np.sign, scores.values()))) > 1:
                    seen.add(board)
                    found.append((actions[:ply], scores))
                break
        if len(found) == POSITIONS:
            break
    Suite.of(found, 65).write(folder / "endgames.npz")


#: Of the sets of Connect Four how many stones are on the board, and how many are to come until the
#: end if both play perfectly, from the first number to before the second. Of hard beginnings those
#: with 8 to 10 stones are taken: later ones are rare, and earlier ones take long to solve.
CONNECT_FOUR = {
    "end-easy": ((29, 42), (1, 14)),
    "middle-easy": ((15, 29), (1, 14)),
    "middle-medium": ((15, 29), (14, 29)),
    "begin-easy": ((8, 15), (1, 14)),
    "begin-medium": ((8, 15), (14, 29)),
    "begin-hard": ((8, 11), (29, 43)),
}


def connect_four(folder: pathlib.Path) -> None:
    """The six sets. Positions that mirror each other count as one."""
    with multiprocessing.get_context("spawn").Pool(len(os.sched_getaffinity(0))) as pool:
        for name, (stones, ends) in CONNECT_FOUR.items():
            found, asked = [], _beginnings(*stones)
            while len(found) < POSITIONS:
                group = list(itertools.islice(asked, 64))
                scores = pool.map(ft.partial(_solved, *ends), group, chunksize=1)
                found += [one for one in zip(group, scores, strict=True) if one[1]]
                print(f"{name}: {len(found)}", flush=True)
            Suite.of(found[:POSITIONS], 7).write(folder / f"{name}.npz")


def _beginnings(first: int, end: int) -> Iterator[list[int]]:
    """The actions that lead to different positions with `first` stones or more, but less than
    `end`."""
    seen, draws = set(), np.random.default_rng(0)
    for actions in games("pgx/connect_four", 84):
        if len(actions) > first:  # else the game is over there
            known = actions[: int(draws.integers(first, min(end, len(actions))))]
            board = position(known)
            if not {board, position([6 - column for column in known])} & seen:
                seen.add(board)
                yield known


#: Each process has one.
_solver = ft.cache(ft.partial(Solver, 25))


def _solved(near: int, far: int, actions: list[int]) -> dict[int, int] | None:
    """The scores of the moves where `near` stones or more are to come, but less than `far`."""
    board = position(actions)
    within = ft.partial(_solver().ends_within, *board)
    return _solver().scores(*board) if within(far - 1) and not within(near - 1) else None


#: By name: the package whose folder `suites` it is, and what makes it.
SUITES: dict[str, tuple[str, Callable[[pathlib.Path], None]]] = {
    "othello": ("othello/zero_othello/suites", othello),
    "connect_four": ("zero/zero_cli/suites/pgx/connect_four", connect_four),
}


if __name__ == "__main__":
    with errors_of("suites.py"):
        if len(sys.argv) != 2 or sys.argv[1] not in SUITES:
            raise UsageError(f"give NAME, one of {', '.join(SUITES)}.")
        start_jax()
        where, make = SUITES[sys.argv[1]]
        out, began = pathlib.Path(__file__).parent / where, time.monotonic()
        out.mkdir(parents=True, exist_ok=True)
        make(out)
        for path in sorted(out.glob("*.npz")):
            print(f"{path}: {len(Suite.read(path).moves)} positions, {path.stat().st_size:,} bytes")
        print(f"{time.monotonic() - began:.0f} s")
