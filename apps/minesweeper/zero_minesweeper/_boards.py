"""Boards without a safe cell, and the predictions of a network for them."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Float, Int8, PRNGKeyArray

from zero_envs import Minesweeper
from zero_train import FeatureEvaluator

from ._game import Game


def guesses(
    env: Minesweeper, number: int, *, key: PRNGKeyArray, games: int = 20
) -> list[tuple[Int8[np.ndarray, "rows columns"], Float[np.ndarray, "rows columns"]]]:
    """Boards without a safe cell and with an open one, and the exact probability of a mine in each
    cell. They are the first different ones of `games` games, at most one from each."""
    found, seen = [], set[bytes]()
    for i in range(games):
        # `Game` only folds numbers into the key.
        game = Game(env, i, key=jr.clone(key))
        while not game.over and len(found) < number:
            guess = game.moves > 0 and not game.safe.size and not np.isnan(game.heat).any()
            if guess and game.board.tobytes() not in seen:
                seen.add(game.board.tobytes())
                found.append((game.board, game.heat))
                break
            game.open(int(np.nanargmin(np.where(game.board < 0, game.heat, 2.0))))
    return found


def opinions(
    env: Minesweeper,
    boards: Sequence[tuple[Int8[np.ndarray, "rows columns"], Float[np.ndarray, "rows columns"]]],
    evaluate: FeatureEvaluator,
) -> list[dict[str, Any]]:
    """The rows of `boards.json`: `board`, the `exact` risks and those `believed` by a network, the
    `cell` of its policy, and its `value`, the predicted probability of a win."""
    rows = []
    for board, exact in boards:
        features = {"board": jnp.asarray(board), "num_mines": jnp.int32(env.num_mines)}
        logits, value, mines = evaluate.network(features)
        legal = (board < 0).reshape(-1)
        rows.append(
            {
                "board": board.tolist(),
                "exact": _rounded(exact),
                "believed": _rounded(np.where(board < 0, jax.nn.sigmoid(mines), 0.0)),
                "cell": int(np.argmax(np.where(legal, logits, -np.inf))),
                "value": round(float(value), 4),
            }
        )
    return rows


def _rounded(x: Any) -> list[list[float]]:
    return np.round(np.asarray(x, np.float64), 4).tolist()
