"""The report of a run: one HTML page."""

from collections.abc import Mapping, Sequence
from typing import Any

from zero_app import (
    chart,
    charts,
    curve,
    half_width,
    imitation,
    last_evaluation,
    plus_minus,
    ratings,
    SCORE,
    Series,
    StoredRun,
    table,
    tables,
)


def page(run: StoredRun) -> tuple[dict[str, str], list[str]]:
    """The figures and sections of the report."""
    players = ratings(run.folder)
    learning = imitation(
        run,
        value_loss="Half the squared error of the predicted outcome.",
        value_error="Mean distance between the predicted value and its target, from -1 to 1.",
    )
    past = sorted((p for p in players if "step" in p), key=lambda p: p["step"])
    levels = [(p["name"], p["elo"]) for p in players if "step" not in p] if past else []
    shown = {"Elo (95 %)": plus_minus(past[-1]["elo"], past[-1]["se"])} if past else {}
    against = [row for row in run.evaluations if row["opponent"] == "random"]
    if against:
        shown["against random"] = f"{100 * against[-1]['score']:.1f} %"
    strength = [
        chart(
            run,
            "Elo",
            "Past players on one ladder; bars are 95 % intervals.",
            curve(past, "elo", error="se"),
            levels=levels,
        ),
        chart(
            run,
            "Score against fixed opponents",
            "A draw is half a win; bars are 95 % confidence intervals.",
            *_scores(run.evaluations),
            percent=True,
        ),
    ]
    return shown, [
        learning,
        charts("Strength", *strength),
        tables(_last_evaluation(run), _ladder(players)),
    ]


def _scores(evaluations: Sequence[Mapping[str, Any]]) -> list[Series]:
    fixed = [row for row in evaluations if not row["opponent"].startswith("step ")]
    several = len({row["simulations"] for row in fixed}) > 1
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row in fixed:
        detail = f", {row['simulations']} simulations" if several else ""
        groups.setdefault(row["opponent"] + detail, []).append(row)
    return [curve(rows, SCORE.name, label, error=SCORE.bars) for label, rows in groups.items()]


def _last_evaluation(run: StoredRun) -> str:
    names = ("opponent", "simulations", "games", "wins", "draws", "losses")
    return last_evaluation(
        run,
        [*names, "score", "95 % interval"],
        lambda row: [
            *(row[name] for name in names),
            f"{100 * row['score']:.1f} %",
            f"{100 * row['score_low']:.1f} to {100 * row['score_high']:.1f} %",
        ],
    )


def _ladder(players: Sequence[Mapping[str, Any]]) -> str:
    if not players:
        return ""
    rows = [
        [p["name"], f"{p['elo']:.0f}", f"± {half_width(p['se']):.0f}" if p["se"] else "anchor"]
        for p in sorted(players, key=lambda p: -p["elo"])
    ]
    return table("Elo ladder", ["player", "Elo", "95 % interval"], rows)
