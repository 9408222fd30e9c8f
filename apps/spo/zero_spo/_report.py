"""A run as one page."""

import os
import pathlib
from typing import Any

import numpy as np

from zero_train.app import (
    chart,
    charts,
    configuration,
    curve,
    figures,
    MAX_SERIES,
    progress,
    Recorded,
    Series,
    speed,
    write_page,
)


def write_report(run_dir: str | os.PathLike[str]) -> pathlib.Path:
    """Writes `report.html` into a run folder, replacing an earlier one at once.

    The page stands alone: it loads nothing. Files of the run that are missing or still short
    leave out what would be made of them.

    **Returns:** the page's path.
    """
    folder = pathlib.Path(run_dir).absolute()
    run = Recorded.read(folder)
    env, agent = run.config.get("env", ""), run.config.get("agent", "")
    sections = [figures(progress(run) | _newest(run.evaluations)), charts("Play", *_play(run))]
    if agent == "spo":
        sections.append(charts("Search", *_search(run)))
    sections += [charts("Learning", *_learning(run)), speed(run), configuration(run.config)]
    return write_page(folder, f"{agent.upper()} on {env}: {folder.name}", sections)


def _newest(evaluations: list[dict[str, Any]]) -> dict[str, str]:
    if not evaluations:
        return {}
    row = evaluations[-1]
    return {"return": f"{row['return_mean']:.1f} ± {row['return_se']:.1f}"}


def _play(run: Recorded) -> list[str]:
    rows = run.evaluations
    steps = {row["step"]: row["positions"] for row in run.metrics}
    x = [steps.get(row["step"], row["step"]) for row in rows]
    error = [2 * row["return_se"] for row in rows]
    return [
        chart(
            "Return",
            "Of whole episodes by environment steps; bars are two standard errors.",
            Series("", x, [row["return_mean"] for row in rows], (error, error)),
        ),
        chart(
            "Episode length",
            "In steps.",
            Series("", x, [row["length_mean"] for row in rows]),
            from_zero=True,
        ),
    ]


def _by_depth(run: Recorded, name: str) -> list[Series]:
    """The first step, the last, and as many between them as a chart can tell apart."""
    depth = run.config.get("depth", 0)
    shown = np.linspace(1, depth, min(depth, MAX_SERIES)).round().astype(int)
    return [curve(run.metrics, f"{name}_{i}", f"depth {i}") for i in shown]


def _search(run: Recorded) -> list[str]:
    return [
        chart(
            "Effective sample size",
            "Over the number of particles, before they are drawn anew.",
            *_by_depth(run, "ess_fraction"),
            from_zero=True,
        ),
        chart(
            "KL of the weights, over its bound",
            "How far particles are from being equal, by block collected.",
            *_by_depth(run, "kl_search"),
            levels=[("target", 1.0)],
        ),
        chart(
            "Particles alive",
            "Share that took the step.",
            *_by_depth(run, "alive"),
            from_zero=True,
        ),
        chart(
            "Improvement",
            "Mean advantage of the plan over the policy, by its own reckoning.",
            curve(run.metrics, "improvement"),
        ),
    ]


def _learning(run: Recorded) -> list[str]:
    parts = ("_mean", "_stddev") if "kl_relative_mean" in (run.metrics or [{}])[0] else ("",)
    named = lambda name: [curve(run.metrics, name + part, part.strip("_")) for part in parts]
    return [
        chart(
            "Temperature",
            "In the unit of rewards; it follows the KL below.",
            curve(run.metrics, "temperature"),
        ),
        chart(
            "KL of the improved policy, over its bound",
            "Of the advantages that are learned from: 1 is on target.",
            curve(run.metrics, "kl_nonparametric_relative"),
            levels=[("target", 1.0)],
        ),
        chart("KL of the policy, over its bound", "To the target policy.", *named("kl_relative")),
        chart("Multipliers", "Of the policy's bounds.", *named("alpha")),
        chart("Value loss", "Half the squared error.", curve(run.metrics, "value_loss")),
        chart("Mean value", "Of the states learned from.", curve(run.metrics, "value_mean")),
    ]
