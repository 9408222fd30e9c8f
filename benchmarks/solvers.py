"""How long the solvers of Othello and Connect Four take for positions of the suites.

One JSON line for each kind of position, in CPU seconds, mean and maximum: `score` is the time for
the score of a position, by a solver that knows nothing, and `all_moves` that for the scores of its
moves afterwards, by the same one.

    uv run --extra judges python benchmarks/solvers.py
"""

import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from zero_app import Suite
from zero_cli import _connect_four
from zero_cli._apps import APPS
from zero_othello import _solver


def main() -> None:
    folders: Any = {name: APPS[name].suites for name in ("othello", "zero")}
    suite = Suite.read(folders["othello"] / "endgames.npz")
    boards = [_solver.position(actions[actions >= 0].tolist()) for actions in suite.moves]
    for empty in (10, 14, 16):
        asked = [board for board in boards if board[2].bit_count() == empty][:50]
        report(f"othello, {empty} empty squares", lambda: _solver.Solver(20), asked)
    for path in sorted((folders["zero"] / "pgx" / "connect_four").glob("*.npz")):
        moves = Suite.read(path).moves[:10]
        asked = [_connect_four.position(actions[actions >= 0].tolist()) for actions in moves]
        report(f"connect four, {path.stem}", lambda: _connect_four.Solver(22), asked)


def report(question: str, solver: Callable[[], Any], boards: list[tuple[int, ...]]) -> None:
    solver().scores(*boards[0])  # compiles, or reads what was compiled
    score, scores, nodes = [], [], 0
    for board in boards:
        fresh = solver()
        began = time.process_time()
        fresh.score(*board)
        middle, nodes = time.process_time(), nodes + fresh.nodes
        fresh.scores(*board)
        score.append(middle - began)
        scores.append(time.process_time() - middle)
    line: dict[str, Any] = {"question": question, "positions": len(boards)}
    for name, times in ("score", score), ("all_moves", scores):
        line |= {
            f"{name}_s": round(float(np.mean(times)), 4),
            f"{name}_max_s": round(max(times), 4),
        }
    print(json.dumps(line | {"nodes_per_s": round(nodes / sum(score))}), flush=True)


if __name__ == "__main__":
    main()
