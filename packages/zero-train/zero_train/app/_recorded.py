"""What a run folder tells of its run, and the parts of a report that every run has."""

import dataclasses
import os
import pathlib
from typing import Any

from .. import read_json, read_lines
from ._page import chart, charts
from ._series import curve
from ._view import clock, number


@dataclasses.dataclass(frozen=True)
class Recorded:
    """A run as its folder has it: see [`zero_train.RunFolder`][].

    What is missing is empty; a line that was cut short is left out.

    **Attributes:**

    - `config`: what it was started with.
    - `metrics`, `timings`, `evaluations`: their lines, in order.
    """

    config: dict[str, Any]
    metrics: list[dict[str, Any]]
    timings: list[dict[str, Any]]
    evaluations: list[dict[str, Any]]

    @classmethod
    def read(cls, folder: str | os.PathLike[str]) -> "Recorded":
        """Reads the folder of a run that may be under way, or may hardly have begun."""
        folder = pathlib.Path(folder)
        config = folder / "config.json"
        return cls(
            config=read_json(config) if config.exists() else {},
            metrics=read_lines(folder / "metrics.jsonl"),
            timings=read_lines(folder / "timings.jsonl"),
            evaluations=read_lines(folder / "evaluations.jsonl"),
        )


def progress(run: Recorded) -> dict[str, str]:
    """How far a run has come, for [`zero_train.app.figures`][]."""
    shown = {}
    if run.metrics:
        shown["steps"] = number(run.metrics[-1]["step"])
        for name in ("games", "positions"):
            if run.metrics[-1].get(name) is not None:
                shown[name] = f"{run.metrics[-1][name]:,.0f}"
    if run.timings:
        shown["training time"] = clock(sum(row.get("seconds") or 0 for row in run.timings))
    return shown


def speed(run: Recorded) -> str:
    """A section of charts: how fast a run was."""
    return charts(
        "Speed",
        *(
            chart(heading, caption, curve(run.timings, name), from_zero=True)
            for heading, caption, name in (
                ("Positions a second", "Collected while also learning.", "positions_per_second"),
                ("Games a second", "Finished while also learning.", "games_per_second"),
            )
        ),
    )


def imitation(run: Recorded, *, value_loss: str, value_error: str) -> str:
    """A section of charts: what a network learned from plans, by the metrics of
    [`zero_train.AlphaZero`][] and [`zero_train.ExpertIteration`][].

    **Arguments:**

    - `value_loss`, `value_error`: what these two are, in a sentence.
    """
    return charts(
        "Learning",
        chart(
            "Policy loss",
            "Cross-entropy to the plan, in nats; its floor is the plan's own entropy.",
            curve(run.metrics, "policy_loss", "loss"),
            curve(run.metrics, "target_entropy", "floor"),
        ),
        chart("Value loss", value_loss, curve(run.metrics, "value_loss")),
        chart(
            "Policy entropy",
            "How undecided the network is about the next move, in nats.",
            curve(run.metrics, "policy_entropy"),
        ),
        chart("Value error", value_error, curve(run.metrics, "value_error")),
    )
