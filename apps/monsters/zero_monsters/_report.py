"""A run as one page."""

import os
import pathlib
from typing import Any

from zero_train.app import (
    chart,
    charts,
    configuration,
    curve,
    figures,
    progress,
    Recorded,
    Series,
    speed,
    table,
    tables,
    write_page,
)


#: What the best play brings in 32 steps that follow one another, exactly.
_OPTIMUM = {"moving": 4.589, "stationary": 5.404}


def write_report(run_dir: str | os.PathLike[str]) -> pathlib.Path:
    """Writes `report.html` into a run folder, replacing an earlier one at once.

    The page stands alone: it loads nothing. Files of the run that are missing or still short
    leave out what would be made of them.

    **Returns:** the page's path.
    """
    folder = pathlib.Path(run_dir).absolute()
    run = Recorded.read(folder)
    world = run.config.get("world", "moving")
    body = [
        figures(progress(run) | _strongest(run.evaluations)),
        charts("Play", *_play(run.evaluations, world)),
        charts("Learning", *_learning(run.metrics)),
        tables(_comparison(run.evaluations)),
        speed(run),
        configuration(run.config),
    ]
    return write_page(folder, f"Monsters, {world}: {folder.name}", body)


def _play(evaluations: list[dict[str, Any]], world: str) -> list[str]:
    players = _followed(evaluations)
    return [
        chart(
            "Return of 32 steps",
            "A fresh start follows every end; bars are two standard errors.",
            *(_series(name, rows, "return_mean", "return_se") for name, rows in players.items()),
            levels=[("optimum", _OPTIMUM[world])],
        ),
        chart(
            "Episodes won",
            "Within 32 steps, of the first episode of each rollout.",
            *(_series(name, rows, "win_rate") for name, rows in players.items()),
            percent=True,
        ),
        chart(
            "Regret",
            "What a decision loses against the best play, in discounted reward (gamma 0.99).",
            *(_series(name, rows, "regret_mean") for name, rows in players.items()),
            from_zero=True,
        ),
    ]


def _followed(evaluations: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Rows by player, of those who were measured more than at the end."""
    players: dict[str, list[dict[str, Any]]] = {}
    for row in evaluations:
        if row["leaf"] == "network":
            players.setdefault(_label(row), []).append(row)
    first = evaluations[0]["step"] if evaluations else 0
    return {name: rows for name, rows in players.items() if rows[0]["step"] == first}


def _label(row: dict[str, Any]) -> str:
    return f"{row['planner']}, {row['simulations']}" if row["simulations"] else "network alone"


def _series(label: str, rows: list[dict[str, Any]], name: str, error: str | None = None) -> Series:
    length = [] if error is None else [2 * row[error] for row in rows]
    bars = (length, length) if length else None
    return Series(label, [row["step"] for row in rows], [row[name] for row in rows], bars)


def _learning(metrics: list[dict[str, Any]]) -> list[str]:
    return [
        chart(
            "Policy loss",
            "Cross-entropy to the plan, in nats; its floor is the plan's own entropy.",
            curve(metrics, "policy_loss", "loss"),
            curve(metrics, "target_entropy", "floor"),
        ),
        chart(
            "Value loss",
            "Cross-entropy of the value's distribution, in nats.",
            curve(metrics, "value_loss"),
        ),
        chart(
            "Policy entropy",
            "How undecided the network is about the next move, in nats.",
            curve(metrics, "policy_entropy"),
        ),
        chart(
            "Value error",
            "Mean distance between predicted value and its target.",
            curve(metrics, "value_error"),
        ),
    ]


def _strongest(evaluations: list[dict[str, Any]]) -> dict[str, str]:
    if not evaluations:
        return {}
    row = next(row for row in evaluations if row["step"] == evaluations[-1]["step"])
    return {
        f"return, {_label(row)}": f"{row['return_mean']:.2f} ± {row['return_se']:.2f}",
        "won": f"{100 * row['win_rate']:.1f} %",
    }


def _comparison(evaluations: list[dict[str, Any]]) -> str:
    """The last evaluation, of all planners."""
    if not evaluations:
        return ""
    step = evaluations[-1]["step"]
    rows = [
        [
            row["planner"],
            row["simulations"],
            row["leaf"],
            f"{row['return_mean']:.3f} ± {row['return_se']:.3f}",
            f"{100 * row['win_rate']:.1f} %",
            f"{100 * row['loss_rate']:.1f} %",
            f"{row['regret_mean']:.4f}",
        ]
        for row in evaluations
        if row["step"] == step
    ]
    names = ["planner", "simulations", "leaf value", "return", "won", "lost", "regret"]
    return table(f"Last evaluation, at step {step:,}", names, rows)
