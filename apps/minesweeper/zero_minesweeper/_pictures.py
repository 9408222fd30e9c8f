"""Drawings of the boards that a run predicted."""

import os
import pathlib
from collections.abc import Iterator

import numpy as np

from zero_app import picture, read_of_run, RunError


#: The file of these boards in the folder of a run.
FILE = "boards.json"
_CELL = 22  # the size of a cell in a drawing


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
