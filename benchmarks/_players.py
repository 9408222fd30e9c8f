"""Searches that play a game with a trained network: matches, and what a move costs.

What the benchmarks of searches and the ablations of Othello have in common.
"""

import dataclasses
import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.random as jr
import numpy as np
from _turns import take_turns

from zero_app import CheckpointError, load, UsageError
from zero_cli._apps import app_of
from zero_envs import AbstractEnvironment
from zero_search import AbstractPlanner
from zero_train import AbstractActor, EnvironmentModel, match, PlanningActor, score_interval


#: Deterministic players repeat themselves; after so many random plies hardly an opening does.
OPENING_PLIES = 8
#: More plies than a game of Othello has.
LONGEST_GAME = 128


def trained_model(run: str) -> tuple[EnvironmentModel, float]:
    """The game with the newest network of a run, or the trained player of a game that its app comes
    with, and PUCT's constant in that run. It does not see decisive moves, whatever the player does.
    """
    try:
        trained = load(*app_of(run))
    except (UsageError, CheckpointError) as e:
        raise SystemExit(f"{e} To train one takes minutes: uv run othello train --out {run}") from e
    player: Any = trained.player
    return dataclasses.replace(player.model, decisive_moves=False), trained.config.exploration


def play(
    model: EnvironmentModel,
    first: AbstractPlanner,
    second: AbstractPlanner,
    *,
    games: int,
    batch: int,
    seed: int,
) -> dict[str, Any]:
    """A match of two searches with the same network, as `meet` plays it."""
    actors = (PlanningActor(x, model) for x in (first, second))
    return meet(model.env, *actors, games=games, batch=batch, seed=seed)


def meet(
    env: AbstractEnvironment,
    first: AbstractActor,
    second: AbstractActor,
    *,
    games: int,
    batch: int,
    seed: int,
    max_steps: int = LONGEST_GAME,
    opening_plies: int = OPENING_PLIES,
) -> dict[str, Any]:
    """A match, from the first player's view.

    Every opening is played from both seats, `batch` games at a time. Equal ones of them count once.
    """
    points = []
    for part in range(-(-games // batch)):
        result = match(
            env,
            first,
            second,
            num_games=batch,
            max_steps=max_steps,
            key=jr.fold_in(jr.key(seed), part),
            opening_plies=opening_plies,
        )
        outcomes = np.asarray(result.outcomes, np.float64)
        counts = np.asarray(result.counts).reshape(2, -1)[0]
        points.append((outcomes.reshape(2, -1).T[counts] + 1) / 2)
    table = np.concatenate(points)
    score, (low, high) = float(table.mean()), score_interval(table)
    return {
        "games": table.size,
        "wins": int((table == 1).sum()),
        "draws": int((table == 0.5).sum()),
        "losses": int((table == 0).sum()),
        "score": [round(x, 4) for x in (score, low, high)],
        "elo": [round(elo(x), 1) for x in (score, low, high)],
    }


def elo(score: float) -> float:
    """The rating difference at which that score is expected; infinite at 0 and 1."""
    if score in (0.0, 1.0):
        return math.copysign(math.inf, score - 0.5)
    return 400 * math.log10(score / (1 - score))


def seconds_a_move(
    model: EnvironmentModel,
    planners: Mapping[Any, AbstractPlanner],
    *,
    batch: int,
    runs: int,
    plies: int = LONGEST_GAME,
    opening_plies: int = OPENING_PLIES,
) -> dict[Any, list[float]]:
    """What `batch` moves at once cost: games of every planner against itself, taking turns.

    A move is all that comes with it: the search, and hearing of it and of the reply. Games are
    broken off after `plies` moves.
    """

    def game(actor: PlanningActor) -> Callable[[int], float]:
        def once(number: int) -> float:
            start = time.perf_counter()
            result = match(
                model.env,
                actor,
                actor,
                num_games=2 * batch,
                max_steps=plies,
                key=jr.key(number),
                opening_plies=opening_plies,
            )
            # In every turn each side moves once, in one half of the games.
            turns = int(np.max(jax.device_get(result.lengths)))
            return (time.perf_counter() - start) / (2 * turns)

        return once

    return take_turns({k: game(PlanningActor(p, model)) for k, p in planners.items()}, runs)
