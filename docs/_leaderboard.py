"""Writes leaderboard.md from benchmarks/leaderboard.jsonl: `python docs/_leaderboard.py`."""

import json
import pathlib
from collections.abc import Sequence
from typing import Any


ROOT = pathlib.Path(__file__).parent.parent
LINES = ROOT / "benchmarks" / "leaderboard.jsonl"
PAGE = ROOT / "docs" / "leaderboard.md"
#: What each line must say.
FIELDS = {"player": str, "game": str, "level": str, "seed": int, "minutes": float, "step": int,
          "passed": int, "bars": int, "figures": dict, "commit": str, "date": str,
          "command": str, "hardware": str}  # fmt: skip
_HEAD = """# Leaderboard

How many minutes of training it takes until a player is above fixed bars: scores against opponents
that never change ([the fixed ladder](evaluation.md#the-fixed-ladder)), and moves in solved
positions. `benchmarks/othello_speedrun.py` and `benchmarks/connect_four_speedrun.py` have the bars,
train, measure, and print a JSON line for each seed. To add a player, append its lines to
`benchmarks/leaderboard.jsonl` and run `python docs/_leaderboard.py`.

Minutes are those from the command to the first player that was kept and passes, compiling and
evaluations included. Bars are tried in order until one is missed, and who passes some of them is
listed below those that pass all, with the minutes of the player that came nearest. Several seeds
are one row, which is that of the middle seed, or of the worse of two, when those that pass most
come first and then the fastest.
"""


def read(text: str) -> list[dict[str, Any]]:
    """The lines, each of which has all fields.

    **Raises:** `ValueError` with the number of the line that is no object, lacks a field or has one
    of another kind.
    """
    rows = []
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if not isinstance(row, dict):
            raise ValueError(f"line {number} of {LINES.name} is no JSON object")
        for name, kind in FIELDS.items():
            if not isinstance(row.get(name), (float, int) if kind is float else kind):
                raise ValueError(f"line {number} of {LINES.name} has no {name} of {kind.__name__}")
        rows.append(row)
    return rows


def page(rows: Sequence[dict[str, Any]]) -> str:
    """The page: a table for each game and level, the fastest of those that pass most first."""
    tables: dict[tuple[str, str], dict[tuple[str, ...], list[dict[str, Any]]]] = {}
    for row in rows:
        who = tuple(str(row[name]) for name in ("player", "commit", "hardware"))
        tables.setdefault((row["game"], row["level"]), {}).setdefault(who, []).append(row)
    parts = [_HEAD]
    for (game, level), players in sorted(tables.items()):
        lines = []
        for (player, commit, hardware), seeds in players.items():
            best_first = sorted(seeds, key=lambda row: (-row["passed"], row["minutes"]))
            row = best_first[len(seeds) // 2]
            cells = (player, f"{row['passed']} of {row['bars']}", f"{row['minutes']:.1f}",
                     str(len(seeds)), hardware, f"`{row['command']}`", commit[:8])  # fmt: skip
            lines.append(((-row["passed"], row["minutes"]), f"| {' | '.join(cells)} |"))
        head = "| player | bars passed | minutes | seeds | hardware | command | commit |"
        table = [line for _, line in sorted(lines)]
        parts.append("\n".join([f"## {game}: {level}\n", head, "|---" * 7 + "|", *table, ""]))
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(read(LINES.read_text(encoding="utf-8"))), encoding="utf-8")
