"""Boards without a safe cell, and the predictions of a network for them."""

import os
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Float, Int8, PRNGKeyArray

from zero_app import picture, read_of_run, RunError
from zero_envs import Minesweeper
from zero_train import FeatureEvaluator

from ._game import Game


#: The file of these boards in the folder of a run.
FILE = "boards.json"
_CELL = 22  # the size of a cell in a drawing


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


def pictures(folder: str | os.PathLike[str]) -> Iterator[str]:
    """Drawings of the boards of a run for its report."""
    path = pathlib.Path(folder) / FILE
    found = read_of_run(path) if path.exists() else []
    rows = found.get("boards", found) if isinstance(found, dict) else found  # once a list of rows
    for row in rows if isinstance(rows, list) else [rows]:
        try:
            board = np.asarray(row["board"], np.int8)
            exact, believed = (np.asarray(row[name], np.float64) for name in ("exact", "believed"))
            value, off = float(row["value"]), float(np.max(np.abs(exact - believed)))
            if not board.ndim == 2 or not board.shape == exact.shape == believed.shape:
                raise ValueError("its boards have other shapes than their risks")
        except (LookupError, OverflowError, TypeError, ValueError) as e:
            raise RunError(f"{path} is damaged: {e}. Remove it to go on without it.") from e
        wide = (board.shape[1] + 1) * _CELL
        drawn = _drawn(board, exact, None, 0) + _drawn(board, believed, row.get("cell"), wide)
        size = f"0 0 {2 * wide - _CELL} {board.shape[0] * _CELL}"
        yield picture(
            f"Predicted probability of a win: {value:.1%}",
            "The probability of a mine in percent, exact (left) and predicted (right). The network "
            f"would open the framed cell. The largest error is {off:.1%}.",
            f'<svg viewBox="{size}" font-size="9" text-anchor="middle">{drawn}</svg>',
        )


def _rounded(x: Any) -> list[list[float]]:
    return np.round(np.asarray(x, np.float64), 4).tolist()


def _drawn(board: np.ndarray, risk: np.ndarray, chosen: int | None, left: int) -> str:
    """A drawing of a board at the horizontal position `left`."""
    parts = []
    for i, j in np.ndindex(*board.shape):
        x, y = left + j * _CELL, i * _CELL
        square = f'<rect x="{x + 1}" y="{y + 1}" width="{_CELL - 2}" height="{_CELL - 2}"'
        hidden = board[i, j] < 0
        parts.append(f'{square} fill="var(--line)" opacity="{0.9 if hidden else 0.25}"/>')
        if hidden:
            parts.append(
                f'{square} fill="var(--series-4)" opacity="{min(2 * risk[i, j], 1):.2f}"/>'
            )
        if chosen == i * board.shape[1] + j:
            parts.append(f'{square} fill="none" stroke="var(--ink)" stroke-width="2"/>')
        said = f"{100 * risk[i, j]:.0f}" if hidden else str(board[i, j]) if board[i, j] else ""
        style = 'fill="var(--ink)"' + ("" if hidden else ' font-weight="600" font-size="11"')
        place = f'x="{x + _CELL / 2}" y="{y + _CELL / 2 + 3.5}"'
        parts.append(f"<text {place} {style}>{said}</text>")
    return "".join(parts)
