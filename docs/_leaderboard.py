"""Writes leaderboard.md from benchmarks/leaderboard.jsonl: `python docs/_leaderboard.py`."""

import json
import math
import pathlib
import statistics
from collections.abc import Iterable, Sequence
from typing import Any


ROOT = pathlib.Path(__file__).parent.parent
LINES = ROOT / "benchmarks" / "leaderboard.jsonl"
PAGE = ROOT / "docs" / "leaderboard.md"
#: What each line must say, and each of its bars.
FIELDS = {"player": str, "game": str, "level": str, "seed": int, "bars": list, "commit": str,
          "date": str, "command": str, "hardware": str}  # fmt: skip
BAR = {"flags": str, "figure": str, "bar": float, "value": float, "step": int,
       "minutes": float | None}  # fmt: skip
_HEAD = """# Leaderboard

How many minutes of training it takes until a player is above fixed bars: scores against opponents
that never change ([the fixed ladder](evaluation.md#the-fixed-ladder)), and moves in solved
positions. `benchmarks/othello_speedrun.py` and `benchmarks/connect_four_speedrun.py` have the bars,
train, measure, and print a JSON line for each seed. To add a player, append its lines to
`benchmarks/leaderboard.jsonl` and run `python docs/_leaderboard.py`.

Minutes are those from the command to the first player that was kept and passes the bar, compiling
and evaluations included, of the middle seed, or of the slower of two. Where half of the seeds or
more miss a bar, the table has in brackets the middle figure of their last players. A score is of
400 games, or of a quarter of them where its interval does not hold the bar. The commit is that of
the training: before c11ed0cd Othello's network had residual blocks. The seed of 8aa719c6 was
measured with the search of commit 4164f614.
"""


def read(text: str) -> list[dict[str, Any]]:
    """The lines, each of which has all fields.

    **Raises:** `ValueError` with the number of the line that is no object, lacks a field or has one
    of another kind.
    """
    rows, levels = [], {}
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if not isinstance(row, dict):
            raise ValueError(f"line {number} of {LINES.name} is no JSON object")
        bars = row.get("bars")
        parts = [(row, FIELDS), *((bar, BAR) for bar in (bars if isinstance(bars, list) else []))]
        for part, fields in parts:
            for name, kind in fields.items():
                given = part[name] if isinstance(part, dict) and name in part else ...
                if not isinstance(given, kind | int if kind in (float, float | None) else kind):
                    called = getattr(kind, "__name__", str(kind))
                    raise ValueError(f"line {number} of {LINES.name} has no {name} of {called}")
        named = [(bar["flags"], bar["figure"], bar["bar"]) for bar in row["bars"]]
        if levels.setdefault((row["game"], row["level"]), named) != named:
            raise ValueError(f"line {number} of {LINES.name} has other bars than those before it")
        rows.append(row)
    return rows


def page(rows: Sequence[dict[str, Any]]) -> str:
    """The page: a table for each game and level, in which those that pass most bars come first,
    and then the fastest."""
    tables: dict[tuple[str, str], dict[tuple[str, ...], list[dict[str, Any]]]] = {}
    for row in rows:
        who = tuple(str(row[name]) for name in ("player", "commit", "hardware"))
        tables.setdefault((row["game"], row["level"]), {}).setdefault(who, []).append(row)
    parts = [_HEAD] if rows else [_HEAD, "No player has been measured yet.\n"]
    for (game, level), players in sorted(tables.items()):
        bars = next(iter(players.values()))[0]["bars"]
        names = [f"`{x['flags']}`: {x['figure']} {x['bar']:g}" for x in bars]
        head = [*names, "player", "seeds", "hardware", "command", "commit"]
        lines = []
        for (player, commit, hardware), seeds in players.items():
            each = [[seed["bars"][i] for seed in seeds] for i in range(len(bars))]
            minutes = [_middle(x["minutes"] for x in row) for row in each]
            missed = [_middle(x["value"] for x in row if x["minutes"] is None) for row in each]
            cells = [
                f"({figure:.3g})" if math.isinf(x) else f"{x:.1f}"
                for x, figure in zip(minutes, missed, strict=True)
            ]
            about = [player, str(len(seeds)), hardware, f"`{seeds[0]['command']}`", commit[:8]]
            took = max((x for x in minutes if not math.isinf(x)), default=0.0)
            order = sum(map(math.isinf, minutes)), took
            lines.append((order, f"| {' | '.join([*cells, *about])} |"))
        table = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
        table += [line for _, line in sorted(lines)]
        parts.append("\n".join([f"## {game}: {level}\n", *table, ""]))
    return "\n".join(parts)


def _middle(values: Iterable[float | None]) -> float:
    """The median, of two the greater one; what is `None` is the greatest of all."""
    known = [math.inf if x is None else x for x in values]
    return statistics.median_high(known) if known else math.nan


if __name__ == "__main__":
    PAGE.write_text(page(read(LINES.read_text(encoding="utf-8"))), encoding="utf-8")
