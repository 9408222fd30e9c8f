"""The report of a run with a ladder of its players."""

from collections.abc import Mapping
from typing import Any

from ._measures import half_width, plus_minus, ratings, SCORE
from ._page import charts, table, tables
from ._report import chart, curve, imitation, last_evaluation, StoredRun


#: How the names of a run's own players begin; the number of the step follows.
OWN = "step "


def ladder_page(run: StoredRun) -> tuple[dict[str, str], list[str]]:
    """The figures and sections of the report of an app whose evaluation is an
    [`zero_app.elo_ladder`][], and whose agent is AlphaZero."""
    players = ratings(run.folder)
    past = sorted((p for p in players if "step" in p), key=lambda p: p["step"])
    levels = [(p["name"], p["elo"]) for p in players if "step" not in p] if past else []
    shown = {"Elo (95 %)": plus_minus(past[-1]["elo"], past[-1]["se"])} if past else {}
    fixed = [row for row in run.evaluations if not row["opponent"].startswith(OWN)]
    if against := [row for row in fixed if row["opponent"] == "random"]:
        shown["against random"] = f"{100 * against[-1]['score']:.1f} %"
    # Runs of older versions may have several numbers of simulations.
    several = len({row["simulations"] for row in fixed}) > 1
    scores: dict[str, list[Mapping[str, Any]]] = {}
    for row in fixed:
        detail = f", {row['simulations']} simulations" if several else ""
        scores.setdefault(row["opponent"] + detail, []).append(row)
    learning = imitation(
        run,
        value_loss="Half the squared error of the predicted outcome.",
        value_error="Mean distance between the predicted value and its target, from -1 to 1.",
    )
    one_ladder = "Past players on one ladder; bars are 95 % intervals."
    draws = "A draw is half a win; bars are 95 % confidence intervals."
    found = [curve(rows, SCORE.name, name, error=SCORE.bars) for name, rows in scores.items()]
    strength = charts(
        "Strength",
        chart(run, "Elo", one_ladder, curve(past, "elo", error="se"), levels=levels),
        chart(run, "Score against fixed opponents", draws, *found, percent=True),
    )
    names = ("opponent", "simulations", "games", "wins", "draws", "losses")
    last = last_evaluation(
        run,
        [*names, "score", "95 % interval"],
        lambda row: [
            *(row[name] for name in names),
            f"{100 * row['score']:.1f} %",
            f"{100 * row['score_low']:.1f} to {100 * row['score_high']:.1f} %",
        ],
    )
    rows = [
        [p["name"], f"{p['elo']:.0f}", f"± {half_width(p['se']):.0f}" if p["se"] else "anchor"]
        for p in sorted(players, key=lambda p: -p["elo"])
    ]
    ladder = table("Elo ladder", ["player", "Elo", "95 % interval"], rows) if rows else ""
    return shown, [learning, strength, tables(last, ladder)]
