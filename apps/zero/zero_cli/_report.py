"""The report of a run: one HTML page."""

import os
import pathlib

from zero_train.app import (
    chart,
    charts,
    configuration,
    curve,
    figures,
    imitation,
    progress,
    speed,
    StoredRun,
    write_page,
)


def write_report(run_dir: str | os.PathLike[str]) -> pathlib.Path:
    """Writes `report.html` into the folder of a run, and replaces an earlier one."""
    folder = pathlib.Path(run_dir).absolute()
    run = StoredRun.read(folder)
    name = run.config.get("env", "")
    games = any("score" in row for row in run.evaluations)
    last = run.evaluations[-1] if run.evaluations else {}
    shown = {"score against random": f"{last['score']:.1%}"} if "score" in last else {}
    if "return_mean" in last:
        shown = {"return": f"{last['return_mean']:.4g} ± {last['return_se']:.2g}"}
    strength = (
        chart(
            "Score",
            "Of the network without a search, against random moves.",
            curve(run.evaluations, "score"),
            percent=True,
        )
        if games
        else chart(
            "Return", "Of the network without a search.", curve(run.evaluations, "return_mean")
        )
    )
    body = [
        figures(progress(run) | shown),
        charts(
            "Strength",
            strength,
            chart(
                "Length of games",
                "Mean and median of the games that ended in a step of training.",
                curve(run.metrics, "episode_length_mean", "mean"),
                curve(run.metrics, "episode_length_median", "median"),
            ),
        ),
        imitation(
            run,
            value_loss="The loss of the value's target.",
            value_error="Mean distance between the predicted value and its target.",
        ),
        speed(run),
        configuration(run.config),
    ]
    return write_page(folder, f"{name}: {folder.name}", body)
